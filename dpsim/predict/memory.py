"""Memory of the busiest rank of a case."""

from __future__ import annotations

from dpsim.cases.case import Case
from dpsim.models.memory import Activations, MemoryUse, activations, in_flight_bytes, memory_use


def memory_of(case: Case) -> MemoryUse:
    """Memory of the busiest rank."""
    if not case.mesh.plain:
        found = (_stage_memory(case, row) for row in range(case.mesh.pipeline))
        return max(found, key=lambda use: use.total)
    if len(case.pace.kinds) == 1:
        return _memory_of(case, max(case.shares), 0)
    uses = [_memory_of(case, samples, kind) for samples, kind in case.batches.parts]
    return max(uses, key=lambda use: use.total / use.capacity if use.capacity else use.total)


def _memory_of(case: Case, samples: int, kind: int) -> MemoryUse:
    """Memory of a rank with micro-batches of `samples` samples on the device number `kind`."""
    job = case.job(samples, kind=kind)
    own = activations(case.model, job.samples, case.precision.compute, case.scenario.recompute)
    return memory_use(case.scenario.strategy.memory(job), own.peak, case.pace.kinds[kind])


def _stage_memory(case: Case, row: int) -> MemoryUse:
    """Memory of a rank of pipeline rank `row`: all its stages, and the activations of the
    micro-batches that are in flight at once."""
    scenario, layout, samples = case.scenario, case.programs.layout, max(case.shares)
    own: dict[int, Activations] = {}
    states: dict[str, float] = {}
    for stage in layout.held(row):
        job = case.programs.stage_job(stage, samples)
        own[stage] = activations(job.model, job.samples, case.precision.compute, scenario.recompute)
        for name, size in scenario.strategy.memory(job).items():
            states[name] = states.get(name, 0.0) + size
    acts = layout.acts(scenario.batch.accumulation)[row]
    return memory_use(states, in_flight_bytes(acts, own), case.device)
