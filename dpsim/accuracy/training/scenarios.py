"""From a row of a table of training runs to a scenario, or to the reason why there is none."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpsim.accuracy.platforms import MachineReading, Platform, bare_case, platform
from dpsim.accuracy.rules import told
from dpsim.accuracy.training.adapters import adapted
from dpsim.accuracy.training.degrees import with_degrees
from dpsim.accuracy.training.execution import counts_twice, executed, rate_has_again, recomputed
from dpsim.accuracy.training.experts import routing_of
from dpsim.accuracy.training.feeds import input_of
from dpsim.accuracy.training.hosts import host_of
from dpsim.accuracy.training.layouts import predicting
from dpsim.accuracy.training.measured import measured
from dpsim.accuracy.training.mesh import RowMesh, mesh_of
from dpsim.accuracy.training.models import ModelChoice, choose_model, stated_size
from dpsim.accuracy.training.openings import told_by, with_run
from dpsim.accuracy.training.precisions import plainly, precision_of
from dpsim.accuracy.training.servers import servers
from dpsim.accuracy.training.slices import accelerator_of, along_axes
from dpsim.accuracy.training.strategies import (
    compression_of,
    date_of,
    optimizer_of,
    strategy_of,
    through_servers,
)
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.cases.case import Case
from dpsim.cases.chapters import Chapters
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.machines.fabrics.torus import Torus
from dpsim.machines.machine import load_machine

#: GPUs of a node where nothing is stated
_GPUS_PER_NODE = 8
#: batch per GPU where nothing is stated, and the parameters from which on a language model is large
#: [millions]
_BATCH, _LARGE = {"image": 64, "sequence": 8, "large": 1}, 1000
#: how far stated parameters may be off a known model's: tables count with and without embeddings
_PARAMETERS_APART = 3.0


@dataclass(frozen=True)
class MeasuredCase:
    """A row as dpsim plays it, with what was measured.

    step_time  what was measured, as the time of one step [s]
    time       whether `value` is a time (else a rate, which falls as the step gets longer)
    notes      what was assumed or replaced, in plain words
    told       those of them that are not about the machine
    """

    row: TrainingRow
    case: Case
    data: dict[str, Any]
    step_time: float
    time: bool
    strategy: str
    notes: tuple[str, ...]
    told: tuple[str, ...] = ()

    @property
    def stand_in(self) -> bool:
        """Whether only the size of the model is known, and so nothing of its compute."""
        return bool(self.data["model"].get("name") == "scaled")

    def value(self, step_time: float) -> float:
        """What the table's `value` would be if a step took `step_time` seconds."""
        measured = self.row.get("value")
        if measured is None:
            return step_time
        ratio = step_time / self.step_time
        return measured * ratio if self.time else measured / ratio


def measured_case(
    row: TrainingRow,
    compute: Mapping[str, Any] | None = None,
    reading: MachineReading | None = None,
) -> MeasuredCase:
    """The scenario of `row`, with `compute` as its section of that name, and what was measured;
    on the machine of `reading`, the usual one of `platform_of` if left out.

    Raises Refused where there is none.
    """
    _require_training(row)
    notes: list[str] = []
    row = with_degrees(row, notes)
    mesh = mesh_of(row)
    chosen = reading or platform_of(row).readings[0]
    row, wide = plainly(row)
    row = told_by(row, chosen)
    model, strategy = _model(row, mesh, notes), strategy_of(row, notes)
    data: dict[str, Any] = {
        **mesh.data(row, model, notes),
        "model": model.data,
        **compression_of(strategy),
        "strategy": strategy,
        "host": host_of(row, strategy, model, mesh, notes),
        "cluster": _cluster(row, chosen),
        "precision": precision_of(row, wide, notes),
        "batch": _batch(row, model, mesh, notes),
        "optimizer": optimizer_of(row, "adam" if model.language else "momentum", notes),
        **recomputed(row, notes),
        **input_of(row, model, notes),
        **routing_of(row, notes),
        "collective": _collective(row, chosen, notes),
        "engine": "vectorised",
        "compute": dict(compute or {}),
    }
    data |= executed(row, model, data, notes) | _again(row, model, notes)
    case, step_time, time = _measured_as(row, data, model.language, notes)
    _require_parameters(row, model, case)
    label, here = strategy["kind"] + mesh.label, tuple(notes)
    return MeasuredCase(row, case, data, step_time, time, label, (*here, *chosen.notes), here)


