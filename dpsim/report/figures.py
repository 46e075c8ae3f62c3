"""Figures: the colours and the style that all share, what many of them draw, how they are saved."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dpsim.report.text import NOT_HELD, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

#: Okabe and Ito, "Color universal design", 2008: told apart with any colour vision
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, YELLOW, BLACK, GREY = "#56B4E9", "#E69F00", "#222222", "#767676"
LEMON, BROWN, SILVER, PINK = "#F0E442", "#8C564B", "#BBBBBB", "#F4A6B7"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY, BLACK, GREY)
SPLIT = (
    ("compute_s", "compute", BLUE),
    ("exposed_communication_s", "exposed communication", ORANGE),
    ("bubble_s", "pipeline bubble", PURPLE),
    ("stall_s", "stall (host, slower rank)", YELLOW),
)
#: where a figure goes: a file, or memory
Place = Path | IO[bytes]
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


def draw(make: Callable[[], Figure], png: Place, svg: Place) -> None:
    """Save the figure of `make` in our style; the same figure gives the same bytes of the SVG."""
    with styled():
        save(make(), png, svg)


def save(figure: Figure, path_png: Place, path_svg: Place) -> None:
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


# -- what figures are made of ---------------------------------------------------------------------


def blank(width: float, height: float, title: str = "", size: float = 12) -> Figure:
    """An empty figure of so many inches; its title may come later, with `entitle`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        entitle(figure, title, size)
    return figure


def entitle(figure: Figure, title: str, size: float = 11) -> None:
    """Write `title` above all of `figure`."""
    figure.suptitle(title, x=0.02, ha="left", fontsize=size)


def look(place: int) -> dict[str, Any]:
    """Colour and marker of series number `place`."""
    return {"color": SERIES[place % len(SERIES)], "marker": "os^Dv"[place % 5]}


def tick(
    axis: Axis, at: Locator | Sequence[float] | None = None, said: Callable[[float], str] = number
) -> None:
    """Say values as `said` does; only `at` these places, where they are given."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, NullLocator

    if at is not None:
        axis.set_major_locator(at if isinstance(at, Locator) else FixedLocator(at))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: said(value)))


def named_rows(axes: Axes, names: Sequence[str], **style: Any) -> None:
    """A row per name, from top to bottom."""
    axes.set_yticks(range(len(names)), names, **style)
    axes.set_ylim(max(len(names), 1) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def stack(
    axes: Axes, place: int, times: Mapping[str, Any], scale: float, height: float, gid: str = ""
) -> float:
    """A bar of the parts of a step in row `place`, each labelled once; where it ends."""
    left, said = 0.0, axes.get_legend_handles_labels()[1]
    for key, name, colour in SPLIT:
        width = (times[key] or 0.0) * scale
        if width > 0:
            axes.barh(
                place, width, left=left, height=height, color=colour,
                label=None if name in said else name, gid=f"{gid}-{key}" if gid else None,
            )  # fmt: skip
            left += width
    return left


def band(
    axes: Axes,
    x: Sequence[float],
    ends: Sequence[tuple[float, float]],
    colour: str,
    label: str | None = "90 % interval",
    alpha: float = 0.12,
) -> None:
    """Intervals along `x`, where any has a width."""
    if any(low != high for low, high in ends):
        low, high = zip(*ends, strict=True)
        axes.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0, label=label)


def bars(
    values: Sequence[float], ends: Sequence[tuple[float, float]]
) -> tuple[list[float], list[float]]:
    """How far below and above `values` their intervals reach, as matplotlib's error bars want it;
    never less than nothing, whatever was rounded."""
    pairs = list(zip(values, ends, strict=True))
    return [max(v - low, 0.0) for v, (low, _) in pairs], [max(h - v, 0.0) for v, (_, h) in pairs]


def unfit(
    axes: Axes, points: Sequence[tuple[float, float]], look: Mapping[str, str], name: str
) -> None:
    """Hollow marks of the points of line `name` that do not fit in memory."""
    if points:
        label = NOT_HELD if name == "predicted" else f"{name}: {NOT_HELD}"
        axes.plot(
            *zip(*points, strict=True), linestyle="none", marker=look["marker"], markersize=6,
            markerfacecolor="white", markeredgecolor=look["color"], markeredgewidth=1.6,
            label=label,
        )  # fmt: skip


def legend(figure: Figure, axes: Axes, columns: int = 3, **style: Any) -> None:
    """The legend of `axes` below `figure`, where there is anything to say."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        style |= {"loc": "outside lower center", "ncols": columns, "fontsize": 9}
        figure.legend(handles, labels, **style)


def time_scale(
    times: Iterable[float], *, long: bool = False, least: float = 1.0
) -> tuple[float, str]:
    """The factor from seconds, and the unit, for the longest of `times`: at least 2 days, hours
    or minutes where these may be `long`, else `least` seconds or milliseconds."""
    longest = max(times, default=1.0)
    for unit, seconds in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)) if long else ():
        if longest >= 2 * seconds:
            return 1.0 / seconds, unit
    short = ((1.0, "s"), (1e3, "ms"))
    return next(((f, u) for f, u in short if longest * f >= least), (1e6, "us"))
