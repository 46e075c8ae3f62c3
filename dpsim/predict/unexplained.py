"""What no number of a calibration explains of several measured steps, and other counts share.

What a prediction misses on one count it misses on counts near it, too: of published series that are
calibrated on their smallest count, the logarithm by which a step is off moves by 0.03 in the median
from one count inside a node to the next, by 0.05 between nodes, hardly more over three doublings,
and by 0.06 to 0.1 from one node to several, wherever these are (A74).  So what is missed is a
process over doublings of ranks, whose correlation falls exponentially, in which the step from one
node to several is a distance of its own; beside it runs differ from one time to the next.  Its best
guess elsewhere is simple kriging (Cressie, Statistics for Spatial Data, 1993, 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsim.cases.case import Case
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass

#: variance of what is missed, in those of the noise, and distance over which it loses a correlation
#: of 1/e [doublings]: as numbers are fitted, which have to explain what differs, and as what they
#: leave is carried, nearly whole; both are as far off over a few doublings.  Chosen on 213 steps of
#: 9 sources, each predicted from the two smallest counts of its series (A74): with one pair for
#: both, of variances from 1 to 12 and lengths in proportion, the errors' median is 3.1 to 3.2 % and
#: their ninth decile 18 %
FITTED, CARRIED = (2.0, 16.0), (8.0, 64.0)
#: how far one node is from several [doublings]; with 12 that decile is 19 %
ACROSS = 9.0
#: what makes a correlation matrix positive definite whatever rounding does
_ROUNDING = 1e-9


@dataclass(frozen=True)
class RunPlace:
    """Where a run lies among others: its ranks, whether these are on several nodes, and the samples
    of a rank's micro-batch and how many of these are one step."""

    ranks: int
    apart: bool
    micro_batch: int
    accumulation: int

    @classmethod
    def of(cls, case: Case) -> RunPlace:
        """That of `case`."""
        apart = case.topology is not None and case.topology.nodes > 1
        return cls(case.ranks, apart, max(case.shares), case.batch.accumulation)

    def distance(self, other: RunPlace) -> float:
        """How far apart two are [doublings]."""
        pairs = (
            (self.ranks, other.ranks),
            (self.micro_batch, other.micro_batch),
            (self.accumulation, other.accumulation),
        )
        doublings = math.fsum(abs(math.log2(a / b)) for a, b in pairs)
        return doublings + ACROSS * (self.apart != other.apart)


@dataclass(frozen=True)
class Correlation:
    """How what is missed of several runs goes together, in variances of the noise.

    places   of the runs
    repeats  how often each was measured
    own      variance that is a measurement's own: runs differ from one time to the next [1]
    shared   what they have in common far apart [1], and over how many doublings
    """

    places: tuple[RunPlace, ...]
    repeats: tuple[int, ...]
    own: float
    shared: tuple[float, float] = FITTED

    @property
    def matrix(self) -> Array:
        """Covariances of the runs' means [runs x runs]."""
        together = np.array([self.with_(place) for place in self.places])
        alone = [self.own / count + _ROUNDING for count in self.repeats]
        return np.asarray(together + np.diag(alone), dtype=float)

    def with_(self, place: RunPlace) -> Array:
        """Of each run with one at `place` [runs], but for what is a measurement's own."""
        return np.array([self.between(place, one) for one in self.places])

    def between(self, one: RunPlace, other: RunPlace) -> float:
        """Of what is missed at two places, but for what is a measurement's own."""
        variance, length = self.shared
        return (1.0 - self.own) * variance * math.exp(-one.distance(other) / length)


@dataclass(frozen=True)
class Unexplained:
    """What the runs of a fit are off by, for other runs to take on.

    missed  logarithm of the measured over the fitted step of each run
    slopes  derivatives of the logarithms of fitted steps by the fitted numbers, a row for each run
    """

    correlation: Correlation
    missed: tuple[float, ...]
    slopes: tuple[tuple[float, ...], ...]

    def weights(self, place: RunPlace) -> Array:
        """Of the runs, for what is missed at `place` [runs]."""
        found = np.linalg.solve(self.correlation.matrix, self.correlation.with_(place))
        return np.asarray(found, dtype=float)

    def carried(self, place: RunPlace, move: Sequence[float] | Array | None = None) -> float:
        """The logarithm by which a step at `place` is longer than fitted; with the numbers `move`d
        so far, the runs are off by something else."""
        rest = np.array(self.missed)
        if move is not None:
            rest = rest - np.array(self.slopes) @ np.asarray(move)
        return float(self.weights(place) @ rest)

    def left(self, places: Sequence[RunPlace]) -> Array:
        """Covariances of what is missed at `places` that the runs leave, in variances of the noise
        [places x places]; what is a measurement's own is none of it."""
        known = self.correlation
        among = np.array([known.between(one, other) for one in places for other in places])
        seen = np.array([known.with_(place) for place in places])
        told = seen @ np.linalg.solve(known.matrix, seen.T)
        return np.asarray(among.reshape(len(places), -1) - told, dtype=float)