def _again(row: TrainingRow, model: ModelChoice, notes: list[str]) -> dict[str, Any]:
    """Recomputation of which the rate of `row` counts the FLOP."""
    if not (model.language and rate_has_again(row)):
        return {}
    notes.append("forward is computed again, and counted, as in DeepSpeed's TFLOP/s")
    return {"recompute": "full"}


def _require_training(row: TrainingRow) -> None:
    """Raise Refused where a number of `row` is none, and where it is no training."""
    if (column := row.unclear()) is not None:
        raise Refused(f"{column}: {row.text(column)[:60]!r} is not one number")
    said = " | ".join(row.text(column) for column in ("task", "metric", "framework"))
    if vocabulary().tables.inference.search(said.lower()):
        raise Refused(
            f"task: rows of inference are not read ({said.strip(' |')[:60]!r}); `dpsim serve` "
            "predicts serving, and tables take training runs"
        )


def _require_parameters(row: TrainingRow, model: ModelChoice, case: Case) -> None:
    """Raise Refused where a known model has far from the parameters that `row` states, or that its
    name says, and where a stand-in is stated to have others than its name says; those of adapters
    may be what is counted."""
    stated = (row.get("params_m") or 0.0) * 1e6
    # a size in the name of another model may be that of its data ("ResNet-50 (1.28M images)")
    named = stated_size(row.text("model")) or 0.0 if model.language else 0.0
    own = named if model.note else float(case.model.parameters)
    told = stated if model.note else stated or named
    if not (own and told) or "adapters" in model.data:
        return
    if not 1 / _PARAMETERS_APART <= told / own <= _PARAMETERS_APART:
        column = "params_m" if stated else "model"
        raise Refused(
            f"{column}: {told / 1e6:,.10g} million are not the {own / 1e6:,.4g} of "
            f"{row.text('model')[:60]!r}; leave it empty, or name the model that has as many"
        )


def _measured_as(
    row: TrainingRow, data: dict[str, Any], language: bool, notes: list[str]
) -> tuple[Case, float, bool]:
    """The case of `data`, what was measured (`measured`), and in `data` what is computed again."""
    named = row.text("row_id") or f"line {row.line}"
    case = shared(Case(load(data, Path(), named).scenario, Path()), data)
    step_time, time = measured(row, case)
    if not (language and counts_twice(row, case, step_time)):
        return case, step_time, time
    data["recompute"] = "full"
    notes.append("forward is computed again, for the FLOP that are counted have it twice")
    return _measured_as(row, data, False, notes)


def shared(case: Case, data: Mapping[str, Any]) -> Case:
    """`case`, made of `data`, with what others on the same cluster and backend have worked out:
    building a machine takes longer than playing it."""
    return case.knowing(_built(json.dumps((data["cluster"], data["collective"]))))


@lru_cache(maxsize=64)
def _built(sections: str) -> Case:
    bare = bare_case(*json.loads(sections))
    case = replace(bare, shared=Chapters(beyond=_of_all()))
    _ = case.costs
    return case


@lru_cache(maxsize=1)
def _of_all() -> Chapters:
    """What rows on other clusters have in common: above all the model, which takes as long to read
    as a short step to play."""
    return Chapters()


def forget_clusters() -> None:
    """Work everything out anew: constants have changed."""
    _built.cache_clear()
    _of_all.cache_clear()


# -- the sections of a scenario -------------------------------------------------------------------


def _model(row: TrainingRow, mesh: RowMesh, notes: list[str]) -> ModelChoice:
    stated = row.get("seq_len")
    tokens = _without_padding(row, int(stated), notes) if stated else None
    found = _chosen(row, mesh, tokens)
    if found.language and not tokens:
        length = found.data["sequence_length"]
        most = _tokens_per_gpu(row, mesh)
        if most and most < length:  # a sequence cannot be longer than all tokens of a GPU
            found, length = _chosen(row, mesh, most), most
        notes.append(f"sequences of {length:,} tokens are assumed")
    if found.note:
        notes.append(found.note)
    found = predicting(row, found, notes) if mesh.pipeline > 1 else found
    return adapted(row, _behind(row, found), notes)


