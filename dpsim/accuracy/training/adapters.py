"""From a row of a table of training runs to the adapters that were trained beside its model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpsim.accuracy.rules import meaning
from dpsim.accuracy.training import compared
from dpsim.accuracy.training.models import ModelChoice
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused

#: products of attention, in Llama's names, and in those of stand-ins; and the others of a block
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")
_STAND_IN_ATTENTION = ("c_attn", "attn.c_proj")
_STAND_IN = ("c_attn", "c_proj", "c_fc")
#: what frozen parameters may be stored in, in words
_BITS = {"nf4": "4 bits (NF4)", "int8": "8 bits"}
_COLUMNS = ("model", "task", "strategy", "strategy_detail")


def adapted(row: TrainingRow, found: ModelChoice, notes: list[str]) -> ModelChoice:
    """`found` with low-rank adapters where the row's words say so: where they say no more, of rank
    16 on the products of attention, as MLPerf's fine-tuning has them (mlcommons/training_policies).
    """
    known, said = vocabulary().models, _said(row)
    words = known.adapted.search(said)
    if words is None and (partly := known.partly.search(known.not_partly.sub(" ", said))):
        raise Refused(f"a model of which a part is trained is read as LoRA alone ({partly[0]!r})")
    if words is None:
        return found
    if not found.language:
        raise Refused(f"adapters of {row.text('model')[:60]!r} are not read")
    rank, (targets, where) = known.adapter_rank.search(said), _targets(row, found, said)
    adapters: dict[str, Any] = {
        "kind": "lora", "rank": int(rank[1]) if rank else 16, "targets": targets,
    }  # fmt: skip
    if bits := meaning(known.adapted_bits, said) or ("nf4" if words[1] else None):
        adapters["base_dtype"] = bits
        notes.append(f"the model beside its adapters is in {_BITS[bits]}")
    if not (rank and where):
        where = where or "attention's products"
        notes.append(f"adapters of rank {adapters['rank']} on {where} are assumed")
    return replace(found, data={**found.data, "adapters": adapters})


def _said(row: TrainingRow) -> str:
    """What `row` says of adapters, without those of another run that it is compared with, and where
    nothing says that all is trained with what its notes tell by itself."""
    known = vocabulary().models
    found = [compared.said(row.text(column).lower(), known.lora) for column in _COLUMNS]
    text = " ".join(one.text for one in found)
    whole = known.whole.search(text) is not None
    unclear = next((one.compared for one in found if one.compared), "")
    if unclear and not whole:
        raise Refused(
            f"{unclear[:60]!r} compares LoRA with another run, and which of them was measured is "
            "not stated; 'LoRA' or 'full fine-tuning' in column task would tell"
        )
    noted = compared.clauses(row.text("notes").lower())
    if whole or not any(known.adapted_alone.search(part) for part in noted):
        return text
    sizes = (known.adapted_alone, known.adapted_size)
    told = (part for part in noted if any(words.search(part) for words in sizes))
    return " ".join((text, *(part.removeprefix("using ") for part in told)))


def _targets(row: TrainingRow, found: ModelChoice, said: str) -> tuple[list[str], str]:
    """The products that have adapters, and which those are in words; "" where nothing says it."""
    llama = "huggingface" in found.data or found.data.get("family") == "llama"
    if names := _named(row):
        return _of_model(row, names, (*_ATTENTION, *_FEED_FORWARD) if llama else _STAND_IN)
    if not vocabulary().models.everywhere.search(said):
        return list(_ATTENTION if llama else _STAND_IN_ATTENTION), ""
    if not llama:
        raise Refused(f"adapters of all products of {row.text('model')[:60]!r} are not read")
    return [*_ATTENTION, *_FEED_FORWARD], "all products"


def _named(row: TrainingRow) -> list[str]:
    """The modules that `row` names as those with adapters (`target_modules q_proj, v_proj`)."""
    known = vocabulary().models
    lists = (known.adapter_targets.search(row.text(column).lower()) for column in _COLUMNS)
    listed = next((found[1] for found in lists if found), "")
    return [found[0] for found in known.adapter_target.finditer(listed)]


def _of_model(row: TrainingRow, names: list[str], own: tuple[str, ...]) -> tuple[list[str], str]:
    """Those of `names` that a model has, of whose blocks `own` are the products: lists are written
    for models of several kinds.  Raises Refused where it has none, and of what nobody knows."""
    unknown = [name for name in names if name not in (*_ATTENTION, *_FEED_FORWARD, *_STAND_IN)]
    chosen = [name for name in dict.fromkeys(names) if name in own]
    if unknown or not chosen:
        named, model = ", ".join(unknown or names)[:60], row.text("model")[:60]
        raise Refused(f"adapters on {named} of {model!r} are not read; {', '.join(own)} are")
    return chosen, ", ".join(chosen)


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
