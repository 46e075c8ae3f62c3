"""Advice: what would make a model fit, each change checked by computing its memory again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from dpsim.cases.case import Case
from dpsim.cases.stage_memory import cuts_that_fit
from dpsim.core.errors import SimulationError
from dpsim.core.plugins import find
from dpsim.core.record import Refused
from dpsim.describe.scenario import Batch
from dpsim.machines.devices import DTYPE_BYTES
from dpsim.machines.machine import device_names, load_device
from dpsim.models.memory import MemoryUse
from dpsim.models.precision import Precision, PrecisionSpec
from dpsim.models.section import HuggingFace, bundled_models
from dpsim.predict.player import estimate, play
from dpsim.predict.prediction import memory_of

#: sentences at most; the rest are further pairs
MOST = 8
#: estimated seconds of event playing beyond which a change's throughput is not said
MOST_SECONDS = 1.0


class _Variant(NamedTuple):
    """A changed case, the keys that were changed, and what that costs."""

    keys: str
    cost: str
    case: Case


_Change = Callable[[Case], Iterator[_Variant]]


def memory_advice(case: Case, used: MemoryUse) -> list[str]:
    """Changes of the scenario with which `case` fits: single ones first, then pairs of changes
    of which neither is enough alone.  Empty where it fits already or nothing tried helps."""
    if used.fits is not False:
        return []
    enough: set[int] = set()
    found: list[tuple[_Variant, MemoryUse]] = []
    for number, change in enumerate(_CHANGES):
        fitting = _first_that_fits(change(case))
        if fitting is not None:
            enough.add(number)
            found.append(fitting)
    rest = [change for number, change in enumerate(_CHANGES) if number not in enough]
    for first, second in combinations(rest, 2):
        if len(found) >= MOST:
            break
        fitting = _first_that_fits(_both(case, first, second))
        if fitting is not None:
            found.append(fitting)
    pace = _pace(case)
    return [_sentence(*fitting, pace) for fitting in found[:MOST]]


def _sentence(variant: _Variant, use: MemoryUse, pace: float | None) -> str:
    capacity = (use.capacity or 0.0) / 1e9
    now = _pace(variant.case) if pace else None
    parts = [f"about {now / pace:.2g} x the throughput"] if pace and now else []
    parts += [variant.cost] if variant.cost else []
    cost = f" ({'; '.join(parts)})" if parts else ""
    return f"It fits with {variant.keys}: {use.total / 1e9:.1f} GB of {capacity:.1f} GB{cost}."


def _pace(case: Case) -> float | None:
    """Samples per second; None where playing the case would take long, or cannot be done."""
    try:
        if estimate(case) > MOST_SECONDS:
            return None
        return case.global_batch / play(case).step_time
    except (Refused, SimulationError, ValueError, ZeroDivisionError):
        return None


def _first_that_fits(variants: Iterator[_Variant]) -> tuple[_Variant, MemoryUse] | None:
    """The mildest of `variants` that fits; those that cannot be computed are passed over."""
    for variant in variants:
        try:
            use = memory_of(variant.case)
            if use.fits and not variant.case.mesh.plain:
                _ = variant.case.asked  # refuses what the strategy or the schedule cannot take
        except (Refused, ValueError):
            continue
        if use.fits:
            return variant, use
    return None


def _both(case: Case, first: _Change, second: _Change) -> Iterator[_Variant]:
    """The second change of what the first one made; where both set a key, the second counts."""
    for a in first(case):
        for b in second(a.case):
            cost = "; ".join(text for text in dict.fromkeys((a.cost, b.cost)) if text)
            later = b.keys.split(" and ")
            names = {text.partition(":")[0] for text in later}
            kept = [t for t in a.keys.split(" and ") if t.partition(":")[0] not in names]
            yield _Variant(" and ".join((*kept, *later)), cost, b.case)


def _with(case: Case, **changes: object) -> Case:
    scenario = dataclasses.replace(case.scenario, **changes)  # type: ignore[arg-type]
    return Case(scenario, case.base, case.compute_scale)


def _flash(case: Case) -> Iterator[_Variant]:
    spec = case.scenario.model
    if getattr(spec, "attention", None) == "math":
        changed = dataclasses.replace(spec, attention="flash")
        yield _Variant("model.attention: flash", "", _with(case, model=changed))


def _recompute(case: Case) -> Iterator[_Variant]:
    if case.scenario.recompute == "none" and any(x.again_kernels for x in case.model.layers):
        cost = "attention scores once more"
        yield _Variant("recompute: selective", cost, _with(case, recompute="selective"))
    if case.scenario.recompute != "full":
        cost = "one more forward pass per step"
        yield _Variant("recompute: full", cost, _with(case, recompute="full"))


def _smaller_batch(case: Case) -> Iterator[_Variant]:
    """More and smaller micro-batches of the same batch; or a smaller batch, where that is not
    enough."""
    batch = case.scenario.batch
    for factor in (2, 4, 8, 16, 32, 64, 128, 256):
        more = _accumulated(case, factor)
        if more is None:
            continue
        keys = f"batch.accumulation: {more.accumulation}"
        if batch.weak:
            keys = f"batch.per_device: {more.per_device} and {keys}"
        yield _Variant(keys, "the same global batch", _with(case, batch=more))
    size = (batch.per_device or 1) // 2 if batch.weak else 0
    while size >= 1:
        smaller = dataclasses.replace(batch, per_device=size)
        cost = "a smaller global batch"
        yield _Variant(f"batch.per_device: {size}", cost, _with(case, batch=smaller))
        size //= 2


def _accumulated(case: Case, factor: int) -> Batch | None:
    """`factor` times as many micro-batches of the same batch, if it divides."""
    batch = case.scenario.batch
    count = batch.accumulation * factor
    if batch.weak:
        size, left = divmod(batch.per_device or 1, factor)
        return None if left else dataclasses.replace(batch, per_device=size, accumulation=count)
    whole = batch.global_ or 0
    if whole % count or whole // count < case.mesh.data:
        return None
    return dataclasses.replace(batch, accumulation=count)


def _stages(case: Case) -> Iterator[_Variant]:
    """Another cut into pipeline stages: by time, then the fastest that fits."""
    if case.scenario.parallel.pipeline == 1:
        return
    if case.scenario.stages is None:
        yield _Variant("stages: balanced", "", _with(case, stages="balanced"))
    for cut in cuts_that_fit(case):
        keys = f"stages that begin with {', '.join(stage[0] for stage in cut)}"
        yield _Variant(keys, "", _with(case, stages=cut))


def _sequence(case: Case) -> Iterator[_Variant]:
    parallel = case.scenario.parallel
    if parallel.tensor > 1 and not parallel.sequence_parallel:
        changed = dataclasses.replace(parallel, sequence_parallel=True)
        yield _Variant("parallel.sequence_parallel: true", "", _with(case, parallel=changed))


def _tensor(case: Case) -> Iterator[_Variant]:
    """Layers split over the GPUs of a node, and as many fewer replicas of the same batch."""
    gpus = case.topology.gpus if case.topology else 1
    for factor in (2, 4, 8):
        tensor = case.scenario.parallel.tensor * factor
        if tensor <= gpus and gpus % tensor == 0:
            yield from _split(case, "tensor", tensor, factor)


def _pipeline(case: Case) -> Iterator[_Variant]:
    """Layers spread over more ranks, and as many fewer replicas of the same batch."""
    for factor in (2, 4, 8, 16):
        yield from _split(case, "pipeline", case.scenario.parallel.pipeline * factor, factor)


def _split(case: Case, axis: str, count: int, factor: int) -> Iterator[_Variant]:
    """`axis` of `count` ranks, `factor` times as many as now; each replica takes `factor` times
    the micro-batches, so that the global batch stays."""
    scenario, parallel = case.scenario, case.scenario.parallel
    many = scenario.batch.accumulation * factor
    if case.mesh.data % factor or isinstance(scenario.stages, tuple):
        return
    if (scenario.batch.global_ or many) % many:
        return
    keys = f"parallel.{axis}: {count} and batch.accumulation: {many}"
    wider = dataclasses.replace(parallel, **{axis: count})  # type: ignore[arg-type]
    if parallel.data is not None:
        wider = dataclasses.replace(wider, data=parallel.data // factor)
        keys += f" and parallel.data: {wider.data}"
    batch = dataclasses.replace(scenario.batch, accumulation=many)
    split = _with(case, parallel=wider, batch=batch)
    if other := scenario.strategy.split_as:
        split = _with(split, strategy=find("strategies", other)())
        keys += f" and strategy: {{kind: {other}}}"
    yield _Variant(keys, "the same global batch", split)
    if axis == "pipeline" and scenario.stages is None:
        cut = _with(split, stages="balanced")
        yield _Variant(f"{keys} and stages: balanced", "the same global batch", cut)


def _lighter(what: str) -> _Change:
    """What the strategy itself offers of that kind; sharing out needs somebody to share with."""

    def changes(case: Case) -> Iterator[_Variant]:
        for lighter in case.scenario.strategy.lighter(split=not case.mesh.plain):
            if lighter.what == what and (case.mesh.data > 1 or what in ("buckets", "offloaded")):
                keys = " and ".join(f"{k}: {_flow(v)}" for k, v in lighter.keys.items())
                cost = "" if what == "system" else lighter.cost
                yield _Variant(keys, cost, _with(case, strategy=lighter.strategy))

    return changes


def _flow(value: object) -> str:
    """A setting as a scenario's file has it in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_flow(v)}" for k, v in value.items()) + "}"
    return str(value).lower()


