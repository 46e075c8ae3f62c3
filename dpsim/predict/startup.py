"""Start-up: what passes before the first step, once, and is never part of a step.

DDP's constructor sends rank 0's parameters, then its buffers, to all ranks, coalesced by dtype into
messages closed at 250 MiB (torch/nn/parallel/distributed.py, `broadcast_bucket_size`, and
torch/distributed/utils.py, `_sync_module_states`, 2.13).  The messages are priced one after the
other on idle links.  All else is known to the user alone, and is what the scenario says.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsim.cases.case import Case
from dpsim.cases.frameworks import innermost
from dpsim.compile.strategies._gradients import gradients_of
from dpsim.compile.strategies.ddp import Ddp, assign_buckets
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.plugins import name_of
from dpsim.predict.point import Startup

MESSAGE = 250 * 1024 * 1024  # bytes; distributed.py, broadcast_bucket_size
BROADCAST = "broadcast of parameters"


def broadcasts(case: Case) -> tuple[int, ...]:
    """Sizes of the messages with which DDP's constructor sends rank 0's state [B]."""
    if not case.mesh.plain or not isinstance(innermost(case.scenario.strategy), Ddp):
        return ()
    sizes = [(g.dtype, g.bytes) for g in gradients_of(case.job(max(case.shares)))]
    sizes += [(dtype, count * DTYPE_BYTES.get(dtype, 8)) for dtype, count in case.model.buffers]
    return tuple(bucket.bytes for bucket in assign_buckets(sizes, (MESSAGE,), None))


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
    world = tuple(range(case.ranks))
    if case.ranks > 1 and (sizes := broadcasts(case)):
        plans = [case.costs.plan("broadcast", world, float(size)) for size in sizes]
        found[BROADCAST] = sum(plan.seconds for plan in plans)
    return found


def startup_of(case: Case) -> Startup | None:
    """What passes before the first step; None where the scenario does not ask."""
    if case.scenario.startup is None:
        return None
    known = parts(case)
    return Startup(sum(known.values()), known)


def warnings(cases: Sequence[Case]) -> list[str]:
    """What start-up leaves out that is not known here."""
    if not cases or cases[0].scenario.startup is None:
        return []
    if any(case.ranks > 1 and not broadcasts(case) for case in cases):
        kind = name_of(cases[0].scenario.strategy)
        return [f"startup: how parameters reach all ranks is known for ddp only, not for {kind}"]
    return []
