"""Table, files and plots of a sweep."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.core.record import Refused
from dpsim.core.units import parse
from dpsim.predict.document import to_json
from dpsim.predict.point import Failed, Point, computed
from dpsim.report.bundle import Bundle, flat, write_bundle
from dpsim.report.figures import GREY, SERIES, time_scale
from dpsim.report.tables import brief, clean, number, run_columns, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console

    from dpsim.planning.grid import SweptKey
    from dpsim.planning.swept import GridAnswer, Told

#: what `dpsim sweep -o` writes beside its log
FILES = ("sweep.json", "sweep.csv")
#: points that the terminal shows
SHOWN = 40
#: lines that can be told apart
MOST_LINES = 8
#: cells per side up to which a heat map says its numbers
MOST_CELLS = 12
_NARROW = ("nodes", "MFU", "exposed", "speed-up")
_QUANTITY = re.compile(r"\s*([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(\S.*?)?\s*")
_DIMENSIONS = ("s", "B", "B/s", "FLOP", "FLOP/s", "W", "usd/h", "1")
_LABELS = {"step_time_s": "step time", "mfu": "MFU", "memory_bytes": "memory per rank"}


# -- the terminal ---------------------------------------------------------------------------------


@contextmanager
def progress() -> Iterator[Told]:
    """A bar with the time that is left, on a terminal only; what to tell it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    console = Console(stderr=True)
    columns = (TextColumn("points"), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as bar:

        def tell(done: int, of: int, records: Sequence[Mapping[str, Any]]) -> None:
            if not bar.tasks:
                bar.add_task("points", total=of, completed=done)
            bar.update(bar.tasks[0].id, completed=done)

        yield tell


def print_sweep(answer: GridAnswer, console: Console, files: str) -> None:
    """The points as a table, warnings, and where the rest is."""
    points = answer.points
    console.print(brief(answer.name, 100), style="bold", markup=False)
    headers, rows = run_columns([_with_size(point) for point in points[:SHOWN]])
    kept = [place for place, name in enumerate(headers) if name not in _NARROW]
    cells = [[row[place] for place in kept] for row in rows]
    console.print(table([headers[place] for place in kept], cells, left={"setting", "bottleneck"}))
    lines = []
    if len(points) > SHOWN:
        lines.append(f"and {len(points) - SHOWN:,} more points, see sweep.csv")
    failed = [point.error for point in points if isinstance(point, Failed)]
    if failed:
        lines.append(f"No number at {len(failed):,} of {len(points):,} points: {clean(failed[0])}")
    unfit = sum(point.memory.fits is False for point in computed(points))
    if unfit:
        lines.append(f"{unfit:,} of {len(points):,} points do not fit in memory.")
    lines += [f"Warning: {clean(text)}" for text in _warnings(answer.warnings)]
    for line in (*lines, *([files] if files else [])):
        console.print(line, markup=False, highlight=False)


def _warnings(texts: Sequence[str]) -> list[str]:
    """The first four, and how many more there are; what the table shows is left out."""
    said = [text for text in texts if not re.match(r"[0-9?]+ ranks: ", text)]
    return said[:4] + ([f"and {len(said) - 4} more, see sweep.json"] if len(said) > 4 else [])


def _with_size(point: Point | Failed) -> Point | Failed:
    """The point, with the number of ranks that it was asked for where it has no numbers."""
    if isinstance(point, Point) or point.ranks:
        return point
    return replace(point, ranks=point.set.get("cluster.ranks"))


# -- files ----------------------------------------------------------------------------------------


def write_sweep(answer: GridAnswer, out: Path, fields: Sequence[str] = ()) -> list[str]:
    """Write the result and a plot per field into folder `out`, none of them ever half-written;
    returns the files' names."""
    plots = {field: f"{clean(field).replace('/', '_')}" for field in fields}
    for field in fields:
        check_field(answer.points, field)
    names = [*FILES, *(f"{name}.{kind}" for name in plots.values() for kind in ("png", "svg"))]

    def fill(bundle: Bundle) -> None:
        bundle.json(FILES[0], to_json(answer))
        bundle.csv(FILES[1], [flat({"set": point.set, **point}) for point in answer.points])
        for field, name in plots.items():
            make = partial(make_figure, answer, field)
            bundle.figure(f"{name}.png", f"{name}.svg", make)

    write_bundle(out, names, fill)
    return names


# -- what a plot needs ----------------------------------------------------------------------------


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
    lines = 1
    for scale in others:
        lines *= len(scale.texts)
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
    if all(value(point, field) is None for point in sound):
        _no_such(sound[0], field)


def _no_such(point: Mapping[str, Any], field: str) -> None:
    names = flat(dict(point))
    known = sorted(name for name in names if value(point, name) is not None)
    raise Refused(f"--plot {field}: no point has such a number; known: {', '.join(known)}")


def value(point: Mapping[str, Any], field: str) -> float | None:
    """The number under the dotted `field` of `point`, if it has one."""
    here: Any = point
    for part in (field,) if field in point else field.split("."):
        here = here.get(part) if isinstance(here, Mapping) else None
    if isinstance(here, bool) or not isinstance(here, (int, float)):
        return None
    return float(here)


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


def shown(points: Sequence[Mapping[str, Any]], field: str) -> Shown:
    """How to draw `field` of `points`."""
    values = [v for point in points if (v := value(point, field)) is not None]
    if field == "throughput_per_s":
        units = {point["throughput_unit"] for point in points if "throughput_unit" in point}
        return Shown(field, 1.0, clean(units.pop()) if len(units) == 1 else "1/s")
    if field.endswith("_s"):
        return Shown(field, *time_scale(values))
    if "bytes" in field or field.startswith("memory_parts"):
        return Shown(field, 1e-9, "GB")
    if field.startswith(("efficiency", "mfu")):
        return Shown(field, 100.0, "%")
    return Shown(field, 1.0, "")


# -- plots ----------------------------------------------------------------------------------------


def make_figure(answer: GridAnswer, field: str) -> Figure:
    """Lines over one swept number, or a heat map over two."""
    from matplotlib.figure import Figure

    check_field(answer.points, field)
    numeric, others = check_grid(answer.grid)
    what = shown(answer.points, field)
    figure = Figure(figsize=(8.0, 5.6), layout="constrained")
    axes = figure.subplots()
    figure.suptitle(_title(answer), x=0.02, ha="left", fontsize=12)
    if len(numeric) == 1:
        _lines(figure, axes, answer, what, numeric[0], others)
    else:
        _heat(figure, axes, answer, what, *numeric)
    return figure


def _title(answer: GridAnswer) -> str:
    fixed = [
        f"{axis.key} = {brief(axis.values[0], 24)}" for axis in answer.grid if len(axis.values) == 1
    ]
    missing = sum(isinstance(point, Failed) for point in answer.points)
    notes = [clean(text) for text in fixed]
    notes += [f"no number at {missing:,} of {len(answer.points):,} points"] if missing else []
    return "\n".join([brief(answer.name, 72), *([", ".join(notes)] if notes else [])])


def _at(answer: GridAnswer, steps: Mapping[str, int]) -> Point | Failed:
    """The point at these steps of the axes; axes of one step need not be named."""
    place = 0
    for axis in answer.grid:
        place = place * len(axis.values) + steps.get(axis.key, 0)
    return answer.points[place]


def _lines(
    figure: Figure,
    axes: Axes,
    answer: GridAnswer,
    what: Shown,
    x: Scale,
    others: Sequence[Scale],
) -> None:
    """A line with its 90 % interval per choice of the other axes."""
    assert x.numbers is not None
    order = sorted(range(len(x.numbers)), key=x.numbers.__getitem__)
    choices = itertools.product(*(range(len(scale.texts)) for scale in others))
    for place, choice in enumerate(choices):
        fixed = {scale.key: step for scale, step in zip(others, choice, strict=True)}
        points = [(x.numbers[step], _at(answer, {**fixed, x.key: step})) for step in order]
        name = ", ".join(s.texts[step] for s, step in zip(others, choice, strict=True))
        _line(axes, points, what, place, name or "predicted")
    _line_axes(axes, x, what, [x.numbers[step] for step in order])
    if len(axes.get_legend_handles_labels()[1]) > 1:
        figure.legend(loc="outside lower center", ncols=3, fontsize=9)


def _line(
    axes: Axes, points: Sequence[tuple[float, Point | Failed]], what: Shown, place: int, name: str
) -> None:
    colour = SERIES[place % len(SERIES)]
    x = [at for at, _ in points]
    y = [_scaled(value(point, what.field), what) for _, point in points]
    bands = [_band(point, what) for _, point in points]
    if any(low != high for low, high in bands):
        low, high = zip(*bands, strict=True)
        label = "90 % interval" if place == 0 else None
        axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0, label=label)
    axes.plot(
        x,
        y,
        color=colour,
        linewidth=max(1.2, 2.4 - 0.4 * place),  # so that no line hides another
        marker="os^Dv"[place % 5],
        markersize=5,
        label=name,
        gid=f"line-{place}",
    )
    unfit = [(a, v) for (a, p), v in zip(points, y, strict=True) if p.get("fits") is False]
    if unfit:
        axes.plot(
            *zip(*unfit, strict=True), linestyle="none", marker="os^Dv"[place % 5], markersize=6,
            markerfacecolor="white", markeredgecolor=colour, markeredgewidth=1.6,
            label="does not fit in memory" if name == "predicted" else f"{name}: does not fit",
        )  # fmt: skip


