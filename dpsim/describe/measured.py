"""Measured points: a CSV of rank counts and what was timed there."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dpsim.core import csvfile
from dpsim.core.record import Check, Refused
from dpsim.core.units import MEASURED, Unit

MAX_BYTES = 10_000_000
RANKS = Check(1, 1_048_576)
#: samples, images, sequences or tokens per second
RATE = Unit("1", low=1e-9, high=1e15)
#: columns that say another batch than the scenario's, and the fields of Batch that they are
BATCH = {"per_device": "per_device", "global": "global_", "accumulation": "accumulation"}
UNITS = ("samples", "images", "sequences", "tokens")


class MeasuredPoint(NamedTuple):
    """`value` is a step time [s] where `unit` is "s", else a throughput in `unit` per second.

    batch  what of the batch is other than the scenario's: fields of Batch and their values
    """

    ranks: int
    value: float
    unit: str
    source: str
    batch: tuple[tuple[str, int], ...] = ()

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
    """Points of a CSV with `ranks` and either `step_time_s`, or `throughput` and `unit`; columns
    `per_device`, `global` and `accumulation` say another batch than the scenario's.

    Raises Refused, naming the line and the scenario's `key`, for anything else.
    """
    try:
        rows = csvfile.read(path, MAX_BYTES, once=())
        _check_columns(rows)
        found = [_point(row) for row in rows]
        if not found:
            raise rows.refusal("has no measured point", None)
    except Refused as error:
        raise Refused(str(error), tuple(key.split(".")) if key else ()) from None
    return tuple(sorted(found))


def _check_columns(rows: csvfile.Table) -> None:
    if "ranks" not in rows.columns or not {"step_time_s", "throughput"} & set(rows.columns):
        shown = ", ".join(rows.columns)[:80]
        needed = "needs ranks, and step_time_s or throughput and unit"
        raise rows.refusal(f"has the columns {shown}; {needed}", None)


def _point(row: csvfile.Row) -> MeasuredPoint:
    ranks, source, batch = row.whole("ranks", RANKS), row.get("source"), _batch(row)
    if row.get("step_time_s"):
        if row.get("throughput"):
            raise row.refusal("has a step time too; leave one of them out", "throughput")
        return MeasuredPoint(ranks, row.number("step_time_s", MEASURED, "s"), "s", source, batch)
    unit = row.get("unit").removesuffix("/s")
    if unit not in UNITS:
        wrong = f"{unit[:60]!r}" if unit else "nothing"
        raise row.refusal(f"{wrong} is none of {', '.join(UNITS)}", "unit")
    return MeasuredPoint(ranks, row.number("throughput", RATE), unit, source, batch)


def _batch(row: csvfile.Row) -> tuple[tuple[str, int], ...]:
    """What a row says of the batch."""
    if row.get("per_device") and row.get("global"):
        raise row.refusal("has per_device too; leave one of them out", "global")
    return tuple(
        (field, row.whole(column, Check(1, 10**10)))
        for column, field in BATCH.items()
        if row.get(column)
    )
