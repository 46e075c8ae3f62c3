"""Memory of one device: activations, what is rebuilt, pipelines, cuts that fit, advice."""

from __future__ import annotations

import random
import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import job_of, of_70_b

from dpsim.cases.case import Case
from dpsim.cases.stage_memory import cuts_that_fit
from dpsim.compile.strategies.ddp import Ddp
from dpsim.core import plugins
from dpsim.core.record import Refused
from dpsim.describe.scenario import load, read
from dpsim.machines.devices import USABLE
from dpsim.machines.machine import device_names, load_device
from dpsim.models import Layer, Model, Tensor
from dpsim.models.architectures.transformer import Transformer
from dpsim.models.compute import TOGETHER, layer_times
from dpsim.models.in_flight import Activations, activations, halves, in_flight_bytes
from dpsim.models.memory import FITTING, UNFIT, MemorySection, kept_bytes, memory_use
from dpsim.models.named import load_named
from dpsim.models.recomputing import Recompute
from dpsim.models.section import HuggingFace
from dpsim.models.split import cheapest, stage_of, tensor_part
from dpsim.models.transformer_layers import Block, attention, mlp
from dpsim.planning.bench import bench_of
from dpsim.planning.knobs import knob_of
from dpsim.planning.largest import _easier
from dpsim.predict.advice import _first_that_fits, _together, advice
from dpsim.predict.findings import of_level
from dpsim.predict.memory import _stage_memory, crowded, memory_of
from dpsim.predict.prediction import predict
from dpsim.predict.savings import SAVINGS
from dpsim.report.sentences import advice_text

MB, GIB = 1e6, 2.0**30
#: sequence, width and heads of GPT-3; 5 a s / h is 80
GPT3 = {"hidden": 12288, "heads": 96, "sequence_length": 2048, "blocks": 1}


def gpt(attention: str = "math", **rest: Any) -> Model:
    return Transformer(**{**GPT3, "attention": attention, **rest}).model()


def block(model: Model) -> tuple[Layer, Layer]:
    """The two halves of the first block."""
    first, second = (layer for layer in model.layers if layer.unit == "h.0")
    return first, second


def kept(model: Model, recompute: Recompute) -> float:
    """Bytes at 16 bit that the first block keeps for one sample."""
    alone = Model(name="block", layers=block(model))
    return activations(alone, 1, "bf16", recompute).kept


# -- memory that is full --------------------------------------------------------------------------


@pytest.mark.parametrize(("runtime", "said"), [("38 GB", 1), ("1 GB", 0)])
def test_a_pipeline_whose_memory_is_full_is_warned_of(runtime: str, said: int) -> None:
    sets = [f"memory.runtime={runtime}", "sweep=null", "cluster.nodes=48"]
    found = predict(read("gpt3-175b-a100", [*sets, "calibrate=null"]))
    memory = found.outcomes[0].memory
    assert memory is not None
    assert memory.fits == ("likely" if said else "yes")
    assert sum("with full memory took 5 to 9 times" in text for text in found.warnings) == said
    measured = predict(read("gpt3-175b-a100", sets))  # which says how long such a step takes
    assert not any("with full memory" in text for text in measured.warnings)


@pytest.mark.parametrize(
    ("runtime", "scale", "fault"),
    [("38 GB", 5.0, "full_memory"), ("38 GB", 2.0, "throttled"), ("1 GB", 5.0, "throttled")],
)
def test_a_slow_calibrated_step_of_a_pipeline_may_lack_memory(
    runtime: str, scale: float, fault: str
) -> None:
    loaded = read("gpt3-175b-a100", [f"memory.runtime={runtime}", "sweep=null", "cluster.nodes=48"])
    (finding,) = of_level(Case(loaded.points[0], loaded.base), scale)
    assert finding.fault == fault
    assert "clocks held down" in finding.text


def test_memory_of_no_pipeline_is_not_known_to_hold_up_steps() -> None:
    loaded = read("gpt2-xl-kernels", ["memory.runtime=42 GB"])
    case = Case(loaded.points[0], loaded.base)
    assert memory_of(case).fits == "unlikely"
    assert not crowded(case)


# -- activations of a block -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "sequence", "recompute", "expected"),
    [
        (1, False, "none", 2868.9),
        (8, False, "none", 578.8),
        (8, True, "none", 358.6),
        (8, True, "selective", 107.0),
        (8, False, "full", 50.3),
        (8, True, "full", 6.3),
    ],
)
def test_a_block_of_gpt_3_keeps_what_korthikantis_formulas_say(
    ranks: int, sequence: bool, recompute: Recompute, expected: float
) -> None:
    """sbh(34 + 5as/h); sbh(10 + 24/t + 5as/(ht)); the first over t; 34sbh/t; 2sbh; 2sbh/t."""
    part = tensor_part(gpt(), ranks, sequence=sequence)
    assert kept(part, recompute) / MB == pytest.approx(expected, abs=0.05)


