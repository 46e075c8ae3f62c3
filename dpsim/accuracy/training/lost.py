"""Series that have lost the row which they would be calibrated on: it is no measured point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dpsim.accuracy.training.series import TrainingOutcome, calibration_row
from dpsim.accuracy.training.table import TrainingTable, series_of


def lost_rows(table: TrainingTable) -> dict[str, str]:
    """What to tell of each series of `table` whose calibration row is faulty."""
    if not any(row.fault for row in table.rows):
        return {}
    played = table.series
    whole = {name: list(rows) for name, rows in played.items()}
    for row in table.rows:
        counted = row.text("role") or "total_gpus" in row.numbers
        if row.fault and counted and series_of(row) in whole:
            whole[series_of(row)].append(row)
    found = {}
    for name, rows in whole.items():
        in_order = sorted(rows, key=lambda row: row.number)
        lost, other = calibration_row(in_order), calibration_row(played[name])
        if lost is not None and lost.fault:
            taken = f"line {other.line} is taken" if other else "nothing is calibrated"
            found[name] = f"its calibration row: line {lost.line}: {lost.fault}; {taken}"
    return found


def told_of_lost(
    table: TrainingTable, outcomes: Iterable[TrainingOutcome], lost: Mapping[str, str]
) -> list[TrainingOutcome]:
    """`outcomes` of rows of `table`, each with what is told of its series in `lost`."""
    found = []
    for one in outcomes:
        said = lost.get(series_of(table.rows[one.number]))
        reasons = (text for text in (said, one.reason) if text)
        found.append(replace(one, reason="; ".join(reasons)) if said else one)
    return found
