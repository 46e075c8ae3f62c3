"""Figures: errors, bias, coverage and refusals of groups of measured collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsim.accuracy.collectives.table import CollectiveRow
from dpsim.accuracy.scores import (
    Scored,
    baseline_errors,
    coverage,
    error_quantiles,
    fitted_on,
    half_width,
)
from dpsim.predict import collective_error

MIB = 2**20
ALL = "all"


#: kinds of links whose constants are fitted on all series: few machines were measured, and half of
#: their series left sizes (RoCE) or a generation of adapters (EFA) without a row
WHOLE = ("roce", "efa")


@dataclass(frozen=True)
class CollectiveOutcome:
    """One row and what came of it; times in seconds.

    status     predicted, calibrated, refused or excluded
    machine    the machine in words, with all that is assumed
    baselines  what simpler methods say, by name
    """

    row: CollectiveRow
    status: str
    reason: str = ""
    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    bottleneck: str = ""
    machine: str = ""
    baselines: Mapping[str, float] = field(default_factory=dict)

    @property
    def compared(self) -> Scored | None:
        """Its prediction beside the measurement; None where there is no prediction."""
        if self.predicted is None or self.low is None or self.high is None:
            return None
        row, ends = self.row, (self.low, self.high)
        own = dict(self.baselines)
        return Scored(row.series, row.fabric, row.measured, self.predicted, *ends, baselines=own)

    @property
    def scored(self) -> Scored | None:
        """The same where it counts: neither calibrated on nor excluded."""
        return self.compared if self.status == "predicted" else None


Group = Callable[[CollectiveOutcome], bool]


def figures(
    outcomes: Sequence[CollectiveOutcome], faulty: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """A line for every fabric, and all of them, in every band of sizes that has rows.

    Rows that could not be read, for the reasons `faulty`, have neither fabric nor size: they count
    in the line of all rows alone.
    """
    bands: list[tuple[str, Group]] = [
        (ALL, lambda o: True),
        *((name, _in_band(name)) for name, _ in collective_error.BANDS),
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
                unread = faulty if fabric == band == ALL else ()
                lines.append({"fabric": fabric, "band": band, **summary(members, unread)})
    return lines


def _in_band(name: str) -> Group:
    return lambda outcome: collective_error.band_of(outcome.row.size) == name


def by(
    outcomes: Sequence[CollectiveOutcome], key: Callable[[CollectiveOutcome], str]
) -> dict[str, dict[str, Any]]:
    """`summary` per group, in the order of the groups' names."""
    groups: dict[str, list[CollectiveOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return {name: summary(groups[name]) for name in sorted(groups)}


def half(outcome: CollectiveOutcome) -> str:
    """Which half of the series a row's belongs to, of those that were held out of the fit."""
    row = outcome.row
    return "fit" if fitted_on(row.series) or row.fabric in WHOLE else "held_out"


def summary(outcomes: Sequence[CollectiveOutcome], faulty: Sequence[str] = ()) -> dict[str, Any]:
    """The figures of one group, with rows that could not be read for the reasons `faulty`.

    n              rows that are scored: predicted, and neither calibrated on nor excluded
    median_error, p90_error  of |predicted / measured - 1|
    signed_bias    median of ln(predicted / measured); above 0 it is predicted too slow
    coverage       share of the scored rows inside their intervals
    refusals       why there is no prediction, with the number of rows
    """
    status = Counter(o.status for o in outcomes)
    reasons = Counter([*(o.reason for o in outcomes if o.status == "refused"), *faulty])
    refused, scored = reasons.total(), [s for o in outcomes if (s := o.scored)]
    found: dict[str, Any] = {
        "n": len(scored),
        "calibrated": status["calibrated"],
        "excluded": status["excluded"],
        "refused": refused,
        "share_refused": refused / (refused + len(scored)) if refused or scored else None,
        "refusals": dict(reasons.most_common()),
    }
    if not scored:
        return found
    logs = np.log([s.predicted / s.measured for s in scored])
    return found | {
        **error_quantiles([s.error for s in scored]),
        "signed_bias": float(np.median(logs)),
        "coverage": coverage(scored),
        "median_half_width": half_width(scored),
        "baselines": _baselines(scored),
    }


def _baselines(scored: Sequence[Scored]) -> dict[str, dict[str, float]]:
    """Errors of each baseline, beside the model's own on the same rows."""
    return {
        name: {
            **errors,
            "model_median_error": float(
                np.median([s.error for s in scored if name in s.baselines])
            ),
        }
        for name, errors in baseline_errors(scored).items()
    }
