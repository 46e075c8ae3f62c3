"""Rotary families with sparse experts: Mixtral, Qwen2-MoE, Qwen3-MoE, MiniMax-M2, OLMoE, gpt-oss
and DBRX.

Tensors, as huggingface/transformers registers them since version 5: a block's experts are two
tensors, gate and up together and down, whose first dimension counts experts (before, every expert
had matrices of its own: as many elements).  The router stands before the experts and the shared
experts here, whatever the order there.

Parameter counts, with E experts of width m, of which a token takes k, and a shared width w:

* Mixtral, Qwen3-MoE, MiniMax-M2, OLMoE: that of the rotary families without its 3 h f, and h E +
  3 h m E per block; OLMoE's and MiniMax's norms of queries and keys are as wide as all their heads
  (MiniMax's biases of the choice are buffers)
* Qwen2-MoE: beside that 3 h w + h (the gate of the shared expert)
* gpt-oss: attention with biases and a sink per head, h E + E, and E (3 h m + 2 m + h)
* DBRX: V h twice, L (h (a + 2 k) d + h a d + h E + 3 h m E + 2 h) + h
"""

from __future__ import annotations

from dataclasses import replace

from dpsim.core.lean import dataclass
from dpsim.core.record import Refused
from dpsim.models import Layer, Tensor
from dpsim.models.expert_layers import Routing, experts, router, shared
from dpsim.models.huggingface.config import Config
from dpsim.models.huggingface.rotary import Rotary, attention_tensors, block_of, mlp_tensors, window
from dpsim.models.huggingface.tensors import Parts, linear, norm
from dpsim.models.transformer_layers import Block, attention, embedding, final_norm, head, mlp


@dataclass(frozen=True)
class Sparse:
    """What distinguishes one family with experts.

    rotary   what its attention and dense blocks are like
    experts  keys of the number of experts; `chosen` of those a token takes; `width` of one's width
    shared   key of the width of the experts that all tokens pass; "": there are none
    biased   whether experts and router have biases, and heads a sink
    wide     whether the norms of queries and keys span all heads
    """

    rotary: Rotary
    experts: str = "num_experts"
    chosen: str = "num_experts_per_tok"
    width: str = "moe_intermediate_size"
    shared: str = ""
    biased: bool = False
    wide: bool = False


#: a head has h / a elements where the file does not say, unlike Qwen3's without experts
_QWEN3 = Rotary(bias="option", head_norms=True, window="late")
FAMILIES = {
    "mixtral": Sparse(Rotary(window="all"), experts="num_local_experts", width="intermediate_size"),
    "qwen2_moe": Sparse(
        Rotary(bias="qkv", window="late"), shared="shared_expert_intermediate_size"
    ),
    "qwen3_moe": Sparse(_QWEN3),
    "minimax_m2": Sparse(
        Rotary(head_norms=True), experts="num_local_experts", width="intermediate_size", wide=True
    ),
    "olmoe": Sparse(
        Rotary(bias="option", kv=True, head_norms=True), width="intermediate_size", wide=True
    ),
    "gpt_oss": Sparse(
        Rotary(bias="option", head_dim=64, window="named"),
        experts="num_local_experts", width="intermediate_size", biased=True,
    ),
}  # fmt: skip


def sparse(family: Sparse, config: Config) -> Parts:
    """A model of `family`."""
    if family.biased:
        config = replace(config, data={"attention_bias": True, **config.data})
    block, routing, s = block_of(family.rotary, config), routing_of(family, config), config.tokens
    layers = [opened(config, block.hidden)]
    for i in range(config.layers("num_hidden_layers")):
        unit = f"layers.{i}"
        seen = replace(block, window=window(family.rotary, config, i))
        layers.append(attention(seen, unit, _attention(family, config, block, unit), s))
        if _dense(config, i):
            layers.append(mlp(seen, unit, mlp_tensors(family.rotary, config, block, unit), s))
        else:
            layers += _experts(family, config, block.hidden, routing, unit)
    return closed(config, layers, block.hidden)


def routing_of(family: Sparse, config: Config) -> Routing:
    """The experts of its blocks."""
    names = dict.fromkeys((family.experts, "num_experts", "num_local_experts"))
    count, chosen = config.size(*names), config.size(family.chosen, "experts_per_token")
    return checked(Routing(count, chosen, config.size(family.width)), family.chosen)


def checked(routing: Routing, key: str) -> Routing:
    """`routing`, whose `key` says how many experts a token takes; Refused where there are fewer."""
    if routing.chosen > routing.experts:
        raise Refused(f"{routing.chosen} of {routing.experts} experts", (key,))
    return routing


def opened(config: Config, hidden: int) -> Layer:
    """The embedding."""
    table = (Tensor("embed_tokens.weight", (config.size("vocab_size"), hidden)),)
    return embedding("embed_tokens", hidden, table, config.tokens, dropout=False, lookups=1)


