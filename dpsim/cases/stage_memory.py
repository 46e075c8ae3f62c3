"""Pipeline stages cut such that every rank's memory suffices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from dpsim.cases.case import Case
from dpsim.compile.schedules import peak_in_flight
from dpsim.core.record import Refused
from dpsim.models import split
from dpsim.models.expert_split import expert_part
from dpsim.models.memory import (
    FRAGMENTATION,
    FRAGMENTATION_LAZY,
    RUNTIME_BYTES,
    footprints,
    kept_bytes,
)

#: blocks beyond which no cut is looked for: the search takes (stages x blocks^2) steps
MAX_BLOCKS = 500
#: shares of what the device has that are tried: what a recomputed block takes is not counted here
LIMITS = (1.0, 0.95, 0.85)

Stages = tuple[tuple[str, ...], ...]


def cuts_that_fit(case: Case) -> Iterator[Stages]:
    """Names of the layers of every stage: the fastest cut whose stages should fit, with ever more
    to spare.  A caller checks them.

    A stage keeps its share of the strategy's states and the activations of its micro-batches in
    flight.  Early stages of 1F1B have more of those (Narayanan et al., arXiv:2104.04473, section
    2.2), so a cut by time alone fills the first rank most.  Nothing where a rank has several stages
    or the device is not known.
    """
    items, count, device = split.blocks(case.model), case.mesh.pipeline, case.device
    if device is None or count == 1 or not count <= len(items) <= MAX_BLOCKS:
        return
    try:
        layout = case.programs.layout
        acts = layout.acts(case.batch.accumulation)
    except Refused:
        return
    if len(layout.stages) != count:
        return
    flights = [peak_in_flight(acts[layout.home(stage)]) for stage in range(count)]
    states, kept = _memory(case, items)
    times = case.job(max(case.shares)).times
    loss = _loss(case)
    seconds = _sums([sum(times[i].forward + times[i].backward for i in item) for item in items])
    lost = (FRAGMENTATION if case.scenario.strategy.fused_kernels else FRAGMENTATION_LAZY)[1]
    for limit in LIMITS:
        room = max((limit * device.room[1] - RUNTIME_BYTES) / (1 + lost), 1.0)

        def cost(stage: int, first: int, end: int, room: float = room) -> float:
            size = states[end] - states[first] + flights[stage] * (kept[end] - kept[first])
            size += loss * (stage == count - 1)
            own, all_ = seconds[end] - seconds[first], seconds[-1]
            return own if size <= room else all_ * (1.0 + size / room)

        stages = split.runs(items, split.cheapest(len(items), count, cost))
        yield tuple(tuple(case.model.layers[i].name for i in stage) for stage in stages)


def _memory(case: Case, items: Sequence[Sequence[int]]) -> tuple[list[float], list[float]]:
    """Running sums over `items`: bytes of states, and bytes that one micro-batch keeps."""
    mesh, scenario, samples = case.mesh, case.scenario, max(case.shares)
    part = expert_part(case.model, mesh.expert) if mesh.expert > 1 else case.model
    if (splitting := case.programs.layout.splitting) is not None:
        part = splitting.part(part)
    if mesh.tensor > 1:
        sequence = scenario.parallel.sequence_parallel
        part = split.tensor_part(part, mesh.tensor, sequence=sequence)
    own = [case.programs.stage_job(stage, samples) for stage in range(mesh.pipeline)]
    parameters = sum(job.model.parameters for job in own)
    held = [part for job in own for part in job.parts]
    total = sum(sum(scenario.strategy.memory(part).values()) for part in held)
    each = total / parameters if parameters else 0.0
    dtype, again = case.precision.compute, scenario.recompute
    eager = case.eager
    kept = [
        samples * sum(kept_bytes(part.layers[i], dtype, again, eager=eager) for i in item)
        for item in items
    ]
    sizes = [each * sum(part.layers[i].parameters for i in item) for item in items]
    return _sums(sizes), _sums(kept)


def _loss(case: Case) -> float:
    """What the loss takes on the last stage beside what is kept [B]."""
    dtype, again, samples = case.precision.compute, case.scenario.recompute, max(case.shares)
    found = footprints(
        case.model, samples, dtype, again, eager=case.eager, loss=case.eager_loss(case.eager)
    )
    return max(max(one.forward, one.backward) for one in found) / (
        case.mesh.tensor * case.mesh.context
    )


def _sums(values: Sequence[float]) -> list[float]:
    return list(accumulate(values, initial=0.0))
