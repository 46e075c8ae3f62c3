"""Shapes of models that a name stands for, and names that state another beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from dpsim.accuracy.training.stated_shapes import told_parts
from dpsim.core.record import Refused

#: what configurations call the parts of a shape: of a decoder, or of an encoder alone
_KEYS = {
    "blocks": ("num_hidden_layers", "n_layer", "n_layers"),
    "width": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "feed_forward": ("intermediate_size", "moe_intermediate_size", "ffn_dim", "d_ff"),
    "experts": ("num_local_experts", "n_routed_experts", "num_experts"),
    "experts_per_token": ("num_experts_per_tok",),
}
#: how a part is told
_WORDS = {
    "blocks": "of {} blocks", "width": "of width {}", "heads": "of {} heads",
    "kv_heads": "of {} heads of keys", "feed_forward": "with feed-forward parts of width {}",
    "experts": "of {} experts", "experts_per_token": "with {} experts a token",
}  # fmt: skip

#: shapes that are accepted, without experts and with them
_EXAMPLES = ("'gpt h4096 l32 a32'", "'Llama-3 MoE 8 experts top-2'")


def configuration_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that the section `data` names under `huggingface`."""
    path = resources.files("dpsim.models") / "configs" / f"{data['huggingface']}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def part_of(data: Mapping[str, Any], part: str) -> int | None:
    """A `part` of the shape that the configuration which `data` names has; None where it has no
    such key."""
    found = configuration_of(data)
    return next((int(found[key]) for key in _KEYS[part] if found.get(key)), None)


def require_shape(plain: str, data: Mapping[str, Any]) -> None:
    """Raise Refused where the name `plain` states a part of a shape that the model `data`, for
    which it stands, has otherwise."""
    own = _parts(data)
    for part, told in told_parts(plain).items():
        known = own.get(part, set())
        other = next((n for n in sorted(told) if known and n not in known), None)
        if other is not None:
            said = _WORDS[part].format(f"{other:,}")
            raise Refused(
                f"model: {plain[:60]!r} is no model {said}, for that of its name has "
                f"{' or '.join(f'{n:,}' for n in sorted(known))}; a shape, as in "
                f"{_EXAMPLES['experts' in part]}, is accepted"
            )


def _parts(data: Mapping[str, Any]) -> dict[str, set[int]]:
    """What each part of the shape of `data` may be told as; nothing of one that is not known."""
    if "huggingface" not in data:
        heads, plain = data["heads"], 4 * data["hidden"]
        wide = data.get("feed_forward", plain)
        # without gates it is four times the width, and half as wide again as gated ones as large
        ungated = data["family"] == "llama" and abs(1.5 * wide - plain) <= 1
        return {
            "blocks": {data["blocks"]}, "width": {data["hidden"]}, "heads": {heads},
            "kv_heads": {data.get("kv_heads", heads)},
            "feed_forward": {wide, plain} if ungated else {wide},
        }  # fmt: skip
    config = configuration_of(data)
    found = {part: {int(config[k]) for k in keys if config.get(k)} for part, keys in _KEYS.items()}
    if not found["feed_forward"] and "ffn_config" not in config:  # four times the width
        found["feed_forward"] = {4 * width for width in found["width"]}
    return found
