"""From a row of a table of training runs to how it was executed: by which kernels, with which
attention, and whether backward computed activations again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpsim.accuracy.rules import told
from dpsim.accuracy.training import compared
from dpsim.accuracy.training.experts import named_with_experts
from dpsim.accuracy.training.models import ModelChoice
from dpsim.accuracy.training.precisions import tensor_float
from dpsim.accuracy.training.strategies import date_of
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.cases.case import Case
from dpsim.cases.work import has_rates
from dpsim.core.record import Refused
from dpsim.machines.devices import Device
from dpsim.machines.machine import load_device, load_machine
from dpsim.models import convolutions
from dpsim.models.section import load, make

#: FLOP that a row counts over the model's own, between which its backward did forward again: 4/3,
#: and what formulas count otherwise.  Of published rows that say it, those that recompute and count
#: it have 1.29 to 1.34 (BigScience, InternEvo), all others 0.9 to 1.14 (LLM Foundry, NeMo)
_AGAIN = (1.22, 1.55)


def _told_of_again(row: TrainingRow, said: str) -> str:
    """What is computed again, as it is `said` or, where that says nothing, as a note says it by
    itself; empty where neither does."""
    words = vocabulary()
    found = words.recomputing.search(words.no_recomputing.sub("", said))
    if found:
        return "full" if found["selective"] is None else "selective"
    return "full" if words.recomputing_notes.search(row.text("notes").lower()) else ""


def tells_of_again(row: TrainingRow) -> bool:
    """Whether a row says, in any column, what is computed again or that nothing is."""
    words, notes = vocabulary(), row.text("notes").lower()
    denied = words.no_recomputing.search(row.strategy_words) or words.keeping_notes.search(notes)
    return bool(row.text("act_ckpt") or denied or _told_of_again(row, row.strategy_words))


def recomputed(row: TrainingRow, notes: list[str] | None = None) -> dict[str, Any]:
    """What is computed again, as column act_ckpt says it, or where it is empty the strategy's
    words; appends to `notes` what is assumed."""
    stated = row.text("act_ckpt").lower()
    words = _of_this_run(stated or row.strategy_words)
    if stated and not vocabulary().no_recomputing.sub("", words).strip(" ,;()"):
        stated = "none"
    if vocabulary().recomputing_of_none.search(words):
        stated = "selective" if "selective" in words else "none"
    if some := vocabulary().recomputing_some.search(stated or words):
        raise Refused(
            f"act_ckpt: {some[0][:60]!r}, a part of the blocks, is not played; full, selective or "
            "none is"
        )
    stated = stated or _told_of_again(row, words)
    keys, more = next(told(vocabulary().recompute, stated, row.text), ({}, []))
    if not keys:
        raise Refused(f"act_ckpt: {stated[:60]!r} is not read; full, selective or none is")
    if notes is not None:
        notes += more
    return keys


def _of_this_run(text: str) -> str:
    """`text` without what it says of recomputation in another run that it is compared with."""
    found = compared.said(text, vocabulary().recomputation)
    if found.compared:
        raise Refused(
            f"act_ckpt: {found.compared[:60]!r} compares two runs, and which of them was measured "
            "is not stated; full, selective or none is read"
        )
    return found.text


def executed(
    row: TrainingRow, model: ModelChoice, data: Mapping[str, Any], notes: list[str]
) -> dict[str, Any]:
    """The sections of `data` with the kernels and the attention of the row's framework and time,
    where kernels count: shares of the peak that are fitted to whole steps have both in them."""
    cluster, words = data["cluster"], vocabulary()
    board = cluster.get("device")
    device = load_device(board) if board else load_machine(cluster["machine"]).device
    texts = model.language or model.data.get("sample") == "sequence"
    sample = "sequence" if texts else "image"
    precision = tensor_float(row, data["precision"], device, sample, notes)
    found: dict[str, Any] = {"precision": precision}
    if not model.language:
        return found | _of_images(row, model, device, precision["compute"], notes)
    if not has_rates(device, precision["compute"]):
        return found
    for keys, more in told(words.attention, row.software_words, row.with_known(date=date_of(row))):
        notes += more
        found["model"] = {**model.data, **keys}
        break
    made = next(told(words.execution, row.strategy_words, row.with_known(date=date_of(row))), None)
    own = made and made[0].get("code") == "nanotron"  # its own models, by their shapes
    llama = model.data.get("family") == "llama"
    # of which more than the size is known, or of which no more decides on kernels
    shaped = "huggingface" in model.data or not model.note
    shaped = shaped or bool(words.models.decoders.search(row.text("model").lower()))
    if made and (llama or (not own and shaped)):
        keys, more = made
        notes += more
        if keys.get("compile") and named_with_experts(row.text("model").lower()):
            keys = {**keys, "compile": False}
            notes.append("kernels of experts are not counted compiled; they are taken one by one")
        found["execution"] = _with_code(keys, {**model.data, **found.get("model", {})})
        found |= _one_by_one(found)
    return found


def _one_by_one(found: Mapping[str, Any]) -> dict[str, Any]:
    """The model of `found` whose attention stores its scores, where nothing is fused: then scale,
    mask, softmax and dropout have a kernel each."""
    model = found.get("model", {})
    if model.get("attention") != "math" or found["execution"] != {"compile": False}:
        return {}
    return {"model": {**model, "attention": "eager"}}


def _with_code(keys: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    """`keys` with torchtitan's code only where it has all layers of `model`."""
    if keys.get("code") != "torchtitan":
        return keys
    blocks = (layer for layer in load(make(model, file=False), Path()).layers if layer.unit)
    has = all(layer.coded_kernels.torchtitan is not None for layer in blocks)
    return keys if has else {"compile": False}


