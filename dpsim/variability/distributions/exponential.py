"""A quiet computation plus an exponential tail: interrupts and page faults."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np

from dpsim.core import units
from dpsim.core.arrays import Array
from dpsim.core.record import record
from dpsim.variability.distributions import Distribution


@record
class Exponential(Distribution):
    """1 plus an exponential number of mean `tail`.

    tail  mean of what is added to 1
    """

    kind: ClassVar[str] = "exponential"
    tail: Annotated[float, units.Unit("1", high=1e3)]

    def mean(self) -> float:
        return 1.0 + self.tail

    def quantile(self, share: float) -> float:
        return 1.0 - self.tail * math.log1p(-share)

    def upper(self, tail: float) -> float:
        return 1.0 - self.tail * math.log(tail)

    def expected_maximum(self, n: int) -> float:
        """1 + tail (1 + 1/2 + … + 1/n) (Renyi's representation; David and Nagaraja, Order
        Statistics, 2003, section 2.5)."""
        return 1.0 + self.tail * math.fsum(1.0 / k for k in range(1, n + 1))

    def sample(self, stream: np.random.Generator, n: int) -> Array:
        return 1.0 + self.tail * stream.standard_exponential(n)
