"""The page of `dpsim sweep`: sliders that walk through the grid, lines, a map, the step there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from dpsim.planning.wanted import ends_of, value_of
from dpsim.predict.point import UNFIT, Chosen, Failed, Point
from dpsim.report.fields import drawn, name_of, setting_text
from dpsim.report.pages import Chart, Page, PagePart, Section, Sheet, Words, charts, warned
from dpsim.report.pages.charts import Spec
from dpsim.report.pages.run import reproduced
from dpsim.report.points import LEFT, rate, run_columns
from dpsim.report.sweep_picture import scale_of
from dpsim.report.text import bottleneck, brief, clean, fits

if TYPE_CHECKING:
    from dpsim.planning.swept import GridAnswer

#: points that a page can be asked about, and that its table has
MOST, LISTED = 20_000, 400
#: fields that are shown where points have them, in this order
FIELDS = (
    "step_time_s", "efficiency", "throughput_per_s", "speedup", "mfu", "memory_bytes",
    "exposed_communication_s", "bytes_sent_per_rank", "time_to_train_s", "cost_usd", "goodput",
    "cost_usd_per_hour", "energy_kwh",
)  # fmt: skip
#: fields that have a 90 % interval beside them
_BANDED = ("step_time_s", "efficiency", "throughput_per_s", "time_to_train_s", "cost_usd")
_NAMES = {
    "exposed_communication_s": "exposed communication",
    "bytes_sent_per_rank": "sent by a rank",
    "cost_usd_per_hour": "cost per hour",
    "speedup": "speed-up over the first point",
}
_RELATIVE = (
    "Efficiency is over the point with the fewest ranks of the same other settings, speed-up over "
    "the first point of the grid."
)
Points = Sequence[Point | Failed | Chosen]


def page(answer: GridAnswer) -> str:
    """The page of `answer`."""
    sections = [Section("", list(_figures(answer)))]
    listed = answer.points[:LISTED]
    parts: list[PagePart] = [Sheet(run_columns(listed), LEFT, "points")]
    if len(listed) < len(answer.points):
        parts.append(Words([f"and {len(answer.points) - LISTED:,} more points, see sweep.csv"]))
    if any(p.get("efficiency") is not None for p in answer.points):
        parts.append(Words([_RELATIVE]))
    sections.append(Section("Points", parts))
    if answer.warnings:
        sections.append(Section("Warnings", [warned(answer.warnings)]))
    sections += reproduced(answer, _command(answer))
    name = brief(answer.name, 200)
    return Page(
        f"{name}: a grid of predictions", name, sections,
        f"Predicted by dpsim {answer.dpsim_version}. Step times are means; intervals are meant to "
        "hold in 90 % of cases. All numbers are in sweep.json and sweep.csv beside this page.",
        _about(answer), _headline(answer),
    ).render()  # fmt: skip


def _command(answer: GridAnswer) -> str:
    axes = (
        f"--grid {quote(f'{clean(a.key)}=' + ','.join(map(clean, a.values)))}"
        for a in answer.grid
        if a.key != "sweep"  # the scenario's own list of points
    )
    return " ".join(["dpsim sweep scenario.yaml", *axes, "-o report"])


def _about(answer: GridAnswer) -> str:
    axes = " by ".join(f"{len(a.values):,} of {clean(a.key)}" for a in answer.grid)
    held = f"; {clean(answer.held_constant)} held constant" if answer.held_constant else ""
    return f"{len(answer.points):,} points: {axes}{held}"


def _headline(answer: GridAnswer) -> str:
    """Which point has the highest throughput, and what stands in the way elsewhere."""
    best = _best(answer.points)
    failed = sum(isinstance(p, Failed) for p in answer.points)
    unfit = sum(p.get("fits") in UNFIT for p in answer.points)
    of = f"of {len(answer.points):,} points"
    told = []
    if best is not None:
        which = " that fits" if unfit and best.memory.holds else ""
        told.append(f"The highest throughput{which}: {rate(best)}, at {setting_text(best.set)}, "
                    f"limited by {bottleneck(best.bottleneck)}.")  # fmt: skip
    told += [f"{unfit:,} {of} are not taken to fit in memory."] if unfit else []
    told += [f"There is no number at {failed:,} {of}."] if failed else []
    return " ".join(told)


def _best(points: Points) -> Point | None:
    """The point with the highest throughput, of those that fit where any does."""
    good = [p for p in points if isinstance(p, Point) and p.throughput_per_s]
    holds = [p for p in good if p.memory.holds]
    return max(holds or good, key=lambda p: p.throughput_per_s or 0.0, default=None)


def _figures(answer: GridAnswer) -> Iterator[PagePart]:
    if len(answer.points) > MOST:
        yield Words([f"More than {MOST:,} points: this page shows none of them as a figure."])
        return
    spec = grid_chart(answer)
    if spec is not None:
        yield Chart("grid", "Walk through the grid", spec)


def grid_chart(answer: GridAnswer) -> Spec | None:
    """The chart of the grid; None where no point has a number."""
    points = answer.points
    names = [*FIELDS, *dict.fromkeys(k for p in points if isinstance(p, Chosen) for k in p.columns)]
    known = {name: [value_of(p, name) for p in points] for name in dict.fromkeys(names)}
    fields = [_field(name, values, points) for name, values in known.items()
              if any(value is not None for value in values)]  # fmt: skip
    if not fields:
        return None
    errors = {str(k): brief(p.error, 200) for k, p in enumerate(points) if isinstance(p, Failed)}
    return {
        "kind": "grid",
        "axes": [_axis(axis) for axis in answer.grid],
        "at": _steps(answer),
        "fields": fields,
        "words": list(_words(points)),
        "errors": errors,
        "unfit": [k for k, p in enumerate(points) if p.get("fits") in UNFIT],
        **_split(points),
    }


def _steps(answer: GridAnswer) -> list[int]:
    """Where the sliders begin: at the best point, on every axis."""
    best = _best(answer.points)
    place = 0 if best is None else answer.points.index(best)
    steps = []
    for axis in reversed(answer.grid):
        place, step = divmod(place, len(axis.values))
        steps.append(step)
    return steps[::-1]


def _axis(axis: Any) -> Spec:
    found = scale_of(axis)
    return {"label": brief(axis.key, 60), "texts": [brief(v, 40) for v in axis.values],
            "numbers": found.numbers if _apart(found.numbers) else None}  # fmt: skip


def _apart(numbers: Sequence[float] | None) -> bool:
    return numbers is not None and len(set(numbers)) == len(numbers)


def _field(name: str, values: Sequence[float | None], points: Points) -> Spec:
    """A field as it is drawn, with its interval where it has one."""
    factor, unit = drawn(name, points)
    share = unit == "%" or name == "goodput"
    factor, unit = (1.0, "") if share else (factor, unit)
    if name == "throughput_per_s":
        units = {clean(p["throughput_unit"]) for p in points if "throughput_unit" in p}
        unit = units.pop() if len(units) == 1 else "1/s"
    unit = unit or {"usd": "usd", "hour": "usd/h", "kwh": "kWh"}.get(name.rpartition("_")[2], "")
    sound = [value for value in values if value is not None]
    made: Spec = {
        "name": _NAMES.get(name) or name_of(name),
        "unit": brief(unit, 20),
        "percent": share,
        "log": min(sound) > 0 and max(sound) > 50 * min(sound),
        "values": [None if value is None else value * factor for value in values],
    }
    if name in _BANDED:
        ends = [ends_of(p, name) for p in points]
        made["low"] = [None if e is None else e[0] * factor for e in ends]
        made["high"] = [None if e is None else e[1] * factor for e in ends]
    return made


def _words(points: Points) -> Iterator[Spec]:
    """What limits, whether it fits: a list of words and which of them each point has."""
    good = [p if isinstance(p, Point) else None for p in points]
    kinds = {
        "limited by": [p and bottleneck(p.bottleneck) for p in good],
        "fits": [p and (fits(p.memory.fits) or "not known") for p in good],
    }
    for name, words in kinds.items():
        every = [word or "" for word in words]
        texts = list(dict.fromkeys(every))
        if any(texts):
            yield {"name": name, "texts": texts, "at": [texts.index(one) for one in every]}


def _split(points: Points) -> Spec:
    """Where the step of every point goes [s]."""
    shown = [charts.parts_of(p) if isinstance(p, Point) else None for p in points]
    used = [key for key in charts.PARTS if any(parts and parts[key] > 0 for parts in shown)]
    parts = [dict(zip(("name", "colour"), charts.PARTS[key], strict=True)) for key in used]
    split = [None if p is None else [p[key] for key in used] for p in shown]
    return {"parts": parts, "split": split}
