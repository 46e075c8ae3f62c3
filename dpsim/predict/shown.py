"""A prediction as a Python prompt and a notebook show it."""

from __future__ import annotations

from collections.abc import Sequence

from dpsim.core.units import show
from dpsim.predict.point import Failed, Point

#: lines of a text
MOST = 10
_COLUMNS = ("ranks", "step_time_s", "step_time_low_s", "step_time_high_s", "throughput_per_s",
            "efficiency", "bottleneck", "error")  # fmt: skip


def text(name: str, points: Sequence[Point | Failed]) -> str:
    """At most MOST lines: the scenario's `name`, and its points from the first to the last."""
    lines = [_line(point) for point in points]
    if len(lines) > MOST - 1:
        lines[MOST - 3 : -1] = [f"  … {len(lines) - MOST + 2:,} more points …"]
    return "\n".join([f"Prediction of {' '.join(name.split())[:80]}", *lines])


def _line(point: Point | Failed) -> str:
    ranks = "   ? ranks" if point.ranks is None else f"{point.ranks:>4,} ranks"
    if isinstance(point, Failed):
        return f"  {ranks}  no number: {' '.join(point.error.split())[:80]}"
    low, high = point.interval.low, point.interval.high
    ends = f" ({show(low, 's')} to {show(high, 's')})" if low != high else ""
    share = "" if point.efficiency is None else f", efficiency {point.efficiency:.0%}"
    limit = point.bottleneck.replace("_", " ")
    return f"  {ranks}  {show(point.step_time_s, 's')} a step{ends}{share}, {limit}"


def html(points: Sequence[Point | Failed]) -> str:
    """The points as a table, without the columns that none of them has."""
    import pandas as pd

    rows = [{key: point.get(key) for key in _COLUMNS} for point in points]
    table: str = pd.DataFrame(rows).dropna(axis="columns", how="all").to_html(index=False)
    return table
