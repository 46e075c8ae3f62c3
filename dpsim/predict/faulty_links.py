"""Whether points are of a healthy machine or of one with a faulty link, and what fits them best.

A Gaussian prior around healthy links pulls a fault of eight times so hard that compute, host and
spread are bent to explain it.  So every kind of link has a second prior, wide and around what
faults do, at the odds of a fault (a mixture of two components; the likelier one is kept: the
maximum a posteriori, Bishop, Pattern Recognition and Machine Learning, 9.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpsim.core.arrays import Array
from dpsim.predict.gauss_newton import Prior, least

#: by what factor a faulty link lengthens exchanges (copies through the host, TCP instead of RDMA:
#: 9 of 10 by 1.6 to 40 times), and twice the logarithm of the odds against one: 1 in 20 clusters
FAULTY, FAULTY_SD, FAULTY_ODDS = 8.0, 1.0, 2 * math.log(20)


def likeliest(
    predicted: Callable[[Array], Array], target: Array, priors: dict[str, float], start: Array,
    noise: float,
) -> tuple[Array, Array, Prior]:  # fmt: skip
    """As `least`, with the prior of whichever is likelier: a healthy machine, or one whose links
    inside nodes or between them are faulty."""
    names = list(priors)
    healthy = Prior(np.zeros(len(names)), np.array(list(priors.values())))
    best, slopes = least(predicted, target, start, healthy, noise)
    found = [(best, slopes, healthy)]
    known = healthy.cost(best, predicted(best) - target, noise)
    for at in [k for k, name in enumerate(names) if name in ("inside", "between")]:
        faulty = _faulty(healthy, at)
        if known > faulty.against:  # else no points could make it likelier
            found.append((*least(predicted, target, start + faulty.centre, faulty, noise), faulty))
    return min(found, key=lambda one: one[2].cost(one[0], predicted(one[0]) - target, noise))


def _faulty(healthy: Prior, at: int) -> Prior:
    """`healthy` where exchanges of number `at` cross a faulty link."""
    centre, deviation = healthy.centre.copy(), healthy.deviation.copy()
    centre[at], deviation[at] = math.log(FAULTY), max(FAULTY_SD, float(deviation[at]))
    wider = 2 * math.log(deviation[at] / healthy.deviation[at])
    return Prior(centre, deviation, FAULTY_ODDS + wider)
