"""Curves: speed-up and efficiency against ranks, or where a step's time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsim.core.units import show
from dpsim.predict.answer import Answer, NoLaws
from dpsim.predict.laws import amdahl
from dpsim.predict.point import Point, computed
from dpsim.report.figures import BLACK, GREY, ORANGE, SERIES, SPLIT, YELLOW, time_scale
from dpsim.report.tables import PARTS, brief, number, percent, ranks, scaling_title, settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_BARS = 24


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
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 7.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.4, 1.0))
    base = next(p for p in computed(answer.points) if p.speedup is not None)
    counts = sorted({p.ranks for points in series.values() for p in points})
    _laws(above, answer, base, counts, single=len(series) == 1)
    for place, (name, points) in enumerate(series.items()):
        colour = SERIES[place % len(SERIES)]
        label = brief(name, 60) or "predicted"
        for axes, key in ((above, "speedup"), (below, "efficiency")):
            _line(axes, points, key, colour, label)
    _measured(above, below, answer)
    _axes(above, below, base, counts)
    _bend_mark(below, answer, series)
    _title(figure, answer)
    handles, labels = above.get_legend_handles_labels()
    widest = max(len(label) for label in labels)
    columns = max(1, min(3, 110 // (widest + 8)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=9)
    return figure


def _laws(axes: Axes, answer: Answer, base: Point, counts: list[int], *, single: bool) -> None:
    """The ideal line, and under strong scaling Amdahl's."""
    import numpy as np

    first, last = counts[0], counts[-1]
    ends = [first, last]
    axes.plot(
        ends,
        [n / base.ranks for n in ends],
        color=GREY,
        linestyle=(0, (5, 3)),
        linewidth=1.3,
        label="ideal (linear)",
        gid="ideal",
    )
    if not single or isinstance(answer.laws, NoLaws) or answer.scaling != "strong":
        return
    serial, at = answer.laws.amdahl.serial_fraction, answer.laws.amdahl.points[0]
    alone = at.law_s * amdahl(serial, at.ranks)
    fine = np.geomspace(first, last, 200)
    speed = [base.step_time_s / alone * amdahl(serial, float(n)) for n in fine]
    label = f"Amdahl's law (serial fraction {percent(serial)})"
    axes.plot(
        fine,
        speed,
        color=BLACK,
        linestyle=(0, (1, 1.2)),
        linewidth=1.7,
        label=label,
        zorder=3,
        gid="amdahl",
    )


def _line(axes: Axes, points: list[Point], key: str, colour: str, label: str) -> None:
    x = [p.ranks for p in points]
    y = [ratio(p, key) for p in points]
    ends = [bounds(p, key) for p in points]
    if any(low != high for low, high in ends):
        axes.fill_between(
            x,
            [low for low, _ in ends],
            [high for _, high in ends],
            color=colour,
            alpha=0.16,
            linewidth=0,
            label=f"{label}: 90 % interval" if label != "predicted" else "90 % interval",
        )
    axes.plot(
        x, y, color=colour, linewidth=2.0, marker="o", markersize=5, label=label, gid=f"line-{key}"
    )
    unfit = [(p.ranks, ratio(p, key)) for p in points if p.memory.fits is False]
    if unfit:
        style = {"marker": "o", "markersize": 6, "markerfacecolor": "white", "linestyle": "none"}
        axes.plot(
            [n for n, _ in unfit],
            [v for _, v in unfit],
            markeredgecolor=colour,
            markeredgewidth=1.6,
            label="does not fit in memory" if label == "predicted" else f"{label}: does not fit",
            **style,  # type: ignore[arg-type]
        )


def _measured(above: Axes, below: Axes, answer: Answer) -> None:
    for axes, key in ((above, "speedup"), (below, "efficiency")):
        values = measured_values(answer, key)
        for calibrated, marker, label in (
            (False, "D", "measured"),
            (True, "*", "measured, calibrated on"),
        ):
            chosen = [(n, v) for n, v, used in values if used is calibrated]
            if chosen:
                axes.plot(
                    [n for n, _ in chosen],
                    [v for _, v in chosen],
                    linestyle="none",
                    marker=marker,
                    markersize=13 if calibrated else 7.5,
                    color=ORANGE if not calibrated else YELLOW,
                    markeredgecolor=BLACK,
                    markeredgewidth=0.9,
                    zorder=4,
                    label=label,
                    gid=f"measured-{key}",
                )


