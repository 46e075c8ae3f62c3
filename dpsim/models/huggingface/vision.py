"""Transformers that look at images: ViT and DeiT, and CLIP, which reads their captions too.

Names and order of registration follow huggingface/transformers `modeling_vit.py` and
`modeling_clip.py`.  An image of n x n pixels is cut into (n / p)^2 patches of p x p pixels, so a
sequence has one token more than that; samples are images, so none states a `sequence_length`
(CLIP's are the tokens of a caption).

* ViT (Dosovitskiy et al., arXiv:2010.11929): h, (N + 1) h of positions, p^2 c h + h, L (4 (h^2 + h)
  + 2 h f + f + h + 4 h) + 2 h, and h C + C for C classes, or h^2 + h of a pooler
* CLIP (Radford et al., arXiv:2103.00020): one such tower each for text (causal) and image, 2 h of a
  norm before the image's blocks, projections h e without bias, and 1
"""

from __future__ import annotations

from dpsim.core.record import Refused
from dpsim.models import Layer, Tensor
from dpsim.models.huggingface.config import Config
from dpsim.models.huggingface.tensors import Parts, linear, norm
from dpsim.models.layer_sum import LayerSum
from dpsim.models.transformer_layers import Block, attention, embedding, final_norm, mlp, pooler


