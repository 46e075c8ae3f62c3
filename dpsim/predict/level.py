"""Calibration by measured steps: they set the level of compute and keep the proportions.

One step: the layers' durations are multiplied by one factor such that the predicted step time at
the measured count equals the measured one.  Several: more numbers are fitted (`dpsim.predict.fit`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from dpsim.cases.case import Case
from dpsim.cases.variant import at_ranks, batched, scaled, with_micro_batches
from dpsim.core.lean import dataclass
from dpsim.core.places import below
from dpsim.core.record import Refused
from dpsim.describe.measured import MeasuredPoint, read_measured
from dpsim.describe.scenario import Loaded
from dpsim.describe.sections import Calibrate, CalibrationPoint
from dpsim.predict.findings import CalibrationFinding, of_level, of_points
from dpsim.predict.fit import PointsFit, fit
from dpsim.predict.peak import check_peak
from dpsim.predict.player import FEW, Tries, step_time
from dpsim.predict.point import Causes
from dpsim.predict.repeats import Repeats
from dpsim.predict.straight import filled, line_through
from dpsim.predict.widths import Reference, reference

#: the least level where pauses are: they are shares of compute, and so need some
ALMOST_NONE = 1e-9
#: how many times further up a root is looked for where times say nothing of where it is
_FARTHER = 4.0
#: within which share of a loader's period a step is as long as that
_AS_LONG = 0.01
#: what rounding makes of one step played twice, over it
_ROUNDING = 1e-12


class BeyondLoader(Refused):
    """A measured step that is shorter than it takes to feed it."""


@dataclass(frozen=True)
class Level:
    """`scale` multiplies every layer's durations; it was set at `ranks` ranks to `step_time`.

    issuing      by what power of it the host's launches grow, where these durations hold them
    fit          what else was fitted and how well, where there were several points
    references       the measured steps, as linear scaling has them
    findings         what of it no healthy machine explains
    """

    scale: float
    ranks: int
    step_time: float
    issuing: float = 1.0
    fit: PointsFit | None = None
    references: tuple[Reference, ...] = ()
    findings: tuple[CalibrationFinding, ...] = ()

    def of(self, case: Case) -> Case:
        """`case` as it was calibrated."""
        if self.fit is None:
            return scaled(case, self.scale, self.issuing)
        try:
            return self.fit.adjusted(case).of(case)
        except Refused:  # nobody can play it, which it says itself where it is asked to be
            return case

    def alike(self, cases: Sequence[Case]) -> tuple[Case, ...]:
        """`cases`, which are calibrated, with what is carried from measured steps to the first in
        place of each one's own: so they differ in nothing but their ranks."""
        if (fit := self.fit) is None:
            return tuple(cases)
        return tuple(fit.carrying(case, case, cases[0]) for case in cases)

    @property
    def counts(self) -> tuple[int, ...]:
        """The counts at which steps were measured."""
        return self.fit.counts if self.fit else (self.ranks,)

    def reference(self, case: Case) -> Reference:
        """The measured step that `case` was extrapolated from; of those on as many ranks the one of
        the most similar batch."""
        ranks, samples = self.before(case.ranks), case.global_batch / case.ranks
        there = [one for one in self.references if one.ranks == ranks]
        return min(there, key=lambda one: abs(math.log(samples / one.samples)))

    def repeated(self, case: Case, step: float) -> bool:
        """Whether a `step` [s] of `case` was measured."""
        return any(one.repeated(case, step) for one in self.references)

    def before(self, ranks: int) -> int:
        """The measured count from which a case of `ranks` ranks was extrapolated."""
        return self.fit.before(ranks) if self.fit else self.ranks

    def causes(self, case: Case, step: float, *, repeated: bool) -> Causes | None:
        """What is still unsure of a calibrated case that takes `step` [s], which was measured where
        it is `repeated`; None where one point alone set the level."""
        if self.fit is None:
            return None
        quick = _quick(case)
        step = step if quick is step_time else quick(case)
        return self.fit.causes(case, step, quick, repeated=repeated)


def level_of(loaded: Loaded) -> Level | None:
    """The level that `loaded` asks for; None where it asks for none."""
    calibrate = loaded.scenario.calibrate
    try:
        return level(Case(loaded.points[0], loaded.base), calibrate) if calibrate else None
    except Refused as error:
        raise loaded.located(error) from None


