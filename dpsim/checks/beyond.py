"""A fault that nobody has thought of: steps that take longer than any fault of the list explains.

Without it a step a thousand times too long would be as far from every hypothesis as from the
healthy one, and nothing could be told.  The logarithm of the slowdown has half a Cauchy
distribution: its tails are heavier than those around any hypothesis (Student's), so what is slower
than all of them is an unknown fault, and the surer the slower it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsim.core.arrays import Array

#: degrees of freedom: tails heavier than normal, as errors of predictions are
FREEDOM = 6.0
#: slowdown from which a fault is one of no name: below, those of the list are played, and a
#: pattern that is free would call healthy runs slow (from 1.15 on 9 of 60 made-up ones, from 3 on
#: 4, as without it: validation/step_verdicts.py)
LEAST = 3.0
#: slowdown beyond the least one which half of unknown faults exceed: taken, as no
#: list of them was published
HALF = 2.0
#: how fine slowdowns are summed over, in logarithms, and how many of them at most
FINE, MOST = 0.02, 4000
#: into how many parts the way from one strength of a fault to the next is divided: most strengths
#: of `hypotheses` are within a factor of two of the next, so parts are within 10 %, which is what
#: calibrated predictions miss anyway (`interval.run`)
PARTS = 8


def student(rest: Array, covariance: Array) -> Any:
    """Logarithm of the density of a multivariate Student distribution at every `rest` [... x n]
    from its middle, up to what all hypotheses of the same points share; each `rest` may have a
    `covariance` [... x n x n] of its own."""
    distance = np.sum(rest * np.linalg.solve(covariance, rest[..., None])[..., 0], axis=-1)
    _, logdet = np.linalg.slogdet(covariance)
    size = rest.shape[-1]
    return -0.5 * logdet - (FREEDOM + size) / 2 * np.log1p(distance / FREEDOM)


def mean_of(logs: Sequence[float] | Array) -> float:
    """Logarithm of the mean of what these [k] are the logarithms of."""
    top = float(np.max(logs))
    return top + math.log(float(np.mean(np.exp(np.asarray(logs) - top))))


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


def unknown(rest: Array, covariance: Array, ranks: Sequence[int]) -> float:
    """Logarithm of the density of steps whose logarithms are `rest` [n] from the healthy ones, had
    the cluster a fault that makes some of them longer by a factor of LEAST or more.

    The slow ones are those from one of the measured counts of `ranks` [n] on, or one point alone.
    """
    counts = np.array(ranks)
    each = [counts >= count for count in sorted(set(ranks))] + list(np.eye(len(counts), dtype=bool))
    patterns = np.unique(np.array(each), axis=0).astype(float)
    start, scale = math.log(LEAST), math.log(HALF)
    end = start + max(float(np.max(rest)) - start, 0.0) + 1.0
    edges = np.linspace(start, end, min(math.ceil((end - start) / FINE), MOST) + 1)
    shares = np.diff(2 / math.pi * np.arctan((edges - start) / scale))
    middles = (edges[1:] + edges[:-1]) / 2
    found = []
    for pattern in patterns:
        logs = student(rest - middles[:, None] * pattern, covariance) + np.log(shares)
        found.append(mean_of(logs) + math.log(len(logs)))
    return mean_of(found)
