"""Plots of a sweep: lines over one swept number, or a heat map over two."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsim.core.record import Refused
from dpsim.core.units import parse
from dpsim.planning.wanted import ends_of, value_of
from dpsim.predict.point import UNFIT, Chosen, Failed, Point
from dpsim.report.fields import drawn
from dpsim.report.figures import GREY, band, blank, legend, look, tick, unfit
from dpsim.report.points import flat
from dpsim.report.text import NOT_HELD, brief, clean, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    from dpsim.planning.grid import SweptKey
    from dpsim.planning.swept import GridAnswer

#: lines that can be told apart
MOST_LINES = 8
#: cells per side up to which a heat map says its numbers
MOST_CELLS = 12
_QUANTITY = re.compile(r"\s*([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(\S.*?)?\s*")
_DIMENSIONS = ("s", "B", "B/s", "FLOP", "FLOP/s", "W", "usd/h", "1")
_LABELS = {"step_time_s": "step time", "mfu": "MFU", "memory_bytes": "memory per rank"}
#: fields whose 90 % interval is drawn around a line
_BANDED = ("step_time_s", "efficiency", "throughput_per_s")


# -- what is swept --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """A swept key: its steps as text, and as numbers with a unit where they are numbers."""

    key: str
    texts: tuple[str, ...]
    numbers: tuple[float, ...] | None
    unit: str = ""

    @property
    def label(self) -> str:
        return f"{clean(self.key)} [{self.unit}]" if self.unit else clean(self.key)

    @property
    def sorted(self) -> list[tuple[int, float]]:
        """The steps and their numbers, the smallest number first."""
        return sorted(enumerate(self.numbers or ()), key=lambda step: step[1])


def scale_of(axis: SweptKey) -> Scale:
    """The scale of one axis of a grid."""
    key, values = axis.key, axis.values
    texts = tuple(brief(value, 24) for value in values)
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        return Scale(key, texts, tuple(map(float, values)))
    found = [_QUANTITY.fullmatch(v) if isinstance(v, str) else None for v in values]
    units = {match[2] for match in found if match}
    if None not in found and len(units) == 1 and (unit := units.pop()):
        try:
            return Scale(key, texts, tuple(float(m[1]) for m in found if m), clean(unit))
        except ValueError:  # "1.5.1" is no number
            return Scale(key, texts, None)
    for dimension in _DIMENSIONS if None not in found else ():
        try:
            return Scale(key, texts, tuple(parse(v, dimension) for v in values), dimension)
        except ValueError:
            continue
    return Scale(key, texts, None)


def check_grid(grid: Sequence[SweptKey]) -> tuple[list[Scale], list[Scale]]:
    """The scales with numbers and the others; Refused where no plot shows them."""
    scales = [scale_of(axis) for axis in grid]
    numeric = [scale for scale in scales if scale.numbers is not None and len(scale.texts) > 1]
    others = [scale for scale in scales if scale not in numeric and len(scale.texts) > 1]
    lines = math.prod(len(scale.texts) for scale in others)
    names = ", ".join(scale.key for scale in numeric)
    if not numeric or len(numeric) > 2 or (len(numeric) == 2 and others):
        raise Refused(
            f"--plot: shows one swept number (lines) or two (a heat map); {names or 'none'} are "
            f"swept as numbers{', beside other keys' if others else ''}; sweep fewer keys, or read "
            "sweep.csv"
        )
    if lines > MOST_LINES:
        raise Refused(f"--plot: {lines} lines cannot be told apart; at most {MOST_LINES} are drawn")
    return numeric, others


# -- what is plotted ------------------------------------------------------------------------------


def check_name(points: Sequence[Mapping[str, Any]], field: str) -> None:
    """Refuse a plot of a `field` that points do not have; as soon as there are some."""
    sound = [point for point in points if "error" not in point]
    if sound and not {field, field.partition(".")[0]} & set(sound[0]):
        _no_such(sound[0], field)


def check_field(points: Sequence[Mapping[str, Any]], field: str) -> None:
    """Refuse a plot of a `field` that has no number at any of `points`."""
    sound = [point for point in points if "error" not in point]
    if not sound:
        raise Refused(f"--plot {field}: no point has numbers")
    if all(value_of(point, field) is None for point in sound):
        _no_such(sound[0], field)


def _no_such(point: Mapping[str, Any], field: str) -> None:
    names = flat(dict(point))
    known = sorted(name for name in names if value_of(point, name) is not None)
    raise Refused(f"--plot {field}: no point has such a number; known: {', '.join(known)}")


@dataclass(frozen=True)
class Shown:
    """A field as it is drawn: numbers times `factor`, in `unit`."""

    field: str
    factor: float
    unit: str

    @property
    def label(self) -> str:
        name = _LABELS.get(self.field) or re.sub(r"_(s|bytes|per_s)$", "", self.field)
        return f"{clean(name).replace('_', ' ')}{f' [{self.unit}]' if self.unit else ''}"

    def of(self, point: Mapping[str, Any]) -> float:
        """What is drawn for `point`."""
        found = value_of(point, self.field)
        return float("nan") if found is None else found * self.factor

    def ends(self, point: Mapping[str, Any]) -> tuple[float, float]:
        """Its 90 % interval; where there is none, the value twice."""
        found = ends_of(point, self.field) if self.field in _BANDED else None
        if found is None:
            return self.of(point), self.of(point)
        return found[0] * self.factor, found[1] * self.factor


def shown(points: Sequence[Mapping[str, Any]], field: str) -> Shown:
    """How to draw `field` of `points`."""
    factor, unit = drawn(field, points)
    if field == "throughput_per_s":
        units = {point["throughput_unit"] for point in points if "throughput_unit" in point}
        unit = clean(units.pop()) if len(units) == 1 else "1/s"
    return Shown(field, factor, unit)


# -- plots ----------------------------------------------------------------------------------------


def make_figure(answer: GridAnswer, field: str) -> Figure:
    """Lines over one swept number, or a heat map over two."""
    figure = blank(8.0, 5.6, _title(answer))
    axes = figure.subplots()
    hatched = draw_on(axes, answer, field)
    if hatched is not None:
        figure.legend(handles=[hatched], loc="outside lower center", fontsize=9)
    elif len(axes.get_legend_handles_labels()[1]) > 1:
        legend(figure, axes)
    return figure


def draw_on(axes: Axes, answer: GridAnswer, field: str) -> Patch | None:
    """The same on `axes` of any figure, without a legend; what it would say of hatched cells."""
    check_field(answer.points, field)
    numeric, others = check_grid(answer.grid)
    what = shown(answer.points, field)
    if len(numeric) == 1:
        _lines(axes, answer, what, numeric[0], others)
        return None
    return _heat(axes, answer, what, *numeric)


def _title(answer: GridAnswer) -> str:
    fixed = [
        f"{axis.key} = {brief(axis.values[0], 24)}" for axis in answer.grid if len(axis.values) == 1
    ]
    missing = sum(isinstance(point, Failed) for point in answer.points)
    notes = [clean(text) for text in fixed]
    notes += [f"no number at {missing:,} of {len(answer.points):,} points"] if missing else []
    return "\n".join([brief(answer.name, 72), *([", ".join(notes)] if notes else [])])


def _at(answer: GridAnswer, steps: Mapping[str, int]) -> Point | Failed | Chosen:
    """The point at these steps of the axes; axes of one step need not be named."""
    place = 0
    for axis in answer.grid:
        place = place * len(axis.values) + steps.get(axis.key, 0)
    return answer.points[place]


def _lines(axes: Axes, answer: GridAnswer, what: Shown, x: Scale, others: Sequence[Scale]) -> None:
    """A line with its 90 % interval per choice of the other axes."""
    choices = itertools.product(*(range(len(scale.texts)) for scale in others))
    for place, choice in enumerate(choices):
        fixed = {scale.key: step for scale, step in zip(others, choice, strict=True)}
        points = [(at, _at(answer, {**fixed, x.key: step})) for step, at in x.sorted]
        name = ", ".join(s.texts[step] for s, step in zip(others, choice, strict=True))
        _line(axes, points, what, place, name or "predicted")
    _line_axes(axes, x, what, [at for _, at in x.sorted])


def _line(
    axes: Axes,
    points: Sequence[tuple[float, Point | Failed | Chosen]],
    what: Shown,
    place: int,
    name: str,
) -> None:
    x, y = [at for at, _ in points], [what.of(point) for _, point in points]
    ends = [what.ends(point) for _, point in points]
    band(axes, x, ends, look(place)["color"], "90 % interval" if place == 0 else None)
    axes.plot(
        x, y, markersize=5, label=name, gid=f"line-{place}", **look(place),
        linewidth=max(1.2, 2.4 - 0.4 * place),  # so that no line hides another
    )  # fmt: skip
    hollow = [(a, v) for (a, p), v in zip(points, y, strict=True) if p.get("fits") in UNFIT]
    unfit(axes, hollow, look(place), name)


def _line_axes(axes: Axes, x: Scale, what: Shown, values: Sequence[float]) -> None:
    axes.set(xlabel=x.label, ylabel=what.label)
    margin = 0.04 * (values[-1] - values[0])
    if values[0] > 0 and values[-1] >= 8 * values[0]:
        axes.set_xscale("log")
        over = (values[-1] / values[0]) ** 0.04
        axes.set_xlim(values[0] / over, values[-1] * over)
        width = (values[-1] / values[0]) ** (1 / 14)
        kept = [values[0]]
        kept += [v for before, v in itertools.pairwise(values) if v >= before * width]
        tick(axes.xaxis, kept)
    else:
        axes.set_xlim(values[0] - margin, values[-1] + margin)
        tick(axes.xaxis)
    low, high = axes.dataLim.y0, axes.dataLim.y1
    if low > 0 and high > 50 * low:
        axes.set_yscale("log")
    elif low >= 0:
        axes.set_ylim(0.0, high * 1.06 or 1.0)
    tick(axes.yaxis)
    axes.tick_params(colors=GREY)


def _heat(axes: Axes, answer: GridAnswer, what: Shown, x: Scale, y: Scale) -> Patch | None:
    """Cells of equal size, the first axis to the right; hatched where memory is too small."""
    import numpy as np
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.patches import Patch

    points = [
        [_at(answer, {y.key: row, x.key: column}) for column, _ in x.sorted] for row, _ in y.sorted
    ]
    cells = np.array([[what.of(point) for point in row] for row in points])
    low, high = float(np.nanmin(cells)), float(np.nanmax(cells))
    wide = low > 0 and high > 50 * low
    norm = LogNorm(low, high) if wide else Normalize(low, high if high > low else low + 1)
    axes.set_facecolor("#DDDDDD")
    image = axes.imshow(
        cells, origin="lower", aspect="auto", cmap="viridis", norm=norm, interpolation="nearest",
        gid="heat",
    )  # fmt: skip
    axes.grid(visible=False)
    _cell_ticks(axes, y, x)
    if max(cells.shape) <= MOST_CELLS:
        _cell_texts(axes, cells, norm)
    bar = axes.figure.colorbar(image, ax=axes, label=what.label)
    tick(bar.ax.yaxis)
    if not _hatched(axes, points):
        return None
    return Patch(facecolor="none", edgecolor=GREY, hatch="///", label=NOT_HELD)


def _cell_ticks(axes: Axes, y: Scale, x: Scale) -> None:
    """Each cell's value, at most a dozen of them per side."""
    for scale, put in ((x, axes.set_xticks), (y, axes.set_yticks)):
        places = list(range(0, len(scale.texts), -(-len(scale.texts) // MOST_CELLS)))
        put(places, [number(scale.sorted[place][1]) for place in places])
    axes.set(xlabel=x.label, ylabel=y.label)
    axes.tick_params(colors=GREY)


def _cell_texts(axes: Axes, cells: Any, norm: Any) -> None:
    for row, line in enumerate(cells):
        for column, cell in enumerate(line):
            sound = cell == cell
            colour = "white" if sound and norm(cell) < 0.6 else "#222222"
            text = number(cell) if sound else "none"
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)


def _hatched(axes: Axes, points: Sequence[Sequence[Mapping[str, Any]]]) -> bool:
    """Hatch the cells that do not fit in memory; whether there are any."""
    from matplotlib.patches import Rectangle

    corners = [
        (column - 0.5, row - 0.5)
        for row, line in enumerate(points)
        for column, point in enumerate(line)
        if point.get("fits") in UNFIT
    ]
    for corner in corners:
        axes.add_patch(
            Rectangle(corner, 1, 1, fill=False, hatch="///", edgecolor="white", linewidth=0.0)
        )
    return bool(corners)
