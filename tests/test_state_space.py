"""Models with state-space layers: exact parameters, the scan's work, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import dpsim.models
from dpsim.compile.context import Context, splitting
from dpsim.core.record import Refused
from dpsim.models import Model
from dpsim.models.architectures.resnet50 import ResNet50
from dpsim.models.huggingface import read_config
from dpsim.models.split import accept_tensor, tensor_part
from dpsim.models.state_space_layers import Scan

CONFIGS = Path(dpsim.models.__file__).parent / "configs"
NANO: dict[str, Any] = json.loads((CONFIGS / "nemotron-3-nano-30b-a3b.json").read_text())
#: public dimensions of models whose files are not bundled, by what differs
SUPER: dict[str, Any] = {
    **NANO, "hidden_size": 4096, "mamba_num_heads": 128, "n_routed_experts": 512,
    "num_experts_per_tok": 22, "moe_latent_size": 1024, "moe_intermediate_size": 2688,
    "moe_shared_expert_intermediate_size": 5376, "num_hidden_layers": 88,
    "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*"
    "EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
}  # fmt: skip
DENSE: dict[str, Any] = {
    "model_type": "nemotron_h", "attention_head_dim": 128, "hidden_size": 8192,
    "intermediate_size": 32768, "mamba_head_dim": 64, "mamba_num_heads": 256, "n_groups": 8,
    "num_attention_heads": 64, "num_key_value_heads": 8, "ssm_state_size": 256,
    "vocab_size": 131072, "num_hidden_layers": 118,
    "hybrid_override_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-",
}  # fmt: skip
MAMBA2: dict[str, Any] = {
    "model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "num_heads": 80,
    "head_dim": 64, "n_groups": 1, "state_size": 128, "vocab_size": 50288,
    "tie_word_embeddings": True,
}  # fmt: skip
SMALL = {**NANO, "hybrid_override_pattern": "ME*-", "num_hidden_layers": 4}


def read(config: dict[str, Any], tokens: int = 512) -> Model:
    return read_config(config, sequence_length=tokens, name="m")


@pytest.mark.parametrize(
    ("config", "total"),
    [
        (NANO, 31_577_937_344),
        (SUPER, 120_668_687_360),
        (DENSE, 56_324_350_464),
        (MAMBA2, 2_702_599_680),
    ],
    ids=["Nemotron-3-Nano", "Nemotron-3-Super", "Nemotron-H-56B", "Mamba2-2.7B"],
)
def test_parameters_are_those_of_transformers(config: dict[str, Any], total: int) -> None:
    """As transformers 5.23 counts them on the meta device, without multi-token prediction."""
    assert read(config).parameters == total


def test_blocks_by_words_are_blocks_by_letters() -> None:
    words = ["mamba", "moe", "attention", "mlp"]
    by_words = {k: v for k, v in SMALL.items() if k != "hybrid_override_pattern"}
    assert read({**by_words, "layers_block_type": words}) == read(SMALL)


def test_the_scan_multiplies_what_torch_counts() -> None:
    """The four products of listing 1 of arXiv:2405.21060, with B and C shared by groups."""
    shape, tokens = Scan(64, 8, 16, 32, 2, 4, 64), 512
    chunks, g, n, q = tokens // 64, 2, 32, 64
    with torch.device("meta"):
        b, c = torch.empty(chunks, g, q, n), torch.empty(chunks, g, q, n)
        x, states = torch.empty(chunks, g, q, 4 * 16), torch.empty(chunks, g, n, 4 * 16)
        own = torch.empty(chunks, 8, q, 16)
        with FlopCounterMode(display=False) as counted:
            scores = c @ b.transpose(-1, -2)
            _ = scores.repeat_interleave(4, 1) @ own
            _ = b.transpose(-1, -2) @ x
            _ = c @ states
    assert shape.scanned(tokens) == counted.get_total_flops()


def test_a_scan_is_linear_in_the_sequence_and_attention_is_not() -> None:
    short, long = read(SMALL, 4096), read(SMALL, 8192)
    work = {
        layer.name.split(".", 2)[-1]: (layer.forward_flop, other.forward_flop)
        for layer, other in zip(short.layers, long.layers, strict=True)
    }
    one, two = work["mixer"]
    assert two == 2 * one
    one, two = work["attention"]
    assert two > 2.5 * one


def test_latent_experts_are_sent_their_own_width() -> None:
    """1,024 of 4,096 elements of a token travel, and two matrices of an expert are passed."""
    layer = next(layer for layer in read(SUPER).layers if layer.experts)
    assert layer.routed == 512 * 1024
    assert layer.parameters == 512 * 2 * 1024 * 2688
    assert layer.forward_flop == 2 * 512 * 22 * 2 * 1024 * 2688


def test_a_sequence_of_one_token_is_split_and_an_image_is_not() -> None:
    """By what a model is made of, not by how long its sequences are."""
    llama = json.loads((CONFIGS / "llama-3-8b.json").read_text())
    accept_tensor(read(llama, 1), 8)
    with pytest.raises(Refused, match="resnet50 is not split: tensor parallelism is modelled for"):
        accept_tensor(ResNet50().model(), 2)


def test_ranks_share_heads_and_groups_of_a_scan() -> None:
    model = read(SMALL)
    accept_tensor(model, 2)
    with pytest.raises(Refused, match="64 heads and 8 groups of the scan of m do not split"):
        accept_tensor(model, 16)
    part = tensor_part(model, 2, sequence=True)
    assert part.layers[1].forward_flop == model.layers[1].forward_flop / 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hybrid_override_pattern": "MX*-"}, "'X' is none of"),
        ({"num_hidden_layers": 5}, "contradicts"),
        ({"hybrid_override_pattern": None}, "is missing"),
        ({"mlp_hidden_act": "silu"}, "only 'relu2' is"),
        ({"n_groups": 7}, "does not divide"),
    ],
)
def test_what_is_no_such_model_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        read({**SMALL, **changed})


def test_sequences_of_a_scan_are_not_split() -> None:
    with pytest.raises(Refused, match="hand a state from token to token"):
        splitting(Context(), read(SMALL), 2, 1, None, torch=False)
