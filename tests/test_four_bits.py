"""What computes in NVFP4 and what does not, what casting to it takes, keeps and sends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpsim.core.dtypes import OPERANDS, operand_bytes, working_bytes
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.machines.devices import Device
from dpsim.machines.machine import devices_with, load_device
from dpsim.models import Layer, Model, Tensor
from dpsim.models.compute import Shares, layer_times
from dpsim.models.few_bits import (
    FOUR_LIBRARY_CAST_BYTES,
    FOUR_SHARES,
    cast_bytes,
    cast_elements,
    is_cast,
    products_share,
    saved_bytes,
)
from dpsim.planning.planned import plan
from dpsim.predict.prediction import predict
from dpsim.predict.unused import unused
from tests.asked import case_of

LLAMA: dict[str, Any] = {
    "model": {"huggingface": "llama-3-8b", "sequence_length": 8192},
    "cluster": {"machine": "dgx-b200", "nodes": 1},
    "strategy": {"kind": "megatron", "use_distributed_optimizer": True},
}


def case(dtype: str, *, wide: dict[str, int] | None = None, **rest: Any) -> Any:
    precision = {"parameters": "bf16", "compute": dtype, **(wide or {})}
    return case_of({**LLAMA, "precision": precision, **rest})


def times(dtype: str, **rest: Any) -> dict[str, tuple[float, float]]:
    """Forward and backward of every layer of one sequence [s], by name."""
    found = case(dtype, **rest)
    pairs = zip(found.model.layers, found.pace.times(1), strict=True)
    return {one.name: (t.forward, t.backward) for one, t in pairs}


def of_wide(warnings: Iterable[str]) -> list[str]:
    """Those of blocks that should stay in 16 bits."""
    return [text for text in warnings if "precision.wide" in text]


def test_an_element_has_four_bits_and_a_sixteenth_of_a_scale() -> None:
    assert operand_bytes("nvfp4") == 0.5 + 1 / 16
    assert (operand_bytes("fp8"), operand_bytes("bf16")) == (1, 2)
    assert working_bytes("nvfp4") == 2


def test_embedding_and_head_take_what_they_take_in_16_bits() -> None:
    half, four = times("bf16"), times("nvfp4")
    assert four["lm_head"] == half["lm_head"]
    assert four["embed_tokens"] == half["embed_tokens"]
    assert sum(four["layers.0.mlp"]) < sum(half["layers.0.mlp"])


def test_a_product_is_its_flop_at_its_share_of_the_peak_and_its_casts() -> None:
    """8,192 tokens by 8,192 x 8,192 in a block on B200, three quarters of the 16-bit share of
    9 PFLOP/s; its input is cast forward and the gradient of its output backward."""
    device = load_device("b200")
    flop = 2.0 * 8192**3
    layer = Layer(name="m", unit="0", tensors=(Tensor("w", (8192, 8192)),), kernels=0,
                  forward_flop=flop, backward_flop=2 * flop)  # fmt: skip
    own = layer_times(Model(name="m", layers=(layer,)), device, "nvfp4", 1, 0.5, "none",
                      shares=Shares(0.75))[0]  # fmt: skip
    cast = 8192**2 * FOUR_LIBRARY_CAST_BYTES / 8e12
    assert own.forward == pytest.approx(flop / (9e15 * 0.5 * 0.75) + cast)
    assert own.backward == pytest.approx(2 * flop / (9e15 * 0.5 * 0.75) + cast)


def test_transformer_engine_s_passes_follow_from_its_products_and_casts() -> None:
    """NVIDIA/TransformerEngine 8f2e6357 docs/examples/gemm_profiling on B300: a block of 4,096 by
    16,384 with 15,872 tokens takes 3.764 ms of products, 13.102 in 16 bits, and 2.688 ms to cast
    2,482 million elements, each operand anew."""
    b300 = load_device("b300")
    share = products_share(b300, "nvfp4")
    ratio = share * b300.peak["nvfp4"] / b300.peak["bf16"]
    assert ratio == pytest.approx(13.102 / 3.764, rel=0.02)
    weights = 4096 * (12288 + 4096 + 16384) + 16384 * 4096
    ins, outs = 15872 * (3 * 4096 + 16384), 15872 * (12288 + 4096 + 16384 + 4096)
    elements = (ins + weights) + (outs + weights) + (ins + outs)
    cast = elements * FOUR_LIBRARY_CAST_BYTES / b300.memory_bandwidth
    assert cast == pytest.approx((6.453 - 3.764) * 1e-3, rel=0.02)


@pytest.mark.parametrize("name", devices_with("nvfp4"))
def test_every_device_in_4_bits_does_more_than_in_8_and_twice_what_it_does_in_16(name: str) -> None:
    device = load_device(name)
    assert device.compute_capability >= min(FOUR_SHARES)
    reached = {d: products_share(device, d) * device.peak[d] for d in device.peak.keys() & OPERANDS}
    assert reached["nvfp4"] > max(reached.get("fp8", 0.0), 2 * device.peak["bf16"])


@pytest.mark.parametrize(
    ("capability", "known"), [(0, 100), (90, 100), (100, 100), (103, 103), (110, 103), (121, 120)]
)
def test_a_device_reaches_what_the_last_architecture_before_it_does(
    capability: int, known: int
) -> None:
    device = replace(load_device("b200"), compute_capability=capability)
    assert products_share(device, "nvfp4") == FOUR_SHARES[known]


def test_a_device_without_4_bits_is_refused_and_told_those_that_have_them() -> None:
    have = "nvfp4 is on b200, b300, gb10, gb200, gb300, .*rtx5090"
    for machine, device in (("dgx-h100", "H100-SXM5-80GB"), ("mi355x-8", "MI355X")):
        asked = {**LLAMA, "cluster": {"machine": machine, "nodes": 1}}
        asked |= {"precision": {"parameters": "bf16", "compute": "nvfp4"}}
        with pytest.raises(Refused, match=f"{device} states no peak for nvfp4; .*; {have}"):
            predict(case_of(asked).scenario)


def test_inputs_are_kept_one_way_at_nine_sixteenths_of_a_byte() -> None:
    """Of what fp8 keeps at one byte in place of two: elements times 2 - 9/16."""
    half, eight, four = (case(dtype).model for dtype in ("bf16", "fp8", "nvfp4"))
    for before, at_8, at_4 in zip(half.layers, eight.layers, four.layers, strict=True):
        assert saved_bytes(before, "bf16") == 0
        assert saved_bytes(at_4, "nvfp4") == pytest.approx(1.4375 * saved_bytes(at_8, "fp8"))
    fsdp = {"kind": "fsdp"}
    held = {d: predict(case(d, strategy=fsdp).scenario).points[0]["memory_bytes"]
            for d in ("fp8", "nvfp4")}  # fmt: skip
    assert held["nvfp4"] < held["fp8"]


def test_megatron_keeps_matrices_of_blocks_in_4_bits_both_ways_too() -> None:
    """32 blocks of Llama 3 8B have 6,979,321,856 elements in matrices, 9/8 of a byte each."""
    strategy = case("nvfp4").scenario.strategy
    for wide, blocks in ({}, 32), ({"wide_last": 8}, 24):
        parts = strategy.memory(case("nvfp4", wide=wide).job(1, kind=0))
        assert parts["parameters in 4 bits"] == 6_979_321_856 * blocks / 32 * 1.125
    assert "parameters in 4 bits" not in strategy.memory(case("fp8").job(1, kind=0))


def test_biases_of_experts_are_not_kept_in_4_bits() -> None:
    """A block of gpt-oss-20b: q and o of 2,880 x 4,096, k and v of 2,880 x 512, a router of
    2,880 x 32 and 32 experts of three matrices of 2,880 x 2,880."""
    named = {"huggingface": "gpt-oss-20b", "sequence_length": 4096}
    found = case("nvfp4", model=named)
    block = 2880 * (2 * 4096 + 2 * 512 + 32 + 32 * 3 * 2880)
    parts = found.scenario.strategy.memory(found.job(1, kind=0))
    assert parts["parameters in 4 bits"] == 24 * block * 1.125


def test_parameters_and_gradients_travel_as_in_8_bits() -> None:
    for strategy in ({"kind": "fsdp"}, LLAMA["strategy"]):
        sent = {
            dtype: predict(case(dtype, strategy=strategy).scenario).points[0]["bytes_sent_per_rank"]
            for dtype in ("bf16", "fp8", "nvfp4")
        }
        assert sent["nvfp4"] == sent["fp8"] == sent["bf16"]


def test_tensor_ranks_gather_what_is_cast_and_sum_16_bits() -> None:
    """With sequence parallelism: 2 bytes an element become 9/16 where blocks gather inputs."""
    mesh = {"tensor": 8, "sequence_parallel": True}
    sent = {
        dtype: predict(case(dtype, parallel=mesh).scenario).points[0]["bytes_sent_per_rank"]
        for dtype in ("bf16", "fp8", "nvfp4")
    }
    gathered = (sent["bf16"] - sent["fp8"]) * 2  # in 16 bits
    assert sent["bf16"] - sent["nvfp4"] == pytest.approx(gathered * (2 - 0.5625) / 2)
    assert gathered > 0


def test_blocks_that_stay_in_16_bits_take_what_they_take_there() -> None:
    half, four = times("bf16"), times("nvfp4")
    mixed = times("nvfp4", wide={"wide_first": 2, "wide_last": 8})
    for number in range(32):
        for part in ("attention", "mlp"):
            name = f"layers.{number}.{part}"
            assert mixed[name] == (half if number < 2 or number >= 24 else four)[name]


def test_a_block_in_16_bits_keeps_what_it_keeps_there() -> None:
    layers = case("nvfp4", wide={"wide_last": 1}).model.layers
    wide = [layer.name for layer in layers if layer.wide]
    assert wide == ["layers.31.attention", "layers.31.mlp"]
    assert all(saved_bytes(one, "nvfp4") == 0 and not is_cast(one, "nvfp4") for one in layers
               if one.wide)  # fmt: skip


def test_blocks_that_are_not_there_are_refused() -> None:
    with pytest.raises(Refused, match=r"33 blocks in 16 bits, and .* has 32"):
        _ = case("nvfp4", wide={"wide_first": 30, "wide_last": 3}).model


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_blocks_in_16_bits_where_all_are_wide_change_nothing_and_are_said_to(dtype: str) -> None:
    wide = {"wide_first": 2, "wide_last": 40}
    assert times(dtype, wide=wide) == times(dtype)
    assert of_wide(unused(case(dtype, wide=wide))) == [
        f"precision.{key} changes nothing: precision.compute is none of fp8, nvfp4" for key in wide
    ]
    assert not of_wide(unused(case("nvfp4", wide={"wide_last": 1})))


def test_given_durations_know_no_blocks_in_16_bits() -> None:
    layer = {"name": "a", "parameters": 8, "forward": "1 ms", "backward": "2 ms"}
    found = case("nvfp4", wide={"wide_last": 1}, model={"layers": [layer]})
    said = "precision.wide_last changes nothing: the durations of layers are given"
    assert of_wide(unused(found)) == [said]


def test_a_plan_of_dtypes_has_those_that_need_no_blocks_in_16_bits() -> None:
    asked = {**LLAMA, "precision": {"parameters": "bf16", "compute": "nvfp4", "wide_last": 4}}
    points = plan(load(asked, Path(), "toy"), tune="precision.compute").document["points"]
    steps = {one["set"].get("precision.compute"): one.get("step_time_s") for one in points}
    assert steps["bf16"] > steps["fp8"] > steps["nvfp4"]


def test_float8_gathers_are_refused_in_4_bits() -> None:
    strategy = {"kind": "fsdp", "float8_all_gather": True}
    with pytest.raises(Refused, match=r"computed with in nvfp4; it needs precision\.compute: fp8"):
        predict(case("nvfp4", strategy=strategy).scenario)


def test_casts_go_both_ways_in_a_library_too() -> None:
    """No scale is known from the step before: forward casts inputs, which 8 bits do not."""
    layer = Layer(name="m", unit="0", tensors=(Tensor("w", (8, 4)),), forward_flop=2.0 * 3 * 32)
    assert cast_elements(layer, 1) == (3 * 4, 3 * 8)
    assert cast_bytes(layer, "nvfp4") == (FOUR_LIBRARY_CAST_BYTES,) * 2
    assert cast_bytes(replace(layer, library=True), "fp8") == (0.0, 4.0)


def test_a_device_of_ones_own_may_state_its_peak() -> None:
    made = Device(name="mine", peak={"nvfp4": 4e15, "bf16": 1e15}, memory=1e11,
                  memory_bandwidth=1e12, launch_overhead=1e-6)  # fmt: skip
    assert made.peak_for("nvfp4") == 4e15
    assert products_share(made, "nvfp4") == FOUR_SHARES[100]


@pytest.mark.parametrize("base_dtype", ["nf4", "int8"])
@pytest.mark.parametrize("dtype", ["fp8", "nvfp4"])
def test_quantised_matrices_are_unpacked_to_16_bits_and_multiplied_in_them(
    dtype: str, base_dtype: str
) -> None:
    adapters = {"rank": 16, "targets": ["q_proj", "v_proj"], "base_dtype": base_dtype}
    asked = {"model": LLAMA["model"] | {"adapters": adapters}, "strategy": {"kind": "ddp"}}
    few, half = times(dtype, **asked), times("bf16", **asked)
    blocks = {one.name for one in case(dtype, **asked).model.layers if one.quantised}
    assert blocks
    assert {name: few[name] for name in blocks} == {name: half[name] for name in blocks}
