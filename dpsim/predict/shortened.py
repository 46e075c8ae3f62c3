"""Playing a case as a table of measured runs needs it: exactly where that is fast, else shortened.

Data parallelism alone is played as `dpsim run` plays it.  Where layers are split over ranks, a case
may have hundreds of micro-batches on dozens of stages, so

* the vectorised engine plays it without sharing links between communicators.  Against the event
  engine, which shares them, steps of four meshes of 256 and 512 A100 were 0.00-0.06 % short;
* what it cannot follow (FSDP's pipelines with tied embeddings) is played event by event, where that
  is affordable;
* a long step is not played in full: its time is a straight line of its micro-batches
  (`dpsim.predict.straight`).  Three short steps show whether it is one already; if not,
  three longer ones do, and where the step itself is no longer than these it is played in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from dpsim.cases.case import Case
from dpsim.cases.plays import Stretch
from dpsim.cases.variant import Variant, with_micro_batches
from dpsim.compile.timeline import Split, Timeline
from dpsim.core.errors import SimulationError
from dpsim.core.lean import dataclass
from dpsim.core.record import Refused
from dpsim.describe.sections import Calibrate
from dpsim.play import NotApplicable, event, vectorised
from dpsim.predict import player
from dpsim.predict.level import Level
from dpsim.predict.level import level as solved
from dpsim.predict.player import EngineRefused, Played, Tries
from dpsim.predict.straight import Ends, filling_ends, line

#: how far a third short step may lie off the line through the first two, relatively
STRAIGHT = 1e-6
#: CPU seconds of event playing, as estimated, that one step may cost
MOST_SECONDS = 1.75
#: what a row says that was not played by the engines' own rules
NOTE = "links are not shared between communicators"


class NotInOnePass(SimulationError):
    """A step that the vectorised engine cannot follow, whatever meets on links."""


@dataclass(frozen=True)
class Shortened(Played):
    """As it was played, and the micro-batches of the short steps that it follows from; None where
    it was played in full."""

    ends: Ends | None = None


def step_time(case: Case, tried: Tries | None = None) -> float:
    """The step time of `case` [s], as `play` has it."""
    return play(case, splits=False, tried=tried).step_time


def one_step(case: Case) -> float:
    """The first step of `case`, as meshes that split layers are played [s].

    Raises SimulationError where one pass cannot follow it."""
    return _played(case, splits=False).step_time


def one_step_sharing(case: Case) -> float:
    """The first step of `case`, event by event, with links that its communicators share [s]."""
    return event.play(replace(case.plays()[0], steps=1, warmup=0)).step_time


def level(case: Case, calibrate: Calibrate) -> Level:
    """The level of `case` that `calibrate` asks for, as `dpsim.predict.level.level` has it.

    Tries take it for granted that a long step's time is a straight line; at the level that they
    find it has to be one."""
    for ends in () if case.mesh.plain else shorts(case):
        times: dict[float, tuple[float, float]] = {}
        try:
            found = solved(case, calibrate, partial(_of_line, ends, times))
        except Refused:
            break
        if _straight(found.of(case), ends, times[found.scale]):
            return found
    return solved(case, calibrate, partial(step_time, tried=Tries()))


def play(case: Case, *, splits: bool = True, tried: Tries | None = None) -> Played:
    """`case` played; without `splits` nothing need say what its step is made of.

    tried  what tries of this case at other levels have shown
    """
    if not case.mesh.plain:
        try:
            timeline, ends = _timeline(case, splits)
        except NotInOnePass:
            if player.estimate(case) > MOST_SECONDS:
                raise
            return _event_by_event(case)
        return Shortened(timeline, "vectorised", NOTE, ends is not None, ends=ends)
    if tried and tried.shared:
        return _shared(case)
    try:
        return player.play(case, splits=splits)
    except EngineRefused:  # the vectorised engine does not share links
        if tried:
            tried.shared = True
        return _shared(case)


def _shared(case: Case) -> Played:
    """`case`, whose communicators share links: on the event engine where that is affordable.

    Beyond, ZeRO++ is played without sharing (against the event engine its steps were 13 % short on
    16 A100, 2.4 % on 384 V100) and all else is refused: hybrid sharding was 71 % short on 16.
    """
    seconds = player.estimate(case)
    if seconds <= MOST_SECONDS:
        return _event_by_event(case)
    kind = type(case.scenario.strategy).__name__.lower()
    if kind != "zero":
        raise SimulationError(
            f"communicators of {kind} share links, and playing {case.ranks:,} ranks event by event "
            f"would take about {seconds:,.0f} s; validate takes {MOST_SECONDS:.0f} s a step"
        )
    return Played(_played(case), "vectorised", NOTE)


def _event_by_event(case: Case) -> Played:
    return player.play(Variant("event by event", {"engine": "event"}).of(case))


def lane_times(case: Case, variants: Sequence[Stretch], played: Played) -> list[float]:
    """Step times of variants of `case`, as `dpsim.predict.player.lane_times`."""
    if case.mesh.plain or not isinstance(played, Shortened):
        return player.lane_times(case, variants, played)
    lanes = player.lanes_of(variants)[1:]  # the one that stretches nothing is what was played
    ends = played.ends
    if ends is None:
        return list(_played(case, lanes, splits=False).lanes)
    short = (_played(with_micro_batches(case, m), lanes, splits=False).lanes for m in ends[:2])
    count = case.batch.accumulation
    return [line(ends, pair, count) for pair in zip(*short, strict=True)]


def _timeline(case: Case, splits: bool) -> tuple[Timeline, Ends | None]:
    """`case`, or its short steps stretched to its length; and the latter's, if it is that."""
    for ends in shorts(case):
        one, other = (_played(with_micro_batches(case, m), splits=splits) for m in ends[:2])
        if _straight(case, ends, (one.step_time, other.step_time)):
            return _stretched(case, ends, one, other, splits), ends
    return _played(case, splits=splits), None


