"""A factor anywhere between two bounds."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dpsim.core import units
from dpsim.core.arrays import Array
from dpsim.core.record import Refused, record
from dpsim.variability.distributions import Distribution


@record
class Uniform(Distribution):
    """Any factor from `low` to `high` is as likely as any other.

    low   smallest factor
    high  largest factor
    """

    kind: ClassVar[str] = "uniform"
    low: units.Factor = 1.0
    high: units.Factor

    def __post_init__(self) -> None:
        if self.high < self.low:
            raise Refused(f"{self.high:g} is below low, {self.low:g}", ("high",))

    def mean(self) -> float:
        return (self.low + self.high) / 2.0

    def quantile(self, share: float) -> float:
        return self.low + (self.high - self.low) * share

    def expected_maximum(self, n: int) -> float:
        """low + (high - low) n/(n + 1): the mean of a beta distribution (n, 1)."""
        return self.low + (self.high - self.low) * n / (n + 1.0)

    def sample(self, stream: np.random.Generator, n: int) -> Array:
        return self.low + (self.high - self.low) * stream.random(n)
