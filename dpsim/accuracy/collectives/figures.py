"""Figures: errors, bias, coverage and refusals of groups of measured collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsim.accuracy.collectives.table import CollectiveRow
from dpsim.accuracy.scores import fitted_on
from dpsim.core.arrays import Array
from dpsim.predict.collective_error import BANDS, band_of

MIB = 2**20
ALL = "all"


@dataclass(frozen=True)
class CollectiveOutcome:
    """One row and what came of it; times in seconds.

    status     predicted, calibrated, refused or excluded
    baselines  what simpler methods say, by name
    """

    row: CollectiveRow
    status: str
    reason: str = ""
    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    bottleneck: str = ""
    baselines: Mapping[str, float] = field(default_factory=dict)

    @property
    def scored(self) -> bool:
        return self.status == "predicted"

    @property
    def inside(self) -> bool:
        low, high = self.low or 0.0, self.high or 0.0
        return low * (1 - 1e-9) <= self.row.measured <= high * (1 + 1e-9)


Group = Callable[[CollectiveOutcome], bool]


def figures(outcomes: Sequence[CollectiveOutcome]) -> list[dict[str, Any]]:
    """A line for every fabric, and all of them, in every band of sizes that has rows."""
    bands: list[tuple[str, Group]] = [
        (ALL, lambda o: True),
        *((name, _in_band(name)) for name, _ in BANDS),
        ("< 1 MiB", lambda o: o.row.size < MIB),
        (">= 1 MiB", lambda o: o.row.size >= MIB),
    ]
    by_fabric: dict[str, list[CollectiveOutcome]] = {ALL: list(outcomes)}
    for outcome in outcomes:
        by_fabric.setdefault(outcome.row.fabric, []).append(outcome)
    fabrics = [ALL, *sorted(set(by_fabric) - {ALL})]
    lines = []
    for fabric in fabrics:
        for band, belongs in bands:
            members = [o for o in by_fabric[fabric] if belongs(o)]
            if members:
                lines.append({"fabric": fabric, "band": band, **summary(members)})
    return lines


def _in_band(name: str) -> Group:
    return lambda outcome: band_of(outcome.row.size) == name


def by(
    outcomes: Sequence[CollectiveOutcome], key: Callable[[CollectiveOutcome], str]
) -> dict[str, dict[str, Any]]:
    """`summary` per group, in the order of the groups' names."""
    groups: dict[str, list[CollectiveOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return {name: summary(groups[name]) for name in sorted(groups)}


def half(outcome: CollectiveOutcome) -> str:
    """Which half of the series a row's belongs to."""
    return "fit" if fitted_on(outcome.row.series) else "held_out"


def summary(outcomes: Sequence[CollectiveOutcome]) -> dict[str, Any]:
    """The figures of one group.

    n              rows that are scored: predicted, and neither calibrated on nor excluded
    median_error, p90_error  of |predicted / measured - 1|
    signed_bias    median of ln(predicted / measured); above 0 it is predicted too slow
    coverage       share of the scored rows inside their intervals
    refusals       why there is no prediction, with the number of rows
    """
    status = Counter(o.status for o in outcomes)
    refused, scored = status["refused"], [o for o in outcomes if o.scored]
    found: dict[str, Any] = {
        "n": len(scored),
        "calibrated": status["calibrated"],
        "excluded": status["excluded"],
        "refused": refused,
        "share_refused": refused / (refused + len(scored)) if refused or scored else None,
        "refusals": dict(
            Counter(o.reason for o in outcomes if o.status == "refused").most_common()
        ),
    }
    if not scored:
        return found
    predicted = np.array([o.predicted for o in scored])
    measured = np.array([o.row.measured for o in scored])
    ends = np.array([[o.low, o.high] for o in scored])
    return found | {
        **_errors(predicted, measured),
        "signed_bias": float(np.median(np.log(predicted / measured))),
        "coverage": float(np.mean([o.inside for o in scored])),
        "median_half_width": float(np.median((ends[:, 1] - ends[:, 0]) / 2 / predicted)),
        "baselines": _baselines(scored),
    }


def _errors(predicted: Array, measured: Array) -> dict[str, float]:
    error = np.abs(predicted / measured - 1.0)
    return {
        "median_error": float(np.median(error)),
        "p90_error": float(np.quantile(error, 0.9)),
    }


def _baselines(scored: Sequence[CollectiveOutcome]) -> dict[str, dict[str, float]]:
    """Errors of each baseline, beside the model's own on the same rows."""
    found = {}
    for name in sorted({name for o in scored for name in o.baselines}):
        having = [o for o in scored if name in o.baselines]
        measured = np.array([o.row.measured for o in having])
        own = np.array([o.predicted for o in having])
        found[name] = {
            "n": len(having),
            **_errors(np.array([o.baselines[name] for o in having]), measured),
            "model_median_error": _errors(own, measured)["median_error"],
        }
    return found
