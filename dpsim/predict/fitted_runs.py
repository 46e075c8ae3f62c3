"""The runs that a calibration is fitted to: what was measured, in units of what is missed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dpsim.cases.case import Case
from dpsim.cases.variant import Adjustment
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.predict.drawn import Z90
from dpsim.predict.repeats import RUN_TO_RUN, Repeats
from dpsim.predict.unexplained import CARRIED, Correlation, RunPlace, Unexplained
from dpsim.predict.widths import program_range

#: how many points the shipped noise counts as
PRIOR_POINTS = 4

#: (case) -> its step time [s]
Time = Callable[[Case], float]


def noise_prior(case: Case) -> float:
    """Standard deviation of the logarithm of what a calibrated prediction of runs such as `case`
    misses [1]."""
    low, high = program_range(case)
    return math.log(high / low) / (2 * Z90)


@dataclass(frozen=True)
class FittedRuns:
    """What was measured, by run: in units in which what is missed of each is as unsure as of one
    measured once, and of its own.

    cases        one per run
    seen         logarithms of all measured steps
    correlation  of what is missed
    root         a triangular root of its matrix
    """

    cases: tuple[Case, ...]
    seen: Array
    repeats: Repeats
    correlation: Correlation
    root: Array

    @classmethod
    def of(cls, cases: Sequence[Case], measured: Sequence[float]) -> FittedRuns:
        repeats, own = Repeats.of(cases), min(RUN_TO_RUN / noise_prior(cases[0]), 1.0) ** 2
        runs = tuple(cases[k] for k in repeats.firsts)
        often = tuple(repeats.places.count(run) for run in range(len(runs)))
        together = Correlation(tuple(map(RunPlace.of, runs)), often, own)
        root = np.asarray(np.linalg.cholesky(together.matrix), dtype=float)
        return cls(runs, np.log(np.array(measured)), repeats, together, root)

    @property
    def prior(self) -> float:
        return noise_prior(self.cases[0])

    @property
    def target(self) -> Array:
        return self.alone(self.repeats.means(self.seen))

    def alone(self, logs: Array) -> Array:
        """Of logarithms of the runs' steps, what is of its own in each."""
        return np.asarray(np.linalg.solve(self.root, logs), dtype=float)

    def played(self, there: Adjustment, how: Time) -> Array:
        return self.alone(np.log([how(there.of(case)) for case in self.cases]))

    def off(self, predicted: Array) -> Array:
        """How far off each measured step is what was `predicted` of its run, in logarithms."""
        return np.asarray(self.every(predicted) - self.seen, dtype=float)

    def every(self, predicted: Array) -> Array:
        """Logarithms of each measured step [s] as what was `predicted` of its run has them."""
        return np.asarray((self.root @ predicted)[list(self.repeats.places)], dtype=float)

    def noise(self, rest: Array) -> float:
        """The noise where measured steps are off by `rest`: of runs, or of repeats of one that are
        farther apart than these."""
        worst = np.array([max(same, key=abs) for same in self.repeats.groups(rest.tolist())])
        apart = worst - self.repeats.means(rest)
        return max(_noise(self.alone(worst), self.prior), _noise(apart, self.prior))

    def unexplained(self, predicted: Array, slopes: Array) -> Unexplained:
        """What is left of the runs' means where that is `predicted`, with such derivatives."""
        missed = self.root @ (self.target - predicted)
        rows = tuple(tuple(map(float, row)) for row in self.root @ slopes)
        carried = replace(self.correlation, shared=CARRIED)
        return Unexplained(carried, tuple(map(float, missed)), rows)


def _noise(rest: Array, prior: float) -> float:
    known = PRIOR_POINTS + len(rest)
    return math.sqrt((PRIOR_POINTS * prior**2 + float(rest @ rest)) / known)
