"""Curves: speed-up and efficiency against ranks, or where a step's time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsim.core.units import show
from dpsim.predict.answer import Answer, NoLaws
from dpsim.predict.laws import amdahl
from dpsim.predict.point import Point, computed
from dpsim.report import figures
from dpsim.report.figures import BLACK, GREY, ORANGE, SERIES, YELLOW
from dpsim.report.points import settings
from dpsim.report.sentences import scaling_title, widest_cause
from dpsim.report.text import PARTS, brief, percent, ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: bars that can be told apart
MOST_BARS = 24
_DASHED: Any = (0, (5, 3))
#: by how much the ends of a step's interval differ before its level is worth telling
_SURE = 1.1


def make_figure(answer: Answer) -> Figure:
    """The curve where there are several counts of ranks, bars of the step's parts otherwise."""
    series = curves(answer)
    if len({p.ranks for points in series.values() for p in points}) < 2:
        return _bars(answer)
    return _curve(answer, series)


def curves(answer: Answer) -> dict[str, list[Point]]:
    """The points that have a speed-up, by what else the sweep changed, in the order of ranks."""
    found: dict[str, list[Point]] = {}
    for point in computed(answer.points):
        if point.speedup is not None:
            found.setdefault(settings(point), []).append(point)
    return {name: sorted(points, key=lambda p: p.ranks) for name, points in found.items()}


def ratio(point: Point, key: str) -> float:
    """The speedup or efficiency of a point that has one, by name."""
    return float(getattr(point, key))


def bounds(point: Point, key: str) -> tuple[float, float]:
    """The 90 % interval of `key` (speedup or efficiency), a ratio to the first point."""
    scale = ratio(point, key) / point.efficiency if point.efficiency else 1.0
    return ratio(point, "efficiency_low") * scale, ratio(point, "efficiency_high") * scale


def measured_values(answer: Answer, key: str) -> list[tuple[int, float, bool]]:
    """(ranks, speedup or efficiency, calibrated?) of the measured points, on the curve's scale."""
    values = []
    for at in answer.measured:
        for point in computed(answer.points):
            if point.ranks == at.ranks and point.speedup is not None:
                value = ratio(point, key) * at.throughput_per_s / ratio(point, "throughput_per_s")
                values.append((at.ranks, value, at.role == "calibrated"))
                break
    return values


# -- the curve ------------------------------------------------------------------------------------


