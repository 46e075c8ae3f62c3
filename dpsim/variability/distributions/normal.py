"""A normal factor with mean 1: what ``jitter: 2 %`` means."""

from __future__ import annotations

from statistics import NormalDist
from typing import ClassVar

import numpy as np

from dpsim.core import units
from dpsim.core.arrays import Array
from dpsim.core.record import record
from dpsim.variability.distributions import Distribution
from dpsim.variability.draws import expected_maximum


@record
class Normal(Distribution):
    """Mean 1, standard deviation `spread`; draws below 0 count as 0.

    spread  standard deviation
    """

    kind: ClassVar[str] = "normal"
    spread: units.Fraction

    def mean(self) -> float:
        """Of the normal number; what is cut off at 0 matters where `spread` is beyond 30 %."""
        return 1.0

    def quantile(self, share: float) -> float:
        return max(1.0 + self.spread * NormalDist().inv_cdf(share), 0.0)

    def upper(self, tail: float) -> float:
        return max(1.0 - self.spread * NormalDist().inv_cdf(tail), 0.0)

    def expected_maximum(self, n: int) -> float:
        return 1.0 + self.spread * expected_maximum(n)

    def sample(self, stream: np.random.Generator, n: int) -> Array:
        return np.maximum(1.0 + self.spread * stream.standard_normal(n), 0.0)
