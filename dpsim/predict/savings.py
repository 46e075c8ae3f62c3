"""Savings: changes of a case with which a rank keeps less in memory, the mildest of a kind first.

The name of a change says which keys of the scenario are set, joined by "and".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpsim.cases.case import Case
from dpsim.cases.stage_memory import cuts_that_fit
from dpsim.cases.variant import Variant
from dpsim.compile.strategies import Strategy
from dpsim.core import plugins
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.record import Refused
from dpsim.machines.machine import device_names, load_device
from dpsim.models.configurations import bundled_models, config_text
from dpsim.models.huggingface import STORED
from dpsim.models.precision import PrecisionSpec
from dpsim.models.section import HuggingFace
from dpsim.models.section import load as load_model
from dpsim.predict.products_dtype import half_of, stated

Saving = Callable[[Case], Iterator[Variant]]
#: what it costs to update what is stored in 16 bit
_UNCOPIED = "no fp32 copy of the weights, which can hurt convergence"


def _flash(case: Case) -> Iterator[Variant]:
    spec = case.scenario.model
    if getattr(spec, "attention", None) in STORED:
        changed = replace(spec, attention="flash")
        yield Variant("model.attention: flash", {"model": changed})


def _quantised(case: Case) -> Iterator[Variant]:
    """The frozen base below adapters in 4 bit, as QLoRA has it."""
    spec = case.scenario.model
    adapters = getattr(spec, "adapters", None)
    if adapters is not None and adapters.base_dtype != "nf4":
        changed = replace(spec, adapters=replace(adapters, base_dtype="nf4"))
        cost = "the base is unpacked for every product, and rounded"
        yield Variant("model.adapters.base_dtype: nf4", {"model": changed}, cost)


def _recompute(case: Case) -> Iterator[Variant]:
    if case.scenario.recompute == "none" and any(x.again_kernels for x in case.model.layers):
        cost = "attention scores once more"
        yield Variant("recompute: selective", {"recompute": "selective"}, cost)
    if case.scenario.recompute in ("none", "selective") and any(
        x.op_flop for x in case.model.layers
    ):
        cost = "every second matrix product once more"
        yield Variant("recompute: selective_op", {"recompute": "selective_op"}, cost)
    if case.scenario.recompute == "none" and any(
        x.activations_moe is not None for x in case.model.layers
    ):
        cost = "experts and their all-to-alls once more"
        yield Variant("recompute: moe", {"recompute": "moe"}, cost)
    if not case.rebuilds_blocks:
        cost = "one more forward pass per step"
        yield Variant("recompute: full", {"recompute": "full"}, cost)


def _smaller_batch(case: Case) -> Iterator[Variant]:
    """More and smaller micro-batches of the same batch; or a smaller batch, where that is not
    enough."""
    batch = case.scenario.batch
    for factor in (2, 4, 8, 16, 32, 64, 128, 256):
        if more := _accumulated(case, factor):
            keys = " and ".join(f"batch.{key}: {value}" for key, value in more.items())
            made: Any = more
            yield Variant(keys, {"batch": replace(batch, **made)}, "the same global batch")
    size = (batch.per_device or 1) // 2 if batch.weak else 0
    while size >= 1:
        smaller = replace(batch, per_device=size)
        cost = "a smaller global batch"
        yield Variant(f"batch.per_device: {size}", {"batch": smaller}, cost)
        size //= 2


def _accumulated(case: Case, factor: int) -> dict[str, int]:
    """The keys of `factor` times as many micro-batches of the same batch; none where it does not
    divide."""
    batch = case.scenario.batch
    count, whole = batch.accumulation * factor, batch.global_ or 0
    if batch.weak or batch.follows:
        size, left = divmod(batch.per_device or 1, factor)
        kept = {"per_device": size} | ({} if batch.follows else {"accumulation": count})
        return {} if left else kept
    divides = whole % count == 0 and whole // count >= case.mesh.data
    return {"accumulation": count} if divides else {}


def _stages(case: Case) -> Iterator[Variant]:
    """Another cut into pipeline stages: by time, then the fastest that fits."""
    if case.scenario.parallel.pipeline == 1:
        return
    if case.scenario.stages is None:
        yield Variant("stages: balanced", {"stages": "balanced"})
    for cut in cuts_that_fit(case):
        keys = f"stages that begin with {', '.join(stage[0] for stage in cut)}"
        yield Variant(keys, {"stages": cut})


def _sequence(case: Case) -> Iterator[Variant]:
    parallel = case.scenario.parallel
    if parallel.tensor > 1 and not parallel.sequence_parallel:
        changed = replace(parallel, sequence_parallel=True)
        yield Variant("parallel.sequence_parallel: true", {"parallel": changed})


def _tensor(case: Case) -> Iterator[Variant]:
    """Layers split over the GPUs of a node, and as many fewer replicas of the same batch."""
    gpus = case.topology.gpus if case.topology and not case.scenario.sites else 1
    for factor in (2, 4, 8):
        tensor = case.scenario.parallel.tensor * factor
        if tensor <= gpus and gpus % tensor == 0:
            yield from _split(case, "tensor", tensor, factor)


def _experts(case: Case) -> Iterator[Variant]:
    """Experts of a layer spread over more ranks, which all have batches of their own: over a node
    first, whose ranks then hold least and send tokens over its links alone."""
    counts = {layer.experts for layer in case.model.layers if layer.experts}
    parallel = case.scenario.parallel
    gpus = case.topology.gpus if case.topology and not case.scenario.sites else 1
    sizes = [parallel.expert * factor for factor in (2, 4, 8, 16, 32, 64)]
    near = [size for size in sizes if size <= gpus]
    for expert in (*reversed(near), *sizes[len(near) :]):
        if counts and all(count % expert == 0 for count in counts):
            wider = replace(parallel, expert=expert)
            cost = "all-to-alls of tokens"
            yield Variant(f"parallel.expert: {expert}", {"parallel": wider}, cost)


def _pipeline(case: Case) -> Iterator[Variant]:
    """Layers spread over more ranks, and as many fewer replicas of the same batch."""
    for factor in () if case.scenario.sites else (2, 4, 8, 16):
        yield from _split(case, "pipeline", case.scenario.parallel.pipeline * factor, factor)


def _split(case: Case, axis: str, count: int, factor: int) -> Iterator[Variant]:
    """`axis` of `count` ranks, `factor` times as many as now; each replica takes `factor` times
    the micro-batches, so that the global batch stays."""
    scenario, parallel = case.scenario, case.scenario.parallel
    many = 1 if scenario.batch.follows else scenario.batch.accumulation * factor
    if case.mesh.data % factor or isinstance(scenario.stages, tuple):
        return
    if (scenario.batch.global_ or many) % many:
        return
    keys = f"parallel.{axis}: {count}"
    if many > 1:
        keys += f" and batch.accumulation: {many}"
    wider = replace(parallel, **{axis: count})  # type: ignore[arg-type]
    if parallel.data is not None:
        wider = replace(wider, data=parallel.data // factor)
        keys += f" and parallel.data: {wider.data}"
    batch = replace(scenario.batch, accumulation=many)
    split: dict[str, Any] = {"parallel": wider, "batch": batch}
    if other := scenario.strategy.split_as:
        split["strategy"] = plugins.find("strategies", other)()
        keys += f" and strategy: {{kind: {other}}}"
    yield Variant(keys, split, "the same global batch")
    if axis == "pipeline" and scenario.stages is None:
        split = {**split, "stages": "balanced"}
        yield Variant(f"{keys} and stages: balanced", split, "the same global batch")


def _each_reduced(case: Case) -> Iterator[Variant]:
    """Shards of gradients instead of whole ones between micro-batches."""
    strategy = case.scenario.strategy
    if case.batch.accumulation > 1 and strategy.sharded and hasattr(strategy, "no_sync"):
        cost = "gradients are reduced in every micro-batch"
        for one in strategy.changed("sharded", cost, no_sync=False) if strategy.no_sync else ():
            yield Variant("strategy.no_sync: false", {"strategy": one.strategy}, cost)


def _lighter(what: str) -> Saving:
    """What the strategy itself offers of that kind."""

    def changes(case: Case) -> Iterator[Variant]:
        for lighter in case.scenario.strategy.lighter(split=not case.mesh.plain):
            if not _compresses(case, lighter.strategy):
                continue
            if lighter.what == what and lighter.applies(case.mesh.holders):
                keys = " and ".join(f"{k}: {_flow(v)}" for k, v in lighter.keys.items())
                cost = "" if what == "system" else lighter.cost
                yield Variant(keys, {"strategy": lighter.strategy}, cost)

    return changes


def _compresses(case: Case, strategy: Strategy) -> bool:
    """Whether `strategy` can compress gradients as `case` does."""
    codec = case.scenario.codec
    with suppress(Refused):
        if codec is not None:
            strategy.accept_compression(codec)
        return True
    return False


def _flow(value: object) -> str:
    """A setting as a scenario's file has it in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_flow(v)}" for k, v in value.items()) + "}"
    return str(value).lower()


