"""How far a measured collective may lie from its prediction: widths learned from residuals.

Uncalibrated predictions take a pair of factors per kind of fabric and band of sizes from
``dpsim/calibrations/collective_error.yaml``, which ``validation/fit_errors.py`` writes: the 5 %
and 95 % points of measured over predicted on the series that are fitted on.  A series is fitted on
if the CRC-32 of its name is even; odd ones are held out, and coverage is told for both.

Calibrated curves bring their own residuals: each of their points is predicted from the others.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsim.constants import Constant, shipped
from dpsim.timeline import Array

#: share of measurements that an interval should hold
COVERAGE = 0.90
#: names of the bands, and the sizes below which they end [B]
BANDS = (
    ("< 32 KiB", 2**15),
    ("32 KiB-1 MiB", 2**20),
    ("1-64 MiB", 2**26),
    (">= 64 MiB", float("inf")),
)
#: residuals, and series, below which a group says too little to be trusted alone: the rows of one
#: series miss together
ENOUGH, SERIES = 20, 8
ANY = "any"
NAME = "collective_error"


class Residual(NamedTuple):
    """One measured row against its prediction: the logarithm of measured / predicted."""

    series: str
    kind: str
    band: str
    log: float


def band_of(size: float) -> str:
    return next(name for name, end in BANDS if size < end)


def fitted_on(series: str) -> bool:
    """Whether constants may be fitted on the series of this name; the others are held out."""
    return zlib.crc32(series.encode()) % 2 == 0


def key(kind: str, band: str) -> str:
    """The name of a group in the file of constants."""
    place = ANY if band == ANY else str([name for name, _ in BANDS].index(band) + 1)
    return f"{kind}.band_{place}"


# -- learned once ---------------------------------------------------------------------------------


def learn(residuals: Iterable[Residual]) -> dict[str, Constant]:
    """The factors of every group with enough residuals, of kinds alone, bands alone, and all."""
    return {
        f"{key(kind, band)}.{side}": constant
        for (kind, band), members in sorted(_groups(residuals).items())
        if len(members) >= ENOUGH and len({m.series for m in members}) >= SERIES
        for side, constant in _factors(kind, band, members).items()
    }


def _groups(residuals: Iterable[Residual]) -> dict[tuple[str, str], list[Residual]]:
    """Residuals by kind and band, and by each alone, and all."""
    groups: dict[tuple[str, str], list[Residual]] = {}
    for found in residuals:
        for kind in (found.kind, ANY):
            for band in (found.band, ANY):
                groups.setdefault((kind, band), []).append(found)
    return groups


def _factors(kind: str, band: str, members: Sequence[Residual]) -> dict[str, Constant]:
    by_series: dict[str, list[float]] = {}
    for found in members:
        by_series.setdefault(found.series, []).append(found.log)
    series = [np.array(by_series[name]) for name in sorted(by_series)]
    where = "any fabric" if kind == ANY else kind
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
        band = band_of(size)
        groups = ((fabric, band), (fabric, ANY), (ANY, band), (ANY, ANY))
        return next((self.groups[group] for group in groups if group in self.groups), None)


def _ends(logs: Array) -> tuple[float, float]:
    tail = (1 - COVERAGE) / 2
    low, high = np.quantile(logs, [tail, 1 - tail])
    return min(float(np.exp(low)), 1.0), max(float(np.exp(high)), 1.0)


# -- used -----------------------------------------------------------------------------------------


def factors(
    kind: str, size: float, constants: Mapping[str, Constant] | None = None
) -> tuple[float, float]:
    """The interval around a prediction as two factors, low at most 1 and high at least 1.

    They lie one standard error further out than the quantiles, for a new series is not one of
    those that the quantiles were read off.  Where the group has too few residuals the kind's own
    over all sizes, then the band's over all fabrics, then those of everything stand in.
    """
    known = shipped(NAME) if constants is None else constants
    band = band_of(size)
    for group in (key(kind, band), key(kind, ANY), key(ANY, band), key(ANY, ANY)):
        if f"{group}.low" in known:
            low, high = known[f"{group}.low"], known[f"{group}.high"]
            ends = (
                low.value * math.exp(-low.error / low.value),
                high.value * math.exp(high.error / high.value),
            )
            return min(ends[0], 1.0), max(ends[1], 1.0)
    raise ValueError(f"{NAME} has no factors for any fabric")