def level(first: Case, calibrate: Calibrate, play: Callable[[Case], float] | None = None) -> Level:
    """The level that makes the prediction equal the measurement, or, where several runs were
    measured, come nearest to all; `play` tells a case's step time (left out: as an answer has it).

    Raises Refused where no level does, or only one beyond what the device's peak explains.
    """
    first = first.synthetic if calibrate.synthetic else first
    points = sorted(_points(first, calibrate))
    cases = [_case(first, calibrate, point) for point in points]
    targets = [_target(case, point) for case, point in zip(cases, points, strict=True)]
    repeats = Repeats.of(cases)
    if len(repeats.firsts) == 1 and repeats.agree(targets):
        return _of_one(cases[0], _middle(targets), play)
    try:
        start = _alone(cases[0], targets[0], play)
    except Refused:  # the model's own exchanges may take longer than the whole measured step
        start = 1.0
    quick = _quick(first) if play is None else None
    fitted = fit(cases, targets, start, play or step_time, quick)
    adjusted = [fitted.adjusted(case).of(case) for case in cases]
    for case in () if fitted.contradiction else adjusted:  # else it is of no device
        check_peak(case)
    findings = tuple(of_points(adjusted, fitted))
    measured = tuple(map(reference, cases, targets, map(play or step_time, adjusted)))
    compute = next(number.value for number in fitted.numbers if number.name == "compute")
    return Level(compute, points[0].ranks, targets[0], 1.0, fitted, measured, findings)


def _middle(seconds: Sequence[float]) -> float:
    """The mean of repeats, on logarithms; to the digit what was measured where there is one."""
    first = seconds[0]
    return first * math.exp(math.fsum(math.log(each / first) for each in seconds) / len(seconds))


def _of_one(case: Case, target: float, play: Callable[[Case], float] | None) -> Level:
    """The level at which `case` takes `target` [s]."""
    issuing, scale = 1.0, _alone(case, target, play)
    if scale > 1.0 and (less := _issuing(case)) < 1.0:
        issuing, scale = less, _alone(case, target, play, less, start=scale)
    found = Level(scale, case.ranks, target, issuing, references=(reference(case, target),))
    return replace(found, findings=tuple(of_level(found.of(case), scale)))


def _quick(case: Case) -> Callable[[Case], float]:
    """How derivatives of the steps of `case` are played: of random ones a few are enough."""
    return partial(step_time, at_most=FEW) if case.scenario.variability.random else step_time


def _case(first: Case, calibrate: Calibrate, point: MeasuredPoint) -> Case:
    """`first` on the ranks and with the batch of `point`."""
    single = (calibrate.ranks or calibrate.file or calibrate.points) is None
    key = next((k for k in ("points", "file") if getattr(calibrate, k)), "ranks")
    try:
        case = batched(at_ranks(first, point.ranks), dict(point.batch))
        _ = case.shares
    except Refused as error:
        if single or (point.ranks == first.ranks and not point.batch):
            raise
        raise Refused(f"{point.ranks} ranks: {error.message}", ("calibrate", key)) from None
    return case


def _target(case: Case, point: MeasuredPoint) -> float:
    """The measured step time of `case` [s]."""
    try:
        return point.step_time(case.global_batch, case.model.tokens, case.model.sample)
    except Refused as error:
        raise Refused(error.message, ("calibrate",)) from None


#: by how much is tried what bounds a layer
_NUDGE = 0.05


def _issuing(case: Case) -> float:
    """By what power of the level launches grow where ranks share a model, and layers take their
    kernels' launches or their work, whichever is longer.

    One measured step tells of that of the two which bounds it: the least that both have to be
    longer, in squares of logarithms, is in proportion to the time that either bounds.  So a step of
    work says nothing of launches, and one that launches bound is theirs whole.
    """
    if not case.pace.least:
        return 1.0
    short = with_micro_batches(case, min(case.batch.accumulation, case.mesh.pipeline))
    whole = _computed(short)
    work = _computed(scaled(short, 1.0 + _NUDGE, 0.0)) - whole
    return min(_NUDGE * whole / work - 1.0, 1.0) if work > 0 else 1.0


def _computed(case: Case) -> float:
    """What passes of all roles take in a step of `case` [s]."""
    programs = case.programs.asked.programs
    return math.fsum(
        op.seconds for one in programs for op in one.ops if op.kind in ("forward", "backward")
    )


