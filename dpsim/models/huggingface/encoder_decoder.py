"""Encoders with a decoder behind them: T5 (mT5, UMT5), BART (mBART) and Whisper.

Names and order of registration follow huggingface/transformers `modeling_FAMILY.py`.  The encoder
reads `sequence_length` tokens (Whisper: a window of 30 s, 2 `max_source_positions` frames of
sound), the decoder `target_length` (left out: as many; Whisper: all its positions).  Tokens per
sample are the encoder's, of Whisper the decoder's.

* T5 (Raffel et al., arXiv:1910.10683): V h (twice if untied) + L (4 h I + m h f + 2 h) +
  L_d (8 h I + m h f + 3 h) + 2 h + 2 B a parameters, with I = a d, B buckets of positions, m = 3 if
  gated and 2 else.  The additive position bias is read with the scores where these are stored, and
  taken to cost nothing where they are not.
* BART (Lewis et al., arXiv:1910.13461): V h + (P_e + P_d + 4) h + L_e (4 (h^2 + h) + 2 h f + f +
  5 h) + L_d (8 (h^2 + h) + 2 h f + f + 7 h) + 4 h; mBART has a norm more behind either half
* Whisper (Radford et al., arXiv:2212.04356): convolutions 3 h (M + h) + 2 h over M mel bins, V h +
  P_d h, blocks as BART's without the bias of k, 4 h; the encoder's positions are not trained
"""

from __future__ import annotations

from dataclasses import replace

from dpsim.models import Layer, Tensor
from dpsim.models.huggingface.config import Config
from dpsim.models.huggingface.tensors import Parts, linear, norm
from dpsim.models.layer_sum import LayerSum
from dpsim.models.transformer_layers import (
    Block,
    attention,
    cross_attention,
    embedding,
    final_norm,
    head,
    mlp,
)


def _sends_memory(layers: list[Layer], tokens: int, width: int) -> list[Layer]:
    """A stage inside the decoder sends on what the encoder left, beside its own output."""
    return [replace(layer, output=layer.output + tokens * width) for layer in layers]


# T5 ----------------------------------------------------------------------------------------------


def t5(config: Config, *, gated: bool = False, tied: bool = True, every: bool = False) -> Parts:
    """T5; `gated`, `tied`: what stands where the file says nothing; `every`: each block has a
    position bias of its own (UMT5)."""
    h, heads, d = config.size("d_model"), config.size("num_heads"), config.size("d_kv")
    kind = str(config.data.get("feed_forward_proj") or ("gated-gelu" if gated else "relu"))
    block = Block(
        h, heads, heads, d, config.size("d_ff"), causal=False, gated=kind.startswith("gated"),
        dropout=config.dropout("dropout_rate", 0.1), stored=config.stored, wide=config.wide,
        score_dropout=config.dropout("dropout_rate", 0.1),
    )  # fmt: skip
    encoder = config.layers("num_layers")
    decoder = config.size("num_decoder_layers", default=encoder, high=10_000)
    buckets = config.size("relative_attention_num_buckets", default=32)
    s, t = config.tokens, config.target_tokens
    vocabulary = config.size("vocab_size")
    table = (Tensor("shared.weight", (vocabulary, h)),)
    layers = [embedding("shared", h, table, s, dropout=block.dropout, lookups=1)]
    for i in range(encoder):
        layers += _t5_block(block, f"encoder.block.{i}", s, 0, buckets * (every or i == 0))
    layers.append(_rms(final_norm("encoder.final_layer_norm", h, _scale("encoder", h), s), s * h))
    looked = embedding("decoder.embed_tokens", h, (), t, dropout=block.dropout, lookups=1)
    inside = [replace(looked, tied="shared")]
    seen = replace(block, causal=True)
    for i in range(decoder):
        inside += _t5_block(seen, f"decoder.block.{i}", t, s, buckets * (every or i == 0))
    layers += _sends_memory(inside, s, h)
    layers.append(_rms(final_norm("decoder.final_layer_norm", h, _scale("decoder", h), t), t * h))
    same = config.flag("tie_word_embeddings", tied)
    layers.append(head("lm_head", h, vocabulary, t, tied="shared" if same else None))
    return tuple(layers), ()


