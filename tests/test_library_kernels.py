"""Kernels of a hand-tuned library in layers with experts, latent attention and scans: what they
move, and how long grouped products take."""

from __future__ import annotations

from typing import Any

import pytest

from dpsim.cases.case import Case
from dpsim.machines.machine import load_device
from dpsim.models import Layer, Model, Tensor
from dpsim.models.compute import STREAMED, Shares, layer_times
from dpsim.models.expert_split import expert_part
from dpsim.models.few_bits import grouped_share, products_share
from dpsim.models.rates import ATTENTION, NARROW
from dpsim.models.rates import reached as reached_on
from dpsim.models.state_space_layers import Scan
from dpsim.models.streams import Streamed
from tests.asked import case_of as asked
from tests.asked import predicted

#: (rows of an expert, outputs, inputs, experts, share of 2,250 TFLOP/s) of forward products by
#: TransformerEngine on a B200 (MooreThreads/SimuMax 4dcaae51, configs/system/b200_bf16_ceperm.json)
B200 = [
    (256, 4096, 7168, 128, 0.271), (308, 3072, 5120, 80, 0.387), (512, 7168, 2048, 64, 0.427),
    (616, 3072, 5120, 40, 0.462), (1024, 4096, 7168, 32, 0.457), (1232, 5120, 1536, 20, 0.397),
]  # fmt: skip


def grouped(rows: int, outputs: int, inputs: int, experts: int, machine: str) -> float:
    """Forward of one grouped product in bf16 [s]."""
    device = load_device(machine)
    layer = Layer(
        name="experts", unit="0", kernels=0, streamed=Streamed(0.0, 0.0), experts=experts,
        tensors=(Tensor("experts.up_proj", (experts, outputs, inputs)),),
        forward_flop=2.0 * rows * experts * outputs * inputs,
    )  # fmt: skip
    generation = device.generation
    model, reached = Model(name="m", layers=(layer,)), grouped_share(device, "bf16")
    shares = Shares(narrow=NARROW[generation], grouped=reached)
    share = reached_on(device, "bf16")[0]
    times = layer_times(model, device, "bf16", 1, share, "none", shares=shares)
    return times[0].forward


