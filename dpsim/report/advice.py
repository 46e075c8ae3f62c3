"""Advice: what would make a model fit, each change checked by computing its memory again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from dpsim.case import Case
from dpsim.hardware import DTYPE_BYTES
from dpsim.machine import device_names, load_device
from dpsim.memory import MemoryUse
from dpsim.modelspec import HuggingFace, bundled_models
from dpsim.plugins import find, name_of
from dpsim.precision import Precision, PrecisionSpec
from dpsim.prediction import memory_of
from dpsim.record import Refused

#: sentences at most; the rest are further pairs
MOST = 8


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
    found: list[str] = []
    for number, change in enumerate(_CHANGES):
        fitting = _first_that_fits(change(case))
        if fitting is not None:
            enough.add(number)
            found.append(_sentence(*fitting))
    rest = [change for number, change in enumerate(_CHANGES) if number not in enough]
    for first, second in combinations(rest, 2):
        fitting = _first_that_fits(_both(case, first, second))
        if fitting is not None:
            found.append(_sentence(*fitting))
    return found[:MOST]


def _sentence(variant: _Variant, use: MemoryUse) -> str:
    capacity = (use.capacity or 0.0) / 1e9
    cost = f" ({variant.cost})" if variant.cost else ""
    return f"It fits with {variant.keys}: {use.total / 1e9:.1f} GB of {capacity:.1f} GB{cost}."


def _first_that_fits(variants: Iterator[_Variant]) -> tuple[_Variant, MemoryUse] | None:
    """The mildest of `variants` that fits; those that cannot be computed are passed over."""
    for variant in variants:
        try:
            use = memory_of(variant.case)
        except (Refused, ValueError):
            continue
        if use.fits:
            return variant, use
    return None


def _both(case: Case, first: _Change, second: _Change) -> Iterator[_Variant]:
    for a in first(case):
        for b in second(a.case):
            cost = "; ".join(text for text in (a.cost, b.cost) if text)
            yield _Variant(f"{a.keys} and {b.keys}", cost, b.case)


def _with(case: Case, **changes: object) -> Case:
    scenario = dataclasses.replace(case.scenario, **changes)  # type: ignore[arg-type]
    return Case(scenario, case.base, case.compute_scale)


def _bucket_view(case: Case) -> Iterator[_Variant]:
    strategy = case.scenario.strategy
    if getattr(strategy, "gradient_as_bucket_view", None) is False:
        changed = dataclasses.replace(strategy, gradient_as_bucket_view=True)  # type: ignore[type-var]
        yield _Variant("strategy.gradient_as_bucket_view: true", "", _with(case, strategy=changed))


def _recompute(case: Case) -> Iterator[_Variant]:
    if case.scenario.recompute != "full":
        cost = "one more forward pass per step"
        yield _Variant("recompute: full", cost, _with(case, recompute="full"))


def _smaller_batch(case: Case) -> Iterator[_Variant]:
    """A smaller batch per device; under strong scaling more micro-batches of the same batch."""
    batch = case.scenario.batch
    if batch.weak:
        size = (batch.per_device or 1) // 2
        while size >= 1:
            smaller = dataclasses.replace(batch, per_device=size)
            cost = "a smaller global batch"
            yield _Variant(f"batch.per_device: {size}", cost, _with(case, batch=smaller))
            size //= 2
        return
    count = batch.accumulation * 2
    while (batch.global_ or 0) % count == 0 and (batch.global_ or 0) // count >= case.ranks:
        more = dataclasses.replace(batch, accumulation=count)
        yield _Variant(f"batch.accumulation: {count}", "", _with(case, batch=more))
        count *= 2


def _fsdp(case: Case) -> Iterator[_Variant]:
    strategy = case.scenario.strategy
    if name_of(strategy) == "ddp" and case.ranks > 1:
        torch = getattr(strategy, "torch", None)
        sharded = find("dpsim.strategies", "fsdp")(**({"torch": torch} if torch else {}))
        yield _Variant("strategy: {kind: fsdp}", "", _with(case, strategy=sharded))


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
    if name_of(case.scenario.strategy) != "fsdp" or case.machine is None:
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
    _bucket_view,
    _recompute,
    _smaller_batch,
    _fsdp,
    _fewer_states,
    _narrow_parameters,
    _pure_16_bit,
    _more_ranks,
    _smaller_model,
)
