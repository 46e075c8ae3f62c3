"""The charts of a run with failures: where its time goes, and how one drawn run went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpsim.life.spells import Life
from dpsim.predict.lived import told
from dpsim.predict.point import Point
from dpsim.report import figures
from dpsim.report.life_picture import KINDS
from dpsim.report.pages import Chart, charts
from dpsim.report.pages.charts import Spec
from dpsim.report.pages.curve import MOST, name_of
from dpsim.report.text import duration, percent, ranks

if TYPE_CHECKING:
    from dpsim.predict.prediction import Prediction

#: spells of a run that a page holds
MOST_SPELLS = 4000


def life_charts(prediction: Prediction) -> Iterator[Chart]:
    """Bars of labels for every point with failures, and one drawn run of the largest."""
    pairs = [(one.case, one.point) for one in prediction.outcomes
             if isinstance(one.point, Point) and one.point.life]  # fmt: skip
    if not pairs:
        return
    title = "Time to train with failures"
    yield Chart("life", f"{title}: mean of drawn runs", _bars([p for _, p in pairs][-MOST:], title))
    case, largest = max(pairs, key=lambda pair: pair[1].ranks)
    one = told(case, largest)
    if one is not None:
        spec = _run(one)
        about = f"One drawn run on {ranks(largest.ranks)}"
        more = "" if spec["end"] >= one.end else f": its first {duration(spec['end'])}"
        yield Chart("drawn", about + more, spec)


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


def _run(one: Life) -> Spec:
    spells = one.spells[:MOST_SPELLS]
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
