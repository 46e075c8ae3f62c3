"""The charts of a run's page: the curve, its efficiency, steps, causes of the interval, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpsim.core.units import dollars, show
from dpsim.predict.answer import Answer, NoLaws
from dpsim.predict.laws import amdahl
from dpsim.predict.point import Point, computed
from dpsim.report.curve import bounds, curves, measured_values, ratio
from dpsim.report.pages import charts
from dpsim.report.pages.charts import Spec, Tip, measure
from dpsim.report.points import interval, rate, settings
from dpsim.report.sentences import widest_cause
from dpsim.report.text import NOT_HELD, PARTS, bottleneck, brief, duration, number, percent, ranks

#: bars of steps, and points that a slider walks through: the first ones are drawn
MOST = 40
_COLOURS = 8


def name_of(point: Point) -> str:
    """A point among others: "32 ranks, cluster.oversubscription = 2"."""
    return ", ".join(part for part in (ranks(point.ranks), settings(point, short=True)) if part)


def tip_of(point: Point) -> Tip:
    """What is told of a point of the curve."""
    found = [[name_of(point)], ["step", show(point.step_time_s, "s")]]
    found += [["90 % interval", interval(point)]]
    if cause := widest_cause(point.interval):
        found.append(["widened most by", brief(cause, 60)])
    found += [["throughput", rate(point)]] if point.throughput_per_s is not None else []
    found += [["speed-up", number(point.speedup)]] if point.speedup is not None else []
    if point.efficiency is not None:
        found.append(["efficiency", percent(point.efficiency)])
    found.append(["memory", show(point.memory.bytes, "B", 3)])
    found += [["to train", duration(point.run.time_s)]] if point.run else []
    found += [["cost", dollars(point.money.usd)]] if point.money else []
    return [*found, ["limited by", bottleneck(point.bottleneck)]]


def speedup_chart(answer: Answer) -> Spec | None:
    """Speed-up and what else grows, on logarithmic axes; None without a curve."""
    series = curves(answer)
    shown = [point for points in series.values() for point in points]
    if len({point.ranks for point in shown}) < 2:
        return None
    unit = brief(shown[0].throughput_unit, 20)
    measures = [
        measure("speed-up", "speed-up (times)", log=True),
        measure("throughput", f"throughput [{unit}]", log=True),
        measure("step time", "time per step [s]"),
    ]
    lines = _series(series, _growth)
    base = shown[0]
    return _lines(answer, measures, [*_guides(answer, base, shown), *lines,
                                     *_measured(answer, "speedup", len(measures))])  # fmt: skip


def efficiency_chart(answer: Answer) -> Spec | None:
    """Efficiency on a linear axis, with the point at which it bends; None without a curve."""
    series = {
        name: kept
        for name, points in curves(answer).items()
        if (kept := [point for point in points if point.efficiency is not None])
    }
    if len({point.ranks for points in series.values() for point in points}) < 2:
        return None
    lines = _series(series, lambda p: [[ratio(p, "efficiency"), *bounds(p, "efficiency")]])
    made = _lines(answer, [measure("efficiency", "efficiency", percent=True)],
                  [*lines, *_measured(answer, "efficiency", 1)])  # fmt: skip
    made["levels"] = [{"y": 1.0, "text": "linear scaling"}]
    bend = None if isinstance(answer.laws, NoLaws) else answer.laws.bend
    if bend is not None and len(series) == 1:
        cause = PARTS.get(bend.part, brief(bend.part, 40))
        made["marks"] = [{"x": bend.ranks, "text": f"below 90 %: {cause}"}]
    return made


def _growth(point: Point) -> list[list[float]]:
    """Speed-up, throughput and step time with their intervals."""
    low, high = point.interval.low, point.interval.high
    step = point.step_time_s
    flow = point.throughput_per_s or 0.0
    fast, slow = (flow * step / low if low else flow), (flow * step / high if high else flow)
    return [[ratio(point, "speedup"), *bounds(point, "speedup")], [flow, slow, fast],
            [step, low, high]]  # fmt: skip


def _lines(answer: Answer, measures: Sequence[Spec], series: Sequence[Spec]) -> Spec:
    points = computed(answer.points)
    cause = widest_cause(max(points, key=lambda p: p.ranks).interval)
    made: Spec = {
        "kind": "lines",
        "hollow": NOT_HELD,
        "x": {"label": "ranks (devices)", "log": True,
              "ticks": charts.ticks((p.ranks for p in points), lambda v: f"{v:,}")},
        "measures": list(measures),
        "series": list(series),
    }  # fmt: skip
    if cause:
        made["bandNote"] = f"90 % interval, widened most by: {brief(cause, 60)}"
    return made


def _series(series: Mapping[str, Sequence[Point]], values: Any) -> list[Spec]:
    return [
        {
            "name": brief(name, 60) or "predicted",
            "colour": place % _COLOURS,
            "points": [
                {"x": p.ranks, "y": values(p), "tip": tip_of(p), "hollow": not p.memory.holds}
                for p in points
            ],
        }
        for place, (name, points) in enumerate(series.items())
    ]


def _guides(answer: Answer, base: Point, shown: Sequence[Point]) -> list[Spec]:
    """The ideal line, and under strong scaling Amdahl's; of the speed-up alone."""
    counts = sorted({p.ranks for p in shown})
    ends = [(counts[0], counts[0] / base.ranks), (counts[-1], counts[-1] / base.ranks)]
    found = [_guide("ideal (linear)", 7, ends)]
    laws = answer.laws
    if isinstance(laws, NoLaws) or answer.scaling != "strong" or len(curves(answer)) > 1:
        return found
    serial, at = laws.amdahl.serial_fraction, laws.amdahl.points[0]
    alone = at.law_s * amdahl(serial, at.ranks)
    steps = [counts[0] * (counts[-1] / counts[0]) ** (k / 40) for k in range(41)]
    fine = [(n, base.step_time_s / alone * amdahl(serial, n)) for n in steps]
    return [*found, _guide(f"Amdahl's law (serial {percent(serial)})", 6, fine)]


