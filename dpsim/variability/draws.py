"""The largest of n standard normal numbers in the mean, and the streams that draws come from."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from dpsim.core.many import settled


def stream(seed: int, cause: str, step: int) -> np.random.Generator:
    """The random stream of one cause in one step; ranks draw from it in turn, so that another rank
    or another cause shifts nobody's draws."""
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


def expected_slowest(ranks: int, fixed: Mapping[int, float], spread: float) -> float:
    """Mean of the slowest of `ranks` ranks over the slowest factor, where rank r takes its factor
    (`fixed`, else 1) times a normal number of mean 1 and standard deviation `spread`.

    Where all factors are alike that is 1 + spread times `expected_maximum`.
    """
    groups = Counter(fixed.values())
    if ranks > len(fixed):
        groups[1.0] += ranks - len(fixed)
    if len(groups) > 1 and (one := settled(spread)) != 0.0:
        return _slowest(tuple(sorted(groups.items())), one)
    return 1.0 + spread * expected_maximum(ranks)


@lru_cache(maxsize=256)
def _slowest(groups: tuple[tuple[float, int], ...], spread: float) -> float:
    """The same for `groups` of a factor and how many ranks have it: the integral of one minus the
    product of the distribution functions, by Simpson's rule; never below 1."""
    most = groups[-1][0]
    grid = most * (1.0 + spread * np.linspace(-9.0, 9.0, 2401))
    below = np.ones_like(grid)
    for factor, count in groups:
        below *= np.array([_CDF((x / factor - 1.0) / spread) for x in grid]) ** count
    weights = np.array([1.0, *[4.0, 2.0] * 1199, 4.0, 1.0])
    beyond = float(weights @ (1.0 - below)) * float(grid[1] - grid[0]) / 3.0
    return max((float(grid[0]) + beyond) / most, 1.0)


_CDF = NormalDist().cdf
#: the normal distribution function at -9, -8.985 … 9
_NORMAL = tuple(_CDF(-9.0 + k * 18.0 / 1200) for k in range(1201))
