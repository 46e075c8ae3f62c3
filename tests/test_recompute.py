"""What backward computes again: torch's own checkpoints, and the parts of ranks that split it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from dpsim.cases.case import Case
from dpsim.compile.host import issue_times
from dpsim.describe.scenario import load
from dpsim.machines.machine import load_device
from dpsim.models import Model
from dpsim.models.architectures.transformer import Transformer
from dpsim.models.compute import layer_times
from dpsim.models.huggingface import read_config
from dpsim.models.named import load_named
from dpsim.models.recomputing import Recompute, flop_again
from dpsim.models.split import tensor_part
from dpsim.predict.unused import unused

WIDTH, INNER, HEADS, TOKENS, SAMPLES = 64, 176, 4, 32, 2


class Block(nn.Module):
    """A block of torch's own modules: Llama's if `gated`, else GPT-2's with a `dropout`; a norm is
    `behind` its feed-forward part as in Olmo 2."""

    def __init__(self, *, gated: bool, dropout: float, behind: bool) -> None:
        super().__init__()
        self.gated, self.dropout, self.behind = gated, dropout, behind
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.gate, self.up = (nn.Linear(WIDTH, INNER) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        heads = (p(y).view(SAMPLES, TOKENS, HEADS, -1).transpose(1, 2) for p in self.qkv)
        y = functional.scaled_dot_product_attention(*heads, is_causal=True)
        y = self.out(y.transpose(1, 2).reshape(x.shape))
        x = x + functional.dropout(y, self.dropout)
        y = self.up(self.norms[1](x))
        y = functional.silu(self.gate(self.norms[1](x))) * y if self.gated else functional.gelu(y)
        y = self.norms[2](self.down(y)) if self.behind else self.down(y)
        return x + functional.dropout(y, self.dropout)


def run(block: Block, *, reentrant: bool) -> int:
    """FLOP of a checkpointed block's passes, as torch counts them."""
    x = torch.randn(SAMPLES, TOKENS, WIDTH, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    return counter.get_total_flops()


def again(model: Model, recompute: Recompute) -> float:
    return SAMPLES * flop_again(model.layers, recompute)


def olmo() -> Model:
    """Olmo 2 in the shape of `Block`."""
    config = {
        "model_type": "olmo2", "hidden_size": WIDTH, "num_hidden_layers": 1, "vocab_size": 50,
        "num_attention_heads": HEADS, "intermediate_size": INNER, "max_position_embeddings": TOKENS,
    }  # fmt: skip
    return read_config(config, sequence_length=TOKENS, name="olmo")


def shaped(family: Any) -> Model:
    return Transformer(
        hidden=WIDTH, blocks=1, heads=HEADS, sequence_length=TOKENS, family=family,
        feed_forward=INNER, vocabulary=50,
    ).model()  # fmt: skip


@pytest.mark.parametrize(("family", "spares"), [("llama", 1), ("gpt2", 0), ("olmo2", 0)])
def test_torch_stops_computing_again_before_the_last_product_of_a_block_without_dropout(
    family: str, spares: int
) -> None:
    """What the two checkpoints of torch do differs by as many FLOP as the two values say."""
    dropout, behind = 0.1 * (family == "gpt2"), family == "olmo2"
    block = Block(gated=family != "gpt2", dropout=dropout, behind=behind)
    spared = run(block, reentrant=True) - run(block, reentrant=False)
    model = olmo() if behind else shaped(family)
    assert again(model, "full") - again(model, "full_early_stop") == spared
    assert spared == spares * 2 * SAMPLES * TOKENS * WIDTH * INNER


@pytest.mark.parametrize("recompute", ["selective", "selective_op", "full", "full_early_stop"])
@pytest.mark.parametrize("sequence", [False, True])
def test_tensor_ranks_compute_their_part_again(recompute: Recompute, sequence: bool) -> None:
    """All ranks together do again what one would."""
    model = Transformer(
        hidden=WIDTH, blocks=2, heads=HEADS, sequence_length=TOKENS, family="llama",
        attention="math", feed_forward=INNER,
    ).model()  # fmt: skip
    part = tensor_part(model, 4, sequence=sequence)
    assert 4 * again(part, recompute) == pytest.approx(again(model, recompute))
    assert again(model, recompute) > 0


def test_what_is_left_out_takes_no_time_and_no_kernel() -> None:
    """Backward is shorter by the last product, and by two kernels: that product and an addition."""
    model, device = load_named("llama-3-8b", 4096), load_device("a100-sxm-80gb")
    full, early = (
        layer_times(model, device, "bf16", 2, 0.7, way) for way in ("full", "full_early_stop")
    )
    issued = [issue_times(model, 1.0, 1.0, way) for way in ("full", "full_early_stop")]
    for k, layer in enumerate(model.layers):
        spared = 2 * layer.last_flop / (0.7 * device.peak_for("bf16"))
        assert full[k].backward - early[k].backward == pytest.approx(spared, abs=1e-12)
        assert full[k].again - early[k].again == pytest.approx(spared, abs=1e-12)
        kernels = issued[0][k].backward - issued[1][k].backward
        assert kernels == 2 * (layer.last_flop > 0)
    assert sum(layer.last_flop > 0 for layer in model.layers) == 32


def stops(**changes: Any) -> set[bool]:
    """Whether the feed-forward parts of a Llama 3 8B end before their last product."""
    data = {
        "model": {"huggingface": "llama-3-8b", "sequence_length": 512},
        "cluster": {"machine": "dgx-h100", "ranks": 8}, "strategy": {"kind": "fsdp"},
        "precision": {"parameters": "bf16", "compute": "bf16"}, "batch": {"per_device": 1},
        **changes,
    }  # fmt: skip
    model = Case(load(data, Path(), "toy").points[0], Path()).model
    return {layer.last_flop > 0 for layer in model.layers if layer.name.endswith("mlp")}


def test_a_product_that_torch_does_not_know_from_inside_is_computed_again() -> None:
    """Products in 8 bits are functions of their own, unless they are compiled."""
    eight = {"parameters": "bf16", "compute": "fp8"}
    assert stops() == {True}
    assert stops(precision=eight) == {False}
    assert stops(precision=eight, execution={"compile": True}) == {True}
    assert stops(model=tuned("q_proj")) == {True}
    assert stops(model=tuned("down_proj")) == {False}
    assert stops(model=tuned("q_proj", base_dtype="nf4")) == {False}


def tuned(target: str, **more: str) -> dict[str, Any]:
    """A Llama 3 8B with adapters beside one of its matrices."""
    adapters = {"kind": "lora", "rank": 8, "targets": [target], **more}
    return {"huggingface": "llama-3-8b", "sequence_length": 512, "adapters": adapters}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(
    ("recompute", "gathers", "scatters"),
    [("none", 4, 4), ("selective_op", 6, 4), ("full", 6, 6), ("full_early_stop", 6, 5)],
)
def test_what_is_computed_again_is_exchanged_again_as_far_as_it_goes(
    recompute: str, gathers: int, scatters: int, beside: bool
) -> None:
    """Two halves of a block exchange before and behind each pass of theirs, the head before its
    own two: by operator no sum is made again, and with an early stop not the block's last."""
    shape = {"name": "transformer", "hidden": 64, "blocks": 1, "heads": 4, "sequence_length": 32}
    data: dict[str, Any] = {
        "model": {**shape, "family": "llama"},
        "cluster": {"machine": "dgx-h100", "ranks": 2},
        "strategy": {"kind": "fsdp"},
        "parallel": {"tensor": 2, "sequence_parallel": True, "async_tensor_parallel": beside},
        "batch": {"per_device": 1},
        "recompute": recompute,
    }
    case = Case(load(data, Path(), "toy").points[0], Path())
    (program,) = case.programs.cast(None).programs
    found: Counter[str] = Counter()
    for op in program.ops:
        if op.group.startswith("tensor"):
            found[op.operation] += op.repeats
    outside = Counter(all_gather=2, reduce_scatter=2)  # embedding and head
    block = found - outside
    assert (block["all_gather"], block["reduce_scatter"]) == (gathers, scatters)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"huggingface": "llama-3-8b", "sequence_length": 512}, False),
        ({"huggingface": "mixtral-8x7b-v0.1", "sequence_length": 512}, True),
        ({"huggingface": "t5-large", "sequence_length": 512}, True),
    ],
)
def test_blocks_without_such_a_product_are_told_of(model: dict[str, Any], told: bool) -> None:
    data = {
        "model": model,
        "cluster": {"machine": "dgx-h100", "ranks": 8},
        "strategy": {"kind": "fsdp"},
        "batch": {"per_device": 1},
        "recompute": "full_early_stop",
    }
    said = list(unused(Case(load(data, Path(), "toy").points[0], Path())))
    assert [text for text in said if "full_early_stop is full here" in text] == said
    assert bool(said) == told