def _alone(
    case: Case, target: float, play: Callable[[Case], float] | None, issuing: float = 1.0,
    *, start: float = 1.0,
) -> float:  # fmt: skip
    """The level at which `case` takes `target` [s], all else as modelled.

    `start` is tried first, and with `issuing` no level below 1.
    Unless `play` is said, a long step is played in full only where a line says that the level is.
    """
    none = ALMOST_NONE if case.scenario.variability.expanded.pauses else 0.0
    least = none if issuing == 1.0 else 1.0
    time = play or partial(step_time, tried=Tries())
    if _bound_by_loader(case, target) and time(scaled(case, start, issuing)) <= target:
        return start
    if play is None and filled(case) is not None:
        with suppress(Refused):
            near = _solve(
                lambda scale: line_through(scaled(case, scale, issuing), time), target, least
            )
            start = near if near > least else start
    scale = _solve(lambda scale: time(scaled(case, scale, issuing)), target, least, start)
    check_peak(scaled(case, scale))
    return scale


def _bound_by_loader(case: Case, target: float) -> bool:
    """Whether a measured step is as long as it takes to feed it, so that it tells no level; Refused
    where it is shorter."""
    if case.feed is None:
        return False
    period = case.feed.made.period(case.feed.made.settled(target))
    if period > target:
        raise BeyondLoader(
            f"a step of {target:.4g} s is shorter than what the loader takes for its batches "
            f"({period:.4g} s); if it was measured with synthetic data, say synthetic: true",
            ("calibrate",),
        )
    return target <= period * (1.0 + _AS_LONG)


def _points(first: Case, calibrate: Calibrate) -> list[MeasuredPoint]:
    """What was measured."""
    if calibrate.file is not None:
        file = below(first.base, calibrate.file, "calibrate.file")
        rows = read_measured(file, "calibrate.file")
        found = [row for row in rows if calibrate.ranks in (None, row.ranks)]
        if not found:
            there = ", ".join(str(row.ranks) for row in rows[:20])
            message = f"{calibrate.file} has no row of {calibrate.ranks} ranks; it has {there}"
            raise Refused(message, ("calibrate", "ranks"))
        return found
    return [point_of(first, each) for each in calibrate.points or (calibrate,)]


def point_of(first: Case, said: Calibrate | CalibrationPoint) -> MeasuredPoint:
    """What `said` means; ranks that it leaves out are those of `first`."""
    ranks = said.ranks or first.ranks
    batch = tuple(said.batch.items()) if isinstance(said, CalibrationPoint) else ()
    if said.step_time is not None:
        return MeasuredPoint(ranks, said.step_time, "s", "calibrate.step_time", batch)
    assert said.throughput is not None
    value, unit = said.throughput
    return MeasuredPoint(ranks, value, unit, "calibrate.throughput", batch)


def _solve(
    time: Callable[[float], float], target: float, least: float, start: float = 1.0
) -> float:
    """The root of time(scale) = target: it grows with scale from `least` on, almost linearly.

    The secant through the two scales that come nearest, kept inside the bracket; first, from
    `start`, as if a step were compute and nothing else.  Every try is a play, so an end of the
    bracket is tried only where a secant leads there."""
    known = {start: time(start)}
    guess = start * target / known[start] if known[start] else _FARTHER
    for _ in range(80):
        one, *others = sorted(known, key=lambda scale: abs(known[scale] - target))
        if abs(known[one] - target) <= 1e-10 * target:
            break
        if others:
            rise = known[others[0]] - known[one]
            away = (others[0] - one) * (target - known[one])
            # where something else bounds the step, it is flat but for rounding
            guess = one + away / rise if abs(rise) > _ROUNDING * target else least
        guess = _inside(known, guess, target, least)
        if guess in known:
            break
        known[guess] = time(guess)
        if guess == least and target <= known[least]:
            raise Refused(
                f"a step of {target:.4g} s is shorter than what communication and the optimizer "
                f"alone take ({known[least]:.4g} s)",
                ("calibrate",),
            )
    return min(known, key=lambda scale: abs(known[scale] - target))


def _inside(known: Mapping[float, float], guess: float, target: float, least: float) -> float:
    """`guess`, or what to try instead where the root of what is `known` cannot be there."""
    below = [scale for scale, found in known.items() if found <= target]
    above = [scale for scale, found in known.items() if found > target]
    if not below:
        return guess if least < guess < min(above) else least
    if above:
        low, high = max(below), min(above)
        return guess if low < guess < high else (low + high) / 2
    guess = guess if guess > max(below) else max(below) * _FARTHER
    if guess > 1e12:
        raise Refused("the model's compute takes no time, so no level fits", ("calibrate",))
    return guess
