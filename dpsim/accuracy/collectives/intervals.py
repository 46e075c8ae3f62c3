"""How far measured collectives lie from curves that were measured too: widths of one table.

Uncalibrated predictions have shipped widths (`dpsim.predict.collective_error`).  Calibrated curves
bring their own: each of their points is predicted from the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsim.accuracy.scores import COVERAGE
from dpsim.core.arrays import Array
from dpsim.predict import collective_error
from dpsim.predict.collective_error import ANY

#: residuals below which a group says too little to be trusted alone
ENOUGH = 20


class Residual(NamedTuple):
    """One measured row against its prediction: the logarithm of measured / predicted."""

    series: str
    kind: str
    band: str
    log: float


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


def _groups(residuals: Iterable[Residual]) -> dict[tuple[str, str], list[Residual]]:
    """Residuals by kind and band, and by each alone, and all."""
    groups: dict[tuple[str, str], list[Residual]] = {}
    for found in residuals:
        for kind in (found.kind, ANY):
            for band in (found.band, ANY):
                groups.setdefault((kind, band), []).append(found)
    return groups


def _ends(logs: Array) -> tuple[float, float]:
    tail = (1 - COVERAGE) / 2
    low, high = np.quantile(logs, [tail, 1 - tail])
    return min(float(np.exp(low)), 1.0), max(float(np.exp(high)), 1.0)