def _fewer_states(case: Case) -> Iterator[_Variant]:
    optimizer = case.scenario.optimizer
    order = ("adam", "momentum", "sgd")
    if optimizer.kind in order:
        for kind in order[order.index(optimizer.kind) + 1 :]:
            changed = dataclasses.replace(optimizer, kind=kind)  # type: ignore[arg-type]
            cost = "another optimizer trains differently"
            yield _Variant(f"optimizer: {{kind: {kind}}}", cost, _with(case, optimizer=changed))


def _narrow_parameters(case: Case) -> Iterator[_Variant]:
    precision = case.precision
    if DTYPE_BYTES[precision.parameters] > DTYPE_BYTES["bf16"]:
        changed = dataclasses.replace(_spec(precision), parameters="bf16")
        yield _Variant("precision.parameters: bf16", "", _with(case, precision=changed))


def _spec(precision: Precision) -> PrecisionSpec:
    return PrecisionSpec(
        parameters=precision.parameters, compute=precision.compute, reduce=precision.reduce
    )


def _pure_16_bit(case: Case) -> Iterator[_Variant]:
    """16-bit parameters and states without an fp32 copy."""
    optimizer = case.scenario.optimizer
    if optimizer.kind != "none" and optimizer.master_weights is not False:
        narrow = PrecisionSpec(parameters="bf16", compute="bf16", reduce="bf16")
        pure = dataclasses.replace(optimizer, master_weights=False)
        cost = "no fp32 copy of the weights, which can hurt convergence"
        yield _Variant(
            "precision: bf16 throughout and optimizer.master_weights: false",
            cost,
            _with(case, precision=narrow, optimizer=pure),
        )


