"""How well a count tells the rate that it came of."""

from __future__ import annotations

import math

import numpy as np

#: probability below and above the interval
TAIL = 0.05
#: beyond, a count is as good as normal
_MANY = 10_000


def interval(count: int) -> tuple[float, float]:
    """The exact 90 % interval of the mean of a Poisson count (Garwood, Biometrika 28, 1936).

    >>> low, high = interval(10)
    >>> round(low, 3), round(high, 3), interval(0)[0], round(interval(0)[1], 3)
    (5.425, 16.962, 0.0, 2.996)
    """
    if count > _MANY:
        spread = 1.645 * math.sqrt(count)
        return count - spread, count + spread
    low = _mean(count - 1, 1.0 - TAIL) if count else 0.0
    return low, _mean(count, TAIL)


def _mean(count: int, probability: float) -> float:
    """The mean of which a Poisson number is at most `count` with that probability."""
    low, high = 0.0, count + 10.0 * math.sqrt(count + 1.0) + 10.0
    terms = np.arange(count + 1)
    logs = np.array([math.lgamma(k + 1.0) for k in terms])
    for _ in range(100):
        middle = 0.5 * (low + high)
        at_most = float(np.exp(terms * math.log(middle) - logs - middle).sum())
        low, high = (middle, high) if at_most > probability else (low, middle)
    return 0.5 * (low + high)
