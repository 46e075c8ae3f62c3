"""Models with sparse experts in a table of training runs: which model a name means, how many ranks
share its experts out, and how its tokens are routed.

A model that dpsim knows is taken as it is.  Of any other the name must say how many experts a block
has, how many of them a token takes, and whose blocks they are ("Llama-3 MoE 8 experts top-2"); with
the parameters of all experts together that makes a shape.
"""

from __future__ import annotations

import math
import re
from typing import Any

from dpsim.accuracy.model_words import SparseFamily
from dpsim.accuracy.rules import first, told
from dpsim.accuracy.training.shapes import SHAPES
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused

#: the columns whose words tell how experts are shared out and routed
_COLUMNS = ("strategy", "strategy_detail", "shard", "notes")
#: how far the blocks that parameters make may be from the usual number, by ratio
_BLOCKS_APART = 3.0
#: elements of a head in all families of `words.yaml`
_HEAD = 128


def sparse_model(
    plain: str, name: str, parameters: float | None, tokens: int
) -> tuple[dict[str, Any], str]:
    """The `model:` section of the model with experts called `name` (`plain` in lower case), which
    has so many `parameters` in all, and a note where it is a stand-in.

    Raises Refused, saying what is missing, where neither the name nor a described shape tells it.
    """
    words = vocabulary().models
    for keys, _ in told(words.sparse, plain):
        return {**keys, "sequence_length": tokens}, ""
    family, routed = first(words.sparse_families, plain), words.routed.search(plain)
    if family is None or routed is None:
        known = ", ".join(one.name for one in words.sparse_families)
        raise Refused(
            f"the experts of {name[:60]!r} are not known: a name of a model that comes with dpsim, "
            f"or experts, how many a token takes and a family ({known}), as in "
            "'Llama-3 MoE 8 experts top-2', would tell"
        )
    if not parameters:
        raise Refused(
            f"the width of {name[:60]!r} is not known: params_m, of all experts together, would "
            "tell"
        )
    return _shaped(family, int(routed[1]), int(routed[2]), parameters, tokens, name)


def _shaped(
    family: SparseFamily, experts: int, chosen: int, parameters: float, tokens: int, name: str
) -> tuple[dict[str, Any], str]:
    """Blocks of `family` with experts in the place of the feed-forward part: of the usual widths
    that whose usual number of blocks comes nearest, by ratio, to what the parameters make of it.

    Raises Refused where that is far from it."""

    def blocks_of(width: int) -> float:
        attention = width**2 * (2.0 + 2.0 / family.queries)
        block = attention + width * experts + 3.0 * width * family.wide * width * experts
        return max(parameters - 2.0 * family.vocabulary * width, 0.0) / block

    found = [(width, usual, blocks_of(width)) for _, width, usual in SHAPES]
    width, usual, made = min(found, key=lambda one: abs(math.log(max(one[2], 1e-9) / one[1])))
    if not 1 / _BLOCKS_APART <= made / usual <= _BLOCKS_APART:
        raise Refused(
            f"params_m: {parameters / 1e6:g} million make no blocks of {experts} experts of "
            f"{family.name}: of the nearest usual width, {width:,}, {made:.3g}, and {usual} are "
            "usual; it has to count all experts together"
        )
    blocks, wide = max(round(made), 1), round(family.wide * width)
    heads = width // _HEAD
    data = {
        "name": "transformer", "family": "llama", "hidden": width, "blocks": blocks,
        "heads": heads, "kv_heads": max(heads // family.queries, 1), "feed_forward": wide,
        "vocabulary": family.vocabulary, "experts": experts, "experts_per_token": chosen,
        "sequence_length": tokens,
    }  # fmt: skip
    return data, (
        f"{name} is played as {blocks} blocks of {family.name}, of width {width:,}, with "
        f"{experts} experts of width {wide:,} of which a token takes {chosen}"
    )


def named_with_experts(plain: str) -> bool:
    """Whether a model called that, in lower case, is one of experts: one that comes with dpsim, or
    one that its words tell."""
    words = vocabulary().models
    return first(words.sparse, plain) is not None or words.experts.search(plain) is not None


def has_experts(row: TrainingRow) -> bool:
    """Whether the model of `row` is one of experts."""
    return named_with_experts(row.text("model").lower())


def shared_among(row: TrainingRow) -> int:
    """How many ranks share the experts of `row` out: as column ep or its words say, else one.

    Raises Refused where column ep holds no number, where the model has no experts to share out, or
    expert parallelism is named without its size.
    """
    if not has_experts(row):
        if row.count("ep") > 1:
            raise Refused(
                f"ep: {row.count('ep')} ranks share experts out, but {row.text('model')[:60]!r} "
                "has none; 1 or empty is accepted, or a model of experts"
            )
        return 1
    if cell := row.text("ep"):
        if row.get("ep") is None:
            raise Refused(f"ep: {cell[:60]!r} is not one number; 1 is none, and empty as words say")
        return row.count("ep")
    words, text = vocabulary().experts, _said(row)
    found = words.parallel.search(text)
    if found:
        return int(next(group for group in found.groups() if group))
    if words.named.search(text):
        raise Refused(
            f"ep: expert parallelism of unknown size ({row.text('strategy')[:60]}); column ep, or "
            "'expert parallel 4' in strategy_detail, would tell"
        )
    return 1


def routing_of(row: TrainingRow, notes: list[str]) -> dict[str, Any]:
    """The section `moe` of `row`, empty where nothing is said; appends to `notes` what is assumed
    of a model with experts."""
    if not has_experts(row):
        return {}
    words, text = vocabulary().experts, _said(row)
    found: dict[str, Any] = {}
    for keys, _ in told(words.routing, text):
        found = {**keys, **found}
    if capacity := words.capacity.search(text):
        found["capacity"] = float(capacity[1])
    if not {"imbalance", "capacity"} & found.keys():
        notes.append("experts are assumed to get as many tokens each, and none is dropped")
    if apart(row):
        notes.append("experts that are not packed are played as if they were (grouped products)")
    return {"moe": found} if found else {}


def apart(row: TrainingRow) -> bool:
    """Whether every expert of `row` has matrices of its own, which a step stacks or loops over."""
    return has_experts(row) and vocabulary().experts.apart.search(_said(row)) is not None


def _said(row: TrainingRow) -> str:
    """What the columns say of experts, without what they say is not there."""
    text = " | ".join(row.text(column) for column in _COLUMNS).lower()
    return vocabulary().experts.denied.sub("", text)


def with_modules(
    row: TrainingRow, strategy: dict[str, Any], shared: int, notes: list[str]
) -> dict[str, Any]:
    """`strategy` of a model whose experts are modules of their own, as most code but torchtitan's
    had them: fully_shard would pad experts in one tensor to the ranks of a group, and does where
    FSDP 2 is said.  Where `shared` ranks share experts out, and on TPUs, nothing is padded."""
    words = f"{row.text('framework')} {row.strategy_words} {row.text('accelerator')}".lower()
    fused = re.search("torchtitan|fsdp-?2|fully_shard", words) or vocabulary().tpus.search(words)
    if strategy["kind"] != "fsdp" or shared > 1 or fused:
        return strategy
    if not named_with_experts(row.text("model").lower()):
        return strategy
    notes.append("a module for each expert is assumed, flattened with its unit")
    group = {"sharding_strategy": "HYBRID_SHARD", "shard": strategy.get("shard")}
    return {"kind": "fsdp1", **(group if "shard" in strategy else {})}
