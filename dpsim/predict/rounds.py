"""Rounds of local steps: what each step of a round takes, and how much of it is compute."""

from __future__ import annotations

from collections.abc import Collection

from dpsim.cases.case import Case
from dpsim.compile.timeline import Step
from dpsim.predict.player import Played
from dpsim.predict.point import LocalRound, Parts, Period


def round_of(case: Case, played: Played, parts: Parts) -> LocalRound | None:
    """The round that `played` is the mean step of; None where steps are all alike.

    What a fragment is waited for, and what the device does for it, is that of the last step played
    on the critical rank; the rest of the step is an inner one.
    """
    if not case.mesh.plain or case.scenario.iteration != "steady":
        return None
    rhythm = case.scenario.strategy.rounds(case.job(max(case.shares)))
    if rhythm is None:
        return None
    mean, last = played.step_time, played.timeline.last
    share = waited(last, rhythm.outside) / last.duration if last.duration else 0.0
    times = rhythm.step_times(mean * (1.0 - share), mean)
    return LocalRound(Period(rhythm.period, times), parts.compute_s / mean)


def waited(step: Step, outside: Collection[str]) -> float:
    """How long the critical rank stands still for exchanges between workers, or works for them, in
    a mean step [s]: what of it is `outside` inner ones, by name."""
    rank = step.critical_rank()
    program, column = step.cast.program(rank), step.column(rank)
    total, before = 0.0, step.origin
    for op, start, end in zip(program.ops, column.start, column.end, strict=True):
        if not op.on_device:
            continue
        if op.name in outside:
            total += end - min(before, start)
        before = end
    return total
