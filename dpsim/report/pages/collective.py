"""The page of `dpsim collective`: bandwidth by size, its interval and limit, and what is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from dpsim._version import __version__
from dpsim.core.units import show
from dpsim.report.collective import (
    WORDS,
    chosen,
    group_columns,
    healthy_told,
    name_of,
    size_text,
    wire_limit,
)
from dpsim.report.pages import Chart, Page, Section, Sheet, Words
from dpsim.report.pages.charts import Spec, Tip, measure
from dpsim.report.text import clean, number

if TYPE_CHECKING:
    from dpsim.predict.collective import Line, RankGroup, Setup


def page(operation: str, setup: Setup, groups: Sequence[RankGroup]) -> str:
    """The page of `groups`, a line each."""
    where = clean(setup.machine.name)
    figure = Chart("busbw", f"{operation} on {where}", chart(operation, setup, groups))
    changes = [line for group in groups for line in _changes(group)]
    sections = [Section("", [figure])]
    if changes:
        sections.append(Section("Where the choice changes", [Words(changes)]))
    for group in groups:
        sheet = Sheet(group_columns(group), WORDS, name_of(group))
        sections.append(Section(f"{name_of(group)} ({clean(group.kind)})", [sheet]))
    if told := healthy_told(groups):
        sections.append(Section("What healthy machines take", [Words(told)]))
    best = max((line for group in groups for line in group.lines), key=lambda line: line.busbw)
    return Page(
        f"{operation} on {where}", f"{operation} on {where}", sections,
        f"Predicted by dpsim {__version__}. Sizes, algorithm and bus bandwidth are those of "
        "nccl-tests; intervals are meant to hold in 90 % of cases. All numbers are in "
        "collective.json beside this page.",
        ", ".join(name_of(group) for group in groups),
        f"Up to {_rate(best.busbw)} of bus bandwidth, on {best.ranks:,} ranks at "
        f"{size_text(best.size)} ({chosen(best)}).", ", and busbw.svg the picture",
    ).render()  # fmt: skip


def _rate(value: float) -> str:
    return f"{number(value / 1e9)} GB/s"


def _changes(group: RankGroup) -> list[str]:
    """From which size on which algorithm and protocol are chosen."""
    steps = [group.lines[0]]
    steps += [b for a, b in pairwise(group.lines) if chosen(a) != chosen(b)]
    told = [f"{chosen(line)} from {size_text(line.size)}" for line in steps if chosen(line)]
    return [f"{name_of(group)}: {', '.join(told)}."] if told else []


def chart(operation: str, setup: Setup, groups: Sequence[RankGroup]) -> Spec:
    """Bandwidth and time of `groups` by size, a line each, and what was measured beside them."""
    sizes = sorted({line.size for group in groups for line in group.lines})
    limits = {name_of(g): found for g in groups if (found := wire_limit(operation, setup, g))}
    told: dict[tuple[float, str], list[str]] = {}
    for name, (value, what) in limits.items():
        told.setdefault((value, what), []).append(name)
    levels = [
        {"y": value / 1e9, "measure": 0, "text": f"a ring's limit: {what}, {_rate(value)}"
         + (f" ({', '.join(names)})" if len(told) > 1 else "")}
        for (value, what), names in told.items()
    ]  # fmt: skip
    series = [one for n, group in enumerate(groups) for one in _series(group, n)]
    return {
        "kind": "lines",
        "x": {"label": "size", "log": True, "ticks": [[s, size_text(s)] for s in sizes]},
        "measures": [
            measure("bus bandwidth", "bus bandwidth [GB/s]", log=True),
            measure("time", "time [us]", log=True),
            measure("algorithm bandwidth", "algorithm bandwidth [GB/s]", log=True),
        ],
        "series": series,
        "levels": levels,
        "bandNote": "90 % interval" + _diamonds(series),
    }


def _diamonds(series: Sequence[Spec]) -> str:
    """What diamonds on the lines are, where there are some; measured points have a legend of their
    own, and diamonds as well."""
    if not any(point.get("change") for one in series for point in one["points"]):
        return ""
    where = " on a line" if any(one.get("style") == "marks" for one in series) else ""
    return f"; a diamond{where} is where another algorithm or protocol is chosen"


def _series(group: RankGroup, n: int) -> list[Spec]:
    before = [None, *group.lines]
    points = [
        {"x": line.size, "y": values(line, line.seconds, line.low, line.high),
         "tip": _tip(group, line),
         "change": last is not None and chosen(last) != chosen(line)}
        for last, line in zip(before, group.lines, strict=False)
    ]  # fmt: skip
    found: list[Spec] = [{"name": name_of(group), "colour": n % 8, "points": points}]
    measured = [
        {"x": line.size, "y": values(line, line.measured), "tip": _tip(group, line)}
        for line in group.lines
        if line.measured
    ]
    if measured:
        found.append({"name": f"{name_of(group)}, measured", "style": "marks",
                      "colour": (n + 1) % 8, "points": measured})  # fmt: skip
    return found


def values(line: Line, *times: float) -> list[list[float]]:
    """Bus bandwidth [GB/s], time [us] and algorithm bandwidth [GB/s], with their intervals where
    their ends are given too."""
    order = (0, 2, 1)[: len(times)]
    rates = [[value * line.seconds / times[k] / 1e9 for k in order[: len(times)]]
             for value in (line.busbw, line.algbw)]  # fmt: skip
    return [rates[0], [time * 1e6 for time in times], rates[1]]


def _tip(group: RankGroup, line: Line) -> Tip:
    found = [[f"{size_text(line.size)}, {name_of(group)}"],
             ["time", f"{show(line.seconds, 's')} ({show(line.low, 's', 3)} to "
              f"{show(line.high, 's', 3)})"],
             ["bus bandwidth", _rate(line.busbw)], ["chosen", chosen(line) or "nothing"],
             ["bound by", clean(line.bound)]]  # fmt: skip
    if line.measured:
        found.append(["measured", show(line.measured, "s")])
    return found