def closed(config: Config, layers: list[Layer], hidden: int) -> Parts:
    """`layers` with the final norm and the head behind them."""
    s = config.tokens
    layers.append(final_norm("norm", hidden, norm("norm", hidden, bias=False), s))
    tied = "embed_tokens" if config.flag("tie_word_embeddings", False) else None
    layers.append(head("lm_head", hidden, config.size("vocab_size"), s, tied=tied))
    return tuple(layers), ()


def expert_tensors(
    routing: Routing, hidden: int, path: str, *, biased: bool = False
) -> tuple[Tensor, ...]:
    """Those of all experts of a block."""
    e, m, h = routing.experts, routing.width, routing.latent or hidden
    first, wide = ("gate_up_proj", 2 * m) if routing.gated else ("up_proj", m)
    found = [Tensor(f"{path}.experts.{first}", (e, wide, h))]
    if biased:
        found.append(Tensor(f"{path}.experts.{first}_bias", (e, wide)))
    found.append(Tensor(f"{path}.experts.down_proj", (e, h, m)))
    if biased:
        found.append(Tensor(f"{path}.experts.down_proj_bias", (e, h)))
    return tuple(found)


def _experts(
    family: Sparse, config: Config, hidden: int, routing: Routing, unit: str
) -> list[Layer]:
    """Router, shared experts if any, and experts of a block; the norm comes after the router."""
    path, s = f"{unit}.mlp", config.tokens
    gate = linear(f"{path}.gate", routing.experts, hidden, bias=family.biased)
    gate += norm(f"{unit}.post_attention_layernorm", hidden, bias=False)
    layers = [router(hidden, routing, unit, gate, s)]
    if family.shared:
        wide = config.size(family.shared)
        tensors = gated_tensors(f"{path}.shared_expert", hidden, wide)
        tensors += linear(f"{path}.shared_expert_gate", 1, hidden, bias=False)
        layers.append(shared(hidden, wide, unit, tensors, s))
    own = expert_tensors(routing, hidden, path, biased=family.biased)
    return [*layers, experts(hidden, routing, unit, own, s)]


def gated_tensors(path: str, hidden: int, wide: int) -> tuple[Tensor, ...]:
    """Those of a gated feed-forward part `wide` wide."""
    tensors = linear(f"{path}.gate_proj", wide, hidden, bias=False)
    tensors += linear(f"{path}.up_proj", wide, hidden, bias=False)
    return tensors + linear(f"{path}.down_proj", hidden, wide, bias=False)


def _dense(config: Config, index: int) -> bool:
    """Whether block `index` has no experts: Qwen's `mlp_only_layers` and `decoder_sparse_step`."""
    only = config.data.get("mlp_only_layers") or []
    if not isinstance(only, list):
        raise Refused("is not a list of layers", ("mlp_only_layers",))
    return index in only or (index + 1) % config.size("decoder_sparse_step", default=1) != 0


def _attention(family: Sparse, config: Config, block: Block, unit: str) -> tuple[Tensor, ...]:
    tensors = attention_tensors(family.rotary, config, block, unit)
    if family.biased:
        return (Tensor(f"{unit}.self_attn.sinks", (block.heads,)), *tensors)
    widths = {"q_norm": block.heads, "k_norm": block.kv_heads} if family.wide else {}
    found = []
    for tensor in tensors:
        part = tensor.name.split(".")[-2]
        shape = (widths[part] * block.head_dim,) if part in widths else tensor.shape
        found.append(Tensor(tensor.name, shape))
    return tuple(found)


def dbrx(config: Config) -> Parts:
    """DBRX, whose file keeps attention and experts in sections of their own."""
    own, parts = config.section("attn_config"), config.section("ffn_config")
    h, heads, s = config.size("d_model"), config.size("n_heads"), config.tokens
    kv_heads = own.size("kv_n_heads", default=heads)
    head_dim = config.share(h, heads, "d_model", "n_heads")
    config.share(heads, kv_heads, "n_heads", "kv_n_heads")
    found = Routing(
        parts.size("moe_num_experts"), parts.size("moe_top_k"), parts.size("ffn_hidden_size")
    )
    routing = checked(found, "moe_top_k")
    block = Block(
        h, heads, kv_heads, head_dim, routing.width,
        gated=True, rotary=True, products=1, stored=config.stored, wide=config.wide,
    )  # fmt: skip
    layers = [opened(config, h)]
    for i in range(config.layers("n_layers")):
        unit, path = f"blocks.{i}", f"blocks.{i}.norm_attn_norm"
        tensors = linear(f"{path}.attn.Wqkv", (heads + 2 * kv_heads) * head_dim, h, bias=False)
        tensors += linear(f"{path}.attn.out_proj", h, heads * head_dim, bias=False)
        layers.append(attention(block, unit, tensors + norm(f"{path}.norm_1", h, bias=False), s))
        gate = linear(f"{unit}.ffn.router.layer", routing.experts, h, bias=False)
        gate += norm(f"{path}.norm_2", h, bias=False)
        layers.append(router(h, routing, unit, gate, s))
        layers.append(experts(h, routing, unit, expert_tensors(routing, h, f"{unit}.ffn"), s))
    return closed(config, layers, h)
