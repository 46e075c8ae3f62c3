"""Rounds of local steps: what each step of a round takes, and how much of it is compute."""

from __future__ import annotations

from dpsim.cases.case import Case
from dpsim.compile.timeline import Step
from dpsim.predict.player import Played
from dpsim.predict.point import LocalRound, Parts, Period


def round_of(case: Case, played: Played, parts: Parts) -> LocalRound | None:
    """The round that `played` is the mean step of; None where steps are all alike.

    What a fragment is waited for, and what the device does for it, is that of the last step played
    on the critical rank; the rest of the step is an inner one.
    """
    rhythm = case.scenario.strategy.rounds(case.job(max(case.shares)))
    if rhythm is None or case.scenario.iteration != "steady":
        return None
    mean, last = played.step_time, played.timeline.last
    share = waited(last) / last.duration if last.duration else 0.0
    times = rhythm.step_times(mean * (1.0 - share), mean)
    return LocalRound(Period(rhythm.period, times), parts.compute_s / mean)


def waited(step: Step) -> float:
    """How long the critical rank stands still for exchanges between workers, or works for them, in
    a mean step [s]."""
    rank = step.critical_rank()
    program, column = step.cast.program(rank), step.column(rank)
    total, before = 0.0, step.origin
    for op, start, end in zip(program.ops, column.start, column.end, strict=True):
        if not op.on_device:
            continue
        if op.name in OUTSIDE:
            total += end - min(before, start) if op.name == "W.outer" else end - start
        before = end
    return total


#: operations of a mean step that no inner step has
OUTSIDE = ("delta", "W.outer", "outer")
