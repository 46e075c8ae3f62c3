"""A lognormal factor with mean 1: skewed to the slow side, never negative."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Annotated, ClassVar

import numpy as np

from dpsim.core import units
from dpsim.core.arrays import Array
from dpsim.core.record import record
from dpsim.variability.distributions import Distribution


@record
class Lognormal(Distribution):
    """Mean 1, standard deviation `spread`.

    spread  standard deviation
    """

    kind: ClassVar[str] = "lognormal"
    spread: Annotated[float, units.Unit("1", high=10.0)]

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm: sigma^2 = ln(1 + spread^2)."""
        return math.sqrt(math.log1p(self.spread**2))

    def mean(self) -> float:
        return 1.0

    def quantile(self, share: float) -> float:
        return self._at(NormalDist().inv_cdf(share))

    def upper(self, tail: float) -> float:
        return self._at(-NormalDist().inv_cdf(tail))

    def _at(self, z: float) -> float:
        return math.exp(self.sigma * z - self.sigma**2 / 2.0)

    def sample(self, stream: np.random.Generator, n: int) -> Array:
        return np.exp(self.sigma * stream.standard_normal(n) - self.sigma**2 / 2.0)
