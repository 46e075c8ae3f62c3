"""What a sweep has brought so far: the records of its log, and the answer they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpsim.planning.grid import Axis, Grid
from dpsim.planning.log import Record
from dpsim.planning.workers import Lost
from dpsim.predict.document import from_json, to_json
from dpsim.predict.level import Level
from dpsim.predict.numbers import failed
from dpsim.predict.point import Change, Failed, Point
from dpsim.predict.prediction import relate

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class SweptKey:
    """An axis of the grid: what is swept, and the values of its steps."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class GridAnswer:
    """The answer at every point of a grid; `scaling` and `held_constant` are None where they
    differ from point to point."""

    schema_version: int
    dpsim_version: str
    name: str
    scenario: Mapping[str, Any]
    scaling: str | None
    held_constant: str | None
    grid: tuple[SweptKey, ...]
    points: tuple[Point | Failed, ...]
    calibration: Level | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Swept:
    """A sweep as far as it has come: its log's header and records, points without an answer, and
    notes on the log."""

    header: Record
    records: tuple[Record, ...]
    lost: tuple[Lost, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def missing(self) -> list[int]:
        """Numbers of the points that have neither been played nor given up."""
        known = {record["n"] for record in self.records} | {lost.number for lost in self.lost}
        return [number for number in range(self.header["points"]) if number not in known]

    @cached_property
    def answer(self) -> GridAnswer:
        """The result, in the grid's order."""
        header = self.header
        records = sorted(self.records, key=lambda record: int(record["n"]))
        points = {record["n"]: from_json(Point | Failed, record["point"]) for record in records}
        for lost in self.lost:
            change = header_grid(header).change(lost.number)
            points[lost.number] = failed(None, lost.reason, change)
        said = (text for record in records for text in record.get("warnings", ()))
        return GridAnswer(
            schema_version=SCHEMA_VERSION,
            dpsim_version=header["parts"]["dpsim"],
            name=header["name"],
            scenario=header["scenario"],
            scaling=_common(records, "scaling"),
            held_constant=_common(records, "held_constant"),
            grid=from_json(tuple[SweptKey, ...], header["grid"]),
            points=relate([points[number] for number in sorted(points)]),
            calibration=from_json(Level | None, header["calibration"]),
            warnings=tuple(dict.fromkeys(said)),
        )

    @property
    def document(self) -> dict[str, Any]:
        """The result as sweep.json holds it."""
        made: dict[str, Any] = to_json(self.answer)
        return made


def _common(records: Sequence[Record], key: str) -> str | None:
    """What all points with numbers say; None where they differ."""
    found = {record[key] for record in records if key in record}
    return found.pop() if len(found) == 1 else None


def header_grid(header: Record) -> Grid:
    """The grid that a header describes."""

    def change(key: str, value: Any) -> Change:
        return value if key == "sweep" else {key: value}

    return Grid(
        tuple(
            Axis(axis["key"], tuple(change(axis["key"], value) for value in axis["values"]))
            for axis in header["grid"]
        )
    )
