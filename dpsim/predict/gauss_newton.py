"""Gauss and Newton's least squares where a derivative is the difference of two plays.

Parameters are logarithms, with Gaussian priors; the last but one is a time of the host, which is
none and not below 0.  Steps that lead up are halved.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass

#: how far apart a derivative's two plays are, in a parameter's own (logarithmic) unit; the first
#: ones are WIDE apart, for what is hidden behind compute shows only where it takes far longer
STEP, WIDE = 0.05, 1.5
#: most iterations, the longest step of one, how often one is halved that leads up, and the share of
#: the sum of squares below which a gain is none
MOST, LONGEST, HALVED, SETTLED = 12, 2.0, 6, 1e-4


@dataclass(frozen=True)
class Prior:
    """What is known of the parameters before anything was measured.

    centre     where they are expected [n]
    deviation  standard deviations [n]
    against    twice the logarithm of the odds against this prior beside another [1]
    wider      how many times as much as usual may be missed that the parameters do not explain
    """

    centre: Array
    deviation: Array
    against: float = 0.0
    wider: float = 1.0

    @property
    def precision(self) -> Array:
        """Of the whole, diagonal [n x n]."""
        return np.diag([1.0 / sd**2 for sd in self.deviation])

    def pull(self, at: Array) -> Array:
        """Half the gradient of what `at` costs, downwards [n]."""
        return np.asarray(self.precision @ (self.centre - at), dtype=float)

    def away(self, at: Array) -> float:
        """The sum of squares of how far the parameters `at` are off, in standard deviations."""
        apart = at - self.centre
        return float(apart @ self.precision @ apart)


def least(
    predicted: Callable[[Array], Array], target: Array, start: Array, prior: Prior, noise: float
) -> tuple[Array, Array]:
    """The parameters of the smallest sum of squares, and the derivatives there [points x n].  The
    host's time is last but one, as `knobs` has it."""

    def missed(at: Array, base: Array) -> float:
        rest = base - target
        return float(rest @ rest / noise**2) + prior.away(at)

    weight, at, base = noise**-2, start, predicted(start)
    wide = WIDE
    for _ in range(MOST):
        slopes = _slopes(predicted, at, base, wide)
        moved = at + _move(at, slopes, weight, prior, target - base)
        known = missed(at, base)
        for _ in range(HALVED):
            ahead = predicted(moved)
            if missed(moved, ahead) < known:
                break
            moved = (at + moved) / 2
        else:
            moved, ahead = at, base
        gained, at, base = known - missed(moved, ahead), moved, ahead
        if wide == STEP and gained <= SETTLED * max(known, 1.0):
            break
        wide = STEP
    return at, _slopes(predicted, at, base, STEP)


def _move(at: Array, slopes: Array, weight: float, prior: Prior, rest: Array) -> Array:
    """The step of Gauss and Newton; no host runs backwards, the others then go without it."""
    host, free = len(at) - 2, np.ones(len(at), dtype=bool)
    normal = weight * slopes.T @ slopes + prior.precision
    pull = weight * slopes.T @ rest + prior.pull(at)
    move = np.linalg.solve(normal, pull)
    if at[host] + move[host] < 0:
        free[host] = False
        move[host] = -at[host]
        pull = pull - normal[:, host] * move[host]
        move[free] = np.linalg.solve(normal[np.ix_(free, free)], pull[free])
    return np.clip(move, -LONGEST, LONGEST)


def _slopes(predicted: Callable[[Array], Array], at: Array, base: Array, step: float) -> Array:
    """Derivatives of the logarithms of steps by every parameter [points x n]."""
    columns = []
    for k in range(len(at)):
        own = min(step, STEP) if k == len(at) - 2 else step  # host time is no logarithm
        moved = at.copy()
        moved[k] += own
        columns.append((predicted(moved) - base) / own)
    return np.stack(columns, axis=1)
