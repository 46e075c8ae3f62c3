"""Families with rotary positions: Llama and those that differ from it in little."""

from __future__ import annotations

from dataclasses import replace

from dpsim.core.lean import dataclass
from dpsim.models import Tensor
from dpsim.models.huggingface.config import Config
from dpsim.models.huggingface.tensors import Parts, linear, norm
from dpsim.models.transformer_layers import Block, attention, embedding, final_norm, head, mlp


@dataclass(frozen=True)
class Rotary:
    """What distinguishes one rotary family from Llama.

    bias      "none"; "qkv" (always on q, k and v); "option" (`attention_bias`: q, k, v and o), or
              "qkv option" (of these q, k and v alone)
    kv        whether `num_key_value_heads` may be left out (then it is the number of heads)
    head_dim  size of a head where the file names none; 0: hidden_size / num_attention_heads
    window    blocks with a sliding window: "none", "all", "even", "late" (`use_sliding_window`,
              from block `max_window_layers` on), "named" (in `layer_types`; else the even ones), or
              "fourth" or "sixth" (named, else all but every fourth or sixth, or as
              `sliding_window_pattern` says)
    wide      whether the norms of queries and keys span all heads
    behind    whether the norm of a half stands behind it, not before
    """

    bias: str = "none"
    kv: bool = False
    head_dim: int = 0
    mlp_bias: bool = False
    fused: bool = False
    head_norms: bool = False
    norms: int = 1
    tied: bool = False
    window: str = "none"
    wide: bool = False
    behind: bool = False


_OLMO = Rotary(bias="option", kv=True, head_norms=True, wide=True, behind=True)
FAMILIES = {
    "llama": Rotary(bias="option", kv=True, mlp_bias=True),
    "mistral": Rotary(window="all"),
    "qwen2": Rotary(bias="qkv", window="late"),
    "qwen3": Rotary(bias="option", head_dim=128, head_norms=True, window="late"),
    "phi3": Rotary(kv=True, fused=True, window="all"),
    "gemma": Rotary(bias="option", head_dim=256, tied=True),
    "gemma2": Rotary(bias="option", head_dim=256, norms=2, tied=True, window="even"),
    "gemma3_text": Rotary(
        bias="option", head_dim=256, norms=2, head_norms=True, tied=True, window="sixth"
    ),
    "granite": Rotary(bias="option", kv=True, mlp_bias=True),
    "olmo2": _OLMO,
    "olmo3": replace(_OLMO, window="fourth"),
    "smollm3": Rotary(bias="option", kv=True, mlp_bias=True, tied=True, window="none"),
}


def rotary(family: Rotary, config: Config) -> Parts:
    """A model of `family`."""
    block, s = block_of(family, config), config.tokens
    h, vocabulary = block.hidden, config.size("vocab_size")
    table = (Tensor("embed_tokens.weight", (vocabulary, h)),)
    layers = [embedding("embed_tokens", h, table, s, dropout=False, lookups=1)]
    for i in range(config.layers("num_hidden_layers")):
        seen = replace(block, window=window(family, config, i))
        unit = f"layers.{i}"
        layers.append(attention(seen, unit, attention_tensors(family, config, block, unit), s))
        layers.append(mlp(seen, unit, mlp_tensors(family, config, block, unit), s))
    layers.append(final_norm("norm", h, norm("norm", h, bias=False), s))
    tied = "embed_tokens" if config.flag("tie_word_embeddings", family.tied) else None
    layers.append(head("lm_head", h, vocabulary, s, tied=tied))
    return tuple(layers), ()


def block_of(family: Rotary, config: Config) -> Block:
    """The dimensions of its blocks."""
    h, heads = config.size("hidden_size"), config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", default=heads if family.kv else None)
    config.share(heads, kv_heads, "num_attention_heads", "num_key_value_heads")
    if config.data.get("head_dim") is not None:
        head_dim = config.size("head_dim")
    elif family.head_dim:
        head_dim = family.head_dim
    else:
        head_dim = config.share(h, heads, "hidden_size", "num_attention_heads")
    return Block(
        h, heads, kv_heads, head_dim, config.size("intermediate_size"),
        gated=True, rotary=True, dropout=family.fused and config.dropout("resid_pdrop", 0.0),
        products=1 if family.fused else 3, norms=family.norms, head_norms=family.head_norms,
        stored=config.stored, wide=config.wide, normed=family.behind,
        score_dropout=config.dropout("attention_dropout", 0.0),
    )  # fmt: skip


def window(family: Rotary, config: Config, index: int) -> int:
    """Tokens that block `index` looks back at; 0 for all."""
    width = config.count("sliding_window")
    if family.window == "none" or not width:
        return 0
    if family.window == "late":
        used = config.flag("use_sliding_window", False)
        return width if used and index >= config.size("max_window_layers") else 0
    kinds = config.data.get("layer_types")
    every = {"fourth": 4, "sixth": 6}.get(family.window, 0)
    named = family.window == "named" or every
    if named and isinstance(kinds, list) and index < len(kinds):
        return width if kinds[index] == "sliding_attention" else 0
    if every:
        every = config.size("sliding_window_pattern", default=every)
        return width if (index + 1) % every else 0
    return 0 if family.window in ("even", "named") and index % 2 else width


def attention_tensors(
    family: Rotary, config: Config, block: Block, unit: str
) -> tuple[Tensor, ...]:
    """The tensors of the attention half, and the norms that belong to it."""
    h, path = block.hidden, f"{unit}.self_attn"
    query, key = block.heads * block.head_dim, block.kv_heads * block.head_dim
    option = family.bias == "option" and config.flag("attention_bias", False)
    asked = family.bias == "qkv option" and config.flag("attention_bias", False)
    qkv = option or asked or family.bias == "qkv"
    if family.fused:
        tensors = linear(f"{path}.o_proj", h, query, bias=option)
        tensors += linear(f"{path}.qkv_proj", query + 2 * key, h, bias=qkv)
    else:
        tensors = ()
        for part, width in (("q", query), ("k", key), ("v", key)):
            tensors += linear(f"{path}.{part}_proj", width, h, bias=qkv)
        tensors += linear(f"{path}.o_proj", h, query, bias=option)
    if family.head_norms:
        sizes = (query, key) if family.wide else (block.head_dim, block.head_dim)
        for part, size in zip(("q_norm", "k_norm"), sizes, strict=True):
            tensors += norm(f"{path}.{part}", size, bias=False)
    names: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    names = names[1:] if family.behind else names[: family.norms]
    return tensors + tuple(Tensor(f"{unit}.{name}.weight", (h,)) for name in names)


def mlp_tensors(family: Rotary, config: Config, block: Block, unit: str) -> tuple[Tensor, ...]:
    """The tensors of a dense feed-forward half, and the norms that belong to it."""
    h, f, path = block.hidden, block.ffn, f"{unit}.mlp"
    bias = family.mlp_bias and config.flag("mlp_bias", False)
    if family.fused:
        tensors = linear(f"{path}.gate_up_proj", 2 * f, h, bias=bias)
    else:
        tensors = linear(f"{path}.gate_proj", f, h, bias=bias)
        tensors += linear(f"{path}.up_proj", f, h, bias=bias)
    tensors += linear(f"{path}.down_proj", h, f, bias=bias)
    names: tuple[str, ...] = ("post_attention_layernorm",)
    if family.behind:
        names = ("post_feedforward_layernorm",)
    if family.norms == 2:
        names = ("pre_feedforward_layernorm", "post_feedforward_layernorm")
    return tensors + tuple(Tensor(f"{unit}.{name}.weight", (h,)) for name in names)
