"""From a row of a table of training runs to the adapters that were trained beside its model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpsim.accuracy.training.models import ModelChoice
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused

#: products of attention, in Llama's names, and in those of stand-ins
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")
_STAND_IN_ATTENTION = ("c_attn", "attn.c_proj")


def adapted(row: TrainingRow, found: ModelChoice, notes: list[str]) -> ModelChoice:
    """`found` with low-rank adapters where the row's words say so: of rank 16 on the products of
    attention, as MLPerf's fine-tuning has them (mlcommons/training_policies), for no table says."""
    columns = ("model", "task", "strategy", "strategy_detail")
    said = " ".join(row.text(column) for column in columns).lower()
    known = vocabulary().models
    words = known.adapted.search(said)
    if words is None and (partly := known.partly.search(known.not_partly.sub(" ", said))):
        raise Refused(f"a model of which a part is trained is read as LoRA alone ({partly[0]!r})")
    if words is None:
        return found
    if not found.language:
        raise Refused(f"adapters of {row.text('model')[:60]!r} are not read")
    llama = "huggingface" in found.data or found.data.get("family") == "llama"
    targets = list(_ATTENTION if llama else _STAND_IN_ATTENTION)
    rank, everywhere = known.adapter_rank.search(said), known.everywhere.search(said)
    if everywhere and not llama:
        raise Refused(f"adapters of all products of {row.text('model')[:60]!r} are not read")
    targets += _FEED_FORWARD if everywhere else ()
    adapters: dict[str, Any] = {
        "kind": "lora", "rank": int(rank[1]) if rank else 16, "targets": targets,
    }  # fmt: skip
    if words[1]:
        adapters["base_dtype"] = "nf4"
        notes.append("the model beside its adapters is in 4 bits (NF4)")
    if not (rank and everywhere):
        where = "all products" if everywhere else "attention's products"
        notes.append(f"adapters of rank {adapters['rank']} on {where} are assumed")
    return replace(found, data={**found.data, "adapters": adapters})


def beside_adapters(
    strategy: dict[str, Any], model: ModelChoice, notes: list[str]
) -> dict[str, Any]:
    """`strategy` as it trains adapters: torch flattens parameters of which some are frozen only
    with use_orig_params, and those in 4 bits only where code stores them otherwise, which is
    played as fully_shard has them."""
    adapters = model.data.get("adapters")
    if adapters is None or strategy["kind"] != "fsdp1":
        return strategy
    if "base_dtype" in adapters:
        notes.append("FSDP of parameters in 4 bits is played as fully_shard has it")
        found: dict[str, Any] = {"kind": "fsdp"}
        found |= {"shard": strategy["shard"]} if "shard" in strategy else {}
        kept = strategy.get("sharding_strategy") in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2")
        return found | ({"reshard_after_forward": False} if kept else {})
    notes.append("use_orig_params: true is assumed, for adapters train beside frozen parameters")
    return {**strategy, "use_orig_params": True}