@given(
    heads=st.integers(1, 16),
    size=st.sampled_from([8, 16, 64]),
    wide=st.integers(1, 9000),
    tokens=st.integers(1, 3000),
    ranks=st.sampled_from([1, 2, 4, 8]),
)
def test_the_formulas_hold_for_any_block(
    heads: int, size: int, wide: int, tokens: int, ranks: int
) -> None:
    """18 + 4 ffn/h is the general form of 34; of it 10 stays whole without sequence parallelism."""
    h = heads * size
    model = gpt(hidden=h, heads=heads, sequence_length=tokens, feed_forward=wide, vocabulary=9)
    scores = 5 * heads * tokens**2
    split = tokens * (8 * h + 4 * wide) + scores
    plain = tensor_part(model, ranks, sequence=False)
    assert kept(plain, "none") == pytest.approx(10 * tokens * h + split / ranks)
    both = tensor_part(model, ranks, sequence=True)
    assert kept(both, "none") == pytest.approx((10 * tokens * h + split) / ranks)
    assert kept(both, "selective") == pytest.approx((10 * tokens * h + split - scores) / ranks)


def test_activations_grow_with_the_square_of_the_sequence_unless_attention_is_flash() -> None:
    def second_difference(attention: str, recompute: Recompute) -> float:
        one, two, three = (
            kept(gpt(attention, sequence_length=1024 * n), recompute) for n in (1, 2, 3)
        )
        return three - 2 * two + one

    assert second_difference("math", "none") == 2 * 5 * 96 * 1024**2
    assert second_difference("flash", "none") == 0
    assert second_difference("math", "selective") == 0
    assert second_difference("math", "full") == 0


def test_selective_recomputation_keeps_what_flash_attention_keeps() -> None:
    assert kept(gpt("math"), "selective") == kept(gpt("flash"), "none")
    assert kept(gpt("flash"), "selective") == kept(gpt("flash"), "none")


