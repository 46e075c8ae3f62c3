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
from dpsim.predict.effort import EVENT, Effort

#: CPU seconds of a single event play, as estimated, from which on `auto` plays less of it
CROWDED = 15.0
#: of these, for the few ranks that tell whether sharing matters
TOLD = 5.0
#: as many times as long a step may be with shared links for these to be left out: Llama-3-8B with
#: FSDP2 beside contexts of two inside nodes, on 16 to 128 H100, is up to 1.01 times as long
HARDLY = 1.02
#: steps that are played to warm up, and beside these at least where draws are averaged
WARM, FEWEST = 2, 2


def steps_of(case: Case, effort: Effort) -> int | None:
    """How many random steps of a crowded `case` the event engine plays; None: sharing is left out.

    Where it matters, and two steps would take too long, one is played for as long as it takes."""
    each = effort.crowded(EVENT, 1)
    steps = int(CROWDED / each) - WARM
    if case.scenario.variability.random and steps >= FEWEST:
        return steps
    return None if longer_on_fewer(case, effort) <= HARDLY else 1


def longer_on_fewer(case: Case, effort: Effort) -> float:
    """How many times as long a step of `case` is with shared links, on as many of its ranks as tell
    that in time; inf where that cannot be told."""
    found = partial(_longer, case, effort)
    return case.shared.noted((case.scenario, case.base, "longer with shared links"), found)


def _longer(case: Case, effort: Effort) -> float:
    ranks, each = case.ranks, effort.crowded(EVENT, 1 + WARM)
    while each > TOLD and ranks % 2 == 0 and ranks // 2 >= 2 * case.mesh.least:
        ranks, each = ranks // 2, each / 4
    try:
        play = at_ranks(case, ranks, counted=True).plays(at_most=1)[0]
        alone = vectorised.play(play, sharing=False, splits=False).step_time
        return event.play(play).step_time / alone if alone > 0 else inf
    except (NotApplicable, Refused, ValueError):
        return inf
