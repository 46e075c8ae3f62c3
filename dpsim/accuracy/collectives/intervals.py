"""How far measured collectives lie from their predictions: widths learned from residuals.

Those of uncalibrated predictions are learned once, from the series that are fitted on, and shipped
(`dpsim.predict.collective_error` has them).  Calibrated curves bring their own: each of their
points is predicted from the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsim.accuracy.scores import COVERAGE
from dpsim.core.arrays import Array
from dpsim.core.constants import Constant
from dpsim.predict import collective_error
from dpsim.predict.collective_error import ANY

#: residuals, and series, below which a group says too little to be trusted alone: the rows of one
#: series miss together
ENOUGH, SERIES = 20, 8


class Residual(NamedTuple):
    """One measured row against its prediction: the logarithm of measured / predicted.

    kind   as `pool` has it
    """

    series: str
    kind: str
    band: str
    log: float


# -- learned once ---------------------------------------------------------------------------------


def learn(residuals: Iterable[Residual]) -> dict[str, Constant]:
    """The factors of every group with enough residuals, of kinds alone, bands alone, and all."""
    return {
        f"{collective_error.key(kind, band)}.{side}": constant
        for (kind, band), members in sorted(_groups(residuals).items())
        if len(members) >= ENOUGH and len({m.series for m in members}) >= SERIES
        for side, constant in _factors(kind, band, members).items()
    }


def _groups(residuals: Iterable[Residual]) -> dict[tuple[str, str], list[Residual]]:
    """Residuals by kind and band, and by each alone, and all."""
    groups: dict[tuple[str, str], list[Residual]] = {}
    for found in residuals:
        for kind in (found.kind, collective_error.any_of(found.kind)):
            for band in (found.band, ANY):
                groups.setdefault((kind, band), []).append(found)
    return groups


def _factors(kind: str, band: str, members: Sequence[Residual]) -> dict[str, Constant]:
    by_series: dict[str, list[float]] = {}
    for found in members:
        by_series.setdefault(found.series, []).append(found.log)
    series = [np.array(by_series[name]) for name in sorted(by_series)]
    where = collective_error.fabric_of(kind)
    sizes = "any size" if band == ANY else band
    made = {}
    for side, share in (("low", (1 - COVERAGE) / 2), ("high", (1 + COVERAGE) / 2)):
        factor = float(np.exp(_quantile(series, share)))
        made[side] = Constant(
            value=float(f"{factor:.4g}"),
            error=float(f"{factor * _error(series, share):.3g}"),
            unit="1",
            meaning=f"{share:.0%} point of measured over predicted time, {where}, {sizes}",
            fitted_on=(
                f"uncalibrated predictions of {len(series)} published series whose name has an "
                "even CRC-32, each with the same weight; the error is a bootstrap's over series"
            ),
            n=len(members),
        )
    return made


def _quantile(series: Sequence[Array], share: float) -> float:
    """A quantile of rows of which each series has the same weight in all, however many it has."""
    logs = np.concatenate(series)
    weights = np.concatenate([np.full(len(own), 1 / len(own)) for own in series])
    order = np.argsort(logs, kind="stable")
    below = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(share * len(series), below, logs[order]))


def _error(series: Sequence[Array], share: float) -> float:
    """Standard error of the quantile when the series are drawn anew."""
    rng, n = np.random.default_rng(0), len(series)
    drawn = [_quantile([series[k] for k in rng.integers(0, n, n)], share) for _ in range(200)]
    return float(np.std(drawn))


# -- learned from the curves of one table ---------------------------------------------------------


@dataclass(frozen=True)
class Widths:
    """Intervals as pairs of factors, by fabric and band (`ANY` for either)."""

    groups: Mapping[tuple[str, str], tuple[float, float]]

    @classmethod
    def of(cls, residuals: Iterable[Residual]) -> Widths:
        """The intervals of all groups with enough residuals."""
        return cls(
            {
                group: _ends(np.array([m.log for m in members]))
                for group, members in _groups(residuals).items()
                if len(members) >= ENOUGH
            }
        )

    def around(self, fabric: str, size: float) -> tuple[float, float] | None:
        """The factors, low at most 1 and high at least 1; None where no group tells."""
        band = collective_error.band_of(size)
        groups = ((fabric, band), (fabric, ANY), (ANY, band), (ANY, ANY))
        return next((self.groups[group] for group in groups if group in self.groups), None)


def _ends(logs: Array) -> tuple[float, float]:
    tail = (1 - COVERAGE) / 2
    low, high = np.quantile(logs, [tail, 1 - tail])
    return min(float(np.exp(low)), 1.0), max(float(np.exp(high)), 1.0)
