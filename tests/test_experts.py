"""Models with sparse experts: exact parameters, and what one token passes.

Counts of bundled files are in tests/test_models.py; those here are what other programs count, or
what published dimensions give by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dpsim.models
from dpsim.core.record import Refused
from dpsim.models import Model
from dpsim.models.architectures.transformer import Transformer
from dpsim.models.huggingface import read_config

CONFIGS = Path(dpsim.models.__file__).parent / "configs"

#: public dimensions of models whose files are not bundled
OLMOE: dict[str, Any] = {
    "model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16,
    "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 64,
    "num_experts_per_tok": 8, "vocab_size": 50304,
}  # fmt: skip
DBRX: dict[str, Any] = {
    "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352,
    "attn_config": {"kv_n_heads": 8, "clip_qkv": 8},
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
}  # fmt: skip
QWEN2: dict[str, Any] = {
    "model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24,
    "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 5632,
    "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60,
    "num_experts_per_tok": 4, "vocab_size": 151936,
}  # fmt: skip
MINIMAX: dict[str, Any] = {
    "model_type": "minimax_m2", "hidden_size": 3072, "intermediate_size": 1536, "head_dim": 128,
    "num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8,
    "num_local_experts": 256, "num_experts_per_tok": 8, "vocab_size": 200064,
}  # fmt: skip
V2_LITE: dict[str, Any] = {
    "model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944,
    "moe_intermediate_size": 1408, "num_hidden_layers": 27, "first_k_dense_replace": 1,
    "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
    "num_attention_heads": 16, "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102400,
}  # fmt: skip
KIMI_K2: dict[str, Any] = {
    "model_type": "kimi_k2", "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "first_k_dense_replace": 1,
    "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "num_attention_heads": 64, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 163840,
}  # fmt: skip
GLM: dict[str, Any] = {
    "model_type": "glm4_moe", "hidden_size": 5120, "num_hidden_layers": 92,
    "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 12288, "moe_intermediate_size": 1536, "n_routed_experts": 160,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "use_qk_norm": True, "attention_bias": True, "vocab_size": 151552,
}  # fmt: skip


def read(config: dict[str, Any], tokens: int = 512) -> Model:
    return read_config(config, sequence_length=tokens, name="m")


def bundled(name: str, **changed: Any) -> Model:
    return read(json.loads((CONFIGS / f"{name}.json").read_text()) | changed)


@pytest.mark.parametrize(
    ("config", "total"),
    [
        (OLMOE, 6_919_161_856),
        (DBRX, 131_596_523_520),
        (QWEN2, 14_315_784_192),
        (V2_LITE, 15_706_484_224),
        (KIMI_K2, 1_026_408_232_448),
        (MINIMAX, 228_689_748_992),
        (GLM, 352_797_814_784),
    ],
    ids=[
        "OLMoE-1B-7B", "DBRX", "Qwen1.5-MoE-A2.7B", "DeepSeek-V2-Lite", "Kimi-K2", "MiniMax-M2",
        "GLM-4.5",
    ],
)  # fmt: skip
def test_parameters_are_those_of_transformers(config: dict[str, Any], total: int) -> None:
    """As transformers 4.57.1 (MiniMax-M2, GLM-4.5: 5.23) counts models of these dimensions on
    torch's meta device; of Kimi-K2 with the biases of its routers (60 x 384), buffers there and in
    its files."""
    assert read(config).parameters == total


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("mixtral-8x7b-v0.1", 12_879_925_248),
        ("qwen3-30b-a3b", 3_353_032_704),
        ("deepseek-v3", 37_552_297_472),
        ("gpt-oss-20b", 4_187_440_704),
        ("gpt-oss-120b", 5_711_982_912),
        ("qwen3-235b-a22b", 22_190_763_520),
        ("gemma-4-26b-a4b", 3_822_530_560),
    ],
)
def test_a_token_passes_the_experts_that_it_is_sent_to(name: str, active: int) -> None:
    assert bundled(name).active == active


def test_a_transformer_by_its_dimensions_may_have_mixtrals_experts() -> None:
    same: dict[str, Any] = {"hidden": 4096, "blocks": 32, "heads": 32, "sequence_length": 512}
    same |= {"family": "llama", "kv_heads": 8, "feed_forward": 14336, "vocabulary": 32000}
    own = Transformer(**same, experts=8, experts_per_token=2).model()
    mixtral = bundled("mixtral-8x7b-v0.1")
    assert own.parameters == mixtral.parameters
    assert own.flop_per_sample() == mixtral.flop_per_sample()
    with pytest.raises(Refused, match="3 of 2 experts"):
        Transformer(**same, experts=2, experts_per_token=3)
    with pytest.raises(Refused, match="gpt2 has none here; llama may have"):
        Transformer(**same | {"family": "gpt2", "kv_heads": None}, experts=8)


def test_arithmetic_is_that_of_the_chosen_experts() -> None:
    """6 FLOP per active matrix element and token, the embedding's apart, and attention's."""
    model = bundled("mixtral-8x7b-v0.1")
    norms = (2 * 32 + 1) * 4096
    matrices = model.active - 32000 * 4096 - norms
    attention = 3 * 32 * 4 * 32 * 128 * 512 / 2
    assert model.flop_per_sample() == 512 * (6 * matrices + attention)


def test_gemma_4_counts_by_formula() -> None:
    """Google says 25.2 billion, of which a token takes 3.8: every sixth block looks at all tokens,
    with heads twice as wide, two of keys, and no values of their own."""
    v, h, blocks, f, e, m = 262144, 2816, 30, 2112, 128, 704
    near = 2 * h * 16 * 256 + 2 * h * 8 * 256 + 2 * 256
    far = 2 * h * 16 * 512 + h * 2 * 512 + 2 * 512
    half = 3 * h * f + 7 * h + 3 * h * m * e + h * e + h + e
    model = bundled("gemma-4-26b-a4b")
    assert model.parameters == v * h + h + 25 * near + 5 * far + blocks * half


def test_what_small_gemma_4_have_is_refused_by_name() -> None:
    for key in ("hidden_size_per_layer_input", "num_kv_shared_layers"):
        with pytest.raises(Refused, match="is not modelled; only 0 is") as error:
            bundled("gemma-4-26b-a4b", **{key: 18})
        assert error.value.path == (key,)


@pytest.mark.parametrize(
    ("name", "tokens", "sequences", "counted"),
    [
        # chips x seconds x TFLOP/s of a step (AI-Hypercomputer/tpu-recipes at c8cfe2f6)
        ("gemma-4-26b-a4b", 4096, 2048, 64 * 5.54 * 592.31e12),
        ("gpt-oss-120b", 8192, 1280, 64 * 17.1 * 330.25e12),
        ("qwen3-235b-a22b", 4096, 8192, 256 * 30.87 * 629.79e12),
    ],
)
def test_arithmetic_is_what_maxtext_counts(
    name: str, tokens: int, sequences: int, counted: float
) -> None:
    model = read(json.loads((CONFIGS / f"{name}.json").read_text()), tokens)
    assert sequences * model.flop_per_sample() == pytest.approx(counted, rel=0.003)


def test_more_experts_to_choose_from_take_no_more_arithmetic() -> None:
    few, many = (bundled("qwen3-30b-a3b", num_experts=n) for n in (64, 128))
    router = 48 * 6 * 512 * 64 * 2048
    assert many.flop_per_sample() - few.flop_per_sample() == router


def test_a_file_that_a_newer_transformers_wrote_is_the_same_model() -> None:
    """Version 5 calls Qwen3's experts `num_local_experts`, and a window that is not used 0."""
    file = json.loads((CONFIGS / "qwen3-30b-a3b.json").read_text())
    count = file.pop("num_experts")
    assert read(file | {"num_local_experts": count}) == bundled("qwen3-30b-a3b")
    assert read(QWEN2 | {"use_sliding_window": False, "sliding_window": 0}) == read(QWEN2)