def _stretched(case: Case, ends: Ends, one: Timeline, other: Timeline, splits: bool) -> Timeline:
    """`case` by two short steps of it."""
    count = case.batch.accumulation
    times = one.step_time, other.step_time
    whole = replace(other, durations=(line(ends, times, count),))
    if not splits:
        return whole
    parts = zip(one.mean_split(), other.mean_split(), strict=True)
    split = Split(*(max(line(ends, (a, b), count), 0.0) for a, b in parts))
    return replace(whole, splits=(split,))


def _of_line(ends: Ends, times: dict[float, tuple[float, float]], case: Case) -> float:
    """The step time of `case`, a long step, by the line through two short ones [s], whose own are
    kept in `times` by the level of compute."""
    one, other = (_short_time(case, count) for count in ends[:2])
    times[case.compute_scale] = one, other
    return line(ends, (one, other), case.batch.accumulation)


def _straight(case: Case, ends: Ends, times: tuple[float, float]) -> bool:
    """Whether a third short step of `case` lies on the line through two that took `times` [s]."""
    third, expected = _short_time(case, ends[2]), line(ends, times, ends[2])
    return abs(third - expected) <= STRAIGHT * expected


def _short_time(case: Case, count: int) -> float:
    """The step time of `case` with so many micro-batches [s]."""
    return _played(with_micro_batches(case, count), splits=False).step_time


def shorts(case: Case) -> Iterator[Ends]:
    """Micro-batches of three short steps, and of longer ones, as far as the step is longer still.

    What a step begins with may outlast the filling of its pipeline: where one cycle of waits is
    hardly longer than another, many rounds pass before it is the only one that counts."""
    stages, count = case.mesh.pipeline, case.batch.accumulation
    unit = max(stages, 4)
    some = (unit // 2, unit, unit + unit // 2), (2 * unit, 4 * unit, 3 * unit), filling_ends(case)
    longer = (filling_ends(case, times) for times in (2, 4, 8))
    tried = dict.fromkeys((*some, *(ends for ends in longer if 2 * max(ends) <= count)))
    for ends in tried:
        if count > max(ends) + unit and all(_taken(case, number) for number in ends):
            yield ends


def _taken(case: Case, count: int) -> bool:
    """Whether the schedule of `case` takes so many micro-batches, and is not one that only more of
    them would fill."""
    schedule, stages = case.programs.layout.schedule, case.mesh.pipeline
    try:
        schedule.refuse(stages, count)
    except Refused:
        return False
    return schedule.filling(stages) <= max(stages, count)


def _played(
    case: Case, lanes: tuple[vectorised.Lane, ...] = ((1.0, 1.0),), *, splits: bool = True
) -> Timeline:
    """One step of `case` on the vectorised engine; all ranks meet at its end: steps are alike."""
    try:
        request = replace(case.plays()[0], steps=1, warmup=0)
        return vectorised.play(request, lanes=lanes, sharing=False, splits=splits)
    except NotApplicable as error:
        raise NotInOnePass(f"engine: vectorised does not apply: {error}") from None