def _curve(answer: Answer, series: dict[str, list[Point]]) -> Figure:
    figure = figures.blank(8.0, 7.4, _title(answer))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.4, 1.0))
    base = next(p for p in computed(answer.points) if p.speedup is not None)
    counts = sorted({p.ranks for points in series.values() for p in points})
    _laws(above, answer, base, counts, single=len(series) == 1)
    for axes, key in ((above, "speedup"), (below, "efficiency")):
        for place, (name, points) in enumerate(series.items()):
            label = brief(name, 60) or "predicted"
            _line(axes, points, key, SERIES[place % len(SERIES)], label)
        _measured(axes, answer, key)
    _axes(above, below, base, counts)
    _bend_mark(below, answer, series)
    widest = max(map(len, above.get_legend_handles_labels()[1]))
    figures.legend(figure, above, max(1, min(3, 110 // (widest + 8))))
    return figure


def _title(answer: Answer) -> str:
    return f"{brief(answer.name, 72)}\n{scaling_title(answer)}"


def _laws(axes: Axes, answer: Answer, base: Point, counts: list[int], *, single: bool) -> None:
    """The ideal line, and under strong scaling Amdahl's."""
    import numpy as np

    ends = [counts[0], counts[-1]]
    axes.plot(
        ends, [n / base.ranks for n in ends], color=GREY, linestyle=_DASHED, linewidth=1.3,
        label="ideal (linear)", gid="ideal",
    )  # fmt: skip
    if not single or isinstance(answer.laws, NoLaws) or answer.scaling != "strong":
        return
    serial, at = answer.laws.amdahl.serial_fraction, answer.laws.amdahl.points[0]
    alone = at.law_s * amdahl(serial, at.ranks)
    fine = np.geomspace(counts[0], counts[-1], 200)
    speed = [base.step_time_s / alone * amdahl(serial, float(n)) for n in fine]
    axes.plot(
        fine, speed, color=BLACK, linestyle=(0, (1, 1.2)), linewidth=1.7, zorder=3, gid="amdahl",
        label=f"Amdahl's law (serial fraction {percent(serial)})",
    )  # fmt: skip


def _line(axes: Axes, points: list[Point], key: str, colour: str, label: str) -> None:
    x, y = [p.ranks for p in points], [ratio(p, key) for p in points]
    cause = widest_cause(max(points, key=lambda p: p.ranks).interval)
    named = "90 % interval" if label == "predicted" else f"{label}: 90 % interval"
    named += f", most of it: {brief(cause, 40)}" if cause else ""
    figures.band(axes, x, [bounds(p, key) for p in points], colour, named, alpha=0.16)
    axes.plot(
        x, y, color=colour, linewidth=2.0, marker="o", markersize=5, label=label, gid=f"line-{key}"
    )
    hollow = [(p.ranks, ratio(p, key)) for p in points if not p.memory.holds]
    figures.unfit(axes, hollow, {"color": colour, "marker": "o"}, label)


def _measured(axes: Axes, answer: Answer, key: str) -> None:
    values = measured_values(answer, key)
    for calibrated, marker, size, colour, label in (
        (False, "D", 7.5, ORANGE, "measured"),
        (True, "*", 13, YELLOW, "measured, calibrated on"),
    ):
        chosen = [(n, v) for n, v, used in values if used is calibrated]
        if chosen:
            axes.plot(
                *zip(*chosen, strict=True), linestyle="none", marker=marker, markersize=size,
                color=colour, markeredgecolor=BLACK, markeredgewidth=0.9, zorder=4, label=label,
                gid=f"measured-{key}",
            )  # fmt: skip


def _axes(above: Axes, below: Axes, base: Point, counts: list[int]) -> None:
    above.set(xscale="log", yscale="log")
    below.set_xscale("log")
    margin = (counts[-1] / counts[0]) ** 0.05
    above.set_xlim(counts[0] / margin, counts[-1] * margin)
    figures.tick(above.yaxis, _round_ticks(*above.get_ylim()))
    figures.tick(below.xaxis, _spaced(counts), lambda v: f"{v:,.0f}")
    figures.tick(below.yaxis, said=lambda v: f"{v * 100:.0f}")
    below.set_ylim(0.0, max(1.08, below.get_ylim()[1]))
    above.set_ylabel(f"speed-up over {ranks(base.ranks)} (times)")
    below.set_ylabel("efficiency [%]")
    below.set_xlabel("ranks (devices)")
    below.axhline(1.0, color=GREY, linestyle=_DASHED, linewidth=1.3)
    rate: Any = base.throughput_per_s
    right = above.secondary_yaxis("right", functions=(lambda v: v * rate, lambda v: v / rate))
    figures.tick(right.yaxis, _round_ticks(*(v * rate for v in above.get_ylim())))
    right.set_ylabel(f"throughput [{brief(base.throughput_unit, 20)}]{_level(base)}")


def _level(base: Point) -> str:
    """How unsure the throughput of all points together is, of which the band of speed-ups has
    nothing; "" where it is sure."""
    step, found = base.step_time_s, base.interval
    if not 0 < found.low < found.high or found.high < _SURE * found.low:
        return ""
    return f", its level x {step / found.high:.2g} to {step / found.low:.2g} (90 %)"


def _round_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10 … inside an interval; powers of ten alone where it is wide."""
    wide = high / low > 3e3
    powers = (10.0**e for e in range(-12, 19))
    ticks = [p * m for p in powers for m in ((1,) if wide else (1, 2, 5)) if low <= p * m <= high]
    return ticks if len(ticks) > 1 else [low, high]


def _spaced(counts: list[int]) -> list[int]:
    """The counts, without those whose labels would run into the one before."""
    width = (counts[-1] / counts[0]) ** (1 / 16)
    kept = [counts[0]]
    for count in counts[1:]:
        if count / kept[-1] >= width:
            kept.append(count)
    return kept


def _bend_mark(axes: Axes, answer: Answer, series: dict[str, list[Point]]) -> None:
    """Where efficiency first falls below 90 %, and why."""
    bend = None if isinstance(answer.laws, NoLaws) else answer.laws.bend
    if bend is None or len(series) != 1:
        return
    (points,) = series.values()
    at = next((p for p in points if p.ranks == bend.ranks), None)
    if at is None:
        return
    cause = PARTS.get(bend.part, brief(bend.part, 40))
    axes.axvline(at.ranks, color=GREY, linewidth=1.0, linestyle=":")
    text = f"first below 90 % at {ranks(at.ranks)}: {cause}"
    axes.set_title(text, loc="right", fontsize=9, color="#444444", pad=3.0)


# -- one count: bars ------------------------------------------------------------------------------


def _bars(answer: Answer) -> Figure:
    """Where the step's time goes at every point, largest number of points that can be read."""
    shown = computed(answer.points)[:MOST_BARS]
    figure = figures.blank(8.0, 2.6 + 0.42 * len(shown), _title(answer))
    axes = figure.subplots()
    scale, unit = figures.time_scale([p.step_time_s for p in shown])
    for place, point in enumerate(shown):
        _bar(axes, place, point, scale)
    figures.named_rows(axes, [brief(settings(p), 40) or ranks(p.ranks) for p in shown])
    longest = max((p.interval.high * scale for p in shown), default=0.0)
    axes.set_xlim(0.0, longest * 1.22 or 1.0)
    axes.set_xlabel(f"time per step [{unit}]")
    figures.legend(figure, axes)
    return figure


def _bar(axes: Axes, place: int, point: Point, scale: float) -> None:
    end = figures.stack(axes, place, vars(point.parts), scale, 0.62, gid="bar")
    low, high = point.interval.low * scale, point.interval.high * scale
    if low != high:
        name = "90 % interval"
        label = None if name in axes.get_legend_handles_labels()[1] else name
        axes.plot([low, high], [place, place], color=BLACK, linewidth=1.4, marker="|", label=label)
    axes.annotate(
        show(point.step_time_s, "s"), (end, place), xytext=(4, 4),
        textcoords="offset points", va="bottom", fontsize=9,
    )  # fmt: skip
