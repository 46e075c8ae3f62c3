"""Ranks at paces of their own whose communicators meet on links: how much of that is played.

Rates of all that is under way are worked out anew whenever one communicator is through, so playing
takes time that grows with the square of the ranks.  Fewer random steps are played then, with shared
links; where even two are too many, fewer ranks tell whether sharing matters at all.
"""

from __future__ import annotations

from functools import partial
from math import inf

from dpsim.cases.case import Case
from dpsim.cases.variant import at_ranks
from dpsim.core.record import Refused
from dpsim.play import NotApplicable, event, vectorised
from dpsim.predict.effort import EVENT, effort_of

#: CPU seconds of a single event play, as estimated, from which on `auto` plays less of it
LONG = 15.0
#: of these, for the few ranks that tell whether sharing matters
PROBE = 5.0
#: as many times as long a step may be with shared links for these to be left out: Llama-3-8B with
#: FSDP2 beside contexts of two inside nodes, on 16 to 128 H100, is up to 1.01 times as long
HARDLY = 1.02
#: steps that are played to warm up, and beside these at least where draws are averaged
WARM, FEWEST = 2, 2


def too_long(case: Case) -> bool:
    """Whether playing `case`, whose communicators share links, event by event takes long: ranks
    that are all alike meet at once, and take no longer for it."""
    return case.scenario.variability.varies and effort_of(case).meeting(EVENT) > LONG


def steps_of(case: Case) -> int | None:
    """How many random steps the event engine plays of a `case` that takes too long; None: sharing
    is left out.

    Where it matters, and two steps would take too long, one is played for as long as it takes; of
    steps that are all alike as many as there are."""
    steps = int(LONG / effort_of(case).meeting(EVENT, 1)) - WARM
    if case.scenario.variability.random and steps >= FEWEST:
        return steps
    return None if longer_on_fewer(case) <= HARDLY else 1


def longer_on_fewer(case: Case) -> float:
    """How many times as long a step of `case` is with shared links, on as many of its ranks as tell
    that in time, two nodes at least; inf where that cannot be told."""
    depends = case.scenario, case.base, "longer with shared links"
    return case.shared.noted(depends, partial(_longer, case))


def _longer(case: Case) -> float:
    ranks, each = case.ranks, effort_of(case).meeting(EVENT, 1 + WARM)
    least = 2 * max(case.mesh.least, case.topology.gpus if case.topology else 1)
    while each > PROBE and ranks % 2 == 0 and ranks // 2 >= least:
        ranks, each = ranks // 2, each / 4
    if each > 3 * PROBE:
        return inf
    try:
        play = at_ranks(case, ranks, counted=True).plays(at_most=1)[0]
        alone = vectorised.play(play, sharing=False, splits=False).step_time
        return event.play(play).step_time / alone
    except (NotApplicable, Refused):  # an order that one pass cannot follow, or no such cluster
        return inf