@pytest.mark.parametrize(("dropout", "pairs"), [(0.1, 5), (0.0, 2)])
def test_torch_saves_the_bytes_that_stored_scores_are_said_to_take(
    dropout: float, pairs: int
) -> None:
    """Softmax, one-byte mask and dropout's output of unfused attention, in bf16."""
    heads, tokens, size = 4, 32, 8
    query, key, value = (
        torch.randn(heads, tokens, size, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
    )
    saved: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        weights = torch.softmax(query @ key.transpose(-1, -2), -1)
        if dropout:
            weights, _ = torch.native_dropout(weights, dropout, True)
        weights @ value
    for own in (query, key, value):
        saved.pop(own.untyped_storage().data_ptr())
    found = sum(tensor.untyped_storage().nbytes() for tensor in saved.values())
    assert found == pairs * heads * tokens**2
    if not dropout:  # Llama has none
        dims = {"family": "llama", "heads": heads, "hidden": heads * size, "vocabulary": 9}
        math, flash = (gpt(kind, sequence_length=tokens, **dims) for kind in ("math", "flash"))
        more = sum(x.activations for x in math.layers) - sum(x.activations for x in flash.layers)
        assert 2 * more == found


def test_torchs_flash_attention_saves_nothing_that_grows_with_the_square() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def saved_bytes(tokens: int) -> int:
        found: dict[int, int] = {}
        query, key, value = (
            torch.randn(1, 2, tokens, 8, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
        )

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
            sdpa_kernel(SDPBackend.FLASH_ATTENTION),
        ):
            torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return sum(found.values())

    assert saved_bytes(128) == 2 * saved_bytes(64)


# -- their time -----------------------------------------------------------------------------------


def test_stored_scores_move_more_with_more_kernels_and_the_same_flop() -> None:
    (math, wide), (flash, same) = block(gpt("math")), block(gpt("flash"))
    assert (math.forward_flop, math.backward_flop) == (flash.forward_flop, flash.backward_flop)
    # the product writes, the softmax reads and writes, dropout reads and writes a mask of half a
    # width beside its output, the second product reads
    moved = 6.5 * 96 * 2048**2
    assert math.forward_bytes - flash.forward_bytes == pytest.approx(moved)
    assert math.backward_bytes - flash.backward_bytes == pytest.approx(2 * moved)
    assert math.kernels - flash.kernels == 3
    assert wide == same


def test_selective_recomputation_does_the_scores_again_and_flash_attention_always_does() -> None:
    device = load_device("a100-sxm-80gb", Path())

    def backward(attention: str, recompute: Recompute) -> float:
        model = gpt(attention)
        at = model.layers.index(block(model)[0])
        return layer_times(model, device, "bf16", 1, 0.5, recompute)[at].backward

    # per element of a head: q, k, v read and the output written
    moved = 2048 * 4 * 12288 + 6.5 * 96 * 2048**2
    flop = 4 * 12288 * 2048**2 / 2
    again = max(
        2 * moved / device.memory_bandwidth / TOGETHER,
        flop / (0.5 * device.peak_for("bf16")),
        4 * device.launch_overhead,
    )
    found = backward("math", "selective") - backward("math", "none")
    assert found == pytest.approx(again, rel=1e-9)
    assert backward("flash", "selective") == backward("flash", "none")


def test_one_attention_at_a_time_is_rebuilt() -> None:
    model = gpt(blocks=6, vocabulary=9)
    whole, least = (activations(model, 2, "bf16", kind) for kind in ("none", "selective"))
    assert whole.kept - least.kept == pytest.approx(6 * least.rebuilt)
    assert least.rebuilt == 2 * 5 * 96 * 2048**2
    assert whole.rebuilt == 0


# -- embedding, head, tensor parallelism ----------------------------------------------------------


def test_embedding_and_head_keep_what_megatrons_estimator_says() -> None:
    """8 s b + s b h, and 4 s b h (1 + V/h) with the final norm; all of the head's logits, and none
    of the inputs, are split by tensor parallelism."""
    s, h, v = 2048, 12288, 51200
    model = gpt(vocabulary=v)
    first, norm, head = model.layers[0], *model.layers[-2:]
    assert 2 * first.activations == 8 * s + s * h
    assert 2 * (norm.activations + head.activations) == 4 * s * h * (1 + v / h)
    part = tensor_part(model, 8, sequence=False).layers[-1]
    assert 2 * part.activations == 2 * s * h + 4 * s * v / 8
    assert part.activations_full == part.activations  # the head is not recomputed


def test_full_recomputation_rebuilds_whole_blocks() -> None:
    model = gpt(blocks=4, vocabulary=100)
    found = activations(model, 1, "bf16", "full")
    outside = sum(2 * layer.activations for layer in model.layers if not layer.unit)
    assert found.kept == pytest.approx(4 * 2 * 2048 * 12288 + outside)
    assert found.rebuilt == pytest.approx(kept(model, "none") - 2 * 2048 * 12288)  # its input


# -- states ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("view", "expected"), [(False, 7.0e9), (True, 5.6e9)])
def test_350_million_parameters_under_ddp_take_7_gb_and_5_6_with_views(
    view: bool, expected: float
) -> None:
    job = job_of(8, sizes=(100_000_000, 250_000_000))
    used = memory_use(Ddp(gradient_as_bucket_view=view).memory(job), None)
    assert used.total == pytest.approx(expected, rel=1e-12)
    assert used.fits is None


# -- pipelines ------------------------------------------------------------------------------------


# -- what the device has ---------------------------------------------------------------------------


def test_a_device_has_what_it_says_of_itself_and_others_what_such_devices_say() -> None:
    """The constants are those of the files: extremes and median; but of GB10, whose memory the host
    has a fifth of."""
    devices = [load_device(name) for name in device_names() if name != "gb10"]
    told = sorted(one.usable / one.memory for one in devices if one.usable)
    least, point, most = USABLE
    assert (told[0], told[-1]) == pytest.approx((least, most), abs=0.002)
    assert told[len(told) // 2] == pytest.approx(point, abs=0.003)
    known, other = load_device("rtx4090"), load_device("titan-v")
    assert known.room == (23.61 * GIB,) * 3
    assert other.usable == 0
    assert other.room == pytest.approx([share * 12 * GIB for share in USABLE])


def test_a_step_of_all_that_a_device_is_sold_with_does_not_fit() -> None:
    exact = MemorySection(fragmentation=0.0, runtime=0.0)
    for name, size, said in [
        ("rtx4090", 22.4, "yes"),  # 5 % more still fits
        ("rtx4090", 23.6, "likely"),
        ("rtx4090", 23.7, "unlikely"),  # 5 % less would fit
        ("rtx4090", 25.0, "no"),
        ("titan-v", 10.3, "yes"),  # 5 % more fits into 10.92
        ("titan-v", 10.5, "likely"),
        ("titan-v", 12.0, "unlikely"),
        ("titan-v", 13.4, "unlikely"),  # 5 % less fits into 12.78
        ("titan-v", 13.6, "no"),
    ]:
        used = memory_use({"parameters": size * GIB}, load_device(name), exact)
        assert used.fits == said, (name, size)


def test_what_blocks_keep_of_full_recomputation_are_their_inputs() -> None:
    """2 s h bytes a block at 16 bit: 32 blocks of 8,192 tokens of 4,096 (Korthikanti et al.,
    arXiv:2205.05198, section 5)."""
    loaded = read("llama3-8b-h100", ["cluster.nodes=1", "recompute=full"])
    parts = memory_of(Case(loaded.points[0], loaded.base)).parts
    assert parts["activations at block inputs"] == 32 * 2 * 8192 * 4096
    assert "activations of attention" not in parts


def equal_stages(p: int, m: int, schedule: dict[str, Any], chunks: int = 1) -> Case:
    """p stages (or p times `chunks`) that keep 1,000 fp32 elements for each micro-batch."""

    class Inline(HuggingFace):
        def model(self, base: Path) -> Model:
            layer = {"forward": 1e-3, "backward": 2e-3, "activations": 1000 / chunks}
            layers = tuple(Layer(name=f"s{k}", **layer) for k in range(p * chunks))
            return Model(name="equal", layers=layers)

    data = {
        "model": Inline(huggingface="inline", sequence_length=1),
        "cluster": {"ranks": p},
        "parallel": {"pipeline": p},
        "schedule": schedule,
        "collective": {"backend": "free"},
        "strategy": {"kind": "ddp"},
        "batch": {"accumulation": m},
    }
    return Case(load(data, Path(), "").points[0], Path())


def in_flight(case: Case, row: int) -> float:
    """Micro-batches of a whole rank's layers that pipeline rank `row` keeps at once."""
    return _stage_memory(case, row).parts["activations"] / 4000


@pytest.mark.parametrize("v", [1, 2, 4])
def test_interleaving_keeps_1_plus_p_minus_1_over_pv_as_much(v: int) -> None:
    p, m = 4, 8
    kind = {"kind": "interleaved_1f1b", "chunks": v} if v > 1 else {"kind": "one_f_one_b"}
    case = equal_stages(p, m, kind, v)
    for row in range(p):
        now = ((v - 1) * p + 2 * (p - 1 - row) + 1) / v if v > 1 else p - row
        assert in_flight(case, row) == pytest.approx(now)
    if v > 1:
        assert in_flight(case, 0) == pytest.approx(p * (1 + (p - 1) / (p * v)))


@pytest.mark.parametrize(("kind", "first", "last"), [("gpipe", 8, 8), ("zb1p", 4, 4)])
def test_gpipe_keeps_all_micro_batches_and_zero_bubble_p_on_every_rank(
    kind: str, first: float, last: float
) -> None:
    case = equal_stages(4, 8, {"kind": kind})
    assert (in_flight(case, 0), in_flight(case, 3)) == (first, last)


def test_stages_keep_the_inputs_of_blocks_in_flight_and_rebuild_one_block() -> None:
    data = {
        "model": {"name": "transformer", "hidden": 256, "blocks": 8, "heads": 4,
                  "sequence_length": 128, "vocabulary": 64},
        "cluster": {"machine": "dgx-a100", "ranks": 4},
        "parallel": {"pipeline": 4},
        "strategy": {"kind": "ddp"},
        "batch": {"per_device": 2, "accumulation": 8},
        "precision": {"parameters": "bf16", "compute": "bf16"},
        "recompute": "full",
    }  # fmt: skip
    case = Case(load(data, Path(), "").points[0], Path())
    sample = 2 * 128 * 256  # bytes of one input of a block
    inside = 2 * 2 * 128 * (2 * 1024 + 256)  # gradients inside the feed-forward part
    for row in (1, 2):  # without embedding and head
        found = _stage_memory(case, row).parts["activations"]
        assert found == 2 * ((4 - row) * 2 * sample + 34 * 128 * 256 - sample) + inside


def test_a_backward_in_two_halves_holds_what_waits_until_the_second() -> None:
    own = {0: Activations(kept=10.0, rebuilt=7.0, waiting=25.0, first=30.0, second=4.0)}
    once = in_flight_bytes([(0, "F", 0), (0, "F", 1), (0, "B", 0), (0, "B", 1)], own)
    assert once == 27
    halves = [(0, "F", 0), (0, "F", 1), (0, "I", 0), (0, "I", 1), (0, "W", 0), (0, "W", 1)]
    assert in_flight_bytes(halves, own) == 25 + 30
    assert in_flight_bytes(halves[:2] + halves[2::2], own) == 10 + 30
    assert in_flight_bytes([(0, "F", 0), (0, "I", 0), (0, "W", 0)], own) == 30


def peaks(kind: str, kept: float, waiting: float) -> list[float]:
    """Of every one of 4 ranks with 8 micro-batches."""
    schedule = plugins.find("schedules", kind)()
    each = Activations(kept=kept, waiting=waiting, first=max(kept, waiting))
    lists = schedule.lists(4, 8)
    return [in_flight_bytes(acts, dict.fromkeys(range(8), each)) for acts in lists]


def test_what_waits_is_counted_as_the_lists_by_hand_have_it() -> None:
    """ZB-H1's rank r holds 4 - r micro-batches before backward and r before W, so the peak is
    1F1B's where W needs no more than B (Qi et al., arXiv:2401.10241, section 2.3); where it needs
    more, r + 1 wait when an I has ended.  DualPipe's rank 0 and 3: F0 F0 F0 F1 I1, with three more
    in flight; 1 and 2 put off the last two of their eight; p + 1 in flight where W needs no more
    (README of deepseek-ai/DualPipe)."""
    assert peaks("one_f_one_b", 1, 10) == [4, 3, 2, 1]
    assert peaks("zb1p", 1, 0) == [4, 3, 2, 1]
    assert peaks("zb1p", 1, 0.5) == [4, 3.5, 3, 2.5]
    assert peaks("zb1p", 1, 1) == [4, 4, 4, 4]
    assert peaks("zb1p", 1, 10) == [3 + 10, 2 + 20, 1 + 30, 40]
    assert peaks("dualpipe", 1, 1) == [5, 5, 5, 5]
    assert peaks("dualpipe", 1, 10) == [3 + 10, 20, 20, 3 + 10]


def test_between_its_halves_a_gpt_block_keeps_32_s_b_h() -> None:
    """14 of inputs and 18 of gradients of products, at 16 bit; of forward's 34 s b h and scores
    (Qi et al., arXiv:2401.10241, section 2.3)."""
    first = stage_of(gpt(), [1, 2])
    for again in ("none", "selective", "full"):
        assert activations(first, 3, "bf16", again).waiting == 3 * 32 * 2048 * 12288
    assert activations(first, 1, "bf16", "none").kept == (34 + 80) * 2048 * 12288
    assert activations(first, 1, "fp8", "full").waiting == 16 * 2048 * 12288


def test_torch_keeps_what_forward_saved_beside_the_gradients_of_products_and_norms() -> None:
    first = stage_of(gpt(), [1, 2])
    none, full = (activations(first, 1, "bf16", a, graph=True) for a in ("none", "full"))
    assert none.waiting - none.kept == full.waiting - full.kept == (18 + 4) * 2048 * 12288
    assert (none.second, full.second) == (0, full.rebuilt * (1 + 6) / 2)


def test_of_logits_wait_their_gradients_at_16_bit() -> None:
    """The input of a head's product, and the gradient of what it puts out; the log-softmax, at 32
    bit, is forward's alone."""
    model = gpt(hidden=256, heads=4, sequence_length=128, vocabulary=1024)
    head = stage_of(model, [len(model.layers) - 1])
    for graph in (False, True):
        found = activations(head, 1, "bf16", "full", graph=graph)
        assert found.kept == 128 * (2 * 256 + 4 * 1024)
        assert found.waiting == 128 * (2 * 256 + 2 * 1024)


def llama_stages(kind: str, strategy: str, again: str) -> list[float]:
    """GB of activations of each of 8 stages of Llama-3-8B, with 16 micro-batches of a sequence."""
    data = {
        "model": {"huggingface": "llama-3-8b", "sequence_length": 8192},
        "cluster": {"machine": "dgx-h100", "nodes": 1},
        "parallel": {"pipeline": 8},
        "strategy": {"kind": strategy},
        "schedule": {"kind": kind},
        "precision": {"parameters": "bf16", "compute": "bf16"},
        "batch": {"per_device": 1, "accumulation": 16},
        "recompute": again,
    }
    case = Case(load(data, Path(), "").points[0], Path())
    return [_stage_memory(case, row).parts["activations"] / 1e9 for row in range(8)]


def test_zero_bubble_needs_what_1f1b_does_but_on_the_heads_rank_and_with_recomputation() -> None:
    """The table of docs/howto/meshes.md."""
    plain, zero = (llama_stages(kind, "megatron", "none") for kind in ("one_f_one_b", "zb1p"))
    assert max(zero[:-1]) == pytest.approx(max(plain), rel=0.01)
    assert (round(max(plain)), round(zero[-1])) == (37, 58)
    logits = 8192 * 128256 * 2 / 1e9
    assert zero[-1] - zero[-2] > 7 * logits
    found = [max(llama_stages(k, "megatron", "full")) for k in ("one_f_one_b", "zb1p")]
    assert [round(size) for size in found] == [7, 55]
    torchs = llama_stages("zb1p", "ddp", "none")
    assert [round(size) for size in (min(torchs), torchs[-2], torchs[-1])] == [58, 84, 115]
    assert round(max(llama_stages("one_f_one_b", "ddp", "none"))) == 58
    found = [max(llama_stages(k, "ddp", "full")) for k in ("one_f_one_b", "zb1p")]
    assert [round(size) for size in found] == [13, 88]


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["model.sequence_length=10240"], "or execution.compile: true) it fits, with 75.6 GB"),
        (["model.sequence_length=12288"], "which is within the error"),
        (["memory.kernels=eager"], "short of 84.9 GB, which is within the error of fragmentation"),
    ],
)  # fmt: skip
def test_a_step_that_is_unlikely_to_fit_says_what_it_may_fit_with(
    sets: list[str], said: str
) -> None:
    loaded = read("llama3-8b-h100", ["cluster.nodes=1", "recompute=none", *sets])
    text = next(text for text in predict(loaded).warnings if "is unlikely to fit" in text)
    assert said in text


