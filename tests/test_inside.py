"""A system with another one inside has what that one does to layers, optimizer and gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpsim.cases.case import Case
from dpsim.compile.strategies import Strategy
from dpsim.compile.strategies._inside import Around
from dpsim.compile.strategies._workers import Workers
from dpsim.compile.strategies._wrapper import Wrapper
from dpsim.describe.scenario import load
from dpsim.predict.course import state_bytes

TRAITS = sorted(name for name, of in vars(Strategy).items() if isinstance(of, property))
#: what is a system's own, whatever is inside
OWN = {
    Wrapper: {"behaves", "waits_for_all"},  # it wraps none whose ranks behave
    Workers: {
        *("behaves", "waits_for_all"),  # nor is such a system split into workers
        *("own_launches", "takes_uneven_inputs"),  # they play rounds
        "sharded",  # what workers exchange is theirs
        *("compression", "bare"),  # of what travels between workers, there is none
        "caveat",
    },
}  # fmt: skip
MEGATRON = {"kind": "megatron"}
UNFUSED = {**MEGATRON, "gradient_accumulation_fusion": False}
NODES: dict[str, Any] = {
    "model": {"name": "transformer", "hidden": 768, "blocks": 12, "heads": 12,
              "sequence_length": 1024},
    "cluster": {"machine": "dgx-h100", "nodes": 2},
    "batch": {"per_device": 1, "accumulation": 4},
    "precision": {"parameters": "bf16", "compute": "bf16"},
}  # fmt: skip


def case_of(strategy: dict[str, Any], **changes: Any) -> Case:
    return Case(load({**NODES, **changes, "strategy": strategy}, Path(), "test").points[0], Path())


def around(inner: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "diloco", "period": 100, "inner": inner}


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("trait", TRAITS)
def test_every_trait_is_that_of_the_system_inside_or_is_known_to_be_its_own(
    kind: type[Around], trait: str
) -> None:
    """A trait that strategies get is to be passed on, or said here to be no matter of theirs."""
    found = object()
    inner = type("Inner", (Strategy,), dict.fromkeys(TRAITS, found))()
    outer = type("Outer", (kind,), {"inner": inner})
    told = getattr(object.__new__(outer), trait)
    passed = told is found or (trait == "bare" and kind is Wrapper)
    assert passed is (trait not in OWN[kind])


@pytest.mark.parametrize("inner", [MEGATRON, {"kind": "zero", "stage": 2}, {"kind": "fsdp"}])
def test_workers_keep_the_copy_of_weights_that_the_system_inside_keeps(
    inner: dict[str, Any],
) -> None:
    for strategy in (around(inner), {"kind": "local_sgd", "inner": inner}):
        outer, alone = case_of(strategy), case_of(inner)
        assert outer.optimizer == alone.optimizer
        assert state_bytes(outer) == state_bytes(alone)
    said = case_of(around(inner), optimizer={"master_weights": True})
    kept = outer.optimizer.master_weights
    assert (case_of(around(inner)).optimizer == said.optimizer) is kept


def test_workers_add_up_gradients_as_the_system_inside_does() -> None:
    for inner in (MEGATRON, UNFUSED, {"kind": "zero", "stage": 2}, {"kind": "fsdp"}):
        outer, alone = case_of(around(inner)), case_of(inner)
        assert outer.work.sums == alone.work.sums
        assert outer.job(1).times == alone.job(1).times
