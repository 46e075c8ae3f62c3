"""Calibration by several measured steps: least squares on logarithms, with priors.

What is fitted is at most six numbers (`Adjustment`): the level of compute, host time per step, the
host's time per kernel where the scenario says one, the cost of an exchange inside a node and
between nodes, and how much ranks differ.  All but the level have Gaussian priors around what is
modelled, as wide as the shipped constants are unsure, so one point moves the level alone.  The
level's is around that of the smallest measured count, and says next to nothing.  Times are
predicted by playing every point again; derivatives are differences of such plays (Gauss-Newton,
steps halved where they lead up); where steps are random, of plays of a few of them, which the whole
play at the start sets right.

Repeats of a run count as their mean (`dpsim.predict.repeats`), and as far off as the one farthest
off.  The noise is what calibrated predictions of published runs miss (`interval.run`), and what the
residuals say: sigma^2 = (PRIOR_POINTS s0^2 + sum of squared residuals) / (PRIOR_POINTS + n), the
mean of a scaled inverse chi-square posterior up to its constant (Gelman et al., Bayesian Data
Analysis, 3rd edition, 2.6).  What is missed of one count is missed of others, too: residuals are
correlated, and carried (`dpsim.predict.unexplained`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsim.cases.case import Case
from dpsim.cases.variant import Adjustment
from dpsim.core.arrays import Array
from dpsim.core.constants import shipped
from dpsim.core.lean import dataclass
from dpsim.core.record import Refused
from dpsim.predict.drawn import Z90
from dpsim.predict.faulty_links import likeliest
from dpsim.predict.fitted_runs import PRIOR_POINTS, FittedRuns, Time
from dpsim.predict.gauss_newton import least
from dpsim.predict.point import Causes
from dpsim.predict.repeats import RUN_TO_RUN, FittedStep, run_of
from dpsim.predict.uncertainty import REPEATED, collectives_range
from dpsim.predict.unexplained import RunPlace, Unexplained
from dpsim.predict.widths import sliced

#: prior standard deviation of host time that is not in the model, as a share of the shortest
#: measured step.  Wide on purpose: zero where the device is busy, a tenth and more where a model's
#: kernels are shorter than their launches (5 to 10 us each in eager PyTorch)
HOST_SHARE = 0.15
#: prior of the time to issue a kernel: 5 to 10 us in eager PyTorch are 90 % of hosts
LAUNCH_RANGE = (5e-6, 10e-6)
#: logarithm of a measured over its fitted step, in standard deviations of what calibrated
#: predictions miss (`interval.run`), from which points are not of one machine; and the same of two
#: points against each other, in those of a difference: two share what one is off
CONTRADICTION, APART = 5.0, 4.0
#: what exchanges between slices of TPUs may take over their network's rate: two and four slices of
#: Gemma 3 12B took 30 and 45 times as long as the bytes do (docs/howto/tpus.md)
SLICED = 45.0
#: how much longer a step may be than one on more ranks with the same work for each, beside what
#: is modelled of the two (sharded work and offloading do shrink)
SHRINKS = 1.5
#: how many times a fitted step may be off, and an exchange over its modelled time, for points to be
#: fitted: from NVLink to 1 Gbit/s is a factor of 7,000
ABSURD, ABSURD_EXCHANGE = 100.0, 1e4
#: logarithm of a factor that no measurement bounds
UNBOUNDED = 100.0
#: prior standard deviation of the logarithm of the level, around that of one point: as wide as
#: typical code is apart (A103), and wider
LEVEL_PRIOR = 1.0
#: the least that is not known of how ranks of one cluster differ, as a logarithm's deviation
SPREAD_PRIOR = 0.2


@dataclass(frozen=True)
class FittedNumber:
    """A fitted number with the ends of its 90 % interval: a factor, or seconds where its name ends
    with `_s`.

    learned  share of the prior's variance that the points took away [1]; 0: they say nothing of it
    """

    name: str
    value: float
    low: float
    high: float
    learned: float


@dataclass(frozen=True)
class PointsFit:
    """What several points say together.

    noise       standard deviation of the logarithm of a step that the fit does not explain [1]
    prior       that of what calibrated predictions of such runs miss [1]
    directions  rows of a triangular root of the numbers' covariance, by `numbers`
    unit_s      host time that counts as 1 among the parameters [s]
    rest        what the numbers leave, as other counts have it
    wider       how many times as much as usual the kept prior lets points be off [1]
    """

    numbers: tuple[FittedNumber, ...]
    residuals: tuple[FittedStep, ...]
    noise: float
    prior: float
    unit_s: float
    directions: tuple[tuple[float, ...], ...]
    rest: Unexplained
    wider: float = 1.0

    @property
    def counts(self) -> tuple[int, ...]:
        """Ranks of the points, fewest first."""
        return tuple(sorted({point.ranks for point in self.residuals}))

    @property
    def possible(self) -> bool:
        """Whether some machine may be near the points."""
        exchanges = [n.value for n in self.numbers if n.name in ("inside", "between")]
        off = [math.log1p(point.error) for point in self.residuals]
        slow = any(abs(math.log(value)) > math.log(ABSURD_EXCHANGE) for value in exchanges)
        return not slow and max(map(abs, off)) <= math.log(ABSURD)

    @property
    def contradiction(self) -> FittedStep | None:
        """The point farthest off, where points are not of one machine: it or two of them are
        farther off than what calibrated predictions miss, or steps shrink with more ranks."""
        if (pair := self.shrinking) is not None:
            return pair[0]
        off = [math.log1p(point.error) for point in self.residuals]
        usual = self.prior * self.wider
        alone = max(map(abs, off)) > CONTRADICTION * usual
        two = max(off) - min(off) > APART * math.sqrt(2.0) * usual
        worst = max(self.residuals, key=lambda point: abs(math.log1p(point.error)))
        return worst if alone or two else None

    @property
    def shrinking(self) -> tuple[FittedStep, FittedStep] | None:
        """A point of far longer steps than one on more ranks, of which each does the same, and that
        one: more ranks wait and exchange no less but for what is modelled, whatever was fitted."""
        for few in self.residuals:
            for many in self.residuals:
                alike = few.global_batch * many.ranks == many.global_batch * few.ranks
                alike = alike and few.accumulation == many.accumulation
                modelled = max(few.modelled_s / many.modelled_s, 1.0)
                longer = few.measured_s > SHRINKS * modelled * many.measured_s
                if alike and longer and few.ranks < many.ranks:
                    return few, many
        return None

    def before(self, ranks: int) -> int:
        """The largest measured count that is no more than `ranks`; the smallest if none is."""
        return max((n for n in self.counts if n <= ranks), default=self.counts[0])

    def causes(self, case: Case, step: float, time: Time, *, repeated: bool) -> Causes:
        """What the numbers, as unsure as they still are, and the noise do to `step`, the time of
        `case` [s], which is adjusted already; `repeated`: where that step itself was measured.

        Every column of the covariance's root is one independent cause, named by its first number.
        """
        known = self._known(case, step) if repeated else None
        if known is not None:
            return {"run to run": known}
        names = [number.name for number in self.numbers]
        centre = np.array([_parameter(n.name, n.value, self.unit_s) for n in self.numbers])
        place, here = RunPlace.of(case), self.adjusted(case)
        found: Causes = {}
        for k, column in enumerate(np.array(self.directions).T):
            if not np.any(np.abs(column) > 1e-9):
                continue
            there = [_physical(names, centre, way * column) for way in (-Z90, Z90)]
            ends = [
                time(self._moved(names, at, at - centre, place).beyond(here).of(case)) / step
                for at in there
            ]
            if max(abs(end - 1.0) for end in ends) > 1e-6:
                found[CAUSES[names[k]]] = (min(ends), max(ends))
        off = Z90 * self.noise * math.sqrt(self._left(place))
        return {**found, "run to run": (math.exp(-off), math.exp(off))}

    def _left(self, place: RunPlace) -> float:
        """The variance of what is missed at `place`, in those of the noise: no less than that where
        points contradict each other."""
        own = min(RUN_TO_RUN / self.noise, 1.0) ** 2
        found = float(self.rest.left([place])[0, 0]) + own
        return found if self.contradiction is None else max(found, 2.0)

    def adjusted(self, case: Case) -> Adjustment:
        """What makes `case`, as modelled, one of the fitted machine: its numbers, and by how much
        all of it takes longer, as measured runs near it do."""
        numbers = Adjustment(**{number.name: number.value for number in self.numbers})
        return numbers.longer(math.exp(self.rest.carried(RunPlace.of(case))))

    def carrying(self, case: Case, own: Case, other: Case) -> Case:
        """`case`, adjusted already as `own` is, with what is carried to `other` in its place."""
        here, there = self.adjusted(own), self.adjusted(other)
        return case if here == there else there.beyond(here).of(case)

    def _moved(self, names: Sequence[str], at: Array, move: Array, place: RunPlace) -> Adjustment:
        """The same of a case at `place`, where the numbers are `at`, moved by `move`."""
        numbers = adjustment(names, at, self.unit_s)
        return numbers.longer(math.exp(self.rest.carried(place, move)))

    def _known(self, case: Case, step: float) -> tuple[float, float] | None:
        """Where `case`, which takes `step` [s], was measured itself, how far that lies off and what
        repeated runs differ by; None where points contradict each other: nobody knows which of them
        to believe."""
        if self.contradiction is not None:
            return None
        here = run_of(case)
        same = [point for point in self.residuals if point.run == here]
        if not same:
            return None
        measured = [point.measured_s / step for point in same]
        return REPEATED[0] * min(1.0, *measured), REPEATED[1] * max(1.0, *measured)


#: numbers, and what their uncertainty is called among the causes of an interval
CAUSES = {
    "between": "collectives (fitted, between nodes)",
    "inside": "collectives (fitted, inside a node)",
    "spread": "spread of ranks (fitted)",
    "launch": "host launch (fitted)",
    "host_s": "host (fitted)",
    "compute": "compute (fitted)",
}


def _physical(names: Sequence[str], centre: Array, move: Array) -> Array:
    """`centre` moved as far along `move` as the host's time stays positive."""
    at = names.index("host_s")
    beyond = centre[at] + move[at]
    share = 1.0 if beyond >= 0 else min(max(centre[at] / -move[at], 0.0), 1.0)
    return np.asarray(centre + share * move, dtype=float)


