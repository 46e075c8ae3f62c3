"""Who waits for whom: when the ranks of a group reach each of its collectives.

A collective starts when its last rank has reached it (docs/assumptions.md, A1-A6), so the spread
of the arrivals is time that the others lose unless they have something else to do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from dpsim.compile.timeline import FED, Span
from dpsim.core.units import show
from dpsim.report import figures
from dpsim.report.figures import BLACK, BLUE, LEMON, ORANGE, YELLOW
from dpsim.report.text import brief, clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: collectives, and ranks, that can be told apart on one page
MOST_ROWS, MOST_RANKS = 40, 32


@dataclass(frozen=True)
class Arrivals:
    """One collective of one group.

    ready       when each rank reached it, from the step's start [s]
    start, end  when it ran [s]
    """

    name: str
    ready: dict[int, float]
    start: float
    end: float

    @property
    def first(self) -> float:
        return min(self.ready.values())

    @property
    def middle(self) -> float:
        """The median rank's arrival [s]."""
        return median(self.ready.values())

    @property
    def last(self) -> float:
        return max(self.ready.values())

    @property
    def spread(self) -> float:
        """How long the first rank waits for the last [s]."""
        return self.last - self.first

    @property
    def latest(self) -> int:
        """The rank that came last, the lowest of several."""
        return min(rank for rank, when in self.ready.items() if when == self.last)


def arrivals(spans: Iterable[Span]) -> list[Arrivals]:
    """The collectives of `spans` that several of their ranks take part in, in order of time.

    Ranks whose collective has one stream, group, name and end are in one group: a collective ends
    at the same time on all of its ranks.
    """
    found: dict[tuple[str, str, str, float], list[Span]] = defaultdict(list)
    for span in spans:
        if not span.on_device and not span.transfers:
            found[span.stream, span.group, span.name, span.end].append(span)
    several = [
        Arrivals(name, {s.rank: s.ready for s in group}, max(s.start for s in group), end)
        for (_, _, name, end), group in found.items()
        if len({s.rank for s in group}) > 1
    ]
    return sorted(several, key=lambda a: (a.start, a.end, a.name, min(a.ready)))


def lateness(found: Iterable[Arrivals]) -> dict[int, float]:
    """By how much ranks came after the median rank, summed over the collectives that each was the
    last to reach [s]; ranks that never were are left out."""
    late: dict[int, float] = defaultdict(float)
    for one in found:
        if one.spread > 0.0:
            late[one.latest] += one.last - one.middle
    return dict(sorted(late.items()))


def make_figure(spans: Sequence[Span], title: str, *, ranks: int = 0) -> Figure:
    """Left: every collective's arrivals.  Right: which ranks came last, and how late."""
    found = arrivals(spans)
    widest = sorted(found, key=lambda a: -a.spread)[:MOST_ROWS]
    rows = [one for one in found if one in widest]
    late = lateness(found)
    worst = sorted(late, key=lambda r: (-late[r], r))[:MOST_RANKS]
    height = 1.9 + 0.21 * max(len(rows), len(worst), 6)
    figure = figures.blank(11.0, height)
    axes = figure.subplots(1, 2, width_ratios=(2.6, 1.0)) if worst else [figure.subplots()]
    _collectives(axes[0], rows)
    _no_batch(axes[0], rows, max((s.end for s in spans if s.op == FED), default=0.0))
    if worst:
        _ranks(axes[1], {rank: late[rank] for rank in sorted(worst)})
    which = "widest" if any(one.spread > 0.0 for one in rows) else "first"
    notes = [f"the {len(rows)} {which} of {len(found):,} collectives"] * (len(rows) < len(found))
    there = len({span.rank for span in spans})
    notes += [f"{there:,} of {ranks:,} ranks"] * (there < ranks)
    notes += [f"the {len(worst)} latest of {len(late):,} ranks"] * (len(worst) < len(late))
    _title(figure, found, title, notes)
    figures.legend(figure, axes[0], 5)
    return figure


def _title(figure: Figure, found: Sequence[Arrivals], title: str, notes: Sequence[str]) -> None:
    if found:
        widest = max(found, key=lambda a: a.spread)
        about = f"arrivals spread up to {show(widest.spread, 's')} (before {clean(widest.name)})"
        if widest.spread == 0.0:
            about = "played ranks reach every collective together: all take what the slowest takes"
    else:
        about = "no collective of several ranks"
    text = "; ".join([about, *notes])
    figures.entitle(figure, f"{brief(title, 90)}\n{text}")


def _collectives(axes: Axes, rows: Sequence[Arrivals]) -> None:
    scale, unit = figures.time_scale([one.end for one in rows])
    for place, one in enumerate(rows):
        named = place == 0
        axes.barh(
            place, (one.end - one.start) * scale, left=one.start * scale, height=0.62,
            color=ORANGE, alpha=0.35, label="the collective runs" if named else None,
            gid=f"runs-{place}",
        )  # fmt: skip
        axes.plot(
            [one.first * scale, one.last * scale], [place, place], color=BLUE, linewidth=2.2,
            solid_capstyle="butt", label="first to last arrival" if named else None,
            gid=f"spread-{place}",
        )  # fmt: skip
        for when, marker, colour, label in (
            (one.middle, "o", BLUE, "median rank arrives"),
            (one.last, "|", BLACK, "last rank arrives (its number)"),
        ):
            axes.plot(
                [when * scale], [place], marker=marker, color=colour, linestyle="none",
                markersize=5 if marker == "o" else 10, markeredgewidth=1.6 * (marker == "|"),
                label=label if named else None, gid=f"{label.split()[0]}-{place}",
            )  # fmt: skip
        if one.spread > 0.0:
            axes.annotate(
                str(one.latest), (one.end * scale, place), xytext=(4, 0), va="center",
                textcoords="offset points", fontsize=7.5,
            )  # fmt: skip
    figures.named_rows(axes, [brief(one.name, 24) for one in rows], fontsize=8)
    axes.set_xlim(0.0, 1.03 * max((one.end for one in rows), default=0.0) * scale or 1.0)
    axes.set_xlabel(f"time from the step's start [{unit}]")


def _no_batch(axes: Axes, rows: Sequence[Arrivals], until: float) -> None:
    """The time in which no rank has a batch, if there is any."""
    if until:
        scale, _ = figures.time_scale([one.end for one in rows])
        axes.axvspan(0.0, until * scale, color=LEMON, alpha=0.35, label="no batch yet", gid="input")


def _ranks(axes: Axes, late: dict[int, float]) -> None:
    scale, unit = figures.time_scale(list(late.values()))
    axes.barh(
        range(len(late)), [value * scale for value in late.values()],
        height=min(0.7, 0.12 * len(late) + 0.1), color=YELLOW, gid="late",
    )  # fmt: skip
    figures.named_rows(axes, [f"rank {rank}" for rank in late], fontsize=8)
    axes.set_xlim(left=0.0)
    axes.set_xlabel(f"came after the median rank [{unit}]")
