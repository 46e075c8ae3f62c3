"""Models from Hugging Face `config.json` files: sizes in, layers out.

`read_config` knows the families gpt2, bert, opt, and the rotary families llama, mistral, qwen2,
qwen3, phi3, gemma and gemma2; every other family is refused by name.  Tensor names, shapes and
their registration order follow huggingface/transformers `src/transformers/models/FAMILY/
modeling_FAMILY.py`.  FLOP, traffic and memory follow the rules in
`dpsim/models/transformer_layers.py`.

A block is two layers, ``….attention`` and ``….mlp``, of one unit.  The norm of each half belongs
to that half and comes after its matrices, as the rotary families register them (GPT-2 registers it
before them, and so it is here).  The rotary families register both norms after both halves; here
the first stands at the end of the attention half, a shift of one vector of h elements.

Parameter counts, with P positions, T token types, L blocks, and h, f, a, k, d, V as in
`_transformer`:

* GPT-2: V h + P h + L (12 h^2 + 13 h) + 2 h at f = 4 h (Radford et al., 2019)
* BERT, encoder and pooler: (V + P + T) h + 2 h + L (4 (h^2 + h) + 2 h f + f + h + 4 h) + h^2 + h
  (Devlin et al., arXiv:1810.04805)
* OPT: V w + (P + 2) h + L (4 (h^2 + h) + 2 h f + f + h + 4 h) + 2 h, and 2 w h if the embedding
  width w is not h (Zhang et al., arXiv:2205.01068)
* rotary families: V h (twice unless tied) + L (2 h a d + 2 h k d + 3 h f + 2 h) + h
  (Touvron et al., arXiv:2302.13971); Qwen2 adds (a + 2 k) d per block, Qwen3 2 d, Gemma 2 2 h
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from dpsim.core.record import Refused
from dpsim.models import Layer, Model, Tensor
from dpsim.models.transformer_layers import (
    Block,
    attention,
    embedding,
    final_norm,
    head,
    mlp,
    pooler,
)

_SIZE_LIMIT = 10**7
_LAYER_LIMIT = 10_000


Attention = Literal["flash", "math"]


def read_config(
    data: Mapping[str, Any], *, sequence_length: int, name: str, attention: Attention = "flash"
) -> Model:
    """The model that `data` (a parsed `config.json`) describes, for sequences of that many tokens;
    `attention: math` stores the scores of every pair of tokens.

    One sample is one sequence.  Parameters are fp32 unless the trainer says otherwise: the file's
    `torch_dtype` states how weights were stored and is ignored.  Raises Refused naming the key.
    """
    if not isinstance(data, Mapping):
        raise Refused("a model configuration must be a mapping (a JSON object)")
    tokens = _whole(sequence_length, "sequence_length", _SIZE_LIMIT)
    config = _Config(data, tokens, stored=attention == "math")
    layers, order = _FAMILIES[_family(data)](config)
    return Model(name=name, layers=layers, forward_order=order, sample="sequence", tokens=tokens)


def _family(data: Mapping[str, Any]) -> str:
    """The model family; BERT files of Google's original key set carry no `model_type`."""
    family = data.get("model_type")
    if family is None and "type_vocab_size" in data and "intermediate_size" in data:
        return "bert"
    known = ", ".join(sorted(_FAMILIES))
    if family is None:
        raise Refused(f"is missing; known: {known}", ("model_type",))
    if not isinstance(family, str):
        raise Refused(f"{str(family)[:60]!r} is not a name; known: {known}", ("model_type",))
    if family not in _FAMILIES:
        shown = family[:60]
        raise Refused(f"model family {shown!r} is not modelled; known: {known}", ("model_type",))
    return family


