"""Playing a case as a table of measured runs needs it: exactly where that is fast, else shortened.

Data parallelism alone is played as `dpsim run` plays it.  Where layers are split over ranks, a case
may have hundreds of micro-batches on dozens of stages, so

* the vectorised engine plays it without sharing links between communicators.  Against the event
  engine, which shares them, steps of four meshes of 256 and 512 A100 were 0.00-0.06 % short;
* a long step is not played in full: its time is a straight line of its micro-batches
  (`dpsim.predict.straight`).  Three short steps show whether it is one already; if not, the step is
  played in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from dpsim.cases.case import Case
from dpsim.cases.plays import Stretch
from dpsim.cases.variant import Variant, scaled, with_micro_batches
from dpsim.compile.timeline import Split, Timeline
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.describe.sections import Calibrate
from dpsim.play import NotApplicable, vectorised
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


def step_time(case: Case, tried: Tries | None = None) -> float:
    """The step time of `case` [s], as `play` has it."""
    return play(case, splits=False, tried=tried).step_time


def level(case: Case, calibrate: Calibrate) -> Level:
    """The level of `case` that `calibrate` asks for, as `dpsim.predict.level.level` has it.

    Tries take it for granted that a long step's time is a straight line; at the level that they
    find it has to be one."""
    ends = None if case.mesh.plain else _short(case)
    if ends is not None:
        with suppress(Refused):
            found = solved(case, calibrate, _of_line)
            own = scaled(case, found.scale)
            if _straight(own, ends, _lines(own, ends, splits=False)):
                return found
    return solved(case, calibrate, partial(step_time, tried=Tries()))


def play(case: Case, *, splits: bool = True, tried: Tries | None = None) -> Played:
    """`case` played; without `splits` nothing need say what its step is made of.

    tried  what tries of this case at other levels have shown
    """
    if not case.mesh.plain:
        timeline, straight = _timeline(case, splits)
        return Played(timeline, "vectorised", NOTE, straight)
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
        return player.play(Variant("event by event", {"engine": "event"}).of(case))
    kind = type(case.scenario.strategy).__name__.lower()
    if kind != "zero":
        raise SimulationError(
            f"communicators of {kind} share links, and playing {case.ranks:,} ranks event by event "
            f"would take about {seconds:,.0f} s; validate takes {MOST_SECONDS:.0f} s a step"
        )
    return Played(_played(case), "vectorised", NOTE)


def lane_times(case: Case, variants: Sequence[Stretch], played: Played) -> list[float]:
    """Step times of variants of `case`, as `dpsim.predict.player.lane_times`."""
    if case.mesh.plain:
        return player.lane_times(case, variants, played)
    lanes, ends = player.lanes_of(variants), _short(case)
    if ends is None:
        values = _played(case, lanes, splits=False).lanes
    elif played.settled:  # the lane that stretches nothing is what was played
        values = (played.step_time, *_lanes(case, ends, lanes[1:]))
    else:
        values = _lanes(case, ends, lanes)
    return [played.step_time * value / values[0] for value in values[1:]]


def _lanes(case: Case, ends: Ends, lanes: tuple[vectorised.Lane, ...]) -> tuple[float, ...]:
    """The step times of `lanes`, each on the line through two short steps."""
    if not lanes:
        return ()
    short = (_played(with_micro_batches(case, m), lanes, splits=False).lanes for m in ends[:2])
    count = case.scenario.batch.accumulation
    return tuple(line(ends, pair, count) for pair in zip(*short, strict=True))


def _timeline(case: Case, splits: bool) -> tuple[Timeline, bool]:
    """`case`, or its short steps stretched to its length; and whether it is the latter."""
    ends = _short(case)
    if ends is None:
        return _played(case, splits=splits), False
    one, other = _lines(case, ends, splits=splits)
    if not _straight(case, ends, (one, other)):
        return _played(case, splits=splits), False
    count = case.scenario.batch.accumulation
    times = one.step_time, other.step_time
    whole = replace(other, durations=(line(ends, times, count),))
    if not splits:
        return whole, True
    parts = zip(one.mean_split(), other.mean_split(), strict=True)
    split = Split(*(max(line(ends, (a, b), count), 0.0) for a, b in parts))
    return replace(whole, splits=(split,)), True


def _lines(case: Case, ends: Ends, *, splits: bool) -> tuple[Timeline, Timeline]:
    """The two short steps of `case` that a line goes through."""
    one, other = (_played(with_micro_batches(case, m), splits=splits) for m in ends[:2])
    return one, other


def _of_line(case: Case) -> float:
    """The step time of `case`, a long step, by the line through two short ones [s]."""
    ends = _short(case)
    assert ends is not None
    one, other = _lines(case, ends, splits=False)
    return line(ends, (one.step_time, other.step_time), case.scenario.batch.accumulation)


def _straight(case: Case, ends: Ends, lines: tuple[Timeline, Timeline]) -> bool:
    """Whether a third short step of `case` lies on the line through two."""
    third = _played(with_micro_batches(case, ends[2]), splits=False).step_time
    one, other = lines
    expected = line(ends, (one.step_time, other.step_time), ends[2])
    return abs(third - expected) <= STRAIGHT * expected


def _short(case: Case) -> Ends | None:
    """Micro-batches of three short steps; None where the step is no longer than they are."""
    stages, count = case.mesh.pipeline, case.scenario.batch.accumulation
    unit = max(stages, 4)
    some = (unit // 2, unit, unit + unit // 2), (2 * unit, 4 * unit, 3 * unit), filling_ends(case)
    for ends in some:
        if count > max(ends) + unit and all(_taken(case, number) for number in ends):
            return ends
    return None


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
        raise SimulationError(f"engine: vectorised does not apply: {error}") from None