def _of_images(
    row: TrainingRow, model: ModelChoice, device: Device | None, dtype: str, notes: list[str]
) -> dict[str, Any]:
    """The section of an image network that computes in `dtype`, with kernels that are fused or not
    and channels last or first."""
    if not convolutions.has_shares(device):
        return {}
    if not convolutions.is_network(load(make(model.data, file=False), Path())):
        return {}
    rules = vocabulary().image_execution
    keys, more = next(told(rules, row.strategy_words, row.text))  # the last one is for all
    known = row.with_known(compute=dtype)
    laid, also = next(told(vocabulary().image_layout, row.software_words, known), ({}, []))
    notes += [*more, *also]
    return {"execution": {**keys, **laid}}


#: FLOP of forward, backward and forward again, over those of forward and backward alone
AGAIN = 4 / 3


def rate_has_again(row: TrainingRow) -> bool:
    """Whether `value` is a rate of FLOP of DeepSpeed's that has forward twice.

    Megatron-DeepSpeed counts 96 B s l h^2 with checkpointed activations, 72 without
    (megatron/utils.py, `throughput_calculator`), and what DeepSpeed publishes checkpoints them:
    ZeRO++'s command (docs/_tutorials/zeropp.md), and ZeRO-3 on Azure
    (docs/_posts/2022-07-26-deepspeed-azure.md)."""
    if not row.text("unit").lower().startswith("tflop") or row.get("step_time_s"):
        return False
    own, named = row.text("framework").lower(), row.text("metric").lower()
    unsaid = not row.text("act_ckpt") or recomputed(row).get("recompute") == "full"
    return "deepspeed" in own and "model" not in named and unsaid


def counts_twice(row: TrainingRow, case: Case, step_time: float) -> bool:
    """Whether the FLOP that the row counts in a step of `step_time` seconds have forward twice,
    where its words say nothing of what is computed again: who counts that does it.  A time that
    was worked out from a rate of FLOP tells nothing of them."""
    text = row.text("tflops_per_gpu")
    of_flop = row.text("unit").lower().startswith("tflop") and not row.get("step_time_s")
    if not text or row.text("act_ckpt") or of_flop:
        return False
    try:
        counted = float(text) * 1e12 * row.gpus * step_time
    except ValueError:
        return False
    ratio = counted / (case.model.flop_per_sample() * case.global_batch)
    return math.isfinite(ratio) and _AGAIN[0] <= ratio <= _AGAIN[1]