def _whole(value: Any, key: str, high: int) -> int:
    """`value` if it is an integer from 1 to `high`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"{str(value)[:60]!r} is not a whole number", (key,))
    if not 1 <= value <= high:
        shown = f"{value:,}" if abs(value) < 10**30 else "a huge number"
        raise Refused(f"{shown} is not in 1 … {high:,}", (key,))
    return value


@dataclass(frozen=True)
class _Config:
    """Checked access to a configuration; every complaint names its key."""

    data: Mapping[str, Any]
    tokens: int
    stored: bool = False

    def size(self, *keys: str, default: int | None = None, high: int = _SIZE_LIMIT) -> int:
        """The integer under the first of `keys` (aliases must agree); null counts as absent."""
        found = {key: self.data[key] for key in keys if self.data.get(key) is not None}
        if not found:
            if default is None:
                raise Refused("is missing", (keys[0],))
            return default
        values = [_whole(value, key, high) for key, value in found.items()]
        if len(set(values)) > 1:
            first, second = list(found)[:2]
            raise Refused(f"{values[0]} contradicts {second} = {values[1]}", (first,))
        return values[0]

    def layers(self, *keys: str) -> int:
        return self.size(*keys, high=_LAYER_LIMIT)

    def flag(self, key: str, default: bool) -> bool:
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise Refused(f"{str(value)[:60]!r} is not true or false", (key,))
        return value

    def dropout(self, key: str, default: float) -> bool:
        """Whether the dropout probability under `key` is above 0."""
        value = default if self.data.get(key) is None else self.data[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
            raise Refused(f"{str(value)[:60]!r} is not a probability below 1", (key,))
        return value > 0

    def require(self, key: str, wanted: Any) -> None:
        """Refuse any value of `key` but `wanted` (or none), because it changes the model."""
        value = self.data.get(key, wanted)
        if value is not None and value != wanted:
            raise Refused(f"{str(value)[:60]!r} is not modelled; only {wanted!r} is", (key,))

    def share(self, total: int, parts: int, total_key: str, parts_key: str) -> int:
        """`total` / `parts`, which must divide."""
        if total % parts:
            raise Refused(f"{parts} does not divide {total_key} = {total}", (parts_key,))
        return total // parts

    def positions(self, *keys: str) -> int:
        """The learned positions, which no sequence may exceed."""
        count = self.size(*keys)
        if self.tokens > count:
            key = next((key for key in keys if key in self.data), keys[0])
            raise Refused(
                f"{self.tokens:,} is beyond the {count:,} learned positions ({key})",
                ("sequence_length",),
            )
        return count


Parts = tuple[tuple[Layer, ...], tuple[int, ...]]
"""Layers in registration order, and the forward order (empty: the same)."""


def _linear(name: str, outputs: int, inputs: int, *, bias: bool = True) -> tuple[Tensor, ...]:
    weight = Tensor(f"{name}.weight", (outputs, inputs))
    return (weight, Tensor(f"{name}.bias", (outputs,))) if bias else (weight,)


def _norm(name: str, width: int, *, bias: bool = True) -> tuple[Tensor, ...]:
    return tuple(Tensor(f"{name}.{end}", (width,)) for end in ("weight", "bias")[: 1 + bias])


# GPT-2 -------------------------------------------------------------------------------------------


def _gpt2(config: _Config) -> Parts:
    """GPT-2: learned positions, fused q/k/v, matrices stored as (inputs, outputs)."""
    config.require("add_cross_attention", False)
    h, heads = config.size("n_embd", "hidden_size"), config.size("n_head", "num_attention_heads")
    head_dim = config.share(h, heads, "n_embd", "n_head")
    f = config.size("n_inner", default=4 * h)
    vocabulary, s = config.size("vocab_size"), config.tokens
    block = Block(
        h, heads, heads, head_dim, f, products=1, dropout=config.dropout("resid_pdrop", 0.1),
        stored=config.stored, score_dropout=config.dropout("attn_pdrop", 0.1),
    )  # fmt: skip
    tables = (
        Tensor("wte.weight", (vocabulary, h)),
        Tensor("wpe.weight", (config.positions("n_positions", "max_position_embeddings"), h)),
    )
    drop = config.dropout("embd_pdrop", 0.1)
    layers = [embedding("wte", h, tables, s, dropout=drop, lookups=2)]
    for i in range(config.layers("n_layer", "num_hidden_layers")):
        layers += _gpt2_block(block, f"h.{i}", s)
    layers.append(final_norm("ln_f", h, _norm("ln_f", h), s))
    tied = "wte" if config.flag("tie_word_embeddings", True) else None
    layers.append(head("lm_head", h, vocabulary, s, tied=tied))
    return tuple(layers), ()


def _gpt2_block(block: Block, unit: str, tokens: int) -> Iterator[Layer]:
    def conv1d(name: str, inputs: int, outputs: int) -> tuple[Tensor, ...]:
        return (
            Tensor(f"{unit}.{name}.weight", (inputs, outputs)),
            Tensor(f"{unit}.{name}.bias", (outputs,)),
        )

    h, f = block.hidden, block.ffn
    first = _norm(f"{unit}.ln_1", h) + conv1d("attn.c_attn", h, 3 * h) + conv1d("attn.c_proj", h, h)
    second = _norm(f"{unit}.ln_2", h) + conv1d("mlp.c_fc", h, f) + conv1d("mlp.c_proj", f, h)
    yield attention(block, unit, first, tokens)
    yield mlp(block, unit, second, tokens)


# BERT --------------------------------------------------------------------------------------------


def _bert(config: _Config) -> Parts:
    """BERT's encoder and pooler (`BertModel`), without the heads of its pre-training tasks."""
    config.require("position_embedding_type", "absolute")
    config.require("add_cross_attention", False)
    config.require("is_decoder", False)
    h, heads = config.size("hidden_size"), config.size("num_attention_heads")
    head_dim = config.share(h, heads, "hidden_size", "num_attention_heads")
    drop, s = config.dropout("hidden_dropout_prob", 0.1), config.tokens
    f = config.size("intermediate_size")
    block = Block(
        h, heads, heads, head_dim, f, causal=False, dropout=drop, stored=config.stored,
        score_dropout=config.dropout("attention_probs_dropout_prob", 0.1),
    )  # fmt: skip
    rows = (
        ("word", config.size("vocab_size")),
        ("position", config.positions("max_position_embeddings")),
        ("token_type", config.size("type_vocab_size")),
    )
    tables = tuple(Tensor(f"embeddings.{kind}_embeddings.weight", (n, h)) for kind, n in rows)
    tables += _norm("embeddings.LayerNorm", h)
    layers = [embedding("embeddings", h, tables, s, dropout=drop, lookups=3)]
    for i in range(config.layers("num_hidden_layers")):
        layers += _bert_block(block, f"encoder.layer.{i}", s)
    layers.append(pooler("pooler", h, _linear("pooler.dense", h, h)))
    return tuple(layers), ()


