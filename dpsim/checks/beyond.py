"""How likely steps are of a fault: between strengths that are played, beyond them, or of no name.

Errors are heavier than normal (Student's), around a healthy cluster too.  Were a fault no stronger
than what is played of it, steps beyond that would be as far from it as from the healthy cluster,
and be less a fault the slower they are.  So whatever makes steps slower has a tail heavier than
that of any error (half a Cauchy distribution of the logarithm of the slowdown): each fault beyond
the strongest that is played, in the pattern of that one, and a fault that nobody has thought of in
any pattern.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsim.core.arrays import Array

#: degrees of freedom: tails heavier than normal, as errors of predictions are
FREEDOM = 6.0
#: slowdown that half of the faults of no name exceed: taken, as no list of them was published
HALF = 6.0
#: share of a fault that is stronger than all that is played of it, and slowdown beyond the
#: strongest which half of these exceed: taken; less leaves a gap between them and faults of no name
STRONGER, FURTHER = 0.2, 2.0
#: how fine slowdowns are summed over, in logarithms, and how many of them at most
FINE, MOST = 0.02, 4000
#: into how many parts the way from one strength of a fault to the next is divided: most strengths
#: of `hypotheses` are within a factor of two of the next, so parts are within 10 %, which is what
#: calibrated predictions miss anyway (`interval.run`)
PARTS = 8


@dataclass(frozen=True)
class Strengths:
    """Strengths of one kind of a fault, the weakest first: logarithms of its steps over the healthy
    ones [strengths x points], and their covariances [strengths x points x points]."""

    means: Array
    wide: Array

    def played(self, rest: Array, wide: Array | None) -> Array:
        """Logarithms of the densities of steps whose logarithms are `rest` [points] from healthy
        ones, by strength; `wide`: instead of what the strengths make unsure."""
        found: Array = student(rest - self.means, self.wide if wide is None else wide)
        return found

    def stronger(self, rest: Array, wide: Array | None) -> float:
        """The same, beyond the strongest: as much slower, in logarithms, at every point."""
        last = self.means[-1]
        way = last / np.max(last)
        end = max(float(np.max(rest)), 0.0) + 1.0
        edges = np.linspace(0.0, end, min(math.ceil(end / FINE), MOST) + 1)
        shares = np.diff(2 / math.pi * np.arctan(edges / math.log(FURTHER)))
        middles = (edges[1:] + edges[:-1]) / 2
        covariance = self.wide[-1] if wide is None else wide
        each = student(rest - last - middles[:, None] * way, covariance)
        return sum_of(each + np.log(shares))


def fault(rest: Array, kinds: Sequence[Strengths], wide: Array | None = None) -> float:
    """Logarithm of the density of steps whose logarithms are `rest` [points] from the healthy ones,
    of a fault of these `kinds`; strengths that are played count alike, as kinds do beyond them."""
    played = mean_of(np.concatenate([kind.played(rest, wide) for kind in kinds]))
    further = mean_of([kind.stronger(rest, wide) for kind in kinds])
    return sum_of([played + math.log(1.0 - STRONGER), further + math.log(STRONGER)])


def student(rest: Array, covariance: Array) -> Any:
    """Logarithm of the density of a multivariate Student distribution at every `rest` [... x n]
    from its middle, up to what all hypotheses of the same points share; each `rest` may have a
    `covariance` [... x n x n] of its own."""
    distance = np.sum(rest * np.linalg.solve(covariance, rest[..., None])[..., 0], axis=-1)
    _, logdet = np.linalg.slogdet(covariance)
    size = rest.shape[-1]
    return -0.5 * logdet - (FREEDOM + size) / 2 * np.log1p(distance / FREEDOM)


def sum_of(logs: Sequence[float] | Array) -> float:
    """Logarithm of the sum of what these [k] are the logarithms of."""
    return float(np.logaddexp.reduce(np.asarray(logs)))


def mean_of(logs: Sequence[float] | Array) -> float:
    """Logarithm of the mean of what these [k] are the logarithms of."""
    return sum_of(logs) - math.log(len(logs))


def between(played: Sequence[Array], strengths: int | None = None) -> Array:
    """What was `played` of strengths of a fault, with PARTS - 1 more between each strength and the
    next, on straight lines: as many of each pair, for how bad a fault is nobody knows beforehand.

    strengths  how many there are, where not all were played: the first and the last were
    """
    parts = ((strengths or len(played)) - 1) * PARTS
    at = np.linspace(0.0, len(played) - 1.0, parts + 1)
    low = np.minimum(at.astype(int), max(len(played) - 2, 0))
    every = np.stack(played)
    share = (at - low).reshape(-1, *(1,) * (every.ndim - 1))
    found: Array = every[low] * (1 - share) + every[np.minimum(low + 1, len(played) - 1)] * share
    return found


def unknown(rest: Array, covariance: Array) -> float:
    """Logarithm of the density of steps whose logarithms are `rest` [n] from the healthy ones, had
    the cluster a fault of no name: it makes some points slower, each by an amount of its own, and
    leaves the others healthy.

    How many are slow counts alike, and so does which of them; of each number the slowest ones are
    looked at, for all others explain less.
    """
    size, order = len(rest), np.argsort(-rest)
    found = [-math.inf]
    for many in range(1, size + 1):
        slow, rested = order[:many], order[many:]
        least = math.log(size * math.comb(size, many))
        inside = covariance[np.ix_(rested, rested)]
        healthy = covariance[np.ix_(slow, rested)] @ np.linalg.solve(inside, rest[rested])
        slower = rest[slow] - healthy
        if np.all(slower > 0.0):
            others = float(student(rest[rested], inside)) + _share(FREEDOM, size - many)
            found.append(others + _slowdowns(slower) - least)
    return sum_of(found) - _share(FREEDOM, size)


def _slowdowns(slower: Array) -> float:
    """Logarithm of the density of slowdowns whose logarithms are `slower`, all of them above 0: a
    multivariate Cauchy distribution's there."""
    many, scale = len(slower), math.log(HALF)
    distance = float(slower @ slower) / scale**2
    there = _share(1.0, many) + many * (math.log(2.0) - math.log(scale))
    return there - (1.0 + many) / 2 * math.log1p(distance)


def _share(freedom: float, size: int) -> float:
    """What `student` leaves out: logarithm of the constant of a Student distribution."""
    whole = math.lgamma((freedom + size) / 2) - math.lgamma(freedom / 2)
    return whole - size / 2 * math.log(freedom * math.pi)