def _fewer_states(case: Case) -> Iterator[Variant]:
    optimizer = case.scenario.optimizer
    order = ("adam", "momentum", "sgd")
    if optimizer.kind in order:
        for kind in order[order.index(optimizer.kind) + 1 :]:
            changed = replace(optimizer, kind=kind)  # type: ignore[arg-type]
            cost = "another optimizer trains differently"
            yield Variant(f"optimizer: {{kind: {kind}}}", {"optimizer": changed}, cost)


def _mixed(case: Case) -> Iterator[Variant]:
    """Products, and so activations, in 16 bits, where nobody said that they are in 32."""
    precision, half = case.precision, half_of(case)
    if half is not None and precision.compute == "fp32" and not stated(case):
        changed = PrecisionSpec(
            parameters=precision.parameters, compute=half, reduce=precision.reduce
        )
        yield Variant(f"precision.compute: {half}", {"precision": changed})


def _narrow_parameters(case: Case) -> Iterator[Variant]:
    """Parameters in 16 bit; systems that keep no copy of them then train purely in 16 bit."""
    precision = case.precision
    if DTYPE_BYTES[precision.parameters] > DTYPE_BYTES["bf16"]:
        changed = PrecisionSpec(
            parameters="bf16", compute=precision.compute, reduce=precision.reduce,
            wide_first=precision.wide_first, wide_last=precision.wide_last,
        )  # fmt: skip
        cost = "" if _copied(case) else _UNCOPIED
        yield Variant("precision.parameters: bf16", {"precision": changed}, cost)


