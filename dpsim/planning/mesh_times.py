"""How long a step of a mesh takes, as a search for the fastest needs it: over one step."""

from __future__ import annotations

from contextlib import suppress

from dpsim.cases.case import Case
from dpsim.core.errors import SimulationError
from dpsim.predict import shortened
from dpsim.predict.effort import EVENT, effort_of
from dpsim.predict.player import fastest

#: CPU seconds, as estimated, that a step may take event by event
MOST_SECONDS = 1.0


def step_time(case: Case) -> float:
    """The step time of `case` [s], as `sharing` has it."""
    return sharing(case, alone(case))


def alone(case: Case) -> float:
    """The step time of `case`, with links shared by nobody but the ranks of a collective [s]: no
    more than `sharing` has.

    Meshes that split layers are timed over one step.  Where ranks differ at random a plain mesh is,
    too: they differ alike in it.  One that cannot be is timed as `dpsim run` plays it."""
    if not case.mesh.plain:
        return shortened.step_time(case)
    if case.scenario.variability.random and case.feed is None:
        with suppress(SimulationError):
            return shortened.one_step(case)
    return fastest(case, splits=False).step_time


def sharing(case: Case, time: float) -> float:
    """The step time of `case`, which takes `time` alone, with links that its communicators share
    [s]: where one step is soon played event by event; `time` elsewhere."""
    if affordable(case):
        return max(shortened.one_step_sharing(case), time)
    return time


def affordable(case: Case) -> bool:
    """Whether one step of `case`, whatever meets in it, is soon played event by event.

    Without a machine nothing shares links, and a step that waits for its input was played in full,
    as was one of a plain mesh whose ranks do not differ at random."""
    varied = case.scenario.variability
    played = case.mesh.plain and not varied.random
    if case.topology is None or case.feed is not None or played:
        return False
    effort = effort_of(case)
    each = effort.seconds(EVENT) / effort.steps
    return max(each, effort.meeting(EVENT, 1) if varied.varies else 0.0) <= MOST_SECONDS
