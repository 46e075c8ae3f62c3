"""The points of an answer as a table: for the terminal, for a page, for a spreadsheet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpsim.core.units import dollars, show
from dpsim.predict.answer import Answer
from dpsim.predict.point import Chosen, Failed, Point, computed
from dpsim.report import text
from dpsim.report.fields import set_value
from dpsim.report.table import Columns, columns
from dpsim.report.text import between, clean, duration, number, percent, signed

#: columns of words
LEFT = ("setting", "bottleneck")
#: sweep keys that a table of ranks and nodes shows already
_COUNTS = ("cluster.ranks", "cluster.nodes")


def settings(point: Point | Failed | Chosen, *, short: bool = False) -> str:
    """What the sweep set at `point`, other than the counts: "cluster.oversubscription = 2", or in
    `short` "oversubscription=2"."""
    other = {k: v for k, v in point.set.items() if k not in _COUNTS}
    if short:
        return " ".join(f"{clean(k.rpartition('.')[2])}={_setting(v)}" for k, v in other.items())
    return ", ".join(f"{clean(key)} = {_setting(value)}" for key, value in other.items())


def spoken_of(points: Iterable[Point]) -> Point | None:
    """The point that sentences are about: the most ranks, and of several with as many the one with
    the most throughput; None of none."""
    return max(points, key=lambda p: (p.ranks, p.throughput_per_s or 0.0), default=None)


def place(point: Point) -> str:
    """Which point a sentence is about: "8 ranks", or "8 ranks with input.workers = 2" where the
    sweep sets more than counts."""
    other = settings(point)
    return f"{text.ranks(point.ranks)} with {other}" if other else text.ranks(point.ranks)


def _setting(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{clean(key)}={_setting(item)}" for key, item in value.items())
    return set_value(value)


def rate(point: Point) -> str:
    """The throughput of a point that has one."""
    return f"{number(point.throughput_per_s or 0.0)} {clean(point.throughput_unit)}"


def interval(point: Point) -> str:
    """The 90 % interval of the step time."""
    low, high = point.interval.low, point.interval.high
    return "exact" if low == high else between(show(low, "s", 3), show(high, "s", 3))


def run_columns(points: Sequence[Point | Failed | Chosen]) -> Columns:
    """Headers and rows of the table of points; columns without any value are left out."""
    units = {clean(p.throughput_unit) for p in computed(points)}
    unit = units.pop() if len(units) == 1 else "per second"
    return columns([_row(point, unit) for point in points])


def _row(point: Point | Failed | Chosen, unit: str) -> dict[str, str]:
    head = {
        "ranks": "?" if point.ranks is None else f"{point.ranks:,}",
        "nodes": "" if point.nodes is None else f"{point.nodes:,}",
        "setting": settings(point, short=True),
    }
    if isinstance(point, Failed):
        return {**head, "step": "no number"}
    if isinstance(point, Chosen):
        return {**head, **{key: _chosen(value) for key, value in point.columns.items()}}
    return {
        **head,
        "step": show(point.step_time_s, "s"),
        "90 % interval": interval(point),
        unit: "" if point.throughput_per_s is None else number(point.throughput_per_s),
        "speed-up": "" if point.speedup is None else number(point.speedup),
        "eff.": percent(point.efficiency),
        "MFU": percent(point.mfu),
        "exposed": show(point.parts.exposed_communication_s, "s", 3),
        "bubble": show(point.parts.bubble_s, "s", 3) if point.parts.bubble_s else "",
        "memory": show(point.memory.bytes, "B", 3),
        "fits": text.fits(point.memory.fits),
        **_run_cells(point),
        "bottleneck": text.bottleneck(point.bottleneck),
    }


def _chosen(value: object) -> str:
    """What was asked for, in its own unit."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(float(value))
    return "" if value is None else _setting(value)


def _run_cells(point: Point) -> dict[str, str]:
    """What a training run takes; without one, what an hour costs; nothing where not asked for."""
    cells = {}
    if point.run:
        cells["to train"] = duration(point.run.time_s)
    if point.life:
        cells["ideal"] = duration(point.life.ideal_s)
        cells["goodput"] = percent(point.life.goodput)
    if point.money:
        cells["cost"] = dollars(point.money.usd)
    elif point.cost:
        cells["cost"] = f"{dollars(point.cost.usd_per_hour)}/h"
    if point.energy:
        cells["energy"] = f"{number(point.energy.kwh)} kWh"
    elif point.power_w is not None:
        cells["power"] = f"{number(point.power_w / 1e3)} kW"
    return cells


def measured_columns(answer: Answer) -> Columns:
    """Headers and rows of the measured points beside the predictions."""
    rows = [
        [
            f"{p.ranks:,}",
            show(p.step_time_s, "s"),
            show(p.step_time_s * (1.0 + p.error), "s"),
            "calibrated" if p.role == "calibrated" else signed(p.error),
            "yes" if p.inside_interval or p.role == "calibrated" else "no",
        ]
        for p in answer.measured
    ]
    return ["ranks", "measured step", "predicted step", "error", "in 90 % interval"], rows


def flat(point: Mapping[str, Any]) -> dict[str, Any]:
    """One point without nesting, as a line of a CSV."""
    row: dict[str, Any] = {}
    for key, value in point.items():
        if key == "set":
            row |= {f"set {name}": _plain(item) for name, item in value.items()}
        elif key == "memory_parts":
            row |= {f"memory {name} [B]": size for name, size in value.items()}
        else:
            row[key] = "; ".join(value) if key == "interval_causes" else _plain(value)
    return row


def flat_grid(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The points of a grid without nesting: what is set first."""
    return [flat({"set": point["set"], **point}) for point in points]


def _plain(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value