def test_a_schedule_that_puts_weights_off_says_what_recomputation_is_worth() -> None:
    sets = ["batch.global=4096", "batch.accumulation=32", "schedule.kind=zb1p"]
    answer = predict(read("deepseek-v3-h800", sets))
    (said,) = [text for text in answer.warnings if "one_f_one_b takes 26.5 GB" in text]
    assert "saves nothing of what waits" in said
    sets = ["cluster.nodes=1", "parallel.pipeline=8", "batch.accumulation=8", "schedule.kind=zb1p"]
    sets += ["variability.jitter=0", "variability.steps=1", "strategy.reshard_after_forward=false"]
    assert any(
        "for every weight in it" in w for w in predict(read("llama3-8b-h100", sets)).warnings
    )


# -- cuts into stages -----------------------------------------------------------------------------


def test_the_cut_found_is_the_best_of_all_cuts() -> None:
    draw = random.Random(3)
    for _ in range(60):
        count, parts = draw.randint(1, 8), draw.randint(1, 4)
        if parts > count:
            continue
        costs = [draw.uniform(0, 1) for _ in range(count)]
        weights = [draw.uniform(1, 4) for _ in range(parts)]

        def cost(
            part: int,
            first: int,
            end: int,
            costs: list[float] = costs,
            weights: list[float] = weights,
        ) -> float:
            return weights[part] * sum(costs[first:end])

        def worst(ends: tuple[int, ...], cost: Any = cost) -> float:
            return max(cost(k, a, b) for k, (a, b) in enumerate(pairwise((0, *ends))))

        all_ = (worst((*inner, count)) for inner in combinations(range(1, count), parts - 1))
        assert worst(tuple(cheapest(count, parts, cost))) == pytest.approx(min(all_))


