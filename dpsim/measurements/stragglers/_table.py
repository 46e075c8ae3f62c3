"""Times of every rank in every step: who is slow, since when, and what its mending would gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dpsim.core.arrays import Array

#: steps that a change must have on both sides to be told from an accident
LEAST = 3
#: share of the squares that a change must explain
EXPLAINED = 0.5
#: times the median absolute deviation beyond which a step is an outlier
OUTLYING = 6.0

Pattern = Literal["all the time", "since a step", "at times"]


@dataclass(frozen=True)
class Times:
    """Seconds that each rank computed in each step: array (steps, ranks), in order of both."""

    steps: tuple[int, ...]
    ranks: tuple[int, ...]
    seconds: Array

    @property
    def typical(self) -> Array:
        """What a typical rank, the median one, takes in each step [s]."""
        return np.asarray(np.median(self.seconds, axis=1))


@dataclass(frozen=True)
class Straggler:
    """A rank that is slower than the others.

    since    the first step in which it is
    factor   of its time to the others' when it is slow
    share    of the steps in which it is slow
    gain     what a step would gain in the mean if this rank alone were like the others [s]
    """

    rank: int
    since: int
    factor: float
    share: float
    pattern: Pattern
    gain: float


def find(steps: tuple[int, ...], ratios: Array, threshold: float) -> dict[int, Straggler]:
    """Who of the columns of `ratios`, their times relative to what is normal, is slow; by column.

    A rank is slow all the time or since a step if it is in most of the steps (then on), and at
    times if single steps of it lie far outside of what its others do.
    """
    found = {}
    for column in range(ratios.shape[1]):
        one = _judge(steps, ratios[:, column], threshold)
        if one is not None:
            found[column] = one
    return found


def _judge(steps: tuple[int, ...], ratio: Array, threshold: float) -> Straggler | None:
    limit, slow = 1.0 + threshold, ratio > 1.0 + threshold
    change = _change(ratio)
    if change is not None:
        after = ratio[change:]
        if np.median(after) > limit and after.mean() - ratio[:change].mean() > threshold:
            share = len(after) / len(ratio)
            factor = float(np.median(after))
            return Straggler(0, steps[change], factor, share, "since a step", 0.0)
    if np.median(ratio) > limit:
        return Straggler(0, steps[0], float(np.median(ratio)), 1.0, "all the time", 0.0)
    middle = float(np.median(ratio))
    width = float(np.median(np.abs(ratio - middle)))
    slow &= ratio > middle + OUTLYING * width
    if not slow.any():
        return None
    first, share = steps[int(slow.argmax())], float(slow.mean())
    return Straggler(0, first, float(ratio[slow].mean()), share, "at times", 0.0)


def _change(values: Array) -> int | None:
    """Where two levels describe `values` best, if they leave less than half of the squares.

    The split with the least sum of squared errors: the maximum likelihood of one change of the mean
    (Hinkley, Biometrika 57(1), 1970).
    """
    n = len(values)
    if n < 2 * LEAST:
        return None
    total = float(((values - values.mean()) ** 2).sum())
    if total <= 1e-12 * n:
        return None
    left = [
        float(((values[:k] - values[:k].mean()) ** 2).sum())
        + float(((values[k:] - values[k:].mean()) ** 2).sum())
        for k in range(LEAST, n - LEAST + 1)
    ]
    best = int(np.argmin(left))
    return best + LEAST if left[best] < (1.0 - EXPLAINED) * total else None


def original(times: Times) -> float:
    """Mean over the steps of the slowest rank [s]."""
    return float(times.seconds.max(axis=1).mean())


def ideal(times: Times) -> float:
    """Mean over the steps of the typical rank [s]."""
    return float(times.typical.mean())


def gain(times: Times, column: int) -> float:
    """What a step gains in the mean if this rank is never slower than the typical one [s]."""
    mended = times.seconds.copy()
    mended[:, column] = np.minimum(mended[:, column], times.typical)
    return original(times) - float(mended.max(axis=1).mean())
