"""What reports of both kinds of validation have: tables, sentences and a scatter plot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsim.report.figures import bars, look, tick
from dpsim.report.text import clean, error, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

Document = Mapping[str, Any]
#: lines of a reason that are named at most
NAMED = 5
#: dots whose intervals a picture still shows apart
CROWD = 150


class Titled(NamedTuple):
    """A table under a title; its first column is of words."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


class Dot(NamedTuple):
    """A row as it is drawn: what it is, and its two values with the ends of the predicted one's
    90 % interval, in the unit of its view."""

    name: str
    measured: float
    predicted: float
    low: float
    high: float


@dataclass(frozen=True)
class View:
    """A validation as people see it.

    dots  the rows that have both values, in groups with a name
    unit  of the two values, in words
    """

    title: str
    tables: Sequence[Titled]
    sentences: Sequence[str]
    figure: Callable[[], Figure]
    dots: Callable[[], Sequence[tuple[str, Sequence[Dot]]]]
    unit: str


def counted(document: Document) -> str:
    """What became of the rows: "12 scored, 3 refused"."""
    return ", ".join(f"{n:,} {clean(status)}" for status, n in document["status"].items())


def baselines(figures: Document, names: Iterable[str]) -> list[str]:
    """The median errors of the baselines called `names`."""
    others = (figures["baselines"].get(name) for name in names)
    return [error(other["median_error"]) if other else "" for other in others]


def refusals(
    counts: Mapping[str, int],
    most: int,
    said: Callable[[str], str],
    where: Mapping[str, Sequence[int]] | None = None,
) -> list[str]:
    """The first `most` reasons for which rows are refused; `where`: lines of these rows."""
    lines = [
        f"Refused, {n:,} row{'s' * (n != 1)}{_lines(where[reason]) if where else ''}: "
        f"{said(reason)}"
        for reason, n in list(counts.items())[:most]
    ]
    rest = len(counts) - most
    return [*lines, f"and {rest} more reasons, see validation.json"] if rest > 0 else lines


def _lines(places: Sequence[int]) -> str:
    """The lines of rows in words, as far as a few go."""
    shown = ", ".join(str(line) for line in places[:NAMED]) + ", …" * (len(places) > NAMED)
    return f" (line{'s' * (len(places) != 1)} {shown})"


def scatter(
    axes: Axes, place: int, name: str, points: Sequence[tuple[float, float]], **style: Any
) -> None:
    """The measured and predicted values of group number `place`."""
    axes.plot(
        *zip(*points, strict=True), linestyle="none", markeredgewidth=0,
        label=f"{name} ({len(points):,})", **look(place), **style,
    )  # fmt: skip


def intervals(axes: Axes, place: int, dots: Sequence[Dot]) -> None:
    """The 90 % intervals of group number `place`, thin enough to see others behind them."""
    x, y = [dot.measured for dot in dots], [dot.predicted for dot in dots]
    ends = bars(y, [(dot.low, dot.high) for dot in dots])
    axes.errorbar(x, y, yerr=ends, fmt="none", ecolor=look(place)["color"], elinewidth=0.8,
                  alpha=0.45, label=None if place else "90 % intervals")  # fmt: skip


def square(axes: Axes, low: float, high: float, at: Callable[[], Locator]) -> None:
    """The same range and the same ticks on both axes."""
    axes.set(xlim=(low, high), ylim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        tick(axis, at(), plain)
