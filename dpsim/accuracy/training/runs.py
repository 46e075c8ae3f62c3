"""Rows of tables that are no training run, or whose numbers are none."""

from __future__ import annotations

from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused


def training(row: TrainingRow) -> TrainingRow:
    """Raise Refused where a number of `row` is none, and where it is no training."""
    if (column := row.unclear()) is not None:
        cell = row.text(column)
        accepted = " from 0 up" if cell.startswith("-") else ""
        raise Refused(f"{column}: {cell[:60]!r} is not one number{accepted}")
    words, unit = vocabulary().tables, row.text("unit")
    whole = unit in words.run_times or words.part_times.search(unit.lower())
    if row.get("value") and whole and not row.get("step_time_s"):
        raise Refused(
            f"unit {unit!r} is of a whole run or of an epoch, and the steps are not stated; the "
            "time of a step in step_time_s, or a rate (samples/s) in value and unit, would tell"
        )
    said = " | ".join(row.text(column) for column in ("task", "metric", "framework"))
    if words.inference.search(said.lower()):
        raise Refused(
            f"task: rows of inference are not read ({said.strip(' |')[:60]!r}); `dpsim serve` "
            "predicts serving, and tables take training runs"
        )
    return row
