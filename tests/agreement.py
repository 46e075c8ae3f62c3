"""Agreement: in what the answers of two engines to one play differ, but for rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from random_plays import Wide

from dpsim.compile.timeline import Split, Step, Timeline
from dpsim.play import Costs, NotApplicable, Play, event, vectorised

#: relative, and of the whole run: times are differences of times since its start
TOLERANCE, OF_THE_RUN = 1e-9, 1e-12
#: multipliers of all compute and of all communication
LANES = ((1.0, 1.0), (1.07, 1.0), (1.0, 1.3), (0.0, 1.0), (1.0, 0.0), (2.0, 0.5))
#: what may come of a comparison
AGREE, ALONE, DIFFER = "agree", "played by the event engine alone", "DIFFER"
TIES = "agree, but not on what idle time is called"


def compared(play: Play) -> tuple[str, list[str]]:
    """What comes of `play` on both engines, and in what they differ."""
    try:
        ours = vectorised.play(play)
    except NotApplicable:
        return ALONE, []
    theirs = event.play(play)
    if found := list(differences(theirs, ours)):
        return DIFFER, found
    bubbles, others = ([split.bubble for split in x.splits] for x in (theirs, ours))
    return AGREE if near(bubbles, others, theirs.last.finish) else TIES, []


def lanes_compared(play: Play) -> tuple[str, list[str]]:
    """The same of each lane's mean step in the vectorised engine, and the play with those
    multipliers, played alone by the event engine."""
    try:
        ours = vectorised.play(play, lanes=LANES)
    except NotApplicable:
        return ALONE, []
    found = []
    for lane, step_time in zip(LANES, ours.lanes, strict=True):
        alone = event.play(stretched(play, *lane))
        if not near(alone.step_time, step_time, alone.last.finish):
            found.append(f"lane {lane}: {alone.step_time} and {step_time}")
    return DIFFER if found else AGREE, found


def stretched(play: Play, compute: float, communication: float) -> Play:
    """`play` with all compute and all communication so many times as long."""
    backend = play.costs.backend
    assert isinstance(backend, Wide)
    return replace(
        play,
        factors=lambda step: play.factors(step) * compute,
        costs=Costs(backend.stretched(communication), None),
    )


def differences(a: Timeline, b: Timeline) -> Iterator[str]:
    """In what two answers differ, a line each."""
    run = a.last.finish
    if not near(a.durations, b.durations, run):
        yield f"durations: {a.durations} and {b.durations}"
    if not near([_parts(x) for x in a.splits], [_parts(x) for x in b.splits], run):
        yield f"splits: {a.splits} and {b.splits}"
    if not near(a.last.talks_until, b.last.talks_until, run):
        yield f"talks until: {a.last.talks_until} and {b.last.talks_until}"
    yield from _times(a.last, b.last)
    yield from _critical(a.last, b.last)
    yield from _last_to_come(a.last, b.last)


def _parts(split: Split) -> tuple[float, float, float]:
    """Compute, exposed communication and idle time.  Whether this is a bubble or a stall depends
    on which of two things that a rank waited for ended last: rounding tells, where both end
    together."""
    return split.compute, split.exposed_communication, split.bubble + split.stall


def near(a: Any, b: Any, run: float) -> bool:
    """Whether two numbers, or two arrays, are equal but for rounding; `run`: of the whole [s]."""
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    slack = TOLERANCE * np.maximum(abs(x), abs(y)) + OF_THE_RUN * max(1.0, run)
    return x.shape == y.shape and bool((abs(x - y) <= slack).all())


def _times(a: Step, b: Step) -> Iterator[str]:
    """Start, end and readiness of everything on every rank, as arrays and as spans."""
    for name in ("ready", "start", "end"):
        for role, (x, y) in enumerate(zip(getattr(a, name), getattr(b, name), strict=True)):
            if not near(x, y, a.finish):
                yield f"{name} in role {role}: {x.tolist()} and {y.tolist()}"
    ranks = range(a.cast.ranks)
    for one, other in zip(a.spans(ranks), b.spans(ranks), strict=True):
        if one[:6] != other[:6] or not near(one[6:], other[6:], a.finish):
            yield f"spans: {one} and {other}"


def _critical(a: Step, b: Step) -> Iterator[str]:
    """The critical ranks; of ranks that end together but for rounding, either."""
    one, other = a.critical_rank(), b.critical_rank()
    ends = [a.column(rank).end[a.cast.program(rank).end] for rank in (one, other)]
    if one != other and not near(ends[0], ends[1], a.finish):
        yield f"critical rank: {one} and {other}"


def _last_to_come(a: Step, b: Step) -> Iterator[str]:
    """Who reaches each collective last; of ranks that come together but for rounding, either."""
    for program in a.cast.programs:
        for place, index in program.places.items():
            if program.ops[index].kind != "collective":
                continue
            for group in a.cast.groups[program.ops[index].group]:
                one, other = (step.last_to_come(group, place) for step in (a, b))
                if not near(_reached(a, one, place), _reached(a, other, place), a.finish):
                    yield f"last to come to {place} of {group}: {one} and {other}"


def _reached(step: Step, rank: int, place: tuple[str, str, int]) -> float:
    return step.column(rank).ready[step.cast.program(rank).places[place]]