PIPELINE = {
    "model": {"huggingface": "llama-2-7b", "sequence_length": 4096},
    "cluster": {"machine": "dgx-h100", "nodes": 1},
    "parallel": {"pipeline": 8},
    "strategy": {"kind": "ddp"},
    "precision": {"parameters": "bf16", "compute": "bf16"},
    "batch": {"per_device": 3, "accumulation": 16},
}


def adam_states(strategy: dict[str, object], **optimizer: object) -> float:
    """Bytes of the optimizer per parameter, all of one model that is kept whole, in bf16."""
    data = {
        "model": {"huggingface": "qwen2.5-0.5b", "sequence_length": 512},
        "cluster": {"machine": "dgx-h100", "ranks": 1}, "batch": {"per_device": 1},
        "strategy": strategy, "precision": {"parameters": "bf16", "compute": "bf16"},
        "optimizer": {"kind": "adam", **optimizer},
    }  # fmt: skip
    case = Case(load(data, Path(), "qwen").points[0], Path())
    return memory_of(case).parts["optimizer states"] / case.model.parameters


@pytest.mark.parametrize(
    ("strategy", "own"),
    [
        ({"kind": "ddp"}, 4),
        ({"kind": "fsdp"}, 4),
        ({"kind": "fsdp1"}, 4),
        ({"kind": "horovod"}, 4),
        ({"kind": "accelerate"}, 4),
        ({"kind": "accelerate", "distributed_type": "deepspeed"}, 12),
        ({"kind": "zero", "stage": 1}, 12),
        ({"kind": "megatron"}, 12),
    ],
)
def test_torchs_optimizers_keep_no_copy_of_16_bit_and_others_do(
    strategy: dict[str, object], own: int
) -> None:
    """torch's Adam has two states as wide as the parameters; DeepSpeed's and Megatron's two and a
    copy in 32 bit.  Either does what it is told."""
    assert adam_states(strategy) == pytest.approx(own)
    assert adam_states(strategy, master_weights=True) == pytest.approx(12)
    assert adam_states(strategy, master_weights=False) == pytest.approx(4)


