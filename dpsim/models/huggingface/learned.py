"""Decoders with learned positions: GPT-2 and OPT."""

from __future__ import annotations

from collections.abc import Iterator

from dpsim.models import Layer, Tensor
from dpsim.models.huggingface.config import Config
from dpsim.models.huggingface.tensors import Parts, linear, norm
from dpsim.models.transformer_layers import Block, attention, embedding, final_norm, head, mlp

# GPT-2 -------------------------------------------------------------------------------------------


def gpt2(config: Config) -> Parts:
    """GPT-2: learned positions, fused q/k/v, matrices stored as (inputs, outputs)."""
    config.require("add_cross_attention", False)
    h, heads = config.size("n_embd", "hidden_size"), config.size("n_head", "num_attention_heads")
    head_dim = config.share(h, heads, "n_embd", "n_head")
    f = config.size("n_inner", default=4 * h)
    vocabulary, s = config.size("vocab_size"), config.tokens
    block = Block(
        h, heads, heads, head_dim, f, products=1, dropout=config.dropout("resid_pdrop", 0.1),
        stored=config.stored, wide=config.wide, score_dropout=config.dropout("attn_pdrop", 0.1),
        composed=config.data.get("activation_function", "gelu_new") == "gelu_new",
    )  # fmt: skip
    tables = (
        Tensor("wte.weight", (vocabulary, h)),
        Tensor("wpe.weight", (config.positions("n_positions", "max_position_embeddings"), h)),
    )
    drop = config.dropout("embd_pdrop", 0.1)
    layers = [embedding("wte", h, tables, s, dropout=drop, lookups=2)]
    for i in range(config.layers("n_layer", "num_hidden_layers")):
        layers += _gpt2_block(block, f"h.{i}", s)
    layers.append(final_norm("ln_f", h, norm("ln_f", h), s))
    tied = "wte" if config.flag("tie_word_embeddings", True) else None
    layers.append(head("lm_head", h, vocabulary, s, tied=tied))
    return tuple(layers), ()


def _gpt2_block(block: Block, unit: str, tokens: int) -> Iterator[Layer]:
    def conv1d(name: str, inputs: int, outputs: int) -> tuple[Tensor, ...]:
        return (
            Tensor(f"{unit}.{name}.weight", (inputs, outputs), transposed=True),
            Tensor(f"{unit}.{name}.bias", (outputs,)),
        )

    h, f = block.hidden, block.ffn
    first = norm(f"{unit}.ln_1", h) + conv1d("attn.c_attn", h, 3 * h) + conv1d("attn.c_proj", h, h)
    second = norm(f"{unit}.ln_2", h) + conv1d("mlp.c_fc", h, f) + conv1d("mlp.c_proj", f, h)
    yield attention(block, unit, first, tokens)
    yield mlp(block, unit, second, tokens)


# OPT ---------------------------------------------------------------------------------------------


def opt(config: Config) -> Parts:
    """OPT: two spare learned positions; the final norm is registered before the blocks."""
    config.require("enable_bias", True)
    config.require("layer_norm_elementwise_affine", True)
    h, heads, s = config.size("hidden_size"), config.size("num_attention_heads"), config.tokens
    head_dim = config.share(h, heads, "hidden_size", "num_attention_heads")
    drop, width = config.dropout("dropout", 0.1), config.size("word_embed_proj_dim", default=h)
    block = Block(
        h, heads, heads, head_dim, config.size("ffn_dim"), dropout=drop,
        normed=not config.flag("do_layer_norm_before", True),
        stored=config.stored, wide=config.wide,
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
        back = linear("decoder.project_out", width, h, bias=False)
        tables += linear("decoder.project_in", h, width, bias=False)
    removed = config.flag("_remove_final_layer_norm", False)
    normalised = config.flag("do_layer_norm_before", True) and not removed
    last = back + (norm("decoder.final_layer_norm", h) if normalised else ())
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
        first += linear(f"{unit}.self_attn.{part}", h, h)
    first += norm(f"{unit}.self_attn_layer_norm", h)
    second = linear(f"{unit}.fc1", f, h) + linear(f"{unit}.fc2", h, f)
    second += norm(f"{unit}.final_layer_norm", h)
    yield attention(block, unit, first, tokens)
    yield mlp(block, unit, second, tokens)
