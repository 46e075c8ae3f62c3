"""Figures: the colours and the style that all share, and how they are saved."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Okabe and Ito, "Color universal design", 2008: told apart with any colour vision
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, YELLOW, BLACK, GREY = "#56B4E9", "#E69F00", "#222222", "#767676"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY, BLACK, GREY)
SPLIT = (
    ("compute_s", "compute", BLUE),
    ("exposed_communication_s", "exposed communication", ORANGE),
    ("bubble_s", "pipeline bubble", PURPLE),
    ("stall_s", "stall (host, slower rank)", YELLOW),
)
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dpsim",
    "svg.fonttype": "path",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
}


def draw(make: Callable[[], Figure], png: Path, svg: Path) -> None:
    """Save the figure of `make` in our style; the same figure gives the same bytes of the SVG."""
    with styled():
        save(make(), png, svg)


def save(figure: Figure, path_png: Path, path_svg: Path) -> None:
    """Write `figure` into both files, without dates and program versions."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    FigureCanvasAgg(figure)
    figure.savefig(path_png, format="png", dpi=150, metadata={"Software": None})
    figure.savefig(path_svg, format="svg", metadata=nothing)


@contextmanager
def styled() -> Iterator[None]:
    """Our style whatever the user's own; a name in a script that the font lacks is no problem."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def time_scale(times: list[float]) -> tuple[float, str]:
    """The factor from seconds, and the unit, for the longest of `times`."""
    longest = max(times, default=1.0)
    return next(((f, u) for f, u in ((1.0, "s"), (1e3, "ms")) if longest * f >= 1), (1e6, "us"))