def _more_ranks(case: Case) -> Iterator[_Variant]:
    """The same sharded run on 2, 4, … 256 times as many devices, over 10 Gbit/s or better."""
    cluster = case.scenario.cluster
    if not case.scenario.strategy.sharded or case.machine is None:
        return
    if not case.mesh.plain:
        return
    single = case.machine.network is None
    for factor in (2, 4, 8, 16, 32, 64, 128, 256):
        ranks = case.ranks * factor
        more = dataclasses.replace(cluster, nodes=None, ranks=ranks)
        if single:
            more = dataclasses.replace(
                more,
                machine="rack-10gbe",
                gpus_per_node=1,
                nics_per_node=None,
                device=_device_of(case),
            )
        where = f"cluster.ranks: {ranks}"
        if single:
            where = (
                f"{ranks} of these devices, one per server (cluster: {{machine: rack-10gbe, "
                f"gpus_per_node: 1, device: {_device_of(case)}, ranks: {ranks}}})"
            )
        yield _Variant(where, "", _with(case, cluster=more))


def _device_of(case: Case) -> str | None:
    """The name under which the machine's device is known, for use in another machine."""
    if case.scenario.cluster.device is not None:
        return case.scenario.cluster.device
    return next((n for n in device_names() if load_device(n, case.base) == case.device), None)


def _smaller_model(case: Case) -> Iterator[_Variant]:
    """Bundled models of the same kind that are smaller, the largest first."""
    spec = case.scenario.model
    if not isinstance(spec, HuggingFace):
        return
    own = case.model.parameters
    found = []
    for name in bundled_models():
        try:
            smaller = _with(case, model=dataclasses.replace(spec, huggingface=name))
            found.append((smaller.model.parameters, name, smaller))
        except (Refused, ValueError):
            continue
    for size, name, smaller in sorted(found, key=lambda entry: -entry[0]):
        if size < own:
            yield _Variant(f"a smaller model, {name} ({size / 1e9:.2g} B parameters)", "", smaller)


_CHANGES: tuple[_Change, ...] = (
    _lighter("buckets"),
    _flash,
    _stages,
    _recompute,
    _sequence,
    _smaller_batch,
    _lighter("sharded"),
    _lighter("system"),
    _tensor,
    _pipeline,
    _lighter("offloaded"),
    _fewer_states,
    _narrow_parameters,
    _pure_16_bit,
    _more_ranks,
    _smaller_model,
)
