"""Is a measured step normal?  The healthy cluster against clusters with a fault, by Bayes.

Every hypothesis predicts the logarithms of the measured steps as a multivariate Student
distribution: around the steps that the cluster with that fault would take, as wide as what is not
known of any cluster makes it (level of compute, cost of exchanges, spread of ranks; their widths
are those of intervals) and what no prediction explains (`interval.run`).  Strengths of a fault
count alike.  Each may be stronger than what is played of it, and what is slower in no known pattern
is a fault of no name: the slower points are by one factor, the surer a fault
(`dpsim.checks.beyond`).
Measured points share what is not known, so their pattern over ranks and accumulation
counts and not only their level.  Repeats of a run share what no prediction explains of it too, and
count as their mean (`dpsim.predict.repeats`); where they differ by more than repeats do, the
slowest counts, for what is fast at times is no reason for what is slow at others, and none of it is
normal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

import numpy as np

from dpsim.cases.case import Case
from dpsim.cases.typical_code import is_typical
from dpsim.cases.variant import Adjustment
from dpsim.checks.beyond import Strengths, between, fault, student, unknown
from dpsim.checks.hypotheses import HEALTHY, PRIORS, SOMETIMES, UNKNOWN, FaultVariant, hypotheses
from dpsim.core import told
from dpsim.core.arrays import Array
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.predict.drawn import Z90
from dpsim.predict.fit import PointsFit, adjustment, knobs
from dpsim.predict.fitted_runs import noise_prior
from dpsim.predict.level import Level
from dpsim.predict.player import FEW, step_time
from dpsim.predict.recorded import measured_at
from dpsim.predict.repeats import AGREE, RUN_TO_RUN, Repeats
from dpsim.predict.timed import TimedCases
from dpsim.predict.unexplained import RunPlace
from dpsim.predict.widths import compute_range

#: probability of a fault from which a step is slow, and below which it is normal; at 0.75 a fifth
#: of made-up faults were not told and healthy runs hardly ever slow (validation/step_verdicts.py)
SLOW, NORMAL = 0.6, 0.2
#: share of a fault's probability before the measurement that may be left where steps are normal:
#: what makes faults no less likely does not speak for a healthy cluster
TOLD = 0.5
#: a strength that lengthens no measured step by this share is no fault that can be told from what
#: calibrated predictions miss anyway (`interval.run`: 10 %)
SEEN = 0.15
#: standard deviations below a healthy prediction from which a step is not this scenario's
TOO_FAST = 3.0
#: how far apart the plays of a derivative are, in logarithms
STEP = 0.1

StepVerdict = Literal["normal", "slow", "cannot_tell"]


@dataclass(frozen=True)
class Observed:
    """A measured step [s] and the case that it is of."""

    case: Case
    seconds: float


@dataclass(frozen=True)
class LikelyCause:
    """A fault and its probability after the measurement."""

    name: str
    probability: float


@dataclass(frozen=True)
class StepCheck:
    """What measured steps say of a cluster.

    probability  of any fault; `causes` those of each, the likeliest first
    expected     the healthy steps [s] with their 90 % intervals, by point
    too_fast     whether the steps are faster than the scenario explains
    findings     faults that the steps that calibrate show already: what is healthy has them too
    """

    verdict: StepVerdict
    probability: float
    causes: tuple[LikelyCause, ...]
    observed: tuple[Observed, ...]
    expected: tuple[tuple[float, float, float], ...]
    too_fast: bool
    findings: tuple[str, ...] = ()

    @property
    def below(self) -> tuple[Observed, ...]:
        """The steps that are faster than the fast end of their healthy interval."""
        pairs = zip(self.observed, self.expected, strict=True)
        return tuple(seen for seen, (_, low, _) in pairs if seen.seconds < low)

    @property
    def above(self) -> tuple[Observed, ...]:
        """The steps that are slower than the slow end of their healthy interval."""
        pairs = zip(self.observed, self.expected, strict=True)
        return tuple(seen for seen, (_, _, high) in pairs if seen.seconds > high)

    @property
    def differing(self) -> tuple[tuple[Observed, Observed], ...]:
        """The fastest and the slowest repeat of every run whose repeats differ by more than
        repeats do."""
        found: dict[int, list[Observed]] = {}
        places = Repeats.of([seen.case for seen in self.observed]).places
        for place, seen in zip(places, self.observed, strict=True):
            found.setdefault(place, []).append(seen)
        sort = [sorted(same, key=lambda seen: seen.seconds) for same in found.values()]
        return tuple((s[0], s[-1]) for s in sort if s[-1].seconds > AGREE * s[0].seconds)

    @property
    def only_faster(self) -> bool:
        """Whether steps are faster than the scenario explains, and none is slower than a healthy
        one: no fault does that."""
        pairs = zip(self.observed, self.expected, strict=True)
        return self.too_fast and all(seen.seconds <= middle for seen, (middle, _, _) in pairs)

    def document(self, commands: Sequence[str]) -> dict[str, Any]:
        """Everything as plain data, in SI units."""
        return {
            "schema_version": 1,
            "verdict": self.verdict,
            "probability": self.probability,
            "causes": [{"name": c.name, "probability": c.probability} for c in self.causes],
            "points": [
                {
                    "ranks": seen.case.ranks,
                    "global_batch": seen.case.global_batch,
                    "measured_s": seen.seconds,
                    "expected_s": middle,
                    "expected_low_s": low,
                    "expected_high_s": high,
                    "faster_than_interval": seen.seconds < low,
                    "slower_than_interval": seen.seconds > high,
                }
                for seen, (middle, low, high) in zip(self.observed, self.expected, strict=True)
            ],
            "faster_than_expected": self.too_fast,
            "repeats_differ": bool(self.differing),
            "findings": list(self.findings),
            "next": list(commands),
        }


def check_steps(timed: TimedCases, tell: told.Told = told.nobody) -> StepCheck:
    """The measured steps of `timed`, judged; `tell` is told how many kinds of fault are played."""
    return StepJudge(timed.cases, timed.found, tell).judged(timed.seconds)


class StepJudge:
    """The hypotheses of `cases`, one per measurement, played once: judges any measurement of them.

    found  what calibration has found, where it did: `cases` are at that level
    runs   the cases without repeats; all that is called a point is one of these
    tell   is told how many kinds of fault are played
    """

    def __init__(
        self, cases: Sequence[Case], found: Level | None = None, tell: told.Told = told.nobody
    ) -> None:
        self.cases, self.found, self.tell = tuple(cases), found, tell
        self.repeats = Repeats.of(self.cases)
        self.runs = tuple(self.cases[k] for k in self.repeats.firsts)

    @cached_property
    def unsure(self) -> tuple[tuple[str, ...], Array]:
        """What is not known of a healthy cluster, by name, and a root of its covariance
        [names x n]: of logarithms, of host time in shares of the fit's `unit_s`.  What several
        points fitted is unsure together, which says far more than each number by itself."""
        if (fit := self._fit) is not None:
            return tuple(number.name for number in fit.numbers), np.array(fit.directions)
        widths = {name: sd for name, sd in knobs(self.runs).items() if name != "host_s"}
        fast, slow = compute_range(self.runs[0], False)
        known = self.found is not None or measured_at(self.runs[0]) is not None
        widths["compute"] = RUN_TO_RUN if known else math.log(slow / fast) / (2 * Z90)
        return tuple(widths), np.diag(list(widths.values()))

    @property
    def _fit(self) -> PointsFit | None:
        return self.found.fit if self.found else None

    @cached_property
    def healthy(self) -> Array:
        """Logarithms of the healthy steps [points], as an answer has them."""
        return self._loaded(HEALTHY, np.array([step_time(case) for case in self.runs]))

    @cached_property
    def _base(self) -> Array:
        """The same of as few steps as those of faults are, which differences are taken from."""
        return self._steps(HEALTHY)

    @cached_property
    def expected(self) -> tuple[Array, Array]:
        """Mean [points] and covariance of the logarithms of healthy steps."""
        return self.healthy + self._lopsided, self._covariance(HEALTHY, self._base)

    @cached_property
    def _lopsided(self) -> Array | float:
        """How far the middle of what is unsure of typical code lies above its median, as logarithms
        [points]: most of it is at the slow end."""
        if not is_typical(self.runs[0].scenario):
            return 0.0
        middle = sum(map(math.log, compute_range(self.runs[0], False))) / 2
        return middle * self._slope(HEALTHY, self._base, "compute")

    @cached_property
    def faults(self) -> dict[str, list[Strengths]]:
        """By fault, its kinds in every strength that can be seen."""
        found: dict[str, list[Strengths]] = {}
        every = groupby(hypotheses(self.runs), key=lambda fault: (fault.name, fault.kind))
        kinds = [(name, list(kind)) for (name, _), kind in every]
        for name, kind in told.counted(kinds, self.tell):
            means, wide = self._kind(kind)
            seen = np.max(means, axis=1, initial=0.0) >= math.log(1.0 + SEEN)
            if seen.any():
                found.setdefault(name, []).append(Strengths(means[seen], wide[seen]))
        return found

    def _kind(self, kind: Sequence[FaultVariant]) -> tuple[Array, Array]:
        """Means, from the healthy ones, and covariances of the strengths of one kind and of those
        between them; none where no cluster can be built so.  Covariances are played of the weakest
        and the strongest."""
        played = []
        for variant in kind:
            try:
                played.append((variant, self._steps(variant)))
            except (Refused, SimulationError, ValueError):
                continue
        if not played:
            return np.empty((0, len(self.runs))), np.empty((0,) + (len(self.runs),) * 2)
        ends = [self._covariance(*played[k]) for k in (0, -1)]
        means = between([mean - self._base for _, mean in played])
        return means, between(ends, len(played))

    def _steps(self, fault: FaultVariant) -> Array:
        cases = [fault.change(case, k) for k, case in enumerate(self.runs)]
        return self._loaded(fault, np.array([step_time(case, at_most=FEW) for case in cases]))

    def _loaded(self, fault: FaultVariant, seconds: Array) -> Array:
        """Logarithms of steps whose samples are loaded meanwhile: the longer of the two counts.

        A node's loader is shared by its ranks; where none is known, each rank has its own."""
        if fault.loads is None:
            return np.log(seconds)
        samples = np.array([case.global_batch / (case.nodes or case.ranks) for case in self.runs])
        rate = float(np.max(samples / seconds)) / fault.loads
        return np.log(np.maximum(seconds, samples / rate))

    def _covariance(self, fault: FaultVariant, mean: Array) -> Array:
        """Of the logarithms of steps, from what is not known of any cluster and from what no
        prediction explains."""
        names, root = self.unsure
        slopes = np.stack([self._slope(fault, mean, name) for name in names], axis=1) @ root
        found: Array = slopes @ slopes.T + self._missed
        return found

    @cached_property
    def _missed(self) -> Array:
        """Covariance of what no number explains of the runs, beside what their repeats share."""
        if (fit := self._fit) is None:
            return np.diag(self.repeats.variances(noise_prior(self.runs[0])))
        found = fit.rest.left([RunPlace.of(case) for case in self.runs]) * fit.noise**2
        often = np.bincount(self.repeats.places)
        return np.asarray(found + np.diag(min(fit.noise, RUN_TO_RUN) ** 2 / often), dtype=float)

    def _slope(self, fault: FaultVariant, mean: Array, name: str) -> Array:
        """By how much the logarithms of steps, which are `mean`, change with what `name` is."""
        unit = self._fit.unit_s if self._fit else 1.0
        moved = adjustment([name], np.array([STEP]), unit)
        cases = [
            self._moved(fault.change(case, k), moved.longer(self._carried(case, name)))
            for k, case in enumerate(self.runs)
        ]
        seconds = np.array([step_time(case, at_most=FEW) for case in cases])
        found: Array = (self._loaded(fault, seconds) - mean) / STEP
        return found

    def _carried(self, case: Case, name: str) -> float:
        """By what factor less is left to carry from measured steps where `name` is moved."""
        if (fit := self._fit) is None:
            return 1.0
        move = [STEP * (number.name == name) for number in fit.numbers]
        place = RunPlace.of(case)
        return math.exp(fit.rest.carried(place, move) - fit.rest.carried(place))

    @staticmethod
    def _moved(case: Case, moved: Adjustment) -> Case:
        """`case` with what is not known moved, beside what it was calibrated to."""
        inside, between = case.exchange
        whole = replace(
            moved,
            compute=case.compute_scale * moved.compute,
            inside=inside * moved.inside,
            between=between * moved.between,
        )
        return whole.of(case)

    # -- judging ------------------------------------------------------------------------------

    def _weighed(self, rest: Array, faster: bool) -> tuple[dict[str, float], float]:
        """Logarithms of the hypotheses' weights where logarithms of steps are `rest` [points] from
        healthy ones, and the probability of any fault before.

        Where steps are `faster` than healthy ones can be, no fault may explain them better than a
        healthy cluster does: what a fault makes unsure only adds to steps, and its wider tail
        says nothing there.
        """
        _, covariance = self.expected
        healthy = float(student(rest, covariance))
        most, wide = (healthy, covariance) if faster else (math.inf, None)
        logs = {name: fault(rest, kinds, wide) for name, kinds in self.faults.items()}
        logs[UNKNOWN] = unknown(rest, covariance)
        weighed = {name: min(log, most) + math.log(PRIORS[name]) for name, log in logs.items()}
        possible = (p for name, p in PRIORS.items() if name in logs or name not in SOMETIMES)
        well, ill = 1.0 - sum(possible), sum(PRIORS[name] for name in logs)
        return {"healthy": healthy + math.log(well), **weighed}, ill / (well + ill)

    def judged(self, seconds: Sequence[float]) -> StepCheck:
        """What steps of `seconds`, one per case, say."""
        mean, covariance = self.expected
        fast, rest = (end - mean for end in self.repeats.ends(seconds))
        too_fast = bool(np.max(-fast / np.sqrt(np.diag(covariance))) > TOO_FAST)
        slower = bool(np.max(rest) > 0.0)
        logs, before = self._weighed(rest, too_fast and not slower)
        top = max(logs.values())
        weights = {name: math.exp(value - top) for name, value in logs.items()}
        total = sum(weights.values())
        faults = [
            LikelyCause(name, weight / total) for name, weight in weights.items() if name in PRIORS
        ]
        faults.sort(key=lambda cause: -cause.probability)
        probability = min(sum(cause.probability for cause in faults), 1.0)
        verdict: StepVerdict = "cannot_tell"
        if probability >= SLOW and (slower or not too_fast):
            verdict = "slow"
        elif (
            probability <= min(NORMAL, before * TOLD)
            and not too_fast
            and self.repeats.agree(seconds)
        ):
            verdict = "normal"
        seen = zip(self.cases, seconds, strict=True)
        found = StepCheck(
            verdict=verdict,
            probability=probability,
            causes=tuple(faults),
            observed=tuple(Observed(case, float(one)) for case, one in seen),
            expected=self._intervals(),
            too_fast=too_fast,
            findings=tuple(one.fault for one in self.found.findings) if self.found else (),
        )
        beyond = bool(np.any(rest > Z90 * np.sqrt(np.diag(covariance))))
        doubtful = verdict == "normal" and (beyond or found.findings)
        return replace(found, verdict="cannot_tell") if doubtful else found

    def _intervals(self) -> tuple[tuple[float, float, float], ...]:
        """Healthy steps with their 90 % intervals, by measurement [s]."""
        mean, covariance = self.expected
        reach = Z90 * np.sqrt(np.diag(covariance))
        by_run = np.exp([self.healthy, mean - reach, mean + reach]).T.tolist()
        return tuple(
            (each[0], each[1], each[2]) for each in (by_run[k] for k in self.repeats.places)
        )