def _scaled(found: float | None, what: Shown) -> float:
    return float("nan") if found is None else found * what.factor


def _band(point: Mapping[str, Any], what: Shown) -> tuple[float, float]:
    """The 90 % interval of what is drawn; where there is none, the value twice."""
    at = value(point, what.field)
    low, high = value(point, "step_time_low_s"), value(point, "step_time_high_s")
    if what.field == "efficiency":
        low, high = value(point, "efficiency_low"), value(point, "efficiency_high")
    elif what.field == "throughput_per_s" and at is not None and low and high:
        time = point["step_time_s"]
        low, high = at * time / high, at * time / low
    elif what.field != "step_time_s":
        low = high = at
    return _scaled(low, what), _scaled(high, what)


def _line_axes(axes: Axes, x: Scale, what: Shown, values: Sequence[float]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set(xlabel=x.label, ylabel=what.label)
    margin = 0.04 * (values[-1] - values[0])
    if values[0] > 0 and values[-1] >= 8 * values[0]:
        axes.set_xscale("log")
        over = (values[-1] / values[0]) ** 0.04
        axes.set_xlim(values[0] / over, values[-1] * over)
        width = (values[-1] / values[0]) ** (1 / 14)
        kept = [values[0]]
        kept += [v for before, v in itertools.pairwise(values) if v >= before * width]
        axes.xaxis.set_major_locator(FixedLocator(kept))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(values[0] - margin, values[-1] + margin)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
    low, high = axes.dataLim.y0, axes.dataLim.y1
    if low > 0 and high > 50 * low:
        axes.set_yscale("log")
    elif low >= 0:
        axes.set_ylim(0.0, high * 1.06 or 1.0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
    axes.tick_params(colors=GREY)


def _heat(figure: Figure, axes: Axes, answer: GridAnswer, what: Shown, x: Scale, y: Scale) -> None:
    """Cells of equal size, the first axis to the right; hatched where memory is too small."""
    import numpy as np
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.patches import Patch
    from matplotlib.ticker import FuncFormatter

    rows, columns = _sorted(y), _sorted(x)
    points = [[_at(answer, {y.key: r, x.key: c}) for c in columns] for r in rows]
    cells = np.array([[_scaled(value(p, what.field), what) for p in row] for row in points])
    low, high = float(np.nanmin(cells)), float(np.nanmax(cells))
    wide = low > 0 and high > 50 * low
    norm = LogNorm(low, high) if wide else Normalize(low, high if high > low else low + 1)
    axes.set_facecolor("#DDDDDD")
    image = axes.imshow(
        cells, origin="lower", aspect="auto", cmap="viridis", norm=norm, interpolation="nearest",
        gid="heat",
    )  # fmt: skip
    axes.grid(visible=False)
    _cell_ticks(axes, y, x, rows, columns)
    if max(cells.shape) <= MOST_CELLS:
        _cell_texts(axes, cells, norm)
    if _hatched(axes, points):
        mark = Patch(
            facecolor="none", edgecolor="white", hatch="///", label="does not fit in memory"
        )
        mark.set_edgecolor(GREY)
        figure.legend(handles=[mark], loc="outside lower center", fontsize=9)
    bar = figure.colorbar(image, ax=axes, label=what.label)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))


def _sorted(scale: Scale) -> list[int]:
    assert scale.numbers is not None
    return sorted(range(len(scale.numbers)), key=scale.numbers.__getitem__)


def _cell_ticks(
    axes: Axes, y: Scale, x: Scale, rows: Sequence[int], columns: Sequence[int]
) -> None:
    """Each cell's value, at most a dozen of them per side."""
    for scale, order, put in ((x, columns, axes.set_xticks), (y, rows, axes.set_yticks)):
        assert scale.numbers is not None
        every = -(-len(order) // MOST_CELLS)
        places = list(range(0, len(order), every))
        put(places, [number(scale.numbers[order[place]]) for place in places])
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

    found = False
    for row, line in enumerate(points):
        for column, point in enumerate(line):
            if point.get("fits") is False:
                corner = (column - 0.5, row - 0.5)
                cell = Rectangle(corner, 1, 1, fill=False, hatch="///", edgecolor="white")
                cell.set_linewidth(0.0)
                axes.add_patch(cell)
                found = True
    return found
