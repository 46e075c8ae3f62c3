"""DeepSeek-V2 and -V3, and Kimi-K2, which is DeepSeek-V3 with other numbers.

Latent attention, dense first blocks, then routed and shared experts.  Modules of multi-token
prediction (`num_nextn_predict_layers`) are no part of the model that the file's architecture names,
and stand behind it where they are asked for: each is two norms, a product that joins what the
module before puts out with the embedding of the next token, 2 h to h, a block with experts, a norm,
and the head again (DeepSeek-AI, arXiv:2412.19437, section 2.2; the embedding and the head are the
main model's).

The number of parameters, with a heads, n, r and v elements of a head without and with a
position and of its values, c and q the narrow widths of keys and of queries:

    V h (twice unless tied) + h
    + L (h q + q + q a (n + r) + h (c + r) + c + c a (n + v) + a v h + 2 h)
    + D 3 h f + (L - D) (3 h m (E + shared) + h E + E)

with h a (n + r) in place of the first three terms where there is no `q_lora_rank`, and without the
last E, the biases of the choice, in V2 (DeepSeek-AI, arXiv:2405.04434 and arXiv:2412.19437).
"""

from __future__ import annotations

from dpsim.models import Layer, Tensor
from dpsim.models.expert_layers import Latent, Routing, experts, latent_attention, router, shared
from dpsim.models.huggingface.config import Config
from dpsim.models.huggingface.sparse import checked, closed, expert_tensors, gated_tensors, opened
from dpsim.models.huggingface.tensors import Parts, linear, norm
from dpsim.models.library_kernels import joined_kernels
from dpsim.models.transformer_layers import Block, final_norm, head, matrix_flop, mlp

#: families, and whether their routers have biases of the choice
FAMILIES = {"deepseek_v2": False, "deepseek_v3": True, "kimi_k2": True}


def deepseek(biased: bool, config: Config) -> Parts:
    """A model of the family; `biased`: its routers have biases of the choice."""
    config.require("moe_layer_freq", 1)
    config.require("attention_bias", False)
    shape = _latent(config)
    h, s = shape.hidden, config.tokens
    chosen, count = config.size("num_experts_per_tok"), config.size("n_routed_experts")
    width = config.size("moe_intermediate_size")
    routing = Routing(count, chosen, width, grouped=biased)
    routing = checked(routing, "num_experts_per_tok")
    wide = width * config.count("n_shared_experts")
    dense = config.count("first_k_dense_replace")
    layers = [opened(config, h)]
    for i in range(config.layers("num_hidden_layers")):
        unit = f"layers.{i}"
        tensors = _attention_tensors(shape, unit)
        layers.append(_latent_layer(config, shape, unit, tensors))
        if i < dense:
            layers.append(dense_half(config, h, unit))
        else:
            layers += expert_half(routing, h, unit, wide, s, biased=biased)
    whole, order = closed(config, layers, h)
    if not config.ahead:
        return whole, order
    first = config.layers("num_hidden_layers")
    for i in range(first, first + config.layers("num_nextn_predict_layers")):
        unit = f"layers.{i}"
        tensors = _attention_tensors(shape, unit)
        made = [_joined(h, unit, s)]
        made.append(_latent_layer(config, shape, unit, tensors))
        made += expert_half(routing, h, unit, wide, s, biased=biased)
        whole += (*made, *_further_head(config, h, unit))
    return whole, order


def _latent_layer(config: Config, shape: Latent, unit: str, tensors: tuple[Tensor, ...]) -> Layer:
    kinds = {"stored": config.stored, "wide": config.wide}
    return latent_attention(shape, unit, tensors, config.tokens, **kinds)


