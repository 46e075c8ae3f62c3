"""Whether points are of a healthy machine or of one with a faulty link, and what fits them best.

A Gaussian prior around healthy links pulls a fault of eight times so hard that compute, host and
spread are bent to explain it.  So every kind of link has a second prior, wide and around what
faults do, at the odds of a fault (a mixture, of which the likeliest component is kept: Bishop,
Pattern Recognition and Machine Learning, 9.2).  Components are compared by what is left with the
noise that it tells of: the scaled inverse chi-square of `dpsim.predict.fit`, integrated over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dpsim.core.arrays import Array
from dpsim.predict.gauss_newton import Prior, least

#: by what factor a faulty link lengthens exchanges (copies through the host, TCP instead of RDMA:
#: 9 of 10 by 1.5 to 41 times), and twice the logarithm of the odds against one: 1 in 20 clusters
FAULTY, FAULTY_SD, FAULTY_ODDS = 8.0, 1.0, 2 * math.log(19)
#: the kinds of links
LINKS = ("inside", "between")


def likeliest(
    predicted: Callable[[Array], Array], target: Array, priors: dict[str, float], start: Array,
    noise: float, known: float,
) -> tuple[Array, Array, Prior]:  # fmt: skip
    """The numbers [n] under whichever prior is likelier, derivatives there [points x n], and that
    prior: of a healthy machine, or of one whose links inside nodes, between them, or both, are
    faulty.

    target  logarithms of the measured steps [points], of which `predicted` gives the fitted ones
    priors  standard deviations by name of the number; 0: nothing is known of it
    noise   standard deviation of a point before any was measured, which counts as `known` points
    """
    names = list(priors)
    healthy = Prior(np.zeros(len(names)), np.array(list(priors.values())))

    def tried(prior: Prior) -> tuple[float, Array, Array, Prior]:
        """How unlikely the best numbers are under `prior`, these, and derivatives there."""
        best, slopes = least(predicted, target, start + prior.centre, prior, noise)
        rest = predicted(best) - target
        missed = 1 + float(rest @ rest) / (known * noise**2)
        unlikely = prior.away(best) + prior.against + (known + len(rest)) * math.log(missed)
        return unlikely, best, slopes, prior

    found = tried(healthy)
    links = [at for at, name in enumerate(names) if name in LINKS]
    for broken in [*((at,) for at in links), tuple(links)]:
        faulty = _faulty(healthy, broken)
        if broken and found[0] > faulty.against:  # else it cannot be likelier
            found = min(found, tried(faulty), key=lambda one: one[0])
    return found[1:]


def _faulty(healthy: Prior, broken: Sequence[int]) -> Prior:
    """`healthy` where exchanges of the numbers at the places `broken` cross faulty links."""
    centre, deviation = healthy.centre.copy(), healthy.deviation.copy()
    for at in broken:
        centre[at], deviation[at] = math.log(FAULTY), max(FAULTY_SD, float(deviation[at]))
    wider = sum(2 * math.log(deviation[at] / healthy.deviation[at]) for at in broken)
    return Prior(centre, deviation, len(broken) * FAULTY_ODDS + wider)
