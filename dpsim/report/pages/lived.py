"""The charts of a run with failures: where its time goes, and how one drawn run went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpsim.life.spells import Life, Spell
from dpsim.predict.lived import told
from dpsim.predict.point import Point
from dpsim.report import figures
from dpsim.report.life_picture import KINDS
from dpsim.report.pages import Chart, charts
from dpsim.report.pages.charts import Spec, measure
from dpsim.report.pages.curve import MOST, name_of
from dpsim.report.text import brief, duration, percent, ranks

if TYPE_CHECKING:
    from dpsim.predict.prediction import Prediction

#: of a run, the share below which spells are drawn together: a page holds no more of them
LEAST = 1.0 / 4000
#: colours of lines
_COLOURS = 8


def life_charts(prediction: Prediction) -> Iterator[Chart]:
    """Bars of labels for every point with failures, and one drawn run of the largest."""
    pairs = [(one.case, one.point) for one in prediction.outcomes
             if isinstance(one.point, Point) and one.point.life]  # fmt: skip
    if not pairs:
        return
    title = "Time to train with failures"
    yield Chart("life", f"{title}: mean of drawn runs", _bars([p for _, p in pairs][-MOST:], title))
    case, largest = max(pairs, key=lambda pair: pair[1].ranks)
    by = case.scenario.training.by if case.scenario.training else None
    yield Chart("ends", "By when it has ended", _chances([p for _, p in pairs][-MOST:], by))
    one = told(case, largest)
    if one is not None:
        yield Chart("drawn", f"One drawn run on {ranks(largest.ranks)}", _run(one))


def _bars(points: list[Point], title: str) -> Spec:
    shares = [{"step": p.life.goodput, **p.life.badput} if p.life else {} for p in points]
    used = [key for key in KINDS if any(share.get(key, 0.0) > 0 for share in shares)]
    times = [p.run.time_s if p.run else 0.0 for p in points]
    factor, unit = figures.time_scale(times, long=True)
    rows = []
    for point, share, time in zip(points, shares, times, strict=True):
        values = [share.get(key, 0.0) * time for key in used]
        texts = [f"{duration(v)} ({percent(v / time if time else 0.0)})" for v in values]
        rows.append({"name": name_of(point), "values": [v * factor for v in values],
                     "texts": texts, "said": duration(time), "tip": []})  # fmt: skip
    return {
        "kind": "bars",
        "title": title,
        "unit": f"time [{unit}]",
        "share": "as shares of the time",
        "parts": [{"name": KINDS[key][0], "colour": charts.colour(KINDS[key][1])} for key in used],
        "rows": rows,
    }


def _chances(points: list[Point], by: float | None) -> Spec:
    """With what probability a run has ended by when, a line for each point."""
    lines = [(point, point.life.chances) for point in points if point.life]
    factor, unit = figures.time_scale((pairs[-1][0] for _, pairs in lines), long=True)
    made: Spec = {
        "kind": "lines",
        "x": {"label": f"time since the start [{unit}]", "log": False},
        "measures": [measure("probability", "has ended", percent=True)],
        "series": [
            {
                "name": brief(name_of(point), 60),
                "colour": place % _COLOURS,
                "points": [
                    {"x": time * factor, "y": [[share]],
                     "tip": [[name_of(point)], ["ended by", duration(time)],
                             ["probability", percent(share)]]}
                    for time, share in pairs
                ],
            }
            for place, (point, pairs) in enumerate(lines)
        ],
    }  # fmt: skip
    if by is not None:
        made["marks"] = [{"x": by * factor, "text": "training.by"}]
    return made


def seen(one: Life) -> list[Spell]:
    """The spells of a run as they are drawn: neighbours that are too short to be seen are one, with
    the label that most of it has, so that thousands of short stops do not hide what lies between
    them."""
    found: list[Spell] = []
    some: dict[str, float] = {}

    def close(end: float) -> None:
        if some:
            most = max(some, key=lambda label: some[label])
            begin = found[-1].end if found else 0.0
            if found and found[-1].label == most:
                begin = found.pop().begin
            found.append(Spell(begin, end, most, 0.0))
            some.clear()

    for spell in one.spells:
        length = spell.end - spell.begin
        if length >= LEAST * one.end:
            close(spell.begin)
        some[spell.label] = some.get(spell.label, 0.0) + length
        if sum(some.values()) >= LEAST * one.end:
            close(spell.end)
    close(one.end)
    return found


def _run(one: Life) -> Spec:
    spells = seen(one)
    there = {spell.label for spell in spells}
    kinds = [key for key in KINDS if key in there]
    factor, unit = figures.time_scale([spells[-1].end], long=True)
    boxes = [[s.begin, s.end, kinds.index(s.label), 0, KINDS[s.label][0], ""] for s in spells]
    return {
        "kind": "timeline",
        "end": spells[-1].end,
        "factor": factor,
        "unit": unit,
        "axis": "time from the run's start",
        "kinds": [{"name": KINDS[key][0], "colour": charts.colour(KINDS[key][1])} for key in kinds],
        "rows": [{"name": "the run", "lanes": ["run"], "boxes": boxes}],
        "notes": {},
    }
