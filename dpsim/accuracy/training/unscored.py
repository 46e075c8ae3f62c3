"""Rows of a table of training runs whose error says nothing."""

from __future__ import annotations

from collections.abc import Sequence

from dpsim.accuracy.training.table import TrainingRow

#: measurements more uncertain than this are reported, not scored [%]
MAX_UNCERTAINTY = 5.0
#: what tables flag as a collapse is a rate per GPU below this share of that at the count before
COLLAPSED = 0.35


def unscored(row: TrainingRow, rows: Sequence[TrainingRow] = ()) -> str:
    """Why the error of this row of the series `rows` says nothing; empty where it does."""
    if row.text("quality") not in ("A", "B", ""):
        return f"quality {row.text('quality')}"
    if "superlinear" in row.text("notes").lower():
        return "flagged superlinear"
    if (row.get("rel_unc_pct") or 0.0) > MAX_UNCERTAINTY:
        return f"measured to {row.get('rel_unc_pct')} % only"
    if _fallen(row, rows):
        return f"still below {COLLAPSED:.0%} of the rate before a flagged collapse"
    return ""


def _fallen(row: TrainingRow, rows: Sequence[TrainingRow]) -> bool:
    """Whether `row` has the rate to which a smaller count of its series fell: a table compares
    with the count before, and so flags the first of them only."""
    sound, fell = 0.0, False
    for one in sorted(rows, key=lambda one: one.gpus):
        rate = (one.get("throughput_global") or 0.0) / one.gpus
        fell = fell or "flag collapse" in one.text("notes").lower()
        if one.number == row.number:
            return fell and 0.0 < rate < COLLAPSED * sound
        sound = sound if fell else rate
    return False