def _behind(row: TrainingRow, found: ModelChoice) -> ModelChoice:
    """`found` with what stands behind an encoder where the row's task tells it."""
    keys = next(told(vocabulary().models.behind, row.text("task").lower(), row.text), ({}, []))[0]
    return replace(found, data={**found.data, **keys}) if "huggingface" in found.data else found


def _without_padding(row: TrainingRow, tokens: int, notes: list[str]) -> int:
    """Tokens of a sequence that are computed, where column padding says that it is left out, or
    that texts are put in bins of lengths: then half a bin of padding stays."""
    words, said = vocabulary().models, row.text("padding").lower()
    binned = words.bins.search(said)
    if not padded(row) or not (binned or words.left_out.search(said)):
        return tokens
    left = round(tokens * words.tokens_left + (int(binned[1]) / 2 if binned else 0))
    notes.append(f"padding is left out: {min(left, tokens)} of {tokens} tokens are computed")
    return min(left, tokens)


def padded(row: TrainingRow) -> bool:
    """Whether samples of this model are padded texts."""
    return vocabulary().models.padded.search(row.text("model").lower()) is not None


def _chosen(row: TrainingRow, mesh: RowMesh, tokens: int | None) -> ModelChoice:
    millions = row.get("params_m")
    count = millions * 1e6 if millions else None
    split = mesh.tensor, mesh.pipeline
    return choose_model(row.text("model"), row.text("task"), count, tokens, split, row.text)


def _in_tokens(row: TrainingRow, column: str) -> bool:
    """Whether `column`, batch_per_gpu or global_batch, is counted in tokens: as words behind its
    number say, else as column batch_unit does."""
    own, unit, known = row.text(column), row.text("batch_unit"), vocabulary().tables
    if known.per_node.search(f"{unit} {own}".lower()):
        raise Refused(f"batch_unit: {(unit or own)[:60]!r} is not read; per GPU, or all")
    worded = any(letter.isalpha() for letter in own)
    return known.in_tokens.search((own if worded else unit).lower()) is not None


def _count(row: TrainingRow, column: str, tokens: float | None) -> float | None:
    """The number of samples in `column`, of so many `tokens` each where it counts those."""
    batch = row.get(column)
    if batch is None or not _in_tokens(row, column):
        return batch
    if not tokens:
        raise Refused("a batch in tokens needs seq_len")
    return batch / tokens


def _tokens_per_gpu(row: TrainingRow, mesh: RowMesh) -> int | None:
    """Tokens of a micro-batch on one replica, where batches are counted in tokens."""
    batch, total = row.get("batch_per_gpu"), row.get("global_batch")
    if batch is not None:
        return int(batch) or None if _in_tokens(row, "batch_per_gpu") else None
    if total is None or not _in_tokens(row, "global_batch"):
        return None
    return int(total / mesh.replicas / (row.get("grad_accum") or 1.0)) or None


def _collective(row: TrainingRow, reading: MachineReading, notes: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"backend": "nccl"}
    if isinstance(load_machine(reading.cluster["machine"]).node, Torus):
        return {"backend": "ici"}
    if through_servers(row):
        per_node = row.get("gpus_per_node") or _GPUS_PER_NODE
        nodes = int(row.get("nodes") or math.ceil(row.gpus / per_node))
        found = servers(_cluster(row, reading), nodes, notes)
    return found | ({"version": _nccl_version(row)} if found["backend"] == "nccl" else {})


def _nccl_version(row: TrainingRow) -> str:
    """The NCCL that such a run had: its torch's own, else the newest of its time; "" (the newest)
    where neither is known."""
    words = vocabulary().nccl
    torch = words.torch.search(row.text("framework").lower())
    if torch:
        own = (int(torch[1]), int(torch[2]))
        found = [version for version, since in words.bundled.items() if since <= own]
        return found[-1] if found else next(iter(words.bundled))
    date = date_of(row)
    found = [version for version, since in words.released.items() if since <= date]
    return found[-1] if found else ""