def _axes(above: Axes, below: Axes, base: Point, counts: list[int]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    above.set(xscale="log", yscale="log")
    below.set_xscale("log")
    margin = (counts[-1] / counts[0]) ** 0.05
    above.set_xlim(counts[0] / margin, counts[-1] * margin)
    above.yaxis.set_major_locator(FixedLocator(_round_ticks(*above.get_ylim())))
    above.yaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
    above.yaxis.set_minor_locator(NullLocator())
    below.xaxis.set_major_locator(FixedLocator(_spaced(counts)))
    below.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    below.xaxis.set_minor_formatter(NullFormatter())
    below.xaxis.set_minor_locator(NullLocator())
    below.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v * 100:.0f}"))
    below.set_ylim(0.0, max(1.08, below.get_ylim()[1]))
    above.set_ylabel(f"speed-up over {ranks(base.ranks)} (times)")
    below.set_ylabel("efficiency [%]")
    below.set_xlabel("ranks (devices)")
    below.axhline(1.0, color=GREY, linestyle=(0, (5, 3)), linewidth=1.3)
    rate: Any = base.throughput_per_s
    right = above.secondary_yaxis("right", functions=(lambda v: v * rate, lambda v: v / rate))
    right.yaxis.set_major_locator(FixedLocator(_round_ticks(*(v * rate for v in above.get_ylim()))))
    right.yaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
    right.yaxis.set_minor_locator(NullLocator())
    right.set_ylabel(f"throughput [{brief(base.throughput_unit, 20)}]")


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
    axes.set_title(
        f"below 90 % from {ranks(at.ranks)} on: {cause}",
        loc="right",
        fontsize=9,
        color="#444444",
        pad=3.0,
    )


def _title(figure: Figure, answer: Answer) -> None:
    name = brief(answer.name, 72)
    figure.suptitle(f"{name}\n{scaling_title(answer)}", x=0.02, ha="left", fontsize=12)


# -- one count: bars ------------------------------------------------------------------------------


def _bars(answer: Answer) -> Figure:
    """Where the step's time goes at every point, largest number of points that can be read."""
    from matplotlib.figure import Figure

    shown = computed(answer.points)[:MOST_BARS]
    figure = Figure(figsize=(8.0, 2.6 + 0.42 * len(shown)), layout="constrained")
    axes = figure.subplots()
    scale, unit = time_scale([p.step_time_s for p in shown])
    for place, point in enumerate(shown):
        _bar(axes, place, point, scale)
    axes.set_yticks(range(len(shown)), [_bar_label(p) for p in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    longest = max((p.interval.high * scale for p in shown), default=0.0)
    axes.set_xlim(0.0, longest * 1.22 or 1.0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"time per step [{unit}]")
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    if unique:
        figure.legend(
            list(unique.values()), list(unique), loc="outside lower center", ncols=3, fontsize=9
        )
    _title(figure, answer)
    return figure


def _bar(axes: Axes, place: int, point: Point, scale: float) -> None:
    left = 0.0
    for key, name, colour in SPLIT:
        width = getattr(point.parts, key) * scale
        if width > 0:
            label = None if name in axes.get_legend_handles_labels()[1] else name
            axes.barh(
                place, width, left=left, height=0.62, color=colour, label=label, gid=f"bar-{key}"
            )
            left += width
    low, high = point.interval.low * scale, point.interval.high * scale
    if low != high:
        label = None if "90 % interval" in axes.get_legend_handles_labels()[1] else "90 % interval"
        axes.plot([low, high], [place, place], color=BLACK, linewidth=1.4, marker="|", label=label)
    axes.annotate(
        show(point.step_time_s, "s"),
        (max(left, high), place),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
    )


def _bar_label(point: Point) -> str:
    extra = settings(point)
    return brief(extra, 40) if extra else ranks(point.ranks)
