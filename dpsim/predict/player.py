"""Playing a case: which engine, how many steps, and what it returned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from dpsim.cases.case import Case
from dpsim.cases.costs import Transport
from dpsim.cases.feed import Meal
from dpsim.cases.plays import Stretch
from dpsim.cases.variant import Variant, at_ranks
from dpsim.compile.placement import Mesh
from dpsim.compile.strategies import Strategy
from dpsim.compile.timeline import Timeline
from dpsim.core.errors import EnginesDisagree
from dpsim.core.lean import dataclass
from dpsim.core.many import larger
from dpsim.core.record import Refused
from dpsim.play import NotApplicable, Play, event, vectorised
from dpsim.predict.acted import Acted, act
from dpsim.predict.affordable import check_affordable
from dpsim.predict.effort import EVENT, Effort, effort_of
from dpsim.predict.meeting import steps_of, too_long
from dpsim.predict.straight import along

#: CPU seconds of event playing, as estimated, that a run may cost before `auto` turns to the
#: vectorised engine
EVENT_BUDGET = 0.4
#: steps of a re-play on the event engine, where anything is random
FEW = 8
#: the vectorised engine where the times of steps are all that is asked for
_ends = partial(vectorised.play, splits=False)
#: how far two steps may differ, relatively, when the run has settled
SETTLED = 1e-9


class EngineRefused(Refused):
    """The engine that a scenario asks for does not apply to it."""


#: sections that say how a run fares over days, and nothing of its steps
_OF_THE_RUN = ("failures", "checkpoint", "recovery", "evaluation")


@dataclass(frozen=True)
class Played:
    """A timeline, the engine that made it and why that one.

    settled  whether it is that of the first play, or nothing could settle
    meal     its steps as they are fed; None where nothing is known of what feeds them
    acted    how it went, where workers behave
    unshared what playing with the links that communicators share would take [s], where that was
             left out; 0: it was not
    few      how many random steps were played, where all would take too long; 0: all were
    """

    timeline: Timeline
    engine: str
    reason: str
    settled: bool = False
    meal: Meal | None = None
    acted: Acted | None = None
    unshared: float = 0.0
    few: int = 0

    @property
    def durations(self) -> tuple[float, ...]:
        """Of the steps [s], waits for batches and all."""
        return self.meal.durations if self.meal else self.timeline.durations

    @property
    def step_time(self) -> float:
        if self.acted:
            return self.acted.step_time
        return self.meal.step if self.meal else self.timeline.step_time


def steps_alone(case: Case) -> Case:
    """`case` without what says how its run fares over days, and nothing of its steps."""
    return Variant("steps", dict.fromkeys(_OF_THE_RUN)).of(case)


def before_reducing(case: Case, step: float) -> float:
    """Of a `step`, the seconds that are computed before rank 0 reduces anything over replicas for
    the first time, as far as that is known; at most the step.  What ranks of one replica reduce
    among them, those of a tensor group say, waits for no other replica."""
    if case.scenario.strategy.behaves:
        return 0.0
    seconds, cast = 0.0, case.programs.cast(None)
    own = case.mesh.place(0, "data")
    for op in cast.program(0).ops:
        reduces = op.operation in ("all_reduce", "reduce_scatter")
        if reduces and any(case.mesh.place(r, "data") != own for r in cast.peers(0, op.group)):
            break
        seconds += op.seconds if op.on_device else 0.0
    return min(seconds, step)


def play_once(case: Case) -> Played:
    """As `play`: where the scenario has failures, once for all cases that differ in these alone."""
    if case.scenario.failures is None:
        return play(case)
    return case.shared.known(play, steps_alone(case))


def play(case: Case, *, budget: float | None = None, splits: bool = True) -> Played:
    """Play `case` on the engine that the scenario asks for; `auto` is `event` within `budget` (left
    out: EVENT_BUDGET).  Without `splits` nothing need say what steps are made of.

    Raises EngineRefused where the scenario asks for an engine that does not apply."""
    if case.scenario.strategy.behaves:
        return _behaving(case)
    most = EVENT_BUDGET if budget is None else budget
    wanted, effort = case.scenario.engine, effort_of(case)
    if wanted == "auto" and case.scenario.detail == "rounds":
        wanted, reason = "event", "detail: rounds"
    elif wanted == "auto":
        cost = effort.seconds(EVENT)
        wanted = "event" if cost <= most else "vectorised"
        shown = f"{cost:.1f}" if cost >= 1.0 else f"{cost:.2f}"
        reason = f"estimated {shown} s of event playing; the budget is {most:.2f} s"
    else:
        reason = "asked for"
    if wanted == "vectorised":
        try:
            return _in_one_pass(case, effort, reason, splits)
        except NotApplicable as error:
            if case.scenario.engine == "vectorised":
                said = f"vectorised does not apply: {error}; write auto or event"
                raise EngineRefused(said, ("engine",)) from None
            wanted, reason = "event", str(error)
            if too_long(case):
                return _less(case, effort, reason, splits)
    check_affordable(case, effort, EVENT)
    tried = case.shared.known(Latest, case.transport).take(case)
    timeline = tried or _settle(case.plays(), _event(case))[0]
    return Played(timeline, wanted, reason, meal=_meal(case, timeline))


def _meal(case: Case, timeline: Timeline) -> Meal | None:
    """The steps of `timeline` as they are fed."""
    return case.feed.meal(timeline.durations) if case.feed else None


def _fed(case: Case, timeline: Timeline) -> float:
    """The mean step of `timeline`, as it is fed [s]."""
    meal = _meal(case, timeline)
    return meal.step if meal else timeline.step_time


def _behaving(case: Case) -> Played:
    """`case` whose workers behave, which one pass cannot follow."""
    if case.scenario.engine == "vectorised":
        said = "vectorised does not apply: workers decide while they run; write auto or event"
        raise EngineRefused(said, ("engine",))
    found = act(case)
    return Played(found.timeline, "event", "workers decide while they run", acted=found)


def fastest(case: Case, *, splits: bool = True) -> Played:
    """Play `case` as `play`, but let `auto` be the vectorised engine wherever that applies; without
    `splits` nothing says what steps are made of."""
    behaves = case.scenario.strategy.behaves
    if not behaves and case.scenario.engine == "auto" and case.scenario.detail != "rounds":
        with suppress(NotApplicable):
            return _in_one_pass(case, effort_of(case), "the fastest that applies", splits)
    return play(case)


def _less(case: Case, effort: Effort, reason: str, splits: bool) -> Played:
    """`case`, which takes too long with shared links: over fewer steps, or without these."""
    steps = steps_of(case)
    if steps is None:
        with suppress(NotApplicable):
            apart = _in_one_pass(case, effort, reason, splits, sharing=False)
            return replace(apart, unshared=effort.meeting(EVENT))
    check_affordable(case, effort, EVENT)
    timeline = _settle(case.plays(at_most=steps or 1), _event(case))[0]
    few = len(timeline.durations) if case.scenario.variability.random else 0
    return Played(timeline, "event", reason, meal=_meal(case, timeline), few=few)


def _in_one_pass(
    case: Case, effort: Effort, reason: str, splits: bool, sharing: bool = True
) -> Played:
    """`case`, of that effort, played by the vectorised engine; NotApplicable where it cannot be,
    as where communicators share links, unless `sharing` is to be left out."""
    check_affordable(case, effort, effort.vectorised)
    engine = partial(vectorised.play, splits=splits, sharing=sharing)
    timeline, first = _settle(case.plays(), engine)
    return Played(timeline, "vectorised", reason, first, _meal(case, timeline))


class Tries:
    """What tries of one case at several levels of compute leave for the next.

    shared  one pass could not follow one of them, for communicators shared links: the next is left
            to the event engine, which tells the same
    """

    def __init__(self) -> None:
        self.shared = False


class Met(Tries):
    """The same of all cases with that mesh, strategy and network, whose steps are all alike: both
    engines tell the same of them, so that it only matters which is asked first."""

    def __init__(self, mesh: Mesh, strategy: Strategy, transport: Transport) -> None:
        super().__init__()
        self.of = mesh, strategy, transport


def _met(case: Case) -> Tries:
    if case.scenario.variability.random:
        return Tries()
    return case.shared.known(Met, case.mesh, case.scenario.strategy, case.transport)


class Latest:
    """The latest case, of those on some network, whose tries ended on the event engine, and how it
    went, until it is played as an answer."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._known: tuple[Case, Timeline] | None = None

    def note(self, case: Case, timeline: Timeline) -> None:
        """That was `case`, as it is, where all steps are alike."""
        if not (case.mesh.plain or case.scenario.variability.random):
            self._known = case, timeline

    def take(self, case: Case) -> Timeline | None:
        """The latest, if it was of `case`."""
        found, self._known = self._known, None
        return found[1] if found and found[0] == case else None


