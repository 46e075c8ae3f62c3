"""Advice: what would make a model fit, each change checked by computing its memory again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from dpsim.case import Case
from dpsim.hardware import DTYPE_BYTES
from dpsim.memory import MemoryUse
from dpsim.plugins import find, name_of
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
        changed = dataclasses.replace(precision, parameters="bf16")
        yield _Variant("precision.parameters: bf16", "", _with(case, precision=changed))


_CHANGES: tuple[_Change, ...] = (
    _bucket_view,
    _recompute,
    _smaller_batch,
    _fsdp,
    _fewer_states,
    _narrow_parameters,
)
