"""Gradients of several micro-batches are added up, and adding them moves memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from eager_blocks import Dispatched

from dpsim.cases.case import Case
from dpsim.cases.variant import with_micro_batches
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.models.compute import STREAMED
from dpsim.models.precision import Precision, PrecisionSpec
from dpsim.models.sums import GradientSums, added

SMALL: dict[str, Any] = {
    "model": {"name": "transformer", "hidden": 768, "blocks": 12, "heads": 12,
              "sequence_length": 1024},
    "cluster": {"machine": "dgx-a100", "ranks": 8},
    "batch": {"per_device": 8, "accumulation": 4},
    "precision": {"parameters": "bf16", "compute": "bf16"},
}  # fmt: skip
UNFUSED = {"kind": "megatron", "gradient_accumulation_fusion": False}
HALF = Precision(parameters="bf16", compute="bf16")
WIDE = {"parameters": "fp32", "compute": "bf16", "reduce": "fp32"}
#: strategy, precision -> bytes per parameter that the four micro-batches of a step move
MOVED = [
    ({"kind": "zero"}, {}, 3 * 6.0),
    ({"kind": "zero", "grad_accum_dtype": "fp32"}, {}, 4 * 10.0),
    ({"kind": "zero", "stage": 2}, {}, 0.0),
    ({"kind": "zero", "as_shipped": False}, {}, 0.0),
    ({"kind": "ddp"}, {}, 3 * 6.0),
    ({"kind": "ddp"}, {"precision": {"parameters": "fp32", "compute": "bf16"}}, 3 * 12.0),
    ({"kind": "megatron"}, {}, 0.0),
    (UNFUSED, {}, 4 * 10.0),
    ({**UNFUSED, "grad_reduce_in_fp32": False}, {}, 4 * 6.0),
    (UNFUSED, {"precision": {"parameters": "fp16", "compute": "fp16"}}, 4 * 6.0),
    ({"kind": "fsdp"}, {"precision": WIDE}, 6.0 + 3 * 10.0),
    ({"kind": "fsdp"}, {"precision": {**WIDE, "reduce": "bf16"}}, 3 * 6.0),
    ({"kind": "fsdp", "no_sync": False}, {"precision": WIDE}, 0.0),
    ({"kind": "fsdp1"}, {"precision": WIDE}, 3 * 6.0),
    ({"kind": "diloco", "inner": {"kind": "megatron"}}, {}, 0.0),
    ({"kind": "diloco", "inner": UNFUSED}, {}, 4 * 10.0),
    ({"kind": "local_sgd", "inner": {"kind": "zero", "stage": 2}}, {}, 0.0),
    ({"kind": "local_sgd"}, {}, 3 * 6.0),
]


def case_of(**changes: Any) -> Case:
    return Case(load({**SMALL, **changes}, Path(), "test").points[0], Path())


def backward_of(case: Case) -> float:
    """What all layers' backward takes for a micro-batch [s]."""
    return sum(time.backward for time in case.job(8).times)


def bare(case: Case) -> float:
    """The same where nothing is added."""
    pace = replace(case.pace, work=replace(case.work, sums=None))
    return sum(time.backward for time in pace.times(8))


@pytest.mark.parametrize(("strategy", "changes", "moved"), MOVED)
def test_each_backward_reads_its_gradients_and_the_sum_and_writes_the_sum(
    strategy: dict[str, Any], changes: dict[str, Any], moved: float
) -> None:
    """A first gradient is where a sum starts, unless buffers are zeroed; FSDP2 converts it."""
    case = case_of(strategy=strategy, **changes)
    device = case.site.device
    assert device is not None
    expected = moved / 4 * case.model.trained / (STREAMED * device.memory_bandwidth)
    assert backward_of(case) - bare(case) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    ("strategy", "added"),
    [({"kind": "zero"}, 0.0), ({"kind": "fsdp"}, 0.0), (UNFUSED, 10.0),
     ({"kind": "zero", "grad_accum_dtype": "fp32"}, 10.0)],
)  # fmt: skip
def test_a_single_micro_batch_is_added_to_zeroed_buffers_alone(
    strategy: dict[str, Any], added: float
) -> None:
    """`.grad` is what torch's first backward leaves."""
    case = case_of(strategy=strategy, batch={"per_device": 8})
    assert {layer.adding for layer in case.model.layers} == {added}