def step_time(
    case: Case,
    *,
    stretch: Stretch | None = None,
    quiet: bool = False,
    at_most: int | None = None,
    tried: Tries | None = None,
) -> float:
    """Mean step time of a variant of `case`, on the fastest engine that applies.

    tried  what tries of this case at other levels have shown
    """
    if case.scenario.strategy.behaves:
        return act(case, stretch, quiet=quiet, at_most=at_most).step_time
    in_one_pass = case.scenario.detail != "rounds"
    met = tried or _met(case)
    if in_one_pass and not met.shared:
        plays = case.plays(stretch=stretch, quiet=quiet, at_most=at_most)
        try:
            return _fed(case, _settle(plays, _ends)[0])
        except NotApplicable:
            met.shared = True
    few = at_most or FEW
    if in_one_pass and case.scenario.engine == "auto" and not quiet and too_long(case):
        steps = steps_of(case)
        if steps is None:
            plays = case.plays(stretch=stretch, quiet=quiet, at_most=at_most)
            with suppress(NotApplicable):
                return _fed(case, _settle(plays, partial(_ends, sharing=False))[0])
        few = min(few, steps or 1)
    plays = case.plays(stretch=stretch, quiet=quiet, at_most=few)
    timeline = _settle(plays, _event(case))[0]
    if tried:
        case.shared.known(Latest, case.transport).note(case, timeline)
    return _fed(case, timeline)


