"""Gemma 4's text model (`gemma4_text`): blocks that look back at a window, every sixth at all
tokens with heads of its own, and experts beside a dense feed-forward part.

The number of parameters, with a heads, F blocks that look at all tokens, of k' keys of d' elements
there (and no values of their own where `attention_k_eq_v`), k keys of d elements in the L - F
others, f the width of the dense part, E experts of width m:

    V h + h + (L - F) (2 h a d + 2 h k d + 2 d) + F (2 h a d' + h k' d' (1 or 2) + 2 d')
    + L (3 h f + 4 h + 3 h m E + h E + h + E + 3 h)

the last four terms with experts (huggingface/transformers 033b1a82
`models/gemma4/modular_gemma4.py`: `Gemma4TextDecoderLayer`, `Gemma4TextRouter`).  Embeddings of
every layer, and blocks that share the keys of earlier ones, which the small models have, are not
modelled.  All norms of the second half stand with the dense part here.
"""

from __future__ import annotations

from dataclasses import replace

from dpsim.models import Layer, Tensor
from dpsim.models.expert_layers import Routing, experts, router, shared
from dpsim.models.huggingface.config import Config
from dpsim.models.huggingface.rotary import Rotary, attention_tensors, block_of, mlp_tensors, window
from dpsim.models.huggingface.sparse import checked, closed, expert_tensors, opened
from dpsim.models.huggingface.tensors import Parts, linear
from dpsim.models.transformer_layers import Block, attention, mlp

_FAMILY = Rotary(bias="option", head_dim=256, norms=2, head_norms=True, tied=True, window="sixth")


def gemma4_text(config: Config) -> Parts:
    """A model of the family."""
    for key, wanted in (("hidden_size_per_layer_input", 0), ("num_kv_shared_layers", 0)):
        config.require(key, wanted)
    config = replace(config, data={"tie_word_embeddings": True, **config.data})
    block, s = block_of(_FAMILY, config), config.tokens
    layers = [opened(config, block.hidden)]
    for i in range(config.layers("num_hidden_layers")):
        unit, seen = f"layers.{i}", _seen(config, block, i)
        layers.append(attention(seen, unit, _attention(config, seen, unit), s))
        layers += _second_half(config, seen, unit)
    return closed(config, layers, block.hidden)


def _seen(config: Config, block: Block, index: int) -> Block:
    """Block `index`: one that looks back at all tokens has wider heads, and fewer of keys."""
    width = window(_FAMILY, config, index)
    if width:
        return replace(block, window=width)
    own = config.size("num_global_key_value_heads", default=block.kv_heads)
    config.share(block.heads, own, "num_attention_heads", "num_global_key_value_heads")
    keys = own if config.flag("attention_k_eq_v", False) else block.kv_heads
    return replace(block, head_dim=config.size("global_head_dim", default=512), kv_heads=keys)


def _attention(config: Config, block: Block, unit: str) -> tuple[Tensor, ...]:
    """Its tensors; keys may be the values, too, where all tokens are looked at."""
    tensors = attention_tensors(_FAMILY, config, block, unit)
    if block.window or not config.flag("attention_k_eq_v", False):
        return tensors
    return tuple(tensor for tensor in tensors if ".v_proj." not in tensor.name)


def _second_half(config: Config, block: Block, unit: str) -> list[Layer]:
    """The dense feed-forward part, and experts beside it where there are any."""
    tensors, s, h = mlp_tensors(_FAMILY, config, block, unit), config.tokens, block.hidden
    if not config.flag("enable_moe_block", False):
        return [mlp(block, unit, tensors, s)]
    found = Routing(
        config.size("num_experts"), config.size("top_k_experts"),
        config.size("moe_intermediate_size"),
    )  # fmt: skip
    routing = checked(found, "top_k_experts")
    gate = linear(f"{unit}.router.proj", routing.experts, h, bias=False)
    gate += (Tensor(f"{unit}.router.scale", (h,)),)
    gate += (Tensor(f"{unit}.router.per_expert_scale", (routing.experts,)),)
    more = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2")
    for name in (*more, "pre_feedforward_layernorm_2"):
        tensors += (Tensor(f"{unit}.{name}.weight", (h,)),)
    return [
        router(h, routing, unit, gate, s),
        shared(h, block.ffn, unit, tensors, s),
        experts(h, routing, unit, expert_tensors(routing, h, unit), s),
    ]
