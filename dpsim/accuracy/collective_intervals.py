"""How far a measured collective may lie from its prediction: widths learned from residuals.

Uncalibrated predictions take a pair of factors per kind of fabric and band of sizes from
``dpsim/core/fitted/collective_error.yaml``, which ``validation/fit_errors.py`` writes: the 5 %
and 95 % points of measured over predicted on the series that are fitted on.  A series is fitted on
if the CRC-32 of its name is even; odd ones are held out, and coverage is told for both.

Sends and all-to-alls miss otherwise than collectives that a library tunes, so they have groups of
their own (`pool`) and change none of the others.  Their constants rest on few series, which they
meet too well; so their intervals are never narrower than those of other collectives there.

Calibrated curves bring their own residuals: each of their points is predicted from the others.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsim.core.arrays import Array
from dpsim.core.constants import Constant, shipped

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
#: operations of which there was no series to fit on, and how much further their intervals go
_UNFITTED, _BEYOND = ("reduce", "send"), 2.0
#: operations that are messages between pairs, and what the names of their groups begin with
_MESSAGES, _POOL = ("all_to_all", "send"), "messages_"


class Residual(NamedTuple):
    """One measured row against its prediction: the logarithm of measured / predicted.

    kind   as `pool` has it
    """

    series: str
    kind: str
    band: str
    log: float


def band_of(size: float) -> str:
    return next(name for name, end in BANDS if size < end)


def fitted_on(series: str) -> bool:
    """Whether constants may be fitted on the series of this name; the others are held out."""
    return zlib.crc32(series.encode()) % 2 == 0


def pool(operation: str, kind: str) -> str:
    """The kind of link `kind` (or `ANY`) as the groups of `operation` name it."""
    return _POOL + kind if operation in _MESSAGES else kind


def _any_of(kind: str) -> str:
    """The group of all fabrics that `kind` belongs to."""
    return _POOL + ANY if kind.startswith(_POOL) else ANY


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
        for kind in (found.kind, _any_of(found.kind)):
            for band in (found.band, ANY):
                groups.setdefault((kind, band), []).append(found)
    return groups


def _factors(kind: str, band: str, members: Sequence[Residual]) -> dict[str, Constant]:
    by_series: dict[str, list[float]] = {}
    for found in members:
        by_series.setdefault(found.series, []).append(found.log)
    series = [np.array(by_series[name]) for name in sorted(by_series)]
    where = "any fabric" if kind == _any_of(kind) else kind.removeprefix(_POOL)
    if kind.startswith(_POOL):
        where = f"sends and all-to-alls, {where}"
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

    `kind` is as `pool` has it.  The factors lie one standard error further out than the quantiles,
    for a new series is not one of those that the quantiles were read off.  Where the group has too
    few residuals the kind's own over all sizes, then the band's over all fabrics, then those of
    everything stand in.
    """
    known = shipped(NAME) if constants is None else constants
    found = _found(kind, band_of(size), known)
    if kind.startswith(_POOL):
        others = factors(kind.removeprefix(_POOL), size, known)
        found = found or others
        return min(found[0], others[0]), max(found[1], others[1])
    if found is None:
        raise ValueError(f"{NAME} has no factors for any fabric")
    return found


def _found(kind: str, band: str, known: Mapping[str, Constant]) -> tuple[float, float] | None:
    """The factors of the nearest group that there is."""
    every = _any_of(kind)
    for group in (key(kind, band), key(kind, ANY), key(every, band), key(every, ANY)):
        if f"{group}.low" in known:
            return _wide(known[f"{group}.low"], known[f"{group}.high"])
    return None


def interval(operation: str, kind: str, size: float) -> tuple[float, float]:
    """The factors of `operation` on `size` bytes over links of `kind` (or `ANY`).

    They go further by `_BEYOND` for operations that were not fitted: of the reduces and sends that
    were seen, all held out, many lie outside the plain ones.
    """
    low, high = factors(pool(operation, kind), size)
    more = _BEYOND if operation in _UNFITTED else 1.0
    return low / more, high * more


def _wide(low: Constant, high: Constant) -> tuple[float, float]:
    """A standard error further out than `low` and `high`, around 1."""
    ends = (
        low.value * math.exp(-low.error / low.value),
        high.value * math.exp(high.error / high.value),
    )
    return min(ends[0], 1.0), max(ends[1], 1.0)