def _bert_block(block: Block, unit: str, tokens: int) -> Iterator[Layer]:
    """BERT normalises behind each half, so there the norm follows the matrices."""
    h, f = block.hidden, block.ffn
    first: tuple[Tensor, ...] = ()
    for part in ("self.query", "self.key", "self.value", "output.dense"):
        first += _linear(f"{unit}.attention.{part}", h, h)
    first += _norm(f"{unit}.attention.output.LayerNorm", h)
    second = _linear(f"{unit}.intermediate.dense", f, h) + _linear(f"{unit}.output.dense", h, f)
    second += _norm(f"{unit}.output.LayerNorm", h)
    yield attention(block, unit, first, tokens)
    yield mlp(block, unit, second, tokens)


# OPT ---------------------------------------------------------------------------------------------


def _opt(config: _Config) -> Parts:
    """OPT: two spare learned positions; the final norm is registered before the blocks."""
    config.require("enable_bias", True)
    config.require("layer_norm_elementwise_affine", True)
    h, heads, s = config.size("hidden_size"), config.size("num_attention_heads"), config.tokens
    head_dim = config.share(h, heads, "hidden_size", "num_attention_heads")
    drop, width = config.dropout("dropout", 0.1), config.size("word_embed_proj_dim", default=h)
    block = Block(
        h, heads, heads, head_dim, config.size("ffn_dim"), dropout=drop, stored=config.stored,
        score_dropout=config.dropout("attention_dropout", 0.0),
    )  # fmt: skip
    vocabulary = config.size("vocab_size")
    places = config.positions("max_position_embeddings") + 2
    tables: tuple[Tensor, ...] = (
        Tensor("decoder.embed_tokens.weight", (vocabulary, width)),
        Tensor("decoder.embed_positions.weight", (places, h)),
    )
    back: tuple[Tensor, ...] = ()
    if width != h:
        back = _linear("decoder.project_out", width, h, bias=False)
        tables += _linear("decoder.project_in", h, width, bias=False)
    removed = config.flag("_remove_final_layer_norm", False)
    normalised = config.flag("do_layer_norm_before", True) and not removed
    last = back + (_norm("decoder.final_layer_norm", h) if normalised else ())
    layers = [embedding("decoder.embed_tokens", h, tables, s, dropout=False, lookups=2)]
    if last:
        layers.append(final_norm("decoder.final_layer_norm", h, last, s))
    before = len(layers)
    for i in range(config.layers("num_hidden_layers")):
        layers += _opt_block(block, f"decoder.layers.{i}", s)
    tied = "decoder.embed_tokens" if config.flag("tie_word_embeddings", True) else None
    layers.append(head("lm_head", width, vocabulary, s, tied=tied))
    order = range(len(layers))
    return tuple(layers), (0, *order[before:-1], *order[1:before], order[-1])


def _opt_block(block: Block, unit: str, tokens: int) -> Iterator[Layer]:
    h, f = block.hidden, block.ffn
    first: tuple[Tensor, ...] = ()
    for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
        first += _linear(f"{unit}.self_attn.{part}", h, h)
    first += _norm(f"{unit}.self_attn_layer_norm", h)
    second = _linear(f"{unit}.fc1", f, h) + _linear(f"{unit}.fc2", h, f)
    second += _norm(f"{unit}.final_layer_norm", h)
    yield attention(block, unit, first, tokens)
    yield mlp(block, unit, second, tokens)


