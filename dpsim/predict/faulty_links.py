"""What sets measured points apart from a healthy machine, and what fits them best.

A Gaussian prior around healthy links pulls a fault of eight times so hard that compute, host and
spread are bent to explain it.  So every kind of link has a second prior, wide and around what
faults do, at the odds of a fault; so has the host's time, for a little of it explains any two
points and is wrong on all others; and so has what no number explains, for a slow loader or an odd
network lengthens steps by no link's factor (a mixture, of which the likeliest component is kept:
Bishop, Pattern Recognition and Machine Learning, 9.2).  Components are compared by what is left
with the noise that it tells of: the scaled inverse chi-square of `dpsim.predict.fit`, integrated
over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dpsim.core.arrays import Array
from dpsim.predict.gauss_newton import Prior, least

#: by what factor a faulty link lengthens exchanges (copies through the host, TCP instead of RDMA:
#: 9 of 10 by 1.5 to 41 times), and twice the logarithm of the odds against one: 1 in 20 clusters
FAULTY, FAULTY_SD, FAULTY_ODDS = 8.0, 1.0, 2 * math.log(19)
#: the kinds of links
LINKS = ("inside", "between")
#: standard deviation of the host's time in a step, in shares of the shortest, where none to speak
#: of is beside the device's, and twice the logarithm of the odds against more: 1 in 5 programs
IDLE_HOST, HOST_ODDS = 0.01, 2 * math.log(4)
#: how many times as far as usual steps may be off where something else is wrong, and twice the
#: logarithm of the odds against that: a tenth of published series move by 0.3 and more (A74)
ODD, ODD_ODDS = 4.0, 2 * math.log(9)


def likeliest(
    predicted: Callable[[Array], Array], target: Array, priors: dict[str, float], start: Array,
    noise: float, known: float,
) -> tuple[Array, Array, Prior]:  # fmt: skip
    """The numbers [n] under whichever prior is likelier, derivatives there [points x n], and that
    prior: of a healthy machine, of one whose host is busy, whose links inside nodes, between them,
    or both, are faulty, or that something else slows.

    target  logarithms of the measured steps [points], of which `predicted` gives the fitted ones
    priors  standard deviations by name of the number, around `start` where machines are healthy
    noise   standard deviation of a point before any was measured, which counts as `known` points
    """
    names = list(priors)
    loaded = Prior(start, np.array(list(priors.values())))
    healthy = _idle(loaded, names.index("host_s"))

    def tried(prior: Prior) -> tuple[float, Array, Array, Prior]:
        """How unlikely the best numbers are under `prior`, these, and derivatives there."""
        own = noise * prior.wider
        best, slopes = least(predicted, target, prior.centre, prior, own)
        rest = predicted(best) - target
        missed = 1 + float(rest @ rest) / (known * own**2)
        unlikely = prior.away(best) + prior.against + (known + len(rest)) * math.log(missed)
        return unlikely, best, slopes, prior

    found = tried(healthy)
    links = [at for at, name in enumerate(names) if name in LINKS]
    wide = math.log(ODD) * 2 * (len(target) - 1)  # next to nothing is known of the level
    broken = [*((at,) for at in links), *([tuple(links)] if links else [])]
    others = [
        replace(healthy, against=ODD_ODDS + wide, wider=ODD),
        replace(loaded, against=HOST_ODDS + 2 * math.log(priors["host_s"] / IDLE_HOST)),
        *(_faulty(healthy, some) for some in broken),
    ]
    for prior in others:
        if found[0] > prior.against:  # else it cannot be likelier
            found = min(found, tried(prior), key=lambda one: one[0])
    return found[1:]


def _idle(loaded: Prior, host: int) -> Prior:
    """`loaded` with hardly any time of the host, whose number is at the place `host`."""
    deviation = loaded.deviation.copy()
    deviation[host] = IDLE_HOST
    return replace(loaded, deviation=deviation)


def _faulty(healthy: Prior, broken: Sequence[int]) -> Prior:
    """`healthy` where exchanges of the numbers at the places `broken` cross faulty links."""
    centre, deviation = healthy.centre.copy(), healthy.deviation.copy()
    for at in broken:
        centre[at], deviation[at] = math.log(FAULTY), max(FAULTY_SD, float(deviation[at]))
    wider = sum(2 * math.log(deviation[at] / healthy.deviation[at]) for at in broken)
    return Prior(centre, deviation, len(broken) * FAULTY_ODDS + wider)
