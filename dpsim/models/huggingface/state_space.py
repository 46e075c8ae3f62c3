"""Models with state-space layers: Mamba-2, and Nemotron-H, which mixes them with attention.

Nemotron-H's blocks are a norm and one mixer each, of four kinds: a state-space layer, attention
without positions, a feed-forward part of two matrices with a squared ReLU, or experts of such
parts.  The file says which block is which, by a letter (`hybrid_override_pattern`: M, *, - and E)
or by a word (`layers_block_type`).  Experts may be of a narrower width (`moe_latent_size`) that a
matrix makes and another widens again; here the first stands with the router, the second with the
experts that every token passes.

Parameters of a state-space block, in the letters of `dpsim/models/state_space_layers.py`:
h w + c k + c + 3 a + d + d h, and h of its norm (the second c is the convolution's bias).  Of a
block of experts: E h + 2 E l m + 2 h f and 2 h l where they are narrower, l their width, m that of
one and f that of the shared part.  The biases of the choice of experts are buffers and not counted
(huggingface/transformers 5.23 `models/nemotron_h/modeling_nemotron_h.py`, `models/mamba2`; NVIDIA,
arXiv:2504.03624).
"""

from __future__ import annotations

from dataclasses import replace

from dpsim.core.record import Refused
from dpsim.models import Layer
from dpsim.models.expert_layers import Routing, experts, router, shared
from dpsim.models.huggingface.config import Config
from dpsim.models.huggingface.sparse import checked, closed, expert_tensors, opened
from dpsim.models.huggingface.tensors import Parts, linear, norm
from dpsim.models.state_space_layers import Scan, scan_layer, scan_tensors
from dpsim.models.streams import CodedKernels
from dpsim.models.transformer_layers import Block, attention, mlp

#: letters and words of a block's kind
_KINDS = {
    "M": "scan", "mamba": "scan", "linear_attention": "scan",
    "*": "attention", "attention": "attention", "full_attention": "attention",
    "-": "mlp", "mlp": "mlp",
    "E": "moe", "moe": "moe",
}  # fmt: skip


def mamba2(config: Config) -> Parts:
    """A model of state-space layers alone."""
    h = config.size("hidden_size")
    heads, size = config.size("num_heads"), config.size("head_dim")
    if heads * size != config.size("expand", default=2) * h:
        raise Refused(f"{heads} x {size} is not expand x hidden_size = {h}", ("num_heads",))
    shape = Scan(
        h, heads, size, config.size("state_size"), _groups(config, heads),
        config.size("conv_kernel", default=4), config.size("chunk_size", default=256),
    )  # fmt: skip
    layers = [opened(config, h)]
    for i in range(config.layers("num_hidden_layers")):
        layers.append(_scanned(config, shape, f"layers.{i}"))
    return closed(config, layers, h)


def nemotron_h(config: Config) -> Parts:
    """A model of four kinds of blocks."""
    config.require("mlp_hidden_act", "relu2")
    h = config.size("hidden_size")
    layers = [opened(config, h)]
    for i, kind in enumerate(kinds_of(config)):
        unit = f"layers.{i}"
        if kind == "scan":
            layers.append(_scanned(config, _nemotron_scan(config), unit))
        elif kind == "attention":
            layers.append(_attention(config, unit))
        elif kind == "mlp":
            layers.append(_mlp(config, unit))
        else:
            layers += _moe(config, unit)
    return closed(config, layers, h)


def kinds_of(config: Config) -> list[str]:
    """The kind of every block: "scan", "attention", "mlp" or "moe"."""
    for key in ("layers_block_type", "hybrid_override_pattern"):
        said = config.data.get(key)
        if said is None:
            continue
        if not isinstance(said, list | str) or not 1 <= len(said) <= 10_000:
            raise Refused("is no list of blocks", (key,))
        for letter in said:
            if not isinstance(letter, str) or letter not in _KINDS:
                raise Refused(f"{str(letter)[:60]!r} is none of {', '.join(_KINDS)}", (key,))
        count = config.data.get("num_hidden_layers")
        if count is not None and count != len(said):
            raise Refused(f"{count} contradicts {key}, {len(said)}", ("num_hidden_layers",))
        return [_KINDS[letter] for letter in said]
    raise Refused("is missing", ("hybrid_override_pattern",))