def test_grouped_products_on_a_b200_take_what_was_measured_of_them() -> None:
    """Six shapes of 256 rows an expert and more: 17 % off in the median and 25 at most; at one rate
    for all rows they would be 21 and 48 % short."""
    errors = []
    for rows, outputs, inputs, experts, share in B200:
        flop = 2.0 * rows * outputs * inputs * experts
        found = grouped(rows, outputs, inputs, experts, "b200")
        errors.append(abs(found / (flop / (2250e12 * share)) - 1))
    assert max(errors) < 0.26
    assert sorted(errors)[len(errors) // 2] < 0.18


def test_grouped_products_reach_of_the_peak_what_was_measured_of_them() -> None:
    """0.52 of a B200's in 16 bits, and 0.85 of that in 8; as others on a generation of which
    nothing else is known."""
    b200, h100 = load_device("b200"), load_device("h100-sxm")
    gb200 = load_device("gb200")
    for dtype, share in (("bf16", 0.52), ("fp8", 0.52 * 0.85)):
        for device in (b200, gb200):
            others = reached_on(device, dtype)[0] * products_share(device, dtype)
            assert others * grouped_share(device, dtype) == pytest.approx(share)
        assert grouped_share(h100, dtype) == 1.0
        assert others > share
    assert grouped_share(b200, "bf16") == 1.0


@pytest.mark.parametrize(("machine", "apart"), [("b200", True), ("a100-sxm-80gb", False)])
def test_weights_of_experts_are_moved_apart_where_that_was_measured(
    machine: str, apart: bool
) -> None:
    """200 experts of a row each: half a tile is computed beside it, weights are moved before or
    meanwhile."""
    device = load_device(machine)
    rate = device.peak_for("bf16") * reached_on(device, "bf16")[0] * grouped_share(device, "bf16")
    weights = 200 * 4096 * 4096.0
    computed = (2 + 128) * weights / rate  # sums over 4,096 elements are what rates are of
    moved = 2 * weights / device.memory_bandwidth
    expected = computed + moved if apart else max(computed, moved)
    assert grouped(1, 4096, 4096, 200, machine) == pytest.approx(expected)


def scenario_of(**changes: Any) -> dict[str, Any]:
    return {
        "model": {"huggingface": "qwen3-30b-a3b", "sequence_length": 4096},
        "cluster": {"machine": "dgx-h100", "nodes": 1},
        "parallel": {"expert": 8},
        "strategy": {"kind": "megatron", "use_distributed_optimizer": True},
        "batch": {"global": 8},
        "precision": {"parameters": "bf16", "compute": "bf16"},
        **changes,
    }


def case_of(**changes: Any) -> Case:
    return asked(scenario_of(**changes))


def named(model: Model, end: str) -> Layer:
    return next(layer for layer in model.layers if layer.name.endswith(end))


def test_experts_stream_activations_sums_and_the_residual() -> None:
    """Qwen3 30B-A3B, h = 2,048, 8 experts of m = 768 to a token: 3 k m and (k + 1) h and 3 h."""
    layer = named(case_of().model, "experts")
    h, k, m, tokens = 2048, 8, 768, 4096
    assert layer.library
    assert layer.streamed is not None
    assert layer.streamed.forward == tokens * (3 * k * m + (k + 1) * h + 3 * h)
    assert layer.streamed.backward == tokens * (5 * k * m + (k + 1) * h)


def test_copies_that_are_sent_one_by_one_are_sorted_again() -> None:
    """4 k h elements of a token, where a rank holds several experts and gets a copy for each."""
    model, moved = case_of().model, 4096 * 4 * 8 * 2048
    plain, again = (
        named(expert_part(model, 8, sorted_again=s), "experts").streamed for s in (False, True)
    )
    one = named(expert_part(model, 128, sorted_again=True), "experts").streamed
    assert plain == one
    assert plain is not None
    assert again == replace_streamed(plain, moved)
    stages = {d: case_of(moe={"dispatcher": d}) for d in ("all_to_all", "once_per_node")}
    streams = {
        d: named(case.programs.stage_job(0, 1).model, "experts").streamed
        for d, case in stages.items()
    }
    assert streams == {"all_to_all": again, "once_per_node": plain}


def replace_streamed(streamed: Streamed, more: float) -> Streamed:
    return streamed._replace(forward=streamed.forward + more, backward=streamed.backward + more)


def test_a_scans_forward_kernel_takes_what_was_measured_of_one() -> None:
    """8 sequences of 8,192, 80 heads of 64, a state of 128, chunks of 256: 1.28 ms on an H800
    (tile-ai/tilelang benchmark/mamba2/README.md).  It reads scores in 32 bit, x, C and states in
    32 bit, and writes as much as x; its products run at flash attention's rate."""
    shape, tokens = Scan(2560, 80, 64, 128, 1, 4, 256), 8 * 8192
    d, n, chunk = shape.inner, shape.state, shape.chunk
    device = load_device("h100-sxm")
    moved = 2 * chunk + 2 * d + n + 2 * n * d / chunk
    flop = 2 * d * chunk + 2 * n * d
    rate = device.peak_for("bf16") * ATTENTION["flash"]["hopper"][0]
    found = tokens * (2 * moved / (device.memory_bandwidth * STREAMED) + flop / rate)
    assert found == pytest.approx(1.28e-3, rel=0.2)


def test_what_is_not_attention_is_told_from_latent_attention() -> None:
    """Of DeepSeek-V3's, 2 a (n + r + v) FLOP run in 16 bits for every pair of tokens in fp8 too."""
    case = case_of(model={"huggingface": "deepseek-v3", "sequence_length": 4096}, parallel={})
    layer = named(case.model, "attention")
    assert layer.pairs == 2.0 * 128 * (128 + 64 + 128) * 4096**2 / 2


def test_products_of_latent_attention_move_all_of_their_inputs_and_outputs() -> None:
    """DeepSeek-V3's: columns and rows of its five matrices, and what attention reads and writes, of
    128 heads keys of 192 and values of 128, whoever's kernels run."""
    case = case_of(model={"huggingface": "deepseek-v3", "sequence_length": 4096}, parallel={})
    layer = named(case.model, "attention")
    matrices = sum(sum(tensor.shape) for tensor in layer.tensors if len(tensor.shape) == 2)
    expected = 4096 * (matrices + 2 * 128 * (192 + 128))
    assert layer.library_kernels is not None
    assert layer.eager_kernels is not None
    assert layer.library_kernels.products == expected
    assert layer.eager_kernels.products == expected


def test_a_frameworks_own_library_attends_on_hopper_as_fast_as_flash_3() -> None:
    """Megatron-LM brings TransformerEngine, which takes cuDNN's kernels; FSDP2 takes torch's, and
    XLA's fused kernels bring none."""
    kinds: dict[str, dict[str, Any]] = {
        kind: {"kind": kind} for kind in ("megatron", "fsdp", "pmap")
    }
    kinds["diloco"] = {"kind": "diloco", "period": 10, "inner": {"kind": "megatron"}}
    model = {"huggingface": "llama-3.2-3b", "sequence_length": 4096}
    paces = {
        kind: named(case_of(parallel={}, model=model, strategy=strategy).model, "attention").pace
        for kind, strategy in kinds.items()
    }
    fast, flash = (ATTENTION[name]["hopper"] for name in ("flash3", "flash"))
    library, torch = (fast[0], fast[1] / 1.25), (flash[0], flash[1] / 1.25)
    assert paces == {"megatron": library, "diloco": library, "fsdp": torch, "pmap": torch}


def test_many_experts_are_warned_of() -> None:
    """Unless the scenario has a measured step."""
    data = scenario_of()
    said = [text for text in predicted(data).warnings if text.startswith("many experts")]
    assert len(said) == 1
    elsewhere: tuple[dict[str, Any], ...] = (
        {"cluster": {"machine": "mi300x-8", "nodes": 1}},
        {"cluster": {"machine": "dgx-a100", "nodes": 1}},
        {"compute": {"efficiency": 0.4}},
        {"execution": {"compile": False}},
    )
    for other in elsewhere:  # published steps were on others, by a library's kernels
        assert not [t for t in predicted(data | other).warnings if t.startswith("many experts")]
    measured = {"calibrate": {"ranks": 8, "step_time": "900 ms"}}
    assert not [t for t in predicted(data | measured).warnings if t.startswith("many experts")]


def test_a_device_without_measured_products_has_one_rate_for_all() -> None:
    case = case_of(cluster={"machine": "rack-10gbe", "device": "mi210", "nodes": 1})
    layers = [layer for layer in case.model.layers if layer.unit]
    assert not any(layer.library or layer.streamed for layer in layers)
