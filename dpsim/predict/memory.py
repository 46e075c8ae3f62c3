"""Memory of the busiest rank of a case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dpsim.cases.case import Case
from dpsim.cases.variant import Variant
from dpsim.compile.held import ONCE, Held, Line, together
from dpsim.compile.job import Job
from dpsim.compile.schedules import Act
from dpsim.core.dtypes import working_bytes
from dpsim.models import Model
from dpsim.models.in_flight import Activations, activations, in_flight_bytes
from dpsim.models.memory import FITS_WORDS, Footprint, MemoryUse, footprints, memory_use

#: stages of pipelines from which on runs of full memory are known to be slow, 4.6 to 8.5 times as
#: long as modelled (docs/assumptions.md, A99)
CROWDED = 4
#: that, in words
WAITED = f"pipelines of {CROWDED} stages and more with full memory took 5 to 9 times as long"


class Instant(NamedTuple):
    """A moment of a step: the total [B], and what it is made of, named when it is asked for: the
    pass, its layer, and the layers whose activations are there."""

    total: float
    sides: Mapping[str, Line]
    layer: int
    there: tuple[int, ...]
    beside: float


def memory_of(case: Case) -> MemoryUse:
    """Memory of the busiest rank."""
    samples = max(case.shares)
    if not case.mesh.plain:
        if case.mesh.pipeline == 1:
            return _memory_of(case, case.programs.stage_job(0, samples), 0)
        found = (_stage_memory(case, row) for row in range(case.mesh.pipeline))
        return max(found, key=lambda use: use.total)
    if len(case.pace.kinds) == 1:
        return _memory_of(case, case.job(samples, kind=0), 0)
    parts = case.batches.parts
    uses = [_memory_of(case, case.job(own, kind=kind), kind) for own, kind in parts]
    return max(uses, key=lambda use: use.total / use.capacity if use.capacity else use.total)


def crowded(case: Case, used: MemoryUse | None = None) -> bool:
    """Whether steps may wait for memory: of torch's pipelines of `CROWDED` stages and more on GPUs
    of which the high end does not fit, and the low end does; `used`: what it uses, if known."""
    device = case.device
    if device is None or case.mesh.pipeline < CROWDED:
        return False
    torch = device.compute_capability > 0 or device.generation.startswith("cdna")
    return torch and (used or memory_of(case)).fits in ("likely", "unlikely")


def _memory_of(case: Case, job: Job, kind: int) -> MemoryUse:
    """Memory of a rank that does `job` on the device number `kind`."""
    strategy = case.scenario.strategy
    apart = (job,) if strategy.shares_experts else job.parts
    held = together([strategy.held(part) for part in apart])
    dtype, again = case.precision.compute, case.scenario.recompute
    parts = [
        at_peak(
            job.model,
            held,
            footprints(job.model, job.samples, dtype, again, eager=way, loss=case.eager_loss(way)),
        )
        for way in _ways(case)
    ]
    return _use(case, parts, kind, _narrow_logits(case, job.model, job.samples))


def _narrow_logits(case: Case, model: Model, samples: float) -> float:
    """Logits in 16 bit that forward has left behind and in whose block no gradient in 32 bit finds
    room: the allocator splits blocks, and joins none that do not touch
    (c10/cuda/CUDACachingAllocator.cpp, get_free_block)."""
    width = working_bytes(case.precision.compute)
    if not case.eager_loss(case.eager) or width >= 4:
        return 0.0
    return width * samples * sum(layer.logits for layer in model.layers)


def _use(
    case: Case, parts: Sequence[dict[str, float]], kind: int, unusable: float = 0.0
) -> MemoryUse:
    """The first of `parts` is the point; all are what may be."""
    totals = [sum(one.values()) for one in parts]
    device = case.pace.kinds[kind]
    lazy = not case.scenario.strategy.fused_kernels
    known = case.scenario.memory
    ends = (min(totals), max(totals))
    return memory_use(parts[0], device, known, *ends, lazy=lazy, unusable=unusable)


def _ways(case: Case) -> tuple[bool, ...]:
    """Whether kernels are eager: as the scenario says, else as the strategy's system has them, and
    then the other way."""
    said = (case.scenario.memory.kernels, case.scenario.execution.compile)
    known = said != (None, None)
    return (case.eager,) if known else (case.eager, not case.eager)


def what_would_fit(case: Case, used: MemoryUse) -> str:
    """Of a step that is unlikely to fit, what unknown it may fit with."""
    if len(_ways(case)) > 1 and case.eager:
        known = replace(case.scenario.memory, kernels="fused")
        other = memory_of(Variant("fused", {"memory": known}).of(case))
        fused = "; with fused kernels (memory.kernels: fused, or execution.compile: true) it"
        if other.holds:
            return f"{fused} {FITS_WORDS[str(other.fits)]}, with {other.total / 1e9:.1f} GB"
        if other.total < used.total:
            return f"{fused} is {other.shortfall / 1e9:.1f} GB short, which is within the error"
    return ", which is within the error of fragmentation, runtime and what is counted"


def at_peak(model: Model, held: Held, layers: Sequence[Footprint]) -> dict[str, float]:
    """Bytes by name at the fullest moment of a step with one micro-batch at a time."""
    most = max(_moments(model, held, layers), key=lambda one: one.total)
    parts = dict(held.always)
    for name, line in most.sides.items():
        parts[name] = parts.get(name, 0.0) + line[most.layer]
    for i in most.there:
        parts[layers[i].keeps] = parts.get(layers[i].keeps, 0.0) + layers[i].kept
    if most.beside:
        own = layers[most.layer].kind
        parts[own] = parts.get(own, 0.0) + most.beside
    update = sum(held.always.values()) + sum(held.update.values())
    return {**held.always, **held.update} if update > most.total else parts


def _moments(model: Model, held: Held, layers: Sequence[Footprint]) -> Iterator[Instant]:
    """Every layer's forward, then every layer's backward."""
    now, order = sum(held.always.values()), model.forward_order
    for place, i in enumerate(order):
        now += layers[i].kept
        sides = sum(line[i] for line in held.forward.values())
        beside = layers[i].forward
        yield Instant(now + sides + beside, held.forward, i, order[: place + 1], beside)
    back = tuple(model.backward_order())
    for place, i in enumerate(back):
        sides = sum(line[i] for line in held.backward.values())
        made = held.made[i] if held.made and not model.layers[i].logits else 0.0
        beside = layers[i].rebuilt + max(0.0, layers[i].backward - made)
        yield Instant(now + sides + beside, held.backward, i, back[place:], beside)
        now -= layers[i].kept


def _stage_memory(case: Case, row: int) -> MemoryUse:
    """Memory of a rank of pipeline rank `row`: all its stages at their largest, and the activations
    of the micro-batches that are in flight at once."""
    scenario, layout, samples = case.scenario, case.programs.layout, max(case.shares)
    jobs = {stage: case.programs.stage_job(stage, samples) for stage in layout.held(row)}
    states: dict[str, float] = {}
    for job in jobs.values():
        for part in job.parts:
            for name, size in scenario.strategy.memory(part).items():
                before = states.get(name, 0.0)
                states[name] = max(before, size) if name in ONCE else before + size
    graph = splits_graph(case)
    acts = [_as_run(act, opens=graph and layout.opens(act.stage)) for act in case.acts[row]]
    found = []
    for way in _ways(case):
        own: dict[int, Activations] = {
            stage: activations(
                job.model,
                job.samples,
                case.precision.compute,
                scenario.recompute,
                eager=way,
                loss=case.eager_loss(way),
                graph=graph,
            )
            for stage, job in jobs.items()
        }
        found.append({**states, "activations": in_flight_bytes(acts, own)})
    return _use(case, found, 0)


def splits_graph(case: Case) -> bool:
    """Whether torch's pipelining splits backward, where it is split."""
    return case.scenario.strategy.torch_stages and case.programs.layout.schedule.in_torch


def _as_run(act: Act, *, opens: bool) -> Act:
    """`act`; of a first stage torch's pipelining runs nothing but W, which is all of backward
    (torch 2.13 torch/distributed/pipelining/stage.py, `backward_one_chunk`)."""
    if not opens or act.kind not in "IW":
        return act
    return act._replace(kind="B" if act.kind == "W" else "")