def patches(size: int, patch: int) -> int:
    """The patches of an image of `size` x `size`, which must divide."""
    if size % patch:
        raise Refused(f"{size} is no multiple of patches of {patch} pixels", ("image_size",))
    return (size // patch) ** 2


def vit(config: Config) -> Parts:
    """ViT; DeiT has one token more (`distilled`), its classifier counts once."""
    h, heads = config.size("hidden_size"), config.size("num_attention_heads")
    d = config.share(h, heads, "hidden_size", "num_attention_heads")
    size = config.image or config.size("image_size")
    patch, colours = config.size("patch_size"), config.size("num_channels", default=3)
    count, qkv = patches(size, patch), config.flag("qkv_bias", True)
    block = Block(
        h, heads, heads, d, config.size("intermediate_size"), causal=False,
        stored=config.stored, wide=config.wide,
        dropout=config.dropout("hidden_dropout_prob", 0.0),
        score_dropout=config.dropout("attention_probs_dropout_prob", 0.0),
    )  # fmt: skip
    more = 2 if config.data.get("model_type") == "deit" else 1
    tokens, own = count + more, ["cls_token", "distillation_token"][:more]
    first = LayerSum("embeddings", first=True)
    for name in own:
        first.own(f"embeddings.{name}", 1, 1, h)
    first.own("embeddings.position_embeddings", 1, tokens, h)
    path = "embeddings.patch_embeddings.projection"
    first.own(f"{path}.weight", h, colours, patch, patch).own(f"{path}.bias", h)
    pixels = colours * size * size
    first.product(2.0 * pixels * h, pixels, count * h).add(tokens * h)
    layers = [first.layer(read=pixels, wrote=tokens * h)]
    for i in range(config.layers("num_hidden_layers")):
        layers += _vit_block(block, f"encoder.layer.{i}", tokens, qkv)
    layers.append(final_norm("layernorm", h, norm("layernorm", h), tokens))
    return (*layers, _vit_head(config, h)), ()


def _vit_block(block: Block, unit: str, tokens: int, bias: bool) -> list[Layer]:
    h, f = block.hidden, block.ffn
    first: tuple[Tensor, ...] = ()
    for part in ("attention.query", "attention.key", "attention.value"):
        first += linear(f"{unit}.attention.{part}", h, h, bias=bias)
    first += linear(f"{unit}.attention.output.dense", h, h)
    second = linear(f"{unit}.intermediate.dense", f, h) + linear(f"{unit}.output.dense", h, f)
    # both norms are registered behind all matrices
    second += norm(f"{unit}.layernorm_before", h) + norm(f"{unit}.layernorm_after", h)
    return [attention(block, unit, first, tokens), mlp(block, unit, second, tokens)]


#: what `head` may say: the bare encoder with its pooler, or a classifier
_HEADS = ("encoder", "classification")


def _vit_head(config: Config, h: int) -> Layer:
    """The classifier where the file is one's (or `head` says so), else the pooler."""
    kind, named = config.head, str(config.data.get("architectures") or "")
    if kind not in (None, *_HEADS):
        raise Refused(f"{str(kind)[:60]!r} is none of {', '.join(_HEADS)}", ("head",))
    if kind == "classification" or (kind is None and "Classification" in named):
        labels = config.data.get("id2label")
        classes = len(labels) if isinstance(labels, dict) and labels else 0
        classes = classes or config.size("num_labels", default=1000)
        return (
            LayerSum("classifier").matrix("classifier", 1, classes, h).layer(read=h, wrote=classes)
        )
    return pooler("pooler", h, linear("pooler.dense", h, h))


# CLIP --------------------------------------------------------------------------------------------


def clip(config: Config) -> Parts:
    """CLIP: a tower for captions and one for images, and what compares them."""
    width = config.size("projection_dim", default=512)
    captions = _captions(config.section("text_config"))
    pictures = _pictures(config.section("vision_config"))
    scale = LayerSum("scale").own("logit_scale").activation(1).layer(read=1, wrote=1)
    compared = LayerSum("projections")
    for name, tower in (("visual", pictures), ("text", captions)):
        hidden = tower[-1].tensors[-1].elements
        compared.matrix(f"{name}_projection", 1, width, hidden, bias=False)
    last = compared.layer(read=2 * width, wrote=2 * width)
    layers = (scale, *captions, *pictures, last)
    return layers, (*range(1, len(layers)), 0)


def _tower(config: Config, *, causal: bool, heads: int, f: int, h: int) -> Block:
    d = config.share(h, heads, "hidden_size", "num_attention_heads")
    return Block(
        h, heads, heads, d, f, causal=causal, stored=config.stored, wide=config.wide,
        score_dropout=config.dropout("attention_dropout", 0.0),
    )  # fmt: skip


def _captions(config: Config) -> list[Layer]:
    h = config.size("hidden_size", default=512)
    heads, f = (
        config.size("num_attention_heads", default=8),
        config.size("intermediate_size", default=2048),
    )
    places = config.size("max_position_embeddings", default=77)
    s = min(config.length or places, places)
    block, path = _tower(config, causal=True, heads=heads, f=f, h=h), "text_model"
    tables = (
        Tensor(f"{path}.token_embedding.weight", (config.size("vocab_size", default=49408), h)),
        Tensor(f"{path}.position_embedding.weight", (places, h)),
    )
    layers = [embedding(f"{path}.embeddings", h, tables, s, dropout=False, lookups=2)]
    for i in range(config.size("num_hidden_layers", default=12, high=10_000)):
        layers += _clip_block(block, f"{path}.encoder.layers.{i}", s)
    last = f"{path}.final_layer_norm"
    return [*layers, final_norm(last, h, norm(last, h), s)]


def _pictures(config: Config) -> list[Layer]:
    h, path = config.size("hidden_size", default=768), "vision_model"
    heads = config.size("num_attention_heads", default=12)
    size = config.image or config.size("image_size", default=224)
    patch, colours = config.size("patch_size", default=32), config.size("num_channels", default=3)
    f, count = config.size("intermediate_size", default=3072), patches(size, patch)
    block = _tower(config, causal=False, heads=heads, f=f, h=h)
    pixels, tokens = colours * size * size, count + 1
    first = LayerSum(f"{path}.embeddings", first=True).own(f"{path}.class_embedding", h)
    first.own(f"{path}.patch_embedding.weight", h, colours, patch, patch)
    first.product(2.0 * pixels * h, pixels, count * h)
    first.own(f"{path}.position_embedding.weight", tokens, h).add(tokens * h)
    first.norm(f"{path}.pre_layrnorm", tokens * h, h)
    layers = [first.layer(read=pixels, wrote=tokens * h)]
    for i in range(config.size("num_hidden_layers", default=12, high=10_000)):
        layers += _clip_block(block, f"{path}.encoder.layers.{i}", tokens)
    last = f"{path}.post_layernorm"
    return [*layers, final_norm(last, h, norm(last, h), 1)]


def _clip_block(block: Block, unit: str, tokens: int) -> list[Layer]:
    h, f = block.hidden, block.ffn
    first: tuple[Tensor, ...] = ()
    for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
        first += linear(f"{unit}.self_attn.{part}", h, h)
    first += norm(f"{unit}.layer_norm1", h)
    second = linear(f"{unit}.mlp.fc1", f, h) + linear(f"{unit}.mlp.fc2", h, f)
    second += norm(f"{unit}.layer_norm2", h)
    return [attention(block, unit, first, tokens), mlp(block, unit, second, tokens)]