def platform_of(row: TrainingRow) -> Platform:
    """What the words of `row` say of its machine.  Raises Refused where it is not known."""
    nodes, stated = row.get("nodes"), row.get("gpus_per_node")
    per_node = int(stated) if stated else min(row.gpus, _GPUS_PER_NODE)
    share = -(-row.gpus // int(nodes)) if nodes else per_node
    try:
        found = _platform(row, per_node)
    except Refused as error:
        if stated or share == per_node or error.path != ("gpus_per_node",):
            raise
        per_node = share  # no node of that accelerator has more
        found = _platform(row, per_node)
    found = Platform(with_run(row, found.readings))
    if stated:
        return found
    assumed = f"{per_node} GPUs a node are assumed" if per_node > 1 else "1 GPU a node is assumed"
    return Platform(tuple(replace(r, notes=(assumed, *r.notes)) for r in found.readings))


def _platform(row: TrainingRow, per_node: int) -> Platform:
    nodes = row.get("nodes")
    return platform(
        accelerator=accelerator_of(row),
        gpus_per_node=per_node,
        intra_node=row.text("intra_node"),
        inter_node=row.text("inter_node"),
        inter_gbits_s=row.get("inter_gbits_s_per_node"),
        nodes=int(nodes) if nodes else -(-row.gpus // per_node),
        ranks=row.gpus,
    )


def _cluster(row: TrainingRow, reading: MachineReading) -> dict[str, Any]:
    gpus, nodes, stated = row.gpus, row.get("nodes"), row.get("gpus_per_node")
    cluster = {**reading.cluster, "ranks": gpus}
    if nodes and nodes > 1 and gpus < nodes * (stated or _GPUS_PER_NODE):
        cluster["gpus_per_node"] = -(-gpus // int(nodes))
    return cluster | along_axes(row, cluster)


def _batch(row: TrainingRow, model: ModelChoice, mesh: RowMesh, notes: list[str]) -> dict[str, Any]:
    gpus = mesh.replicas
    tokens = row.get("seq_len") or (model.data["sequence_length"] if model.language else None)
    batch, total = _count(row, "batch_per_gpu", tokens), _count(row, "global_batch", tokens)
    stated = None if mesh.corrected else row.get("grad_accum")
    steps = stated or mesh.micro_batches(row) or 1.0
    accumulation = int(steps)
    if mesh.cut and accumulation < mesh.pipeline and batch and batch % mesh.pipeline == 0:
        batch, accumulation = batch / mesh.pipeline, accumulation * mesh.pipeline
        notes.append("a replica's batch is cut into a micro-batch for every stage")
    if batch is None and total is None:
        batch = _assumed_batch(row, model)
        notes.append(f"a batch of {batch:.0f} per GPU is assumed")
    if batch and total and not stated and accumulation == 1:
        accumulation = _implied(total / (batch * gpus), notes)
    if batch is not None and total is not None:
        if _near(batch * accumulation * gpus, total):
            total = None
        elif accumulation > 1 and _near(batch * gpus, total):
            batch, total = batch / accumulation, None
            notes.append("batch_per_gpu holds all micro-batches of a step")
        else:
            notes.append("global_batch counts; it is not batch_per_gpu x GPUs x accumulation")
            batch = None
    if batch is not None and batch == int(batch) and batch >= 1:
        return {"per_device": int(batch), "accumulation": accumulation}
    samples = round(total if total is not None else (batch or 0) * accumulation * gpus)
    return {"global": max(samples, 1), "accumulation": accumulation}


def _implied(micro_batches: float, notes: list[str]) -> int:
    """Micro-batches of a step that both batches make, where column grad_accum is empty."""
    count = round(micro_batches)
    if count < 2 or not _near(count, micro_batches):
        return 1
    notes.append(f"{count} micro-batches a step, as batch_per_gpu and global_batch make")
    return count


def _assumed_batch(row: TrainingRow, model: ModelChoice) -> float:
    large = model.language and (row.get("params_m") or 0) > _LARGE
    return float(_BATCH["large" if large else "sequence" if model.language else "image"])


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= 0.02 * b
