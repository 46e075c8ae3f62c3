"""Variability: how much longer a rank takes in a step than it would on a quiet machine.

Every cause draws from its own random stream, keyed by (seed, cause, step) and indexed by rank, so
another rank or another cause shifts nobody's draws.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from statistics import NormalDist
from typing import Annotated, Literal

import numpy as np

from dpsim.record import Check, record
from dpsim.timeline import Array
from dpsim.units import Factor, Fraction, PositiveFraction


@record
class RandomSlow:
    """Each rank is slowed by `factor` with `probability`, drawn anew every step."""

    probability: PositiveFraction
    factor: Factor
    per: Literal["step"] = "step"


@record
class Variability:
    """What makes ranks differ.

    jitter       standard deviation of a normal factor with mean 1, per rank and step
    slow_ranks   rank -> factor on all its compute, in every step
    random_slow  ranks that are slow now and then
    steps        steps that are played where anything is random
    """

    jitter: Fraction = 0.0
    slow_ranks: dict[Annotated[int, Check(0, 1_048_575)], Factor] | None = None
    random_slow: RandomSlow | None = None
    steps: Annotated[int, Check(1, 100_000)] = 100

    @property
    def random(self) -> bool:
        return self.jitter > 0 or self.random_slow is not None

    def factors(self, seed: int, step: int, ranks: int) -> Array:
        """Multiplier of every rank's compute in step `step`, shape (ranks,)."""
        factors = np.ones(ranks)
        if self.jitter:
            draws = _stream(seed, "jitter", step).standard_normal(ranks)
            factors *= np.maximum(1.0 + self.jitter * draws, 0.0)
        if self.random_slow:
            slow = _stream(seed, "random_slow", step).random(ranks) < self.random_slow.probability
            factors[slow] *= self.random_slow.factor
        for rank, factor in (self.slow_ranks or {}).items():
            if rank < ranks:
                factors[rank] *= factor
        return factors


def _stream(seed: int, cause: str, step: int) -> np.random.Generator:
    key = (seed << 64) | (zlib.crc32(cause.encode()) << 32) | step
    return np.random.Generator(np.random.Philox(key=key))


@lru_cache(maxsize=4096)
def expected_maximum(n: int) -> float:
    """Mean of the largest of `n` independent standard normal numbers (0 for one), to 1e-6.

    The integral of 1 - F^n above 0 minus that of F^n below, F the normal distribution function
    (David and Nagaraja, Order Statistics, 2003, section 3.1), by Simpson's rule on -9 … 9.
    """
    step = 18.0 / 1200
    total = 0.0
    for k, share in enumerate(_NORMAL):
        inside = (1.0 - share**n) if k > 600 else -(share**n)
        weight = 1.0 if k in (0, 1200) else 4.0 if k % 2 else 2.0
        total += weight * inside
    return (total + 1.0) * step / 3.0


#: the normal distribution function at -9, -8.985 … 9
_NORMAL = tuple(NormalDist().cdf(-9.0 + k * 18.0 / 1200) for k in range(1201))