@pytest.mark.parametrize(("strategy", "offered"), [("fsdp", False), ("megatron", True)])
def test_training_without_a_copy_is_advised_where_there_is_one(
    strategy: str, offered: bool
) -> None:
    data = {
        "model": {"huggingface": "qwen2.5-7b", "sequence_length": 2048},
        "cluster": {"machine": "rtx4090-8", "nodes": 1}, "batch": {"per_device": 1},
        "strategy": {"kind": strategy}, "precision": {"parameters": "bf16", "compute": "bf16"},
    }  # fmt: skip
    case = Case(load(data, Path(), "qwen").points[0], Path())
    names = [variant.name for saving in SAVINGS for variant in saving(case)]
    assert any(name.startswith("precision: {parameters: bf16") for name in names) == offered


@pytest.mark.parametrize("stages", [None, "balanced"])
def test_a_cut_that_fits_is_named_where_that_by_time_does_not(stages: str | None) -> None:
    found = predict(load({**PIPELINE, "stages": stages}, Path(), "llama"))
    assert found.points[0]["fits"] in UNFIT
    warning = next(w for w in found.document["warnings"] if "other stages fit" in w)
    cut = next(iter(cuts_that_fit(found.outcomes[0].case)))
    assert warning.endswith(", ".join(stage[0] for stage in cut))
    data = {**PIPELINE, "stages": [list(stage) for stage in cut]}
    followed = predict(load(data, Path(), "llama")).points[0]
    assert followed["fits"] in FITTING
    assert f"{followed['memory_bytes'] / 1e9:.1f} GB" in warning
    # more layers on late ranks, which keep fewer micro-batches
    sizes = [len(stage) for stage in cut]
    assert sizes[0] < sizes[-1]


def test_no_cut_is_named_where_none_fits_or_a_rank_has_several_stages() -> None:
    data = {**PIPELINE, "batch": {"per_device": 64, "accumulation": 16}}
    found = predict(load(data, Path(), "llama"))
    assert not any("other stages" in w for w in found.document["warnings"])
    several = {**PIPELINE, "schedule": {"kind": "interleaved_1f1b", "chunks": 2}}
    assert not list(cuts_that_fit(Case(load(several, Path(), "").points[0], Path())))


# -- advice ---------------------------------------------------------------------------------------


def advised(data: dict[str, Any]) -> list[str]:
    case = Case(load(data, Path(), "").points[0], Path())
    used = memory_of(case)
    assert used.fits in UNFIT
    return [advice_text(one) for one in advice(case, used)]


def gigabytes(data: dict[str, Any]) -> str:
    case = Case(load(data, Path(), "").points[0], Path())
    return f": {memory_of(case).total / 1e9:.1f} GB of "


GPT2 = {
    "model": {"huggingface": "gpt2-xl", "sequence_length": 1024, "attention": "math"},
    "cluster": {"machine": "dgx-h100", "nodes": 1},
    "strategy": {"kind": "ddp"},
    "precision": {"parameters": "fp32", "compute": "bf16"},
    "batch": {"per_device": 8},
}


@pytest.mark.parametrize(("precision", "told"), [({}, True), ({"compute": "fp32"}, False)])
def test_products_in_16_bits_are_advised_where_nobody_said_32(
    precision: dict[str, str], told: bool
) -> None:
    data = {
        **GPT2,
        "model": {"huggingface": "llama-3-8b", "sequence_length": 4096},
        "cluster": {"machine": "dgx-h100", "ranks": 4},
        "strategy": {"kind": "fsdp"},
        "batch": {"per_device": 1},
        "precision": {"parameters": "fp32", **precision},
    }
    said = advised(data)
    found = [text for text in said if "precision.compute: bf16" in text]
    assert bool(found) == told


