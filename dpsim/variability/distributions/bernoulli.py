"""Now and then slow by a fixed factor, quiet otherwise."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from dpsim.core import units
from dpsim.core.arrays import Array
from dpsim.core.record import record
from dpsim.variability.distributions import Distribution


@record
class Bernoulli(Distribution):
    """`factor` with `probability`, 1 otherwise.

    probability  of being slow
    factor       when slow
    """

    kind: ClassVar[str] = "bernoulli"
    probability: units.PositiveFraction
    factor: units.Factor

    def mean(self) -> float:
        return 1.0 + self.probability * (self.factor - 1.0)

    def quantile(self, share: float) -> float:
        likely = self.probability if self.factor < 1.0 else 1.0 - self.probability
        return min(self.factor, 1.0) if share <= likely else max(self.factor, 1.0)

    def expected_maximum(self, n: int) -> float:
        """The larger value unless all n draw the smaller one."""
        low, high = min(self.factor, 1.0), max(self.factor, 1.0)
        likely = 1.0 - self.probability if self.factor < 1.0 else self.probability
        none = math.exp(n * math.log1p(-likely)) if likely < 1.0 else 0.0
        return low + (high - low) * (1.0 - none)

    def sample(self, stream: np.random.Generator, n: int) -> Array:
        return np.where(stream.random(n) < self.probability, self.factor, 1.0)
