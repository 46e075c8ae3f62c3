"""Scores: how far predictions are from measurements, and how honest their intervals are."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: share of measurements that an interval should hold
COVERAGE = 0.90
#: columns that predictions.csv adds, in their order
ADDED = (
    "measured", "predicted", "low", "high", "unit", "status", "reason", "bottleneck", "machine",
)  # fmt: skip


@dataclass(frozen=True)
class Scored:
    """One measured number and what was predicted for it, in the same unit.

    lost, lost_predicted   1 - efficiency relative to the calibrated count, measured and predicted;
                           None where there is no such count
    baselines              the same number as other methods predict it, by name
    rate                   whether it is a throughput, which falls as the time grows
    """

    source: str
    regime: str
    measured: float
    predicted: float
    low: float
    high: float
    lost: float | None = None
    lost_predicted: float | None = None
    baselines: dict[str, float] = field(default_factory=dict)
    rate: bool = False

    @property
    def error(self) -> float:
        """|predicted / measured - 1|."""
        return abs(self.predicted / self.measured - 1.0)

    @property
    def bias(self) -> float:
        """Of the time, relative: above 0 it is predicted too long."""
        ratio = self.predicted / self.measured
        return (1.0 / ratio if self.rate else ratio) - 1.0

    @property
    def inside(self) -> bool:
        return self.low * (1 - 1e-9) <= self.measured <= self.high * (1 + 1e-9)

    @property
    def interval_score(self) -> float:
        """Width plus 2 / (1 - coverage) times what lies outside, relative to the measurement
        (Gneiting and Raftery, JASA 102:359, 2007, section 6.2): smaller is better."""
        outside = max(self.low - self.measured, self.measured - self.high, 0.0)
        return (self.high - self.low + 2.0 / (1.0 - COVERAGE) * outside) / self.measured


def fitted_on(series: str) -> bool:
    """Whether constants may be fitted on the series of this name; the others are held out."""
    return zlib.crc32(series.encode()) % 2 == 0


def summary(rows: Sequence[Scored], refused: int = 0) -> dict[str, Any]:
    """The figures of a group of rows; `refused` others of the group have no prediction."""
    found: dict[str, Any] = {
        "n": len(rows),
        "refused": refused,
        "share_refused": refused / (len(rows) + refused) if rows or refused else None,
    }
    if not rows:
        return found
    return found | {
        **error_quantiles([row.error for row in rows]),
        "mean_error": float(np.mean([row.error for row in rows])),
        "signed_bias": float(np.median([row.bias for row in rows])),
        "skill": skill(rows),
        "coverage": coverage(rows),
        "interval_score": float(np.mean([row.interval_score for row in rows])),
        "median_half_width": half_width(rows),
        "baselines": baseline_errors(rows),
    }


def coverage(rows: Sequence[Scored]) -> float:
    """Share of `rows` inside their intervals."""
    return float(np.mean([row.inside for row in rows]))


def half_width(rows: Sequence[Scored]) -> float:
    """The median half width of the intervals of `rows`, relative to the predictions."""
    return float(np.median([(row.high - row.low) / 2.0 / row.predicted for row in rows]))


def error_quantiles(errors: Sequence[float]) -> dict[str, float]:
    """The median and the 90th percentile of `errors`."""
    return {"median_error": float(np.median(errors)), "p90_error": float(np.quantile(errors, 0.9))}


def skill(rows: Iterable[Scored]) -> float | None:
    """1 - error / error of linear scaling, both on the lost efficiency; None without any loss.

    Linear scaling says that nothing is lost: its error is the measured loss itself.
    """
    pairs = [(r.lost, r.lost_predicted) for r in rows if r.lost is not None]
    linear = sum(abs(lost) for lost, _ in pairs)
    if linear == 0:
        return None
    return 1.0 - sum(abs((own or 0.0) - lost) for lost, own in pairs) / linear


def baseline_errors(rows: Sequence[Scored]) -> dict[str, dict[str, float]]:
    """Median and 90th percentile error of every baseline, over the rows that have it."""
    found = {}
    for name in sorted({name for row in rows for name in row.baselines}):
        having = [row for row in rows if name in row.baselines]
        errors = [abs(row.baselines[name] / row.measured - 1.0) for row in having]
        found[name] = {"n": len(errors), **error_quantiles(errors)}
    return found


def grouped(
    rows: Sequence[Scored], key: Callable[[Scored], str], refused: dict[str, int] | None = None
) -> dict[str, dict[str, Any]]:
    """`summary` per group, in the order of the groups' names."""
    refused = refused or {}
    groups: dict[str, list[Scored]] = {name: [] for name in refused}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {name: summary(groups[name], refused.get(name, 0)) for name in sorted(groups)}


def count_band(ranks: int) -> str:
    """The band of GPU counts that regimes are told apart by."""
    for low, high in ((1, 1), (2, 8), (9, 64), (65, 512)):
        if low <= ranks <= high:
            return f"{low}-{high}" if high > low else "1"
    return "> 512"


def finite(value: float) -> float:
    """`value`, which must be a finite positive number."""
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{value} is no number to score")
    return value