def test_flash_attention_or_recomputing_scores_is_advised_where_scores_are_stored() -> None:
    lines = advised(GPT2)
    flash = next(line for line in lines if "model.attention: flash" in line)
    assert gigabytes({**GPT2, "model": {**GPT2["model"], "attention": "flash"}}) in flash
    selective = next(line for line in lines if "recompute: selective" in line)
    assert gigabytes({**GPT2, "recompute": "selective"}) in selective
    smaller = next(line for line in lines if "batch.per_device: 4" in line)
    assert gigabytes({**GPT2, "batch": {"per_device": 4, "accumulation": 2}}) in smaller


def test_splitting_layers_keeps_the_batch_and_can_be_followed() -> None:
    data = {
        **GPT2,
        "model": {"huggingface": "llama-3-8b", "sequence_length": 4096},
        "batch": {"per_device": 1},
    }
    lines = advised(data)
    for axis in ("tensor", "pipeline"):
        line = next(x for x in lines if f"with parallel.{axis}: " in x)
        count = int(re.search(rf"parallel.{axis}: (\d+)", line)[1])  # type: ignore[index]
        followed = {
            **data, "parallel": {axis: count}, "batch": {"per_device": 1, "accumulation": count},
        }  # fmt: skip
        assert gigabytes(followed) in line
        point = predict(load(followed, Path(), "")).points[0]
        assert point["global_batch"] == 8
        assert point["fits"] in FITTING


def test_sharding_more_and_offloading_are_advised_for_zero() -> None:
    data = {
        **GPT2,
        "model": {"huggingface": "llama-2-7b", "sequence_length": 512},
        "strategy": {"kind": "zero", "stage": 1},
        "batch": {"per_device": 1},
        "cluster": {"machine": "dgx-h100", "ranks": 2},
    }
    lines = advised(data)
    for key, value in (("stage", 2), ("offload_optimizer", "cpu")):
        line = next(x for x in lines if f"strategy.{key}: {value}" in x)
        assert gigabytes({**data, "strategy": {**data["strategy"], key: value}}) in line
        assert "the throughput" in line


def test_more_devices_and_other_models_are_advised_after_all_that_keeps_them() -> None:
    """Full fine-tuning of 8 B parameters on two GPUs of 24 GB: offloading before buying."""
    data = {
        "model": {"huggingface": "llama-3.1-8b", "sequence_length": 1024},
        "cluster": {"machine": "two-rtx3090", "ranks": 2},
        "strategy": {"kind": "fsdp"},
        "precision": {"parameters": "bf16", "compute": "bf16", "reduce": "bf16"},
        "recompute": "full",
    }
    lines = advised(data)
    assert "strategy: {kind: zero, stage: 3, offload_optimizer: cpu}" in lines[0]
    assert "8 of these devices" in lines[-2]
    assert "a smaller model" in lines[-1]
    offloaded = {"kind": "zero", "stage": 3, "offload_optimizer": "cpu"}
    assert gigabytes({**data, "strategy": offloaded}) in lines[0]


def test_experts_over_the_ranks_of_a_node_are_advised_where_a_rank_cannot_hold_them() -> None:
    data = {
        "model": {"huggingface": "qwen3-30b-a3b", "sequence_length": 4096},
        "cluster": {"machine": "dgx-h100", "nodes": 2},
        "strategy": {"kind": "megatron", "use_distributed_optimizer": True},
        "precision": {"parameters": "bf16", "compute": "bf16"},
        "batch": {"per_device": 1},
        "recompute": "full",
    }
    line = next(one for one in advised(data) if "with parallel.expert: 8: " in one)
    assert gigabytes({**data, "parallel": {"expert": 8}}) in line


def test_other_devices_of_the_machine_are_advised_before_other_servers() -> None:
    data = {
        "model": {"huggingface": "llama-3.2-1b-tied", "sequence_length": 2048},
        "cluster": {"machine": "four-rtx4090", "ranks": 1},
        "strategy": {"kind": "fsdp"},
        "precision": {"parameters": "fp32", "compute": "bf16"},
        "batch": {"per_device": 1},
    }
    line = next(one for one in advised(data) if "with cluster.ranks: 2: " in one)
    assert gigabytes({**data, "cluster": {"machine": "four-rtx4090", "ranks": 2}}) in line


@pytest.mark.parametrize(
    "strategy",
    [
        {"kind": "fsdp", "reshard_after_forward": False},
        {"kind": "fsdp", "shard": 2},
        {"kind": "fsdp1", "sharding_strategy": "SHARD_GRAD_OP"},
        {"kind": "fsdp1", "sharding_strategy": "HYBRID_SHARD", "shard": 2},
        {"kind": "ddp"},
    ],
)
def test_what_is_lighter_keeps_less_and_is_what_its_keys_set(strategy: dict[str, Any]) -> None:
    data = {**GPT2, "strategy": strategy}
    case = Case(load(data, Path(), "").points[0], Path())
    found = [one for one in case.scenario.strategy.lighter(split=False) if one.applies(8)]
    assert {"sharded", "system"} & {one.what for one in found}
    assert "offloaded" in {one.what for one in found}
    for one in found:
        keys = {key.removeprefix("strategy."): value for key, value in one.keys.items()}
        set_ = keys.get("strategy", {**strategy, **keys})
        after = Case(load({**data, "strategy": set_}, Path(), "").points[0], Path())
        assert after.scenario.strategy == one.strategy
        if one.what != "offloaded":  # whose buffers can be more than a small shard
            # without buckets gradients stay, which counts for less only when backward ends
            less = memory_of(after).total < memory_of(case).total
            assert less or one.what == "buckets"


