"""What large collectives of healthy machines take, by kind of link: a distribution of its own.

Where messages are large, time is bytes over bandwidth, and published machines of a kind reach
nearly the same share of what is predicted for them.  `dpsim/core/fitted/plateau.yaml`, written by
``validation/fit_plateaus.py``, has the middle of ln(measured / predicted) of each kind, from series
without a fault, and how far above it 95 and 99 of 100 new machines stay: Student's t, for kinds
rest on few machines, and who has seen two knows little of the tenth.  Intervals of predictions are
for all sizes together, and for kinds of link apart only where TCP is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dpsim.core.constants import shipped

NAME, ANY = "plateau", "any"


class Plateau(NamedTuple):
    """Middle of ln(measured / predicted) of healthy machines, how far above it 19 of 20 new ones
    stay and how far 99 of 100 [1], and on how many machines of the very kind that rests."""

    middle: float
    doubtful: float
    faulty: float
    machines: int

    def away(self, ratio: float) -> float:
        """How far measured over predicted time lies from the middle, as a logarithm [1]."""
        return math.log(ratio) - self.middle

    def ratio(self, away: float) -> float:
        """Measured over predicted time so far from the middle [1]."""
        return math.exp(self.middle + away)


def plateau_of(kind: str) -> Plateau:
    """That of links of `kind`; of a kind that nobody published where it is none of these."""
    known = shipped(NAME)
    name = kind if f"{kind}.middle" in known else ANY
    middle, doubtful, faulty = (
        known[f"{name}.{what}"] for what in ("middle", "doubtful", "faulty")
    )
    return Plateau(middle.value, doubtful.value, faulty.value, middle.n if name == kind else 0)