def knobs(cases: Sequence[Case]) -> dict[str, float]:
    """The numbers that points of these `cases` have, in the order of CAUSES, and the standard
    deviations of their priors in logarithms (host time: in shares of a step)."""
    first, found = cases[0], {}
    fits = not first.backend.ideal and first.scenario.calibration is None
    if fits and first.machine is not None:
        low, high = collectives_range(first)
        found["between"] = found["inside"] = math.log(high / low) / (2 * Z90)
        if sliced(cases):
            found["between"] = math.log(SLICED) / Z90
    spread = shipped("training")["gpu.spread"]
    varied = first.script.unsaid or first.scenario.compute.spread is not None
    if first.script.spread and not varied:
        found["spread"] = max(spread.error / spread.value, SPREAD_PRIOR)
    if first.scenario.host.launch:
        found["launch"] = math.log(LAUNCH_RANGE[1] / LAUNCH_RANGE[0]) / (2 * Z90)
    found["host_s"] = HOST_SHARE
    return {**found, "compute": LEVEL_PRIOR}


def adjustment(names: Sequence[str], at: Array, unit: float) -> Adjustment:
    """What the parameters `at` [n] of these numbers mean; there is no negative host time."""
    values = {
        name: max(value, 0.0) * unit if name == "host_s" else math.exp(value)
        for name, value in zip(names, at, strict=True)
    }
    return Adjustment(**values)