@pytest.mark.parametrize("kind", ["fsdp", "fsdp1"])
def test_whole_gradients_between_micro_batches_are_what_goes_first(kind: str) -> None:
    """32 GB of them, of a model of 8 B parameters in fp32, are kept for two micro-batches."""
    data = {
        "model": {"huggingface": "llama-3-8b.json", "sequence_length": 4096},
        "cluster": {"machine": "p5.48xlarge", "nodes": 16}, "strategy": {"kind": kind},
        "batch": {"per_device": 2, "accumulation": 2},
        "precision": {"parameters": "fp32", "compute": "bf16", "reduce": "fp32"},
    }  # fmt: skip
    assert any("strategy.no_sync: false" in line for line in advised(data))


def test_one_rule_says_which_of_them_help_a_rank_that_is_alone() -> None:
    """The advice and `plan --largest` ask the same question of a single GPU."""
    one = {"machine": "two-rtx3090", "ranks": 1}
    data = {**GPT2, "cluster": one, "batch": {"per_device": 1}}
    said = set(re.findall(r"kind: (fsdp|zero)", " ".join(advised(data))))
    bench = bench_of(load(data, Path(), ""))
    knob = knob_of(bench.scenario(), "batch.per_device", "--largest")
    raised = [change for change, _ in _easier(bench, knob)]
    assert {c["strategy"]["kind"] for c in raised if "strategy" in c} == said == {"zero"}


def test_what_a_change_does_to_the_throughput_is_played() -> None:
    line = next(x for x in advised(GPT2) if "recompute: selective" in x)
    now, then = (
        predict(load({**GPT2, "recompute": kind}, Path(), "")).step_time_s
        for kind in ("none", "selective")
    )
    assert f"about {now / then:.2g} x the throughput" in line


def test_attention_is_one_of_its_kinds() -> None:
    data = {**GPT2, "model": {**GPT2["model"], "attention": "linear"}}
    with pytest.raises(Refused, match="attention"):
        load(data, Path(), "")


@pytest.mark.parametrize("recompute", ["none", "selective"])
def test_fp8_keeps_inputs_of_products_at_one_byte_and_all_else_at_two(recompute: Recompute) -> None:
    """Per token of a Llama block: the norm's output and the gated product lose a byte each, what
    attention's output is kept twice for it does not gain; embedding and head stay as they are."""
    model = llama(blocks=2)
    half = activations(model, 3, "bf16", recompute).kept
    eight = activations(model, 3, "fp8", recompute).kept
    assert half - eight == 3 * TOKENS * 2 * (HIDDEN + FFN)
    assert eight > 0.8 * half


def test_fp8_keeps_the_inputs_of_recomputed_blocks_in_bf16() -> None:
    model = llama(blocks=2)
    kept = {dtype: activations(model, 1, dtype, "full").kept for dtype in ("bf16", "fp8")}
    assert kept["fp8"] == kept["bf16"]


HIDDEN, FFN, TOKENS = 64, 160, 32


def llama(blocks: int) -> Model:
    block = Block(HIDDEN, 4, 4, 16, FFN, gated=True)
    layers = [
        half(block, f"b{k}", (Tensor(f"b{k}.{half.__name__}", (HIDDEN, HIDDEN)),), TOKENS)
        for k in range(blocks)
        for half in (attention, mlp)
    ]
    return Model(name="llama", layers=tuple(layers))


@pytest.mark.parametrize("name", ["stable-diffusion-v1.5", "clip-vit-large-patch14", "t5-base"])
def test_no_more_waits_between_the_halves_than_forward_keeps_and_a_gradient(name: str) -> None:
    """Of layers whose products are not all matrices', too: a U-Net convolves beside them."""
    model = load_named(name, None)
    for layer in model.layers:
        kept = kept_bytes(layer, "bf16", "none", eager=False)
        waits = halves(layer, "bf16", "none", eager=False, graph=False).after
        assert waits <= 2.0 * kept + 4.0 * layer.output + 8.0 * layer.logits, layer.name


@pytest.mark.parametrize(
    ("schedule", "recompute", "told"),
    [
        ("zb1p", "selective_op", "computes a block again for every weight"),
        ("zb1p", "none", ""),
        ("zb2p", "none", "zb2p is none of torch's schedules"),
    ],
)
def test_what_torch_makes_of_a_split_backward_is_told(
    schedule: str, recompute: str, told: str
) -> None:
    data = {
        **GPT2,
        "model": {"huggingface": "gpt2-xl", "sequence_length": 512},
        "strategy": {"kind": "fsdp"},
        "parallel": {"pipeline": 2},
        "schedule": {"kind": schedule},
        "recompute": recompute,
        "batch": {"per_device": 1, "accumulation": 4},
    }
    said = [text for text in predict(load(data, Path(), "")).warnings if "torch's" in text]
    assert bool(said) == bool(told)
    assert all(told in text for text in said)


def test_three_changes_are_advised_where_no_two_are_enough() -> None:
    """70 B parameters on 128 H100 with 8 sequences of 8,192 tokens at once: 2.6 TB."""
    case = Case(load(of_70_b(), Path(), "large").points[0], Path())
    found = _first_that_fits(case, _together(case))
    assert found is not None
    assert found[0].name == (
        "recompute: full and batch.accumulation: 4 and strategy.no_sync: false"
    )
    assert found[1].fits == "yes"