def _scale(part: str, width: int) -> tuple[Tensor, ...]:
    return norm(f"{part}.final_layer_norm", width, bias=False)


def _rms(layer: Layer, elements: int) -> Layer:
    """T5's norms are root-mean-square norms whether its feed-forward part is gated or not."""
    return replace(layer, rms=float(elements))


def _t5_block(block: Block, unit: str, tokens: int, memory: int, buckets: int) -> list[Layer]:
    """A block of the encoder, or of the decoder where there are `memory` tokens to look at."""
    h, f, width = block.hidden, block.ffn, block.heads * block.head_dim

    def half(number: int, name: str) -> tuple[Tensor, ...]:
        at = f"{unit}.layer.{number}.{name}"
        found: tuple[Tensor, ...] = ()
        for part in "qkv":
            found += linear(f"{at}.{part}", width, h, bias=False)
        return found + linear(f"{at}.o", h, width, bias=False)

    def close(number: int) -> tuple[Tensor, ...]:
        return norm(f"{unit}.layer.{number}.layer_norm", h, bias=False)

    first = half(0, "SelfAttention")
    if buckets:
        name = f"{unit}.layer.0.SelfAttention.relative_attention_bias.weight"
        first += (Tensor(name, (buckets, block.heads)),)
    # the table of the position bias is looked up, not multiplied with every token
    layers = [_looked_up(attention(block, unit, first + close(0), tokens), first[4:], tokens)]
    if memory:
        tensors = half(1, "EncDecAttention") + close(1)
        layers.append(cross_attention(block, unit, tensors, tokens, memory))
    last, names = (2 if memory else 1), ("wi_0", "wi_1") if block.gated else ("wi",)
    second: tuple[Tensor, ...] = ()
    for name in names:
        second += linear(f"{unit}.layer.{last}.DenseReluDense.{name}", f, h, bias=False)
    second += linear(f"{unit}.layer.{last}.DenseReluDense.wo", h, f, bias=False)
    layers.append(mlp(block, unit, second + close(last), tokens))
    return [_rms(layer, tokens * h) for layer in layers]


def _looked_up(layer: Layer, tables: tuple[Tensor, ...], tokens: int) -> Layer:
    """`layer` without the FLOP that products with `tables` would take."""
    less = 2.0 * tokens * sum(table.elements for table in tables)
    return replace(
        layer, forward_flop=layer.forward_flop - less, backward_flop=layer.backward_flop - 2 * less
    )


# BART --------------------------------------------------------------------------------------------


def bart(config: Config, *, final: bool = False) -> Parts:
    """BART; `final`: mBART, with a norm behind the encoder and the decoder."""
    h, vocabulary = config.size("d_model"), config.size("vocab_size")
    s, t, places = config.tokens, config.target_tokens, config.positions("max_position_embeddings")
    table = (Tensor("shared.weight", (vocabulary, h)),)
    drop = config.dropout("dropout", 0.1)
    layers = [embedding("shared", h, table, s, dropout=False, lookups=1)]
    for part, tokens, memory in (("encoder", s, 0), ("decoder", t, s)):
        block = _bart_block(config, part, h)
        own = (Tensor(f"{part}.embed_positions.weight", (places + 2, h)),)
        one = embedding(f"{part}.embed_positions", h, own, tokens, dropout=False, lookups=1)
        inside = [replace(one, tied="shared" if memory else None)]
        blocks: list[Layer] = []
        for i in range(config.layers(f"{part}_layers")):
            blocks += _bart_halves(block, f"{part}.layers.{i}", tokens, memory)
        behind = norm(f"{part}.layernorm_embedding", h)
        early = final_norm(f"{part}.layernorm_embedding", h, behind, tokens)
        found = [*inside, *blocks, replace(early, activations=early.activations * (1 + 0.5 * drop))]
        if final:
            found.append(final_norm(f"{part}.layer_norm", h, norm(f"{part}.layer_norm", h), tokens))
        layers += _sends_memory(found, memory, h) if memory else found
    layers.append(head("lm_head", h, vocabulary, t, tied="shared"))
    return tuple(layers), _norms_early(layers)