def _joined(hidden: int, unit: str, tokens: int) -> Layer:
    """What joins a token with the embedding of the next one: two norms, their outputs side by side,
    and a product from 2 h to h.  Traffic per token: h looked up, 4 h of norms, 3 h of the product;
    kept: both inputs and both outputs of the norms."""
    h = hidden
    tensors = norm(f"{unit}.enorm", h, bias=False) + norm(f"{unit}.hnorm", h, bias=False)
    tensors += linear(f"{unit}.eh_proj", h, 2 * h, bias=False)
    flop, kept = matrix_flop(tensors, tokens), float(tokens * 4 * h)
    return Layer(
        name=f"{unit}.joined",
        tensors=tensors,
        forward_flop=flop,
        backward_flop=2 * flop,
        forward_bytes=tokens * 8 * h,
        backward_bytes=2 * tokens * 8 * h,
        kernels=4,
        activations=kept,
        activations_full=float(tokens * 2 * h),
        activations_selective=kept,
        activations_op=kept,
        inside=float(tokens * 2 * h),
        rms=float(tokens * 2 * h),
        replicated=kept,
        output=float(tokens * h),
        unit=unit,
        library_kernels=joined_kernels(h, tokens),
    )


def _further_head(config: Config, hidden: int, unit: str) -> tuple[Layer, Layer]:
    """The norm of a module, and the main model's head behind it."""
    path, tokens = f"{unit}.shared_head", config.tokens
    last = final_norm(f"{path}.norm", hidden, norm(f"{path}.norm", hidden, bias=False), tokens)
    owner = "embed_tokens" if config.flag("tie_word_embeddings", False) else "lm_head"
    return last, head(f"{path}.head", hidden, config.size("vocab_size"), tokens, tied=owner)


def _latent(config: Config) -> Latent:
    return Latent(
        config.size("hidden_size"),
        config.size("num_attention_heads"),
        config.count("q_lora_rank"),
        config.size("kv_lora_rank"),
        config.size("qk_nope_head_dim"),
        config.size("qk_rope_head_dim"),
        config.size("v_head_dim"),
    )


def _attention_tensors(shape: Latent, unit: str) -> tuple[Tensor, ...]:
    path, h = f"{unit}.self_attn", shape.hidden
    if shape.query_rank:
        tensors = linear(f"{path}.q_a_proj", shape.query_rank, h, bias=False)
        tensors += norm(f"{path}.q_a_layernorm", shape.query_rank, bias=False)
        tensors += linear(f"{path}.q_b_proj", shape.key, shape.query_rank, bias=False)
    else:
        tensors = linear(f"{path}.q_proj", shape.key, h, bias=False)
    wide = shape.heads * (shape.plain + shape.value)
    tensors += linear(f"{path}.kv_a_proj_with_mqa", shape.rank + shape.turned, h, bias=False)
    tensors += norm(f"{path}.kv_a_layernorm", shape.rank, bias=False)
    tensors += linear(f"{path}.kv_b_proj", wide, shape.rank, bias=False)
    tensors += linear(f"{path}.o_proj", h, shape.values, bias=False)
    return tensors + norm(f"{unit}.input_layernorm", h, bias=False)


def dense_half(config: Config, hidden: int, unit: str) -> Layer:
    """The feed-forward half of a block without experts."""
    wide = config.size("intermediate_size")
    tensors = gated_tensors(f"{unit}.mlp", hidden, wide)
    tensors += norm(f"{unit}.post_attention_layernorm", hidden, bias=False)
    return mlp(Block(hidden, 1, 1, 1, wide, gated=True), unit, tensors, config.tokens)


def expert_half(
    routing: Routing, hidden: int, unit: str, wide: int, tokens: int, *, biased: bool
) -> list[Layer]:
    """Router, shared experts if any, and experts of a block; the norm comes after the router."""
    path = f"{unit}.mlp"
    gate = linear(f"{path}.gate", routing.experts, hidden, bias=False)
    if biased:
        gate += (Tensor(f"{path}.gate.e_score_correction_bias", (routing.experts,)),)
    gate += norm(f"{unit}.post_attention_layernorm", hidden, bias=False)
    layers = [router(hidden, routing, unit, gate, tokens)]
    if wide:
        own = gated_tensors(f"{path}.shared_experts", hidden, wide)
        layers.append(shared(hidden, wide, unit, own, tokens))
    own = expert_tensors(routing, hidden, path)
    return [*layers, experts(hidden, routing, unit, own, tokens)]
