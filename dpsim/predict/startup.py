"""Start-up: what passes before the first step, once, and is never part of a step.

Some systems say with which messages rank 0's parameters and buffers reach all ranks; those are
priced one after the other on idle links.  All else is known to the user alone, and is what the
scenario says.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsim.cases.case import Case
from dpsim.core import plugins
from dpsim.predict.point import StartupTime

BROADCAST = "broadcast of parameters"


def broadcasts(case: Case) -> tuple[int, ...]:
    """Sizes of the messages that bring rank 0's state to all ranks [B], where they are known."""
    if not case.mesh.plain:
        return ()
    return case.scenario.strategy.first_messages(case.job(max(case.shares)))


def parts(case: Case) -> dict[str, float]:
    """Seconds of start-up by what takes them; what is not known is not there."""
    asked = case.scenario.startup
    if asked is None:
        return {}
    given = {
        "rendezvous": asked.rendezvous,
        "process groups": asked.process_groups,
        "loading": asked.load,
        "compilation": asked.compile,
    }
    found = {name: seconds for name, seconds in given.items() if seconds is not None}
    world = range(case.ranks)
    if case.ranks > 1 and (sizes := broadcasts(case)):
        plans = [case.costs.plan("broadcast", world, float(size)) for size in sizes]
        found[BROADCAST] = sum(plan.seconds for plan in plans)
    return found


def startup_of(case: Case) -> StartupTime | None:
    """What passes before the first step; None where the scenario does not ask."""
    if case.scenario.startup is None:
        return None
    known = parts(case)
    return StartupTime(sum(known.values()), known)


def warnings(cases: Sequence[Case]) -> list[str]:
    """What start-up leaves out that is not known here."""
    if not cases or cases[0].scenario.startup is None:
        return []
    if any(case.ranks > 1 and not broadcasts(case) for case in cases):
        kind = plugins.name_of(cases[0].scenario.strategy)
        return [f"startup: how parameters reach all ranks is known for ddp only, not for {kind}"]
    return []