def _pure_16_bit(case: Case) -> Iterator[Variant]:
    """16-bit parameters and states without an fp32 copy."""
    if not _copied(case):
        return
    narrow = PrecisionSpec(parameters="bf16", compute="bf16", reduce="bf16")
    pure = replace(case.scenario.optimizer, master_weights=False)
    yield Variant(
        "precision: {parameters: bf16, compute: bf16, reduce: bf16} and "
        "optimizer.master_weights: false",
        {"precision": narrow, "optimizer": pure},
        _UNCOPIED,
    )


def _copied(case: Case) -> bool:
    """Whether parameters in 16 bit have, or would have, a copy in 32."""
    return case.optimizer.kind != "none" and bool(case.optimizer.master_weights)


def _more_ranks(case: Case) -> Iterator[Variant]:
    """The same sharded run on 2, 4, … 256 times as many devices: of the same machine while it has
    some, then over 10 Gbit/s or better."""
    cluster = case.scenario.cluster
    if not case.scenario.strategy.sharded or case.machine is None:
        return
    if not case.mesh.plain or case.scenario.sites is not None:
        return
    for factor in (2, 4, 8, 16, 32, 64, 128, 256):
        ranks = case.ranks * factor
        more, where = replace(cluster, nodes=None, ranks=ranks), f"cluster.ranks: {ranks}"
        if case.machine.network is None and ranks > (
            cluster.gpus_per_node or case.machine.gpus_per_node
        ):
            rack, device = "rack-10gbe", _device_of(case)
            more = replace(more, machine=rack, gpus_per_node=1, nics_per_node=None, device=device)
            where = (
                f"{ranks} of these devices, one per server (cluster: {{machine: {rack}, "
                f"gpus_per_node: 1, device: {device}, ranks: {ranks}}})"
            )
        yield Variant(where, {"cluster": more})


def _device_of(case: Case) -> str | None:
    """The name under which the machine's device is known, for use in another machine."""
    if case.scenario.cluster.device is not None:
        return case.scenario.cluster.device
    return next((n for n in device_names() if load_device(n, case.base) == case.device), None)


def _smaller_model(case: Case) -> Iterator[Variant]:
    """Bundled models of the same kind that are smaller, the largest first."""
    spec = case.scenario.model
    if not isinstance(spec, HuggingFace):
        return
    alike = spec.kind(case.base)
    sizes = {
        name: _parameters(
            replace(spec, huggingface=name), case.base, config_text(name, case.base), alike
        )
        for name in bundled_models()
    }
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if 0 < sizes[name] < case.model.parameters:
            told = f"a smaller model, {name} ({sizes[name] / 1e9:.3g} B parameters)"
            yield Variant(told, {"model": replace(spec, huggingface=name)})


@lru_cache(maxsize=512)
def _parameters(spec: HuggingFace, base: Path, text: str, kind: str) -> int:
    """How many parameters the bundled model `spec` has, whose file holds `text`, where it is of
    that kind; 0: it is of another, or cannot be so."""
    with suppress(Refused, ValueError):
        if spec.kind(base) == kind:
            return load_model(spec, base).parameters
    return 0


#: those that keep devices and model, in the order in which they are advised
SAVINGS: tuple[Saving, ...] = (
    _lighter("buckets"),
    _flash,
    _quantised,
    _each_reduced,
    _stages,
    _mixed,
    _recompute,
    _sequence,
    _smaller_batch,
    _lighter("sharded"),
    _lighter("system"),
    _experts,
    _tensor,
    _pipeline,
    _lighter("offloaded"),
    _fewer_states,
    _narrow_parameters,
    _pure_16_bit,
)
#: what keeps least together: all in forward again, small micro-batches, and no gradients waiting
TOGETHER: tuple[Saving, Saving, Saving] = (_recompute, _smaller_batch, _each_reduced)
#: what else there is: more devices, another model
ELSE: tuple[Saving, ...] = (_more_ranks, _smaller_model)