# Rotary families ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rotary:
    """What distinguishes one rotary family from Llama.

    bias      "none"; "qkv" (always on q, k and v); or "option" (`attention_bias`: q, k, v and o)
    kv        whether `num_key_value_heads` may be left out (then it is the number of heads)
    head_dim  size of a head where the file names none; 0: hidden_size / num_attention_heads
    window    blocks with a sliding window: "none", "all", "even", or "late" (`use_sliding_window`,
              from block `max_window_layers` on)
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


_ROTARY = {
    "llama": _Rotary(bias="option", kv=True, mlp_bias=True),
    "mistral": _Rotary(window="all"),
    "qwen2": _Rotary(bias="qkv", window="late"),
    "qwen3": _Rotary(bias="option", head_dim=128, head_norms=True, window="late"),
    "phi3": _Rotary(kv=True, fused=True, window="all"),
    "gemma": _Rotary(bias="option", head_dim=256, tied=True),
    "gemma2": _Rotary(bias="option", head_dim=256, norms=2, tied=True, window="even"),
}


def _rotary(family: _Rotary) -> Callable[[_Config], Parts]:
    def read(config: _Config) -> Parts:
        block, s = _rotary_block(family, config), config.tokens
        h, vocabulary = block.hidden, config.size("vocab_size")
        table = (Tensor("embed_tokens.weight", (vocabulary, h)),)
        layers = [embedding("embed_tokens", h, table, s, dropout=False, lookups=1)]
        for i in range(config.layers("num_hidden_layers")):
            seen = replace(block, window=_window(family, config, i))
            unit = f"layers.{i}"
            layers.append(attention(seen, unit, _rotary_attention(family, config, block, unit), s))
            layers.append(mlp(seen, unit, _rotary_mlp(family, config, block, unit), s))
        layers.append(final_norm("norm", h, _norm("norm", h, bias=False), s))
        tied = "embed_tokens" if config.flag("tie_word_embeddings", family.tied) else None
        layers.append(head("lm_head", h, vocabulary, s, tied=tied))
        return tuple(layers), ()

    return read


def _rotary_block(family: _Rotary, config: _Config) -> Block:
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
        stored=config.stored, score_dropout=config.dropout("attention_dropout", 0.0),
    )  # fmt: skip


def _window(family: _Rotary, config: _Config, index: int) -> int:
    """Tokens that block `index` looks back at; 0 for all."""
    if family.window == "none" or config.data.get("sliding_window") is None:
        return 0
    width = config.size("sliding_window")
    if family.window == "late":
        used = config.flag("use_sliding_window", False)
        return width if used and index >= config.size("max_window_layers") else 0
    return 0 if family.window == "even" and index % 2 else width


def _rotary_attention(
    family: _Rotary, config: _Config, block: Block, unit: str
) -> tuple[Tensor, ...]:
    h, path = block.hidden, f"{unit}.self_attn"
    query, key = block.heads * block.head_dim, block.kv_heads * block.head_dim
    option = family.bias == "option" and config.flag("attention_bias", False)
    qkv = option or family.bias == "qkv"
    if family.fused:
        tensors = _linear(f"{path}.o_proj", h, query, bias=option)
        tensors += _linear(f"{path}.qkv_proj", query + 2 * key, h, bias=qkv)
    else:
        tensors = ()
        for part, width in (("q", query), ("k", key), ("v", key)):
            tensors += _linear(f"{path}.{part}_proj", width, h, bias=qkv)
        tensors += _linear(f"{path}.o_proj", h, query, bias=option)
    if family.head_norms:
        for part in ("q_norm", "k_norm"):
            tensors += _norm(f"{path}.{part}", block.head_dim, bias=False)
    names = ("input_layernorm", "post_attention_layernorm")[: family.norms]
    return tensors + tuple(Tensor(f"{unit}.{name}.weight", (h,)) for name in names)


def _rotary_mlp(family: _Rotary, config: _Config, block: Block, unit: str) -> tuple[Tensor, ...]:
    h, f, path = block.hidden, block.ffn, f"{unit}.mlp"
    bias = family.mlp_bias and config.flag("mlp_bias", False)
    if family.fused:
        tensors = _linear(f"{path}.gate_up_proj", 2 * f, h, bias=bias)
    else:
        tensors = _linear(f"{path}.gate_proj", f, h, bias=bias)
        tensors += _linear(f"{path}.up_proj", f, h, bias=bias)
    tensors += _linear(f"{path}.down_proj", h, f, bias=bias)
    names: tuple[str, ...] = ("post_attention_layernorm",)
    if family.norms == 2:
        names = ("pre_feedforward_layernorm", "post_feedforward_layernorm")
    return tensors + tuple(Tensor(f"{unit}.{name}.weight", (h,)) for name in names)


_FAMILIES: dict[str, Callable[[_Config], Parts]] = {
    "gpt2": _gpt2,
    "bert": _bert,
    "opt": _opt,
} | {name: _rotary(family) for name, family in _ROTARY.items()}
