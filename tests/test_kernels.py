"""Kernels as kernels: what runs eagerly, compiled, in graphs, and what that comes to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from eager_blocks import Autocast, Dispatched, Gpt2, GroupChoice, Latent, Llama, Mixture

import dpsim
from dpsim.cases.case import Case
from dpsim.cases.variant import scaled
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.machines.machine import load_device
from dpsim.models import Layer, Model, Tensor
from dpsim.models.architectures.transformer import Transformer
from dpsim.models.compute import STREAMED, Shares, layer_times
from dpsim.models.execution import Execution, executed
from dpsim.models.expert_layers import Routing, router
from dpsim.models.expert_layers import experts as experts_of
from dpsim.models.huggingface import read_config
from dpsim.models.precision import Optimizer
from dpsim.models.rates import NARROW, PRODUCTS, WIDE
from dpsim.models.split import tensor_part
from dpsim.models.streams import Streamed
from dpsim.models.updates import update_of
from dpsim.predict.player import play
from dpsim.predict.unused import unused

TOKENS, HIDDEN, HEADS = 512, 128, 8
SMALL: dict[str, Any] = {
    "model": {"name": "transformer", "hidden": 768, "blocks": 12, "heads": 12,
              "sequence_length": 1024},
    "cluster": {"machine": "dgx-a100", "ranks": 1},
    "strategy": {"kind": "ddp"},
    "precision": {"compute": "bf16"},
}  # fmt: skip


def case_of(**changes: Any) -> Case:
    data = {**SMALL, **changes}
    data["model"] = {**SMALL["model"], **changes.get("model", {})}
    return Case(load(data, Path(), "test").points[0], Path())


def time_of(**changes: Any) -> float:
    return play(case_of(**changes)).step_time


def block_of(
    family: Any, attention: Any, *, compiled: bool, autocast: bool = False, dtype: str = "bf16"
) -> dict[str, Layer]:
    """The halves of one block, by their last names."""
    sizes: Any = {"feed_forward": 352, "kv_heads": HEADS} if family == "llama" else {}
    made = Transformer(
        family=family, hidden=HIDDEN, blocks=1, heads=HEADS, sequence_length=TOKENS,
        attention=attention, **sizes,
    ).model()  # fmt: skip
    how = Execution(compile=compiled)
    run = executed(made, how, attention, None, dtype, autocast=autocast)
    return {layer.name.rpartition(".")[2]: layer for layer in run.layers if layer.unit}


def dispatched(block: Any, half: str, dtype: Any = torch.bfloat16) -> tuple[Dispatched, Dispatched]:
    """What torch dispatches for forward and backward of half a block."""
    x = torch.empty(1, TOKENS, HIDDEN, dtype=dtype, requires_grad=True, device="meta")
    with Dispatched() as ahead:
        y = getattr(block, half)(x)
    with Dispatched() as back:
        y.backward(torch.empty_like(y))
    return ahead, back


# -- counts and bytes are torch's -----------------------------------------------------------------


def torch_block(family: str, attention: str) -> Any:
    """A block of the family in torch, on the meta device."""
    with torch.device("meta"):
        mask = torch.empty(1, 1, TOKENS, TOKENS, dtype=torch.bool)
        kept = None if attention == "flash" else mask
        if family == "llama":
            return Llama(HIDDEN, HEADS, HEADS, 352, kept)
        return Gpt2(HIDDEN, HEADS, 4 * HIDDEN, kept, 0.1)


@pytest.mark.parametrize("half", ["attention", "mlp"])
@pytest.mark.parametrize("attention", ["flash", "eager"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_eager_kernels_are_those_that_torch_dispatches(
    family: str, attention: str, half: str
) -> None:
    """Launches one by one; bytes within 3 %, for rows of one number a token are left out."""
    own = block_of(family, attention, compiled=False)[half]
    block = torch_block(family, attention)
    ahead, back = dispatched(block.to(torch.bfloat16), "feed" if half == "mlp" else half)
    assert own.streamed is not None
    assert (own.kernels, own.launched_backward) == (len(ahead.ops), len(back.ops))
    assert 2 * own.streamed[0] == pytest.approx(ahead.moved, rel=0.03)
    assert 2 * own.streamed[1] == pytest.approx(back.moved, rel=0.03)


@pytest.mark.parametrize(
    ("half", "ahead", "back"), [("attention", 2 + 3, 6 + 2), ("mlp", 2 + 3, 6 + 1)]
)
def test_tensor_ranks_move_norms_and_residuals_whole_unless_they_split_the_sequence(
    half: str, ahead: int, back: int
) -> None:
    """Llama's compiled halves: a norm and a residual addition forward, the norm's two kernels and
    what gradients of one input are added up from backward, each so many widths of a token, are the
    same on every rank; all else, activations and rotary positions, is shared."""
    made = Transformer(
        family="llama", hidden=HIDDEN, blocks=1, heads=HEADS, kv_heads=HEADS, feed_forward=352,
        sequence_length=TOKENS, attention="flash",
    ).model()  # fmt: skip
    run = executed(made, Execution(compile=True), "flash", None, "bf16", autocast=False)
    alone, plain, split = (
        next(layer.streamed for layer in model.layers if layer.name.endswith(half))
        for model in (run, *(tensor_part(run, 4, sequence=sequence) for sequence in (False, True)))
    )
    assert alone is not None
    assert plain is not None
    assert split is not None
    assert tuple(split)[:2] == (alone.forward / 4, alone.backward / 4)
    assert plain.forward - split.forward == pytest.approx(ahead * HIDDEN * TOKENS * (1 - 1 / 4))
    assert plain.backward - split.backward == pytest.approx(back * HIDDEN * TOKENS * (1 - 1 / 4))


def test_splitting_the_sequence_brings_what_is_published() -> None:
    """Two blocks of the model of 22 B parameters of Korthikanti et al. (arXiv:2205.05198, table 4):
    a layer takes 19.6 ms on eight A100 and 19.0 ms where the ranks split the sequence too, 3 %
    less.  (The same layers without the embedding: the difference of three blocks and one.)"""

    def layers(sequence: bool) -> float:
        return time_blocks(3, sequence) - time_blocks(1, sequence)

    def time_blocks(blocks: int, sequence: bool) -> float:
        return time_of(
            model={"hidden": 6144, "blocks": blocks, "heads": 64, "sequence_length": 2048},
            cluster={"machine": "dgx-a100", "ranks": 8}, strategy={"kind": "megatron"},
            parallel={"tensor": 8, "sequence_parallel": sequence}, batch={"per_device": 4},
            precision={"parameters": "fp16", "compute": "fp16"},
        )  # fmt: skip

    assert layers(False) / layers(True) == pytest.approx(19.6 / 19.0, abs=0.03)


@pytest.mark.parametrize("half", ["attention", "mlp"])
@pytest.mark.parametrize("attention", ["flash", "eager"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_autocast_casts_at_every_product_and_keeps_the_stream_in_32_bit(
    family: str, attention: str, half: str
) -> None:
    """Launches one by one, bytes within 3 %, weights' casts among them."""
    own = block_of(family, attention, compiled=False, autocast=True)[half]
    block = torch_block(family, attention)
    with torch.device("meta"):
        block.cos = block.sin = torch.empty(1, 1, 1, HIDDEN // HEADS)
    with Autocast():
        ahead, back = dispatched(block, "feed" if half == "mlp" else half, torch.float32)
    assert own.streamed is not None
    assert (own.kernels, own.launched_backward) == (len(ahead.ops), len(back.ops))
    moved = [2 * (part + own.cast_weights) for part in own.streamed]
    assert moved[0] == pytest.approx(ahead.moved, rel=0.03)
    assert moved[1] == pytest.approx(back.moved, rel=0.03)


@pytest.mark.parametrize("half", ["attention", "mlp"])
@pytest.mark.parametrize("attention", ["flash", "eager"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_in_32_bit_nothing_is_widened(family: str, attention: str, half: str) -> None:
    """Launches one by one; bytes within 3 %."""
    own = block_of(family, attention, compiled=False, dtype="fp32")[half]
    block = torch_block(family, attention)
    ahead, back = dispatched(block, "feed" if half == "mlp" else half, torch.float32)
    assert own.streamed is not None
    assert (own.kernels, own.launched_backward) == (len(ahead.ops), len(back.ops))
    assert 4 * own.streamed[0] == pytest.approx(ahead.moved, rel=0.03)
    assert 4 * own.streamed[1] == pytest.approx(back.moved, rel=0.03)


@pytest.mark.parametrize(
    ("machine", "dtype", "share"), [("dgx-1v", "fp32", 0.84), ("dgx-a100", "tf32", 0.70)]
)
def test_products_in_32_bit_reach_a_share_of_their_own_beside_what_moves_memory(
    machine: str, dtype: Any, share: float
) -> None:
    """Sums are of 4,096 elements up and a few more down: 1 % beside FLOP / (peak x share)."""
    cluster = {"machine": machine, "ranks": 1}
    precision = {"parameters": "fp32", "compute": dtype}
    case = case_of(**{**LARGE, "cluster": cluster, "precision": precision})
    assert case.pace.efficiency() == share
    assert case.pace.at_rates
    device, layers = case.device, case.model.layers
    block = next(layer for layer in layers if layer.name.endswith("mlp"))
    assert device is not None
    assert block.streamed is not None
    moved = 8 * block.streamed.forward * 4 / (STREAMED * device.memory_bandwidth)
    products = 8 * block.forward_flop / (device.peak_for(dtype) * share)
    taken = case.pace.times(8)[layers.index(block)].forward
    assert taken - moved == pytest.approx(products, rel=0.02)


@pytest.mark.parametrize(("experts", "chosen", "inner"), [(8, 2, 352), (64, 6, 96)])
def test_experts_run_the_kernels_that_torch_dispatches(
    experts: int, chosen: int, inner: int
) -> None:
    """Router and experts together, launch by launch; bytes within 5 %: a gather of rows is told
    here by what it reads, and by torch with all rows that it reads from."""
    sizes = Routing(experts, chosen, inner)
    layers = [
        router(HIDDEN, sizes, "b", (Tensor("gate", (experts, HIDDEN)),), TOKENS),
        experts_of(HIDDEN, sizes, "b", (), TOKENS),
    ]
    made = Model(name="experts", layers=tuple(layers))
    run = executed(made, Execution(compile=False), "flash", None, "bf16").layers
    with torch.device("meta"):
        block = Mixture(HIDDEN, experts, chosen, inner).to(torch.bfloat16)
    ahead, back = dispatched(block, "feed")
    assert sum(layer.kernels for layer in run) == len(ahead.ops)
    assert sum(layer.launched_backward for layer in run) == len(back.ops)
    moved = [sum(2 * layer.streamed[k] for layer in run if layer.streamed) for k in (0, 1)]
    assert moved[0] == pytest.approx(ahead.moved, rel=0.05)
    assert moved[1] == pytest.approx(back.moved, rel=0.05)


def deepseek(query_rank: int, value: int, attention: Any) -> dict[str, Layer]:
    """The layers of a small block of DeepSeek-V3's kind, run eagerly, by their last names."""
    data = {
        "model_type": "deepseek_v3", "hidden_size": HIDDEN, "num_hidden_layers": 1,
        "num_attention_heads": HEADS, "q_lora_rank": query_rank, "kv_lora_rank": 32,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": value,
        "n_routed_experts": 256, "num_experts_per_tok": 6, "moe_intermediate_size": 96,
        "n_shared_experts": 1, "first_k_dense_replace": 0, "vocab_size": 100,
    }  # fmt: skip
    made = read_config(data, sequence_length=TOKENS, name="small", attention=attention)
    run = executed(made, Execution(compile=False), attention, None, "bf16")
    return {layer.name.rpartition(".")[2]: layer for layer in run.layers if layer.unit}


def assert_dispatched(layer: Layer, ahead: Dispatched, back: Dispatched, within: float) -> None:
    assert (layer.kernels, layer.launched_backward) == (len(ahead.ops), len(back.ops))
    assert layer.streamed is not None
    moved = [2 * (part + layer.cast_weights) for part in layer.streamed]
    assert moved[0] == pytest.approx(ahead.moved, rel=within)
    assert moved[1] == pytest.approx(back.moved, rel=within)


@pytest.mark.parametrize(
    ("query_rank", "value", "attention"), [(48, 24, "flash"), (0, 24, "flash"), (48, 16, "eager")]
)
def test_latent_attention_runs_the_kernels_that_torch_dispatches(
    query_rank: int, value: int, attention: str
) -> None:
    own = deepseek(query_rank, value, attention)["attention"]
    with torch.device("meta"):
        mask = torch.empty(1, 1, TOKENS, TOKENS, dtype=torch.bool)
        sizes = (HIDDEN, HEADS, query_rank, 32, 16, 8, value, 96)
        block = Latent(sizes, None if attention == "flash" else mask).to(torch.bfloat16)
    assert_dispatched(own, *dispatched(block, "attention"), within=0.03)


def test_a_choice_among_groups_runs_the_kernels_that_torch_dispatches() -> None:
    """Beside what is of groups, 3 % of the bytes here; sums of gradients belong to the block."""
    own = deepseek(48, 24, "flash")["router"]
    with torch.device("meta"):
        block = GroupChoice(HIDDEN, 256, 6, 8).to(torch.bfloat16)
    ahead, back = dispatched(block, "feed")
    back.ops += [("aten::add", 6 * TOKENS * HIDDEN)] * 2  # the residual's, and the experts'
    assert_dispatched(own, ahead, back, within=0.05)


def test_shared_experts_run_the_kernels_that_torch_dispatches() -> None:
    own = deepseek(48, 24, "flash")["shared"]
    with torch.device("meta"):
        block = Latent((HIDDEN, HEADS, 48, 32, 16, 8, 24, 96), None).to(torch.bfloat16)
    x = torch.empty(1, TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True, device="meta")
    with Dispatched() as ahead:
        y = block.feed(x, 2 * x)
    ahead.ops = ahead.ops[1:]  # the factor's, which stands for the other experts
    with Dispatched() as back:
        y.backward(torch.empty_like(y))
    back.ops = [op for op in back.ops if op[0] != "aten::mul" or op[1] > 4 * TOKENS * HIDDEN]
    assert_dispatched(own, ahead, back, within=0.03)


def test_what_casts_whole_modules_has_no_autocast() -> None:
    """DDP leaves fp32 parameters to autocast; FSDP casts them as it gathers."""
    precision = {"parameters": "fp32", "compute": "bf16"}
    kinds = [{"kind": "ddp"}, {"kind": "fsdp"}]
    how = {"execution": {"compile": False}, "precision": precision}
    cases = [case_of(strategy=kind, **how) for kind in kinds]
    cast = [sum(layer.cast_weights for layer in case.model.layers) for case in cases]
    assert cast[0] > 0 == cast[1]


#: launches, and bytes over 2 h per token, that inductor's schedule has for a block beside those of
#: the blocks around it, without products and flash attention's own bytes: `validation/kernels.py`
#: on torch 2.13, h = 1,024, s = 512.  Rotary positions are left out of forward: inductor writes
#: their halves for a processor, and joins them on a GPU.
INDUCTOR = {
    ("gpt2", "flash"): ((10, 19.0), (22, 42.1)),
    ("llama", "flash"): ((13, 20.5), (23, 39.6)),
}


@pytest.mark.parametrize(("family", "attention"), INDUCTOR)
def test_compiled_kernels_are_those_that_inductor_schedules(family: Any, attention: Any) -> None:
    """Within two kernels each way, and 8 % of the bytes."""
    sizes: Any = {"feed_forward": 3584, "kv_heads": 16} if family == "llama" else {}
    made = Transformer(
        family=family, hidden=1024, blocks=1, heads=16, sequence_length=512, **sizes
    ).model()
    run = executed(made, Execution(compile=True), attention, None, "bf16")
    own = [layer for layer in run.layers if layer.unit]
    turned = family == "llama"
    ahead = sum(layer.kernels for layer in own) - 2 * turned
    back = sum(layer.launched_backward for layer in own)
    moved = [sum(one.streamed[k] for one in own if one.streamed) / 512 / 1024 for k in (0, 1)]
    (launches, elements), (launches_back, elements_back) = INDUCTOR[family, attention]
    assert abs(ahead - launches) <= 2
    assert abs(back - launches_back) <= 2
    assert moved[0] - 4 * turned == pytest.approx(elements, rel=0.08)
    assert moved[1] == pytest.approx(elements_back, rel=0.08)


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("fused", [True, "foreach", "for_loop"])
def test_an_update_is_what_torchs_optimizer_dispatches(kind: Any, fused: Any) -> None:
    """Operations for every tensor or for all of them, and bytes; those on lists return nothing."""
    tensors = [torch.nn.Parameter(torch.ones(1000)) for _ in range(5)]
    way: Any = {"fused": True} if fused is True else {"foreach": fused == "foreach"}
    made: torch.optim.Optimizer = (
        torch.optim.AdamW(tensors, **way)
        if kind == "adam"
        else torch.optim.SGD(tensors, lr=0.1, momentum=0.9 * (kind == "momentum"), **way)
    )
    for _ in range(2):  # the first step makes the states
        for tensor in tensors:
            tensor.grad = torch.ones(1000)
        with Dispatched() as found:
            made.step()
    large = [(name, size) for name, size in found.ops if size >= 4000]
    layer = Layer(name="a", tensors=tuple(Tensor(f"t{k}", (1000,)) for k in range(5)))
    device = load_device("a100-sxm-80gb")
    own = update_of(Optimizer(kind=kind, fused=fused), Model(name="m", layers=(layer,)), device)
    assert own.launches == len(large)
    written = {True: {"sgd": 1, "momentum": 2, "adam": 3}[kind], "for_loop": 0}
    lists = written.get(fused, sum(name.endswith("_") for name, _ in large))
    moved = sum(size for _, size in large) + 20_000 * lists
    assert own.each * 5000 * STREAMED * device.memory_bandwidth == pytest.approx(moved, rel=0.01)


@pytest.mark.parametrize("fused", [None, True, "foreach", "for_loop"])
def test_what_a_wrapper_moves_comes_on_top_of_every_update(fused: Any) -> None:
    """32 bytes a parameter at the 0.8 of 900 GB/s that streaming kernels reach: 44 ps."""
    model = Model(name="m", layers=(Layer(name="a", tensors=(Tensor("t", (1000,)),)),))
    device = load_device("v100-sxm2-16gb")
    plain = update_of(Optimizer(fused=fused), model, device)
    wrapped = update_of(Optimizer(fused=fused, extra_bytes=32.0), model, device)
    assert wrapped.each - plain.each == pytest.approx(32 / 0.8 / 900e9, rel=1e-9)
    assert wrapped.launches == plain.launches
    assert update_of(Optimizer(extra_bytes=32.0), model, None).each == 0.0


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("drop", "pairs"), [(0.1, 7), (0.0, 6)])
def test_torch_saves_the_bytes_that_eager_attention_is_said_to_take(
    drop: float, pairs: int
) -> None:
    """A softmax in 32 bit, its cast or dropout's mask and output, beside flash attention's."""
    saved: dict[int, Any] = {}
    q, k, v = (torch.randn(1, 4, 32, 8, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        weights = torch.softmax(q @ k.transpose(2, 3), -1, dtype=torch.float32).to(q.dtype)
        if drop:
            weights = torch.native_dropout(weights, drop, True)[0]
        weights @ v
    scores = [x for x in saved.values() if x.numel() == 4 * 32 * 32]
    assert sum(x.untyped_storage().nbytes() for x in scores) == pairs * 4 * 32 * 32
    kinds = [gpt(kind, drop) for kind in ("eager", "flash")]
    more = [sum(layer.activations for layer in one.layers) for one in kinds]
    assert 2 * (more[0] - more[1]) == pairs * 4 * 32 * 32


def gpt(attention: str, drop: float) -> Model:
    """One block of GPT-2 with 4 heads and 32 tokens."""
    data = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 4, "vocab_size": 9,
            "n_positions": 32, "attn_pdrop": drop}  # fmt: skip
    kind: Any = attention
    return read_config(data, sequence_length=32, name="gpt", attention=kind)


# -- what it comes to -----------------------------------------------------------------------------


def test_compiling_takes_less_and_eager_attention_more() -> None:
    """GPT-2 on one A100, 12 sequences of 1,024 tokens with eager attention: some 250 ms a step
    eagerly and 135 ms compiled were told (karpathy/nanoGPT, README of January 2023).  What a
    compiler saves is what small kernels move; how much too fast both are lies in products."""
    own = {"batch": {"per_device": 12}, "model": {"attention": "eager"}}
    eager, compiled = (time_of(execution={"compile": kind}, **own) for kind in (False, True))
    assert eager - compiled == pytest.approx(0.250 - 0.135, rel=0.1)
    assert 0.7 < eager / 0.250 < 1
    flash = time_of(execution={"compile": True}, batch=own["batch"])
    assert flash < compiled


# -- a library, where nothing is said -------------------------------------------------------------

LARGE = {"model": {"hidden": 4096, "blocks": 2, "heads": 32}, "strategy": {"kind": "fsdp"}}


def test_a_library_moves_what_compiled_kernels_do() -> None:
    """FSDP casts whole modules, so that no autocast's casts are between the two."""
    plain, compiled = (case_of(**LARGE, **how) for how in ({}, {"execution": {"compile": True}}))
    assert plain.pace.efficiency() == PRODUCTS["ampere"]
    assert plain.pace.times(8) == compiled.pace.times(8)
    assert not plain.scenario.execution.kernelwise


@pytest.mark.parametrize(
    "changes",
    [
        {"compute": {"efficiency": 0.7}},
        {"precision": {"compute": "fp32"}},
        {"cluster": {"machine": "dgx-1p", "ranks": 1}, "precision": {"compute": "fp16"}},
        {"cluster": {"machine": "rack-10gbe", "device": "mi210", "ranks": 1}},
    ],
)
def test_where_no_products_were_measured_or_a_share_is_given_one_share_holds_for_all(
    changes: dict[str, Any],
) -> None:
    """t = FLOP / (peak x share): nothing is told of single kernels."""
    case = case_of(**{**LARGE, **changes})
    assert not any(layer.library for layer in case.model.layers)
    half = next(k for k, layer in enumerate(case.model.layers) if layer.unit)
    time, layer = case.pace.times(8)[half], case.model.layers[half]
    reached = case.pace.peak_of(0) * case.pace.efficiency()
    assert time.forward == pytest.approx(layer.forward_flop * 8 / reached)


@pytest.mark.parametrize("stored", ["as (outputs, inputs)", "as (inputs, outputs)", "tied"])
def test_narrow_sums_take_longer_by_what_tables_say(stored: str) -> None:
    """A matrix of 512 inputs and 1,024 outputs, 2,048 tokens, however it is stored and whoever's it
    is: forward sums over 512 elements, the gradient of its input over 1,024, that of its weights
    over 2,048."""
    device = replace(load_device("a100-sxm-80gb"), multiprocessors=0)  # nothing is idle
    kh, flop = NARROW["ampere"], 2.0 * 2048 * 512 * 1024
    swapped = stored == "as (inputs, outputs)"
    weight = Tensor("w", (512, 1024) if swapped else (1024, 512), transposed=swapped)
    tied = stored == "tied"
    layer = Layer(
        name="a", unit="0", tensors=() if tied else (weight,), streamed=Streamed(0.0, 0.0),
        kernels=0,
        forward_flop=flop, backward_flop=2 * flop, tied="table" if tied else None,
    )  # fmt: skip
    table = Layer(name="table", tensors=(weight,), forward_flop=0, backward_flop=0, kernels=0)
    layers = (table, layer) if tied else (layer,)
    time = layer_times(
        Model(name="m", layers=layers), device, "bf16", 1, 0.7, "none", shares=Shares(narrow=kh)
    )[-1]
    alone, wide = flop / (device.peak_for("bf16") * 0.7), 1 + kh / WIDE
    assert time.forward == pytest.approx(alone * (1 + kh / 512) / wide)
    assert time.backward == pytest.approx(alone * (2 + kh / 1024 + kh / 2048) / wide)


@pytest.mark.parametrize(("heads", "misses"), [(8, True), (10, False)])
def test_stored_scores_of_heads_no_multiple_of_eight_wide_miss_the_tensor_cores(
    heads: int, misses: bool
) -> None:
    """Heads 150 and 120 wide: all s^2 pairs, 4 FLOP each and element, at half of what an A100 does
    in fp32, in backward twice; in 32 bits they are as others."""
    device = load_device("a100-sxm-80gb")

    def attention(kernel: Any, dtype: str, **changes: Any) -> Any:
        made = Transformer(
            family="gpt2", hidden=1200, blocks=1, heads=heads, sequence_length=TOKENS,
            attention=kernel,
        ).model()  # fmt: skip
        run = executed(made, Execution(), kernel, device, dtype, rated=True)
        layers = tuple(replace(layer, **changes) for layer in run.layers)
        times = layer_times(replace(run, layers=layers), device, dtype, 64, 0.7, "none")
        names = [layer.name.rpartition(".")[2] for layer in layers]
        return times[names.index("attention")]

    for dtype, found in (("fp16", misses), ("tf32", False)):
        own, least = attention("math", dtype), attention("math", dtype, pace=(0.0, 0.0))
        longer = found * 64 * 4 * TOKENS**2 * 1200 / (0.5 * device.peak_for("fp32"))
        assert own.forward - least.forward == pytest.approx(longer, rel=1e-9, abs=1e-12)
        assert own.backward - least.backward == pytest.approx(2 * longer, rel=1e-9, abs=1e-12)


def test_products_of_gpt_2_sum_over_their_inputs() -> None:
    """Its first half has matrices of 768 inputs, its second one of 768 and one of 3,072."""
    read = {"wte.weight": 768, "attn.c_attn.weight": 768, "attn.c_proj.weight": 768,
            "mlp.c_fc.weight": 768, "mlp.c_proj.weight": 3072}  # fmt: skip
    found = {}
    for layer in case_of().model.layers:
        for t in layer.tensors:
            name = t.name.removeprefix("h.0.")
            if name in read:
                found[name] = t.shape[0] if t.transposed else t.shape[1]
    assert found == read


def test_eager_steps_of_small_batches_take_their_launches() -> None:
    """One sequence: the layers' kernels at 5 us each, however little they compute; a captured graph
    replays them in 1.34 us each."""
    small = {"batch": {"per_device": 1}, "model": {"sequence_length": 16}, "optimizer":
             {"kind": "none"}}  # fmt: skip
    case = case_of(execution={"compile": False}, **small)
    halves = [layer for layer in case.model.layers if layer.unit]
    launches = sum(layer.kernels + layer.launched_backward for layer in halves)
    assert launches == 12 * ((11 + 17) + (20 + 30))  # autocast's casts among them
    times = case.pace.times(1)
    found = [t.forward + t.backward for t, one in zip(times, case.model.layers, strict=True)
             if one.unit]  # fmt: skip
    assert sum(found) == pytest.approx(5e-6 * launches)
    graphs = time_of(execution={"compile": False, "cuda_graphs": True}, **small)
    assert graphs < 0.5 * time_of(execution={"compile": False}, **small)


def test_updates_one_tensor_at_a_time_are_bound_by_their_launches() -> None:
    """148 tensors of GPT-2, eight kernels each, at 8 us a launch."""
    own = {"host": {"launch": "8 us"}, "batch": {"per_device": 1}, "model": {"sequence_length": 16}}
    loop, fused = (
        time_of(optimizer={"kind": "adam", "fused": kind}, **own) for kind in ("for_loop", True)
    )
    tensors = sum(len(layer.tensors) for layer in case_of().model.layers)
    launches = 8 * tensors - 6  # six chunks of 20 million elements
    assert loop - fused == pytest.approx(8e-6 * launches, rel=0.01)


def test_graphs_need_no_host() -> None:
    """With the host's launches played, a captured step is one launch."""
    own = {"host": {"launch": "50 us"}, "model": {"sequence_length": 64}}
    slow = time_of(execution={"compile": True}, **own)
    assert time_of(execution={"compile": True, "cuda_graphs": True}, **own) < 0.4 * slow


@pytest.mark.parametrize(("tokens", "told"), [(1024, True), (16, False)])
def test_graphs_that_make_nothing_quicker_say_so(tokens: int, told: bool) -> None:
    """Large products take longer than launches; those of 16 tokens do not."""
    case = case_of(
        execution={"cuda_graphs": True}, batch={"per_device": 8 if told else 1},
        model={"sequence_length": tokens}, optimizer={"kind": "none"},
    )  # fmt: skip
    for one in (case, scaled(case, 1.5)):  # calibrated or not
        said = [text for text in unused(one) if "execution.cuda_graphs changes nothing" in text]
        assert bool(said) == told


def test_adapters_launch_kernels_of_their_own() -> None:
    """Four forward and eight backward for every matrix that is adapted."""
    own = {"execution": {"compile": False}, "batch": {"per_device": 1}}
    plain = case_of(**own).model.layers[1]
    adapters = {"adapters": {"rank": 8, "targets": ["c_attn", "c_proj"]}}
    lora = case_of(model=adapters, **own).model.layers[1]
    assert lora.kernels == plain.kernels + 8
    assert (
        lora.launched_backward == plain.launched_backward + 16 - 2
    )  # two frozen weights' gradients
    assert lora.streamed is not None
    assert plain.streamed is not None
    assert lora.streamed[0] > plain.streamed[0]


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": {"attention": "flash3"}, "execution": {"compile": True}}, "Hopper"),
        ({"model": {"attention": "efficient"}}, "say execution"),
        ({"execution": {"compile": True}, "host": {"launch": "5 us", "kernels": 0.5}},
         "leave it out"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        _ = case_of(**changes).model


def test_models_whose_kernels_are_not_counted_are_refused() -> None:
    data = {**SMALL, "model": {"name": "mask_rcnn"}, "execution": {"compile": True}}
    with pytest.raises(Refused, match="image networks of convolutions, not for mask_rcnn"):
        _ = Case(load(data, Path(), "test").points[0], Path()).model


@pytest.mark.parametrize("machine", ["dgx-a100", "dgx-h100", "dgx-b200"])
def test_xformers_attention_is_behind_flash_attention(machine: str) -> None:
    """Also on generations whose rates are not known."""

    def step(kind: str) -> float:
        data = {
            "model": {"huggingface": "llama-3-8b", "sequence_length": 4096, "attention": kind},
            "cluster": {"machine": machine, "ranks": 1},
            "strategy": {"kind": "ddp"},
            "precision": {"parameters": "bf16", "compute": "bf16"},
            "execution": {"compile": True},
        }
        return dpsim.predict(data).step_time_s

    assert step("efficient") > step("flash")
