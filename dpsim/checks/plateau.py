"""What large collectives of healthy machines take, by kind of link: a distribution of its own.

Where messages are large, time is bytes over bandwidth, and published machines of a kind reach
nearly the same share of what is predicted for them.  `dpsim/core/fitted/plateau.yaml`, written by
``validation/fit_plateaus.py``, has the mean and the standard deviation of ln(measured / predicted)
of a new machine of each kind, from series without a fault.  Intervals of predictions are wider:
they hold for all sizes, and for kinds of which little was published.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dpsim.core.constants import shipped

NAME, ANY = "plateau", "any"
#: standard deviations from the middle of healthy machines beyond which one is none (99 of 100), and
#: beyond which nobody can tell (19 of 20)
FAULTY, DOUBTFUL = 2.33, 1.645
#: how much wider a kind of which nothing was published is taken to be than all kinds together: as
#: the widest published one (gVNIC, 0.42 over 0.25)
UNPUBLISHED = 1.6


class Plateau(NamedTuple):
    """Middle and standard deviation of ln(measured / predicted) of healthy machines [1], and on how
    many machines of the very kind they rest."""

    middle: float
    spread: float
    machines: int

    def away(self, ratio: float) -> float:
        """How far measured over predicted time lies from healthy machines [standard deviations]."""
        return (math.log(ratio) - self.middle) / self.spread

    def ratio(self, away: float) -> float:
        """Measured over predicted time so far from healthy machines [standard deviations]."""
        return math.exp(self.middle + away * self.spread)


def plateau_of(kind: str) -> Plateau:
    """That of links of `kind`; of any kind where none of it was published."""
    known = shipped(NAME)
    if f"{kind}.middle" not in known:
        return Plateau(known[f"{ANY}.middle"].value, known[f"{ANY}.spread"].value * UNPUBLISHED, 0)
    middle = known[f"{kind}.middle"]
    return Plateau(middle.value, known[f"{kind}.spread"].value, middle.n)