def _norms_early(layers: list[Layer]) -> tuple[int, ...]:
    """The norms of embeddings are registered behind the blocks, and run before them."""
    order = list(range(len(layers)))
    for part in ("encoder", "decoder"):
        names = [layers[i].name for i in order]
        early = order.pop(names.index(f"{part}.layernorm_embedding"))
        names = [layers[i].name for i in order]
        order.insert(names.index(f"{part}.embed_positions") + 1, early)
    return tuple(order)


def _bart_block(config: Config, part: str, h: int) -> Block:
    heads = config.size(f"{part}_attention_heads")
    d = config.share(h, heads, "d_model", f"{part}_attention_heads")
    return Block(
        h, heads, heads, d, config.size(f"{part}_ffn_dim"), causal=part == "decoder",
        dropout=config.dropout("dropout", 0.1), stored=config.stored, wide=config.wide, normed=True,
        score_dropout=config.dropout("attention_dropout", 0.0),
    )  # fmt: skip


def _bart_halves(
    block: Block, unit: str, tokens: int, memory: int, *, k_bias: bool = True
) -> list[Layer]:
    h, f = block.hidden, block.ffn

    def half(name: str) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = ()
        for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
            found += linear(f"{unit}.{name}.{part}", h, h, bias=k_bias or part != "k_proj")
        return found + norm(f"{unit}.{name}_layer_norm", h)

    layers = [attention(block, unit, half("self_attn"), tokens)]
    if memory:
        layers.append(cross_attention(block, unit, half("encoder_attn"), tokens, memory))
    second = linear(f"{unit}.fc1", f, h) + linear(f"{unit}.fc2", h, f)
    return [*layers, mlp(block, unit, second + norm(f"{unit}.final_layer_norm", h), tokens)]


# Whisper -----------------------------------------------------------------------------------------


def whisper(config: Config) -> Parts:
    """Whisper: two convolutions over 30 s of sound, and an encoder and a decoder like BART's."""
    h, places = config.size("d_model"), config.size("max_source_positions", default=1500)
    most, t = config.size("max_target_positions", default=448), heard(config)
    layers = [_sound(config, h, places)]
    block = _bart_block(config, "encoder", h)
    for i in range(config.layers("encoder_layers")):
        layers += _bart_halves(block, f"encoder.layers.{i}", places, 0, k_bias=False)
    last = norm("encoder.layer_norm", h)
    layers.append(final_norm("encoder.layer_norm", h, last, places))
    vocabulary, block = config.size("vocab_size"), _bart_block(config, "decoder", h)
    tables = (
        Tensor("decoder.embed_tokens.weight", (vocabulary, h)),
        Tensor("decoder.embed_positions.weight", (most, h)),
    )
    inside = [embedding("decoder.embed_tokens", h, tables, t, dropout=False, lookups=2)]
    for i in range(config.layers("decoder_layers")):
        inside += _bart_halves(block, f"decoder.layers.{i}", t, places, k_bias=False)
    layers += _sends_memory(inside, places, h)
    layers.append(final_norm("decoder.layer_norm", h, norm("decoder.layer_norm", h), t))
    layers.append(head("proj_out", h, vocabulary, t, tied="decoder.embed_tokens"))
    return tuple(layers), ()


def heard(config: Config) -> int:
    """Tokens that the decoder is given for 30 s of sound."""
    most = config.size("max_target_positions", default=448)
    return min(config.target or config.length or most, most)


def _sound(config: Config, h: int, places: int) -> Layer:
    """Convolutions of 3 over 2 `places` frames of mel bins; the second has a stride of 2."""
    bins, frames = config.size("num_mel_bins", default=80), 2 * places
    found = LayerSum("encoder.conv", first=True)
    for name, inner, outside in (("conv1", bins, frames), ("conv2", h, places)):
        found.own(f"encoder.{name}.weight", h, inner, 3).own(f"encoder.{name}.bias", h)
        found.product(2.0 * outside * h * inner * 3, inner * frames, outside * h)
        found.activation(outside * h)
    found.add(places * h)
    return found.layer(read=bins * frames, wrote=places * h)