def _groups(config: Config, heads: int) -> int:
    groups = config.size("n_groups", default=8)
    config.share(heads, groups, "heads of the scan", "n_groups")
    return groups


def _nemotron_scan(config: Config) -> Scan:
    heads = config.size("mamba_num_heads")
    return Scan(
        config.size("hidden_size"), heads, config.size("mamba_head_dim"),
        config.size("ssm_state_size"), _groups(config, heads),
        config.size("conv_kernel", default=4), config.size("chunk_size", default=128),
    )  # fmt: skip


def _scanned(config: Config, shape: Scan, unit: str) -> Layer:
    biased, conv = config.flag("use_bias", False), config.flag("use_conv_bias", True)
    tensors = scan_tensors(shape, f"{unit}.mixer", biased=biased, conv_biased=conv)
    return scan_layer(
        shape, unit, norm(f"{unit}.norm", shape.hidden, bias=False) + tensors, config.tokens
    )


def _attention(config: Config, unit: str) -> Layer:
    h, heads = config.size("hidden_size"), config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", default=heads)
    config.share(heads, kv_heads, "num_attention_heads", "num_key_value_heads")
    size = config.size("head_dim", "attention_head_dim", default=128)
    block = Block(
        h, heads, kv_heads, size, 1, gated=True, stored=config.stored, wide=config.wide,
        score_dropout=config.dropout("attention_dropout", 0.0),
        window=config.count("sliding_window"),
    )  # fmt: skip
    tensors = norm(f"{unit}.norm", h, bias=False)
    widths = {"q": heads * size, "k": kv_heads * size, "v": kv_heads * size}
    for part, width in widths.items():
        tensors += linear(f"{unit}.mixer.{part}_proj", width, h, bias=False)
    tensors += linear(f"{unit}.mixer.o_proj", h, heads * size, bias=False)
    return attention(block, unit, tensors, config.tokens)


def _mlp(config: Config, unit: str) -> Layer:
    h, f, path = config.size("hidden_size"), config.size("intermediate_size"), f"{unit}.mixer"
    bias = config.flag("mlp_bias", False)
    tensors = norm(f"{unit}.norm", h, bias=False) + linear(f"{path}.up_proj", f, h, bias=bias)
    tensors += linear(f"{path}.down_proj", h, f, bias=bias)
    made = mlp(Block(h, 1, 1, 1, f), unit, tensors, config.tokens)
    whole = float(config.tokens * h)
    return replace(  # the only half of its block; its norm is of roots of squares
        made, activations_full=whole, rms=whole, eager_kernels=None, compiled_kernels=None,
        library_kernels=made.compiled_kernels, coded_kernels=CodedKernels(),
    )  # fmt: skip


def _moe(config: Config, unit: str) -> list[Layer]:
    """Norm, router and what narrows tokens; the shared part and what widens them; experts."""
    h, s, path = config.size("hidden_size"), config.tokens, f"{unit}.mixer"
    bias, narrow = config.flag("mlp_bias", False), config.count("moe_latent_size")
    count, chosen = config.size("n_routed_experts"), config.size("num_experts_per_tok")
    width = config.size("moe_intermediate_size")
    routing = checked(
        Routing(count, chosen, width, gated=False, latent=narrow), "num_experts_per_tok"
    )
    first = norm(f"{unit}.norm", h, bias=False) + linear(f"{path}.gate", count, h, bias=False)
    wide = config.size("moe_shared_expert_intermediate_size")
    always = linear(f"{path}.shared_experts.up_proj", wide, h, bias=bias)
    always += linear(f"{path}.shared_experts.down_proj", h, wide, bias=bias)
    if narrow:
        first += linear(f"{path}.fc1_latent_proj", narrow, h, bias=bias)
        always += linear(f"{path}.fc2_latent_proj", h, narrow, bias=bias)
    made = [
        router(h, routing, unit, first, s),
        shared(h, wide, unit, always, s, gated=False, latent=narrow),
        experts(h, routing, unit, expert_tensors(routing, h, path), s),
    ]
    made[0] = replace(made[0], activations_full=float(s * h))
    return made