def _parameter(name: str, value: float, unit: float) -> float:
    return value / unit if name == "host_s" else math.log(value)


def fit(
    cases: Sequence[Case],
    measured: Sequence[float],
    level: float,
    time: Time,
    quick: Time | None = None,
) -> PointsFit:
    """The numbers that bring `cases` nearest to the `measured` steps [s], from `level` on; `quick`
    is as `time`, of fewer random steps.  Raises Refused where no machine has such steps."""
    try:
        found = _fit(cases, measured, level, time, quick or time)
        if found.possible:
            return found
    except (OverflowError, np.linalg.LinAlgError):
        pass
    points = ", ".join(
        f"{case.ranks} ranks {seconds:.4g} s"
        for case, seconds in list(zip(cases, measured, strict=True))[:8]
    )
    raise Refused(
        f"the points contradict each other: no numbers of one machine come near {points}; "
        "give steps of one machine and one program, in the units they were measured in",
        ("calibrate",),
    ) from None


def _fit(
    cases: Sequence[Case], measured: Sequence[float], level: float, time: Time, quick: Time
) -> PointsFit:
    """As `fit`; OverflowError or LinAlgError where nothing fits."""
    runs = FittedRuns.of(cases, measured)
    priors, unit, target = knobs(runs.cases), min(measured), runs.target
    names = list(priors)

    def played(at: Array, how: Time) -> Array:
        return runs.played(adjustment(names, at, unit), how)

    start = np.zeros(len(names))
    start[-1] = math.log(level)
    beside = 0.0 if quick is time else played(start, time) - played(start, quick)

    def predicted(at: Array) -> Array:
        return np.asarray(played(at, quick) + beside, dtype=float)

    modelled = runs.every(predicted(start))
    best, slopes, prior = likeliest(predicted, target, priors, start, runs.prior, PRIOR_POINTS)
    rest = runs.off(predicted(best))
    if (noise := runs.noise(rest)) < runs.prior * prior.wider:  # what fits well counts for more
        best, slopes = least(predicted, target, best, prior, noise)
        noise = runs.noise(rest := runs.off(predicted(best)))
    inverse = np.asarray(np.linalg.inv(slopes.T @ slopes / noise**2 + prior.precision), dtype=float)
    return PointsFit(
        numbers=tuple(_numbers(names, best, inverse, prior.deviation, unit)),
        residuals=tuple(
            FittedStep(*run_of(case), seen, math.exp(m), seen * math.exp(r), math.exp(r) - 1.0)
            for case, seen, m, r in zip(
                cases, measured, map(float, modelled), map(float, rest), strict=True
            )
        ),
        noise=noise, prior=runs.prior, unit_s=unit,
        directions=tuple(tuple(map(float, row)) for row in np.linalg.cholesky(inverse)),
        rest=runs.unexplained(predicted(best), slopes),
        wider=prior.wider,
    )  # fmt: skip


def _factor(log: float) -> float:
    """exp of a logarithm, and of one that no measurement bounds as far as there are numbers."""
    return math.exp(min(log, UNBOUNDED))


def _numbers(
    names: Sequence[str], best: Array, covariance: Array, priors: Array, unit: float
) -> list[FittedNumber]:
    found = []
    for k, name in enumerate(names):
        sd = math.sqrt(covariance[k, k])
        ends = (best[k] - Z90 * sd, best[k], best[k] + Z90 * sd)
        host = name == "host_s"
        low, value, high = (max(end, 0.0) * unit if host else _factor(end) for end in ends)
        learned = 1.0 - (sd / priors[k]) ** 2
        plain = (float(value), float(low), float(high), max(float(learned), 0.0))
        found.append(FittedNumber(name, *plain))
    return found