def _guide(name: str, colour: int, points: Sequence[tuple[float, float]]) -> Spec:
    made = [{"x": x, "y": [[y], None, None], "tip": []} for x, y in points]
    return {"name": name, "style": "guide", "colour": colour, "points": made}


def _measured(answer: Answer, key: str, count: int) -> list[Spec]:
    """The measured points, those calibrated on apart."""
    found = []
    for role, colour in (("measured", 1), ("measured, calibrated on", 4)):
        points = [
            {"x": n, "y": [[value], *[None] * (count - 1)],
             "tip": [[role], ["ranks", f"{n:,}"], [key.replace("up", "-up"), number(value)]]}
            for n, value, used in measured_values(answer, key)
            if used is role.endswith("on")
        ]  # fmt: skip
        if points:
            found.append({"name": role, "style": "marks", "colour": colour, "points": points})
    return found


def steps_chart(answer: Answer) -> Spec:
    """Where the time of every point goes."""
    shown = computed(answer.points)[:MOST]
    named = [(name_of(point), point) for point in shown]
    return charts.step_bars(named, "Where the time of a step goes")


def causes_chart(answer: Answer) -> Spec:
    """What widens the interval of every point, the last first shown."""
    shown = computed(answer.points)[:MOST]
    named = [(name_of(p), charts.cause_ranges(p.interval.causes)) for p in shown]
    return charts.frames("at", named)


def memory_chart(answer: Answer) -> Spec:
    """Memory on one device by part, at every point; the fullest is first shown."""
    shown = computed(answer.points)[:MOST]
    fullest = max(range(len(shown)), key=lambda k: shown[k].memory.bytes)
    return charts.frames("at", [(name_of(p), _memory(p)) for p in shown], fullest)


def _memory(point: Point) -> Spec:
    whole = point.memory.bytes or 1.0
    parts = sorted(point.memory.parts.items(), key=lambda item: -item[1])
    rows = [
        (name, size / 1e9, f"{size / 1e9:,.2f} GB", [["share", percent(size / whole)]])
        for name, size in [*parts, ("total", point.memory.bytes)]
    ]
    return charts.amounts("Memory on one device", "GB", rows)
