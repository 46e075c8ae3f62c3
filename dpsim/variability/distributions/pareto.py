"""A Pareto factor: a heavy tail, in which the slowest of many ranks is far from the second."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np

from dpsim.core import units
from dpsim.core.arrays import Array
from dpsim.core.record import record
from dpsim.variability.distributions import Distribution


@record
class Pareto(Distribution):
    """At least 1; a share x^-tail_index of the draws is above x.  A small index is a heavy tail;
    it must be above 1, or there is no mean.

    tail_index  exponent of the tail
    """

    kind: ClassVar[str] = "pareto"
    tail_index: Annotated[float, units.Unit("1", low=1.0, high=1e6, above=True)]

    def mean(self) -> float:
        return self.tail_index / (self.tail_index - 1.0)

    def quantile(self, share: float) -> float:
        return self.upper(1.0 - share)

    def upper(self, tail: float) -> float:
        return float(tail ** (-1.0 / self.tail_index))

    def expected_maximum(self, n: int) -> float:
        """Gamma(n + 1) Gamma(1 - 1/a) / Gamma(n + 1 - 1/a), a the tail index: the beta function
        that n p^(n-1) (1 - p)^(-1/a) integrates to."""
        a = 1.0 / self.tail_index
        return math.exp(math.lgamma(n + 1.0) + math.lgamma(1.0 - a) - math.lgamma(n + 1.0 - a))

    def sample(self, stream: np.random.Generator, n: int) -> Array:
        return (1.0 - stream.random(n)) ** (-1.0 / self.tail_index)