def lane_times(case: Case, variants: Sequence[Stretch], played: Played) -> list[float]:
    """Step times of several variants of `case`, which was `played`.

    A variant stretches compute, or all of communication alike.  Where communicators share links
    this leaves the sharing out, and the ratio to the unstretched lane is what counts.
    """
    if case.scenario.strategy.behaves:
        few = [act(case, one, clocks=FEW).step_time for one in (None, *variants)]
        return [played.step_time * found / few[0] for found in few[1:]]
    most, time = FEW if case.script.contention else None, played.timeline.step_time
    known = _own(case, played, most)
    lanes = lanes_of(variants)[len(known) :]

    def times(case: Case) -> Sequence[float]:
        request = case.plays(at_most=most)[0]
        return vectorised.play(request, lanes=lanes, sharing=False, splits=False).lanes

    try:
        own, *found = (*known, *(along(case, times) or times(case)))
    except NotApplicable:  # one pass cannot follow their order
        each, hungry = (None, *variants), case.hungry
        own, *found = (step_time(hungry, stretch=one, at_most=FEW) for one in each)
    found_ = [time * value / own if own else value for value in found]
    if case.feed is None:
        return found_
    durations = played.timeline.durations
    scaled = ([each * value / time for each in durations] for value in found_)
    return [case.feed.meal(some).step for some in scaled]


def _own(case: Case, played: Played, most: int | None) -> tuple[float, ...]:
    """The unstretched lane over `most` steps, where that is what was `played`; else nothing."""
    if played.engine != "vectorised" or not played.settled or case.costs.concurrency > 1:
        return ()
    if not case.scenario.variability.random:
        return played.timeline.lanes[:1]
    durations = played.timeline.durations[:most]
    return (sum(durations) / len(durations),)


def lanes_of(variants: Sequence[Stretch]) -> tuple[vectorised.Lane, ...]:
    """The lanes of `variants`, behind one that stretches nothing."""
    if any(v.latency != v.transfer for v in variants):
        raise ValueError("a lane stretches latency and transfer alike")
    return ((1.0, 1.0), *((v.compute, v.transfer) for v in variants))


def cross_check(case: Case) -> None:
    """Play a few steps of `case` on both engines; EnginesDisagree if they don't agree to 1e-9.

    A case of more than 64 ranks is checked on 8 of them, or on one replica of the model."""
    few = max(8 // case.mesh.least, 1) * case.mesh.least
    case = at_ranks(case, few, counted=True) if case.ranks > 64 > few else case
    try:
        request = case.plays()[0]
        short = replace(request, steps=min(request.steps, 4), warmup=0)
        a, b = event.play(short), vectorised.play(short)
    except (NotApplicable, Refused):  # Refused: a strategy that does not fit on 8 ranks
        return
    if abs(a.step_time - b.step_time) > 1e-9 * a.step_time:
        raise EnginesDisagree(
            f"the engines disagree: event {a.step_time} s, vectorised {b.step_time} s; please "
            "report it; engine: event goes on without the other"
        )


def estimate(case: Case) -> float:
    """Rough CPU seconds that the event engine needs for `case`."""
    if case.scenario.strategy.behaves:
        return 0.0
    return effort_of(case).seconds(EVENT)


def _event(case: Case) -> Callable[[Play], Timeline]:
    return lambda request: event.play(request, detail=case.scenario.detail)


def _settle(plays: list[Play], engine: Callable[[Play], Timeline]) -> tuple[Timeline, bool]:
    """The timeline of the first play that has settled, the mean of the last one if none has; and
    whether that is the very first."""
    timeline = engine(plays[0])
    for number, following in enumerate(plays[1:]):
        last, before = timeline.durations[-1], timeline.durations[-2]
        if abs(last - before) <= SETTLED * larger(last, before):
            return replace(timeline, durations=(last,), splits=timeline.splits[-1:]), number == 0
        timeline = engine(following)
    return timeline, len(plays) == 1
