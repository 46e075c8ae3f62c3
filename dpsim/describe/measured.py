"""Measured points: a CSV of rank counts and what was timed there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dpsim.core import csvfile
from dpsim.core.files import Unreadable, read_text
from dpsim.core.record import Refused

MAX_BYTES = 10_000_000
UNITS = ("samples", "images", "sequences", "tokens")


class MeasuredPoint(NamedTuple):
    """`value` is a step time [s] where `unit` is "s", else a throughput in `unit` per second."""

    ranks: int
    value: float
    unit: str
    source: str

    def step_time(self, global_batch: float, tokens_per_sample: int, sample: str) -> float:
        """The step time that this point means for `global_batch` samples per step [s].

        Raises Refused where a model whose sample is called `sample` has no such unit.
        """
        if self.unit == "s":
            return self.value
        tokens = ("tokens",) if tokens_per_sample > 1 else ()
        known = ("samples", f"{sample}s", *tokens)
        if self.unit not in known:
            raise Refused(f"{self.unit}/s does not fit this model; it has {', '.join(known)}")
        return global_batch * (tokens_per_sample if self.unit == "tokens" else 1) / self.value


def read_measured(path: Path, key: str = "") -> tuple[MeasuredPoint, ...]:
    """Points of a CSV with `ranks` and either `step_time_s`, or `throughput` and `unit`.

    Raises Refused, naming the line and the scenario's `key`, for anything else.
    """
    try:
        return _read(path)
    except Refused as error:
        raise Refused(str(error), tuple(key.split(".")) if key else ()) from None


def _read(path: Path) -> tuple[MeasuredPoint, ...]:
    try:
        columns, rows = csvfile.table(read_text(path, MAX_BYTES, "replace"))
        _check_columns(columns, path.name)
        found = [_point(row, path.name, line) for line, row in rows]
    except Unreadable as error:
        place = f"{path.name}:{error.line}:" if error.line else path.name
        raise Refused(f"{place} {error.brief}") from None
    if not found:
        raise Refused(f"{path.name} has no measured point")
    return tuple(sorted(found))


def _check_columns(columns: Sequence[str], name: str) -> None:
    if not columns:
        return  # an empty file has no point either, which is said later
    if "ranks" not in columns or not {"step_time_s", "throughput"} & set(columns):
        shown = ", ".join(columns)[:80] or "none"
        raise Refused(
            f"{name}: has the columns {shown}; needs ranks, and step_time_s or throughput and unit"
        )


def _point(row: dict[str, str], name: str, line: int) -> MeasuredPoint:
    def number(key: str) -> float:
        try:
            value = float(row.get(key) or "")
        except ValueError:
            raise Refused(f"{name}:{line}: {key}: {_brief(row.get(key))} is not a number") from None
        if not math.isfinite(value) or value <= 0:
            raise Refused(f"{name}:{line}: {key}: {value} is not a positive number")
        return value

    ranks = number("ranks")
    if ranks != int(ranks):
        raise Refused(f"{name}:{line}: ranks: {ranks} is not a whole number")
    source = row.get("source") or ""
    if row.get("step_time_s"):
        return MeasuredPoint(int(ranks), number("step_time_s"), "s", source)
    unit = (row.get("unit") or "").removesuffix("/s")
    if unit not in UNITS:
        raise Refused(f"{name}:{line}: unit: {_brief(unit)} is none of {', '.join(UNITS)}")
    return MeasuredPoint(int(ranks), number("throughput"), unit, source)


def _brief(cell: str | None) -> str:
    return f"{cell[:60]!r}" if cell else "nothing"
