"""Rows of a series, told in what their calibrated run tells or is taken for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsim.accuracy.training.feeds import NOT_STATED, assumes_time
from dpsim.accuracy.training.table import TrainingRow
from dpsim.cases.case import Case

#: of the calibrated run, whether forward is computed again: `full` or `none`
RECOMPUTING = "recomputing_like"


def like(first: TrainingRow, rows: Sequence[TrainingRow]) -> TrainingRow:
    """`first`, played like the series: one GPU exchanges nothing, whatever that is called."""
    if first.gpus > 1:
        return first
    other = next((row for row in rows if row is not first and row.gpus > 1), first)
    own = {c: other.text(c) for c in ("strategy", "strategy_detail", "shard", "compression")}
    return replace(first, cells={**first.cells, **own})


def undecoded(row: TrainingRow) -> TrainingRow:
    """`row` without what is assumed of its loader where it says no time of one."""
    told = NOT_STATED if assumes_time(row) else row.text("loader")
    return _with(row, "loader", told)


def unpadded(row: TrainingRow) -> TrainingRow:
    """`row` without the padding of its texts."""
    return _with(row, "padding", "left out")


def recomputing(row: TrainingRow, base: Case) -> TrainingRow:
    """`row`, which is taken to compute again what the calibrated run `base` does where it says
    nothing of that: a series has one command line."""
    own = base.scenario.recompute
    return _with(row, RECOMPUTING, own) if own in ("full", "none") else row


def _with(row: TrainingRow, column: str, text: str) -> TrainingRow:
    return replace(row, cells={**row.cells, column: text})
