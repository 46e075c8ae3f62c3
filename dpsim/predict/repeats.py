"""Repeated measurements of one run.

What no prediction explains of a run is one unknown, however often the run is measured: repeats
share it, and only what runs differ by from one time to the next becomes less in their mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsim.cases.case import Case
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.predict.drawn import Z90
from dpsim.predict.uncertainty import REPEATED

#: standard deviation of the logarithm by which a step differs from one time to the next
RUN_TO_RUN = math.log(REPEATED[1]) / Z90

#: how many times as long as another a repeat of the same run may take: published ones that name no
#: difference are up to 1.23 times (`validation/published/training.csv`)
AGREE = 1.25


def run_of(case: Case) -> tuple[int, int, int, int]:
    """What a step of `case` is known by: ranks, and the samples of all and how they are parted."""
    return case.ranks, case.global_batch, max(case.shares), case.batch.accumulation


@dataclass(frozen=True)
class FittedStep:
    """A measured step [s] beside the fitted one; `error` is fitted over measured, less 1.

    modelled_s                 the step at which the fit began, of which the level alone is fitted
    micro_batch, accumulation  samples of the busiest rank's micro-batch, and how many of these are
                               one step: the same global batch in other parts is another step
    """

    ranks: int
    global_batch: int
    micro_batch: int
    accumulation: int
    measured_s: float
    modelled_s: float
    fitted_s: float
    error: float

    @property
    def run(self) -> tuple[int, int, int, int]:
        """What it is a step of, as `run_of` has it."""
        return self.ranks, self.global_batch, self.micro_batch, self.accumulation


@dataclass(frozen=True)
class Repeats:
    """Which of several measurements are of the same run.

    places  by measurement, the place of its run among the runs, in the order of their first ones
    """

    places: tuple[int, ...]

    @classmethod
    def of(cls, cases: Sequence[Case]) -> Repeats:
        """Those of measurements of `cases`."""
        known: dict[tuple[int, int, int, int], int] = {}
        return cls(tuple(known.setdefault(run_of(case), len(known)) for case in cases))

    @property
    def firsts(self) -> list[int]:
        """The first measurement of every run."""
        return [self.places.index(run) for run in range(max(self.places) + 1)]

    def groups(self, values: Sequence[float]) -> list[list[float]]:
        """The `values` [measurements] of every run."""
        found: list[list[float]] = [[] for _ in self.firsts]
        for run, value in zip(self.places, values, strict=True):
            found[run].append(value)
        return found

    def agree(self, seconds: Sequence[float]) -> bool:
        """Whether all repeats of each run took about as long."""
        return all(max(same) <= AGREE * min(same) for same in self.groups(seconds))

    def ends(self, seconds: Sequence[float]) -> tuple[Array, Array]:
        """Logarithms of what each run's measurements stand for, at the least and at the most: both
        their mean, or the fastest and the slowest where these differ by more than repeats do."""
        groups = self.groups(seconds)
        mean = self.means(np.log(np.array(seconds)))
        fast, slow = (np.array([end(same) for same in groups]) for end in (min, max))
        alike = slow <= AGREE * fast
        return np.where(alike, mean, np.log(fast)), np.where(alike, mean, np.log(slow))

    def means(self, values: Array) -> Array:
        """The mean of each run's `values` [measurements]."""
        found: Array = np.bincount(self.places, weights=values) / np.bincount(self.places)
        return found

    def variances(self, alone: float) -> Array:
        """Of each run's mean logarithm, where that of a run measured once has the standard
        deviation `alone`."""
        less = min(alone, RUN_TO_RUN) ** 2 * (1.0 - 1.0 / np.bincount(self.places))
        found: Array = alone**2 - less
        return found