def test_a_head_of_qwen3_with_experts_that_is_not_said_is_its_share() -> None:
    """2,048 elements of 32 heads: 64 each, where Qwen3's without experts have 128."""
    file = json.loads((CONFIGS / "qwen3-30b-a3b.json").read_text())
    del file["head_dim"]
    half = bundled("qwen3-30b-a3b", head_dim=64)
    assert read(file).parameters == half.parameters


def test_modules_that_predict_further_tokens_have_11_5_billion_parameters_of_their_own() -> None:
    """deepseek-ai/DeepSeek-V3 README_WEIGHTS.md: 11.5 billion of their own beside the main model's
    embedding and head, 0.9 billion each, so that 685 billion are stored with both copied."""
    config = json.loads((CONFIGS / "deepseek-v3.json").read_text())
    main, both = read(config), read_config(config, sequence_length=512, name="m", multi_token=True)
    own = both.parameters - main.parameters
    assert 11.5e9 <= own < 11.65e9
    tables = 2 * 129280 * 7168
    assert (both.parameters + tables) / 1e9 == pytest.approx(685, abs=0.6)
    heads = [layer for layer in both.layers if layer.logits]
    assert [layer.tied for layer in heads] == [None, "lm_head"]


def test_further_tokens_are_asked_of_those_that_have_modules_for_them() -> None:
    config = json.loads((CONFIGS / "llama-3-8b.json").read_text())
    with pytest.raises(Refused, match="multi_token: llama has no use for it"):
        read_config(config, sequence_length=512, name="m", multi_token=True)
    with pytest.raises(Refused, match="num_nextn_predict_layers: is missing"):
        read_config(V2_LITE, sequence_length=512, name="m", multi_token=True)


def test_dense_blocks_stand_where_the_file_says() -> None:
    sparse = [layer.name for layer in read(V2_LITE).layers if layer.experts]
    assert sparse[0] == "layers.1.experts"
    assert len(sparse) == 26
    every = bundled("qwen3-30b-a3b", decoder_sparse_step=2, mlp_only_layers=[1])
    names = [layer.name for layer in every.layers if layer.experts]
    assert names[:2] == ["layers.3.experts", "layers.5.experts"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"num_experts_per_tok": 9}, "num_experts_per_tok: 9 of 8 experts"),
        ({"num_local_experts": 0}, "num_local_experts: 0 is not in 1"),
        ({"num_local_experts": None}, "num_local_experts: is missing"),
    ],
)
def test_impossible_experts_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        bundled("mixtral-8x7b-v0.1", **changed)
