"""A gamma factor with mean 1: like a normal one where it is narrow, skewed where it is wide."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, ClassVar

import numpy as np

from dpsim.core import units
from dpsim.core.arrays import Array
from dpsim.core.record import record
from dpsim.variability.distributions import Distribution


@record
class Gamma(Distribution):
    """Mean 1, standard deviation `spread`: shape 1/spread^2, scale spread^2.

    spread  standard deviation
    """

    kind: ClassVar[str] = "gamma"
    spread: Annotated[float, units.Unit("1", low=0.001, high=10.0)]

    @property
    def shape(self) -> float:
        return self.spread**-2

    def mean(self) -> float:
        return 1.0

    def quantile(self, share: float) -> float:
        return self._solve(lambda x: tails(self.shape, x)[0] < share)

    def upper(self, tail: float) -> float:
        return self._solve(lambda x: tails(self.shape, x)[1] > tail)

    def _solve(self, below: Callable[[float], bool]) -> float:
        """The factor where `below` turns false, by bisection."""
        low, high = 0.0, self.shape + 1.0
        while below(high):
            low, high = high, high * 2.0
        for _ in range(80):
            middle = (low + high) / 2.0
            if high - low <= 1e-13 * high:
                break
            low, high = (middle, high) if below(middle) else (low, middle)
        return high / self.shape

    def sample(self, stream: np.random.Generator, n: int) -> Array:
        return stream.standard_gamma(self.shape, n) / self.shape


def tails(shape: float, x: float) -> tuple[float, float]:
    """(P, Q): the shares of a gamma distribution of scale 1 below and above `x`.

    The series of P below the mean, the continued fraction of Q above it (Abramowitz and Stegun,
    Handbook of Mathematical Functions, 6.5.29 and 6.5.31), each where it converges quickly.
    """
    if x <= 0.0:
        return 0.0, 1.0
    front = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1.0:
        below = front * _series(shape, x)
        return below, 1.0 - below
    above = front * _fraction(shape, x)
    return 1.0 - above, above


def _series(shape: float, x: float) -> float:
    term = total = 1.0 / shape
    k = shape
    while term > total * 1e-16:
        k += 1.0
        term *= x / k
        total += term
    return total


def _fraction(shape: float, x: float) -> float:
    """The continued fraction in its even form, evaluated from the front (Lentz's method)."""
    b = x + 1.0 - shape
    c, d = 1e300, 1.0 / b
    value = d
    for k in range(1, 100_000):
        a = -k * (k - shape)
        b += 2.0
        d = 1.0 / (a * d + b)
        c = b + a / c
        value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value