@pytest.mark.parametrize("pipeline", [1, 2])
def test_split_steps_of_any_length_are_of_one_model(pipeline: int) -> None:
    """Every gradient is added alike, so short steps that stand for a long one share its work."""
    split = case_of(strategy={"kind": "zero"}, parallel={"tensor": 2, "pipeline": pipeline})
    longer = with_micro_batches(split, 12)
    assert longer.work is split.work
    whole = case_of(strategy={"kind": "zero"})
    assert with_micro_batches(whole, 12).model != whole.model


def test_torch_adds_from_the_second_backward_on() -> None:
    """What torch itself dispatches for a parameter's gradients, and for a sum in fp32 of them."""
    weight = torch.ones(64, 32, dtype=torch.bfloat16, requires_grad=True)
    total = torch.zeros(64, 32)
    found = []
    for _ in range(3):
        with Dispatched() as seen:
            (weight * 2).backward(torch.ones_like(weight))  # type: ignore[no-untyped-call]
        found.append([size for name, size in seen.ops if "add" in name])
    mean = GradientSums(times=3).moved("bf16", HALF) * weight.numel()
    assert found == [[], [1.5 * mean], [1.5 * mean]]
    assert weight.grad is not None
    with Dispatched() as seen:
        total.add_(weight.grad)
    wide = GradientSums(total="fp32", zeroed=True).moved("bf16", HALF) * total.numel()
    assert [size for _, size in seen.ops] == [wide]


@pytest.mark.parametrize("said", [PrecisionSpec(parameters="fp32", compute="bf16"),
                                  PrecisionSpec(parameters="fp32")])  # fmt: skip
def test_gradients_are_in_what_a_model_itself_computes_in(said: PrecisionSpec) -> None:
    """`precision.compute` left out is the model's dtype, and counts as if it were said."""
    whole = case_of(strategy={"kind": "fsdp1"}).work
    model = added(whole.model, whole.sums, said.filled("bf16"))
    assert {layer.adding for layer in model.layers} == {3 * 6.0 / 4}


def test_what_adds_is_part_of_the_gradients_of_weights() -> None:
    """No stage waits for sums before it gets the gradients of its outputs."""
    strategy = {**UNFUSED, "grad_reduce_in_fp32": True}
    case, fused = (case_of(strategy=one) for one in (strategy, {"kind": "megatron"}))
    for time, other in zip(case.job(8).times, fused.job(8).times, strict=True):
        inputs = time.backward * (1.0 - time.weight_share)
        assert inputs == pytest.approx(other.backward * (1.0 - other.weight_share), rel=1e-9)


def test_a_share_of_the_peak_that_is_given_has_it_in_it() -> None:
    case = case_of(strategy={"kind": "zero"}, compute={"efficiency": 0.5})
    assert backward_of(case) == bare(case)


def test_sums_in_fp32_are_kept_whole() -> None:
    """DeepSpeed's BF16_Optimizer: 4 bytes a parameter on every rank, in place of the shard's."""
    cases = (
        case_of(strategy={"kind": "zero", **keys}) for keys in ({}, {"grad_accum_dtype": "fp32"})
    )
    plain, wide = (case.scenario.strategy.memory(case.job(8)) for case in cases)
    assert wide["fp32 gradients"] == pytest.approx(8 * plain["fp32 gradients"])


@pytest.mark.parametrize("knobs", [{"stage": 2}, {"as_shipped": False}])
def test_only_whole_gradients_are_added_in_another_dtype(knobs: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="only stage 1 as shipped adds up whole gradients"):
        case_of(strategy={"kind": "zero", "grad_accum_dtype": "fp32", **knobs})
