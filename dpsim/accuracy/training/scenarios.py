"""From a row of a table of training runs to a scenario, or to the reason why there is none."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpsim.accuracy.platforms import MachineReading, Platform, bare_case, platform
from dpsim.accuracy.rules import told
from dpsim.accuracy.training.adapters import adapted, beside_adapters
from dpsim.accuracy.training.alike import RECOMPUTING
from dpsim.accuracy.training.batches import batch_of, tokens_per_gpu, usual_batch
from dpsim.accuracy.training.degrees import with_degrees
from dpsim.accuracy.training.execution import (
    counts_twice,
    executed,
    rate_has_again,
    recomputed,
    tells_of_again,
)
from dpsim.accuracy.training.experts import routing_of, with_modules
from dpsim.accuracy.training.feeds import input_of
from dpsim.accuracy.training.hosts import host_of
from dpsim.accuracy.training.layouts import predicting
from dpsim.accuracy.training.measured import length_of_step, measured
from dpsim.accuracy.training.mesh import RowMesh, mesh_of
from dpsim.accuracy.training.models import ModelChoice, choose_model, stated_size
from dpsim.accuracy.training.openings import told_by, with_run
from dpsim.accuracy.training.precisions import plainly, precision_of
from dpsim.accuracy.training.runs import require_classifies, training
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
from dpsim.cases.variant import Variant
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.machines.fabrics.torus import Torus
from dpsim.machines.machine import load_machine
from dpsim.predict.memory import memory_of

#: GPUs of a node where nothing is stated
_GPUS_PER_NODE = 8
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
    notes: list[str] = []
    row = with_degrees(training(row), notes)
    mesh = mesh_of(row)
    chosen = reading or platform_of(row).readings[0]
    row, wide = plainly(row)
    row = told_by(row, chosen)
    model = _model(row, mesh, notes)
    strategy = _strategy(row, model, mesh, notes)
    data: dict[str, Any] = {
        **mesh.data(row, model, notes),
        "model": model.data,
        **compression_of(strategy),
        "strategy": strategy,
        "host": host_of(row, strategy, model, mesh, notes),
        "cluster": _cluster(row, chosen),
        "precision": precision_of(row, wide, notes),
        "batch": batch_of(row, model, mesh, notes),
        "optimizer": optimizer_of(row, "adam" if model.language else "momentum", notes),
        **recomputed(row, notes),
        **input_of(row, model, notes),
        **routing_of(row, notes),
        "collective": _collective(row, chosen, notes),
        "engine": "vectorised",
        "compute": dict(compute or {}),
    }
    data |= executed(row, model, data, notes) | _again(row, model, notes)
    case, step_time, time = _measured_as(row, data, model, notes)
    _require_parameters(row, model, case)
    label, here = strategy["kind"] + mesh.label, tuple(notes)
    return MeasuredCase(row, case, data, step_time, time, label, (*here, *chosen.notes), here)


def _strategy(
    row: TrainingRow, model: ModelChoice, mesh: RowMesh, notes: list[str]
) -> dict[str, Any]:
    """The strategy that `row` names, as it trains experts and adapters."""
    found = with_modules(row, strategy_of(row, notes), mesh.expert, notes)
    return beside_adapters(found, model, notes)


def _again(row: TrainingRow, model: ModelChoice, notes: list[str]) -> dict[str, Any]:
    """Recomputation of which the rate of `row` counts the FLOP."""
    if not (model.language and rate_has_again(row)):
        return {}
    notes.append("forward is computed again, and counted, as in DeepSpeed's TFLOP/s")
    return {"recompute": "full"}


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
            f"{column}: {told / 1e6:,.10g} million are not the {_in_millions(own)} of "
            f"{row.text('model')[:60]!r}; leave it empty, or name the model that has as many"
        )


def _in_millions(parameters: float) -> str:
    return f"{parameters / 1e6:,.0f}" if parameters >= 1e9 else f"{parameters / 1e6:,.4g}"


def _measured_as(
    row: TrainingRow, data: dict[str, Any], model: ModelChoice, notes: list[str]
) -> tuple[Case, float, bool]:
    """The case of `data`, what was measured (`measured`), and in `data` what is computed again."""
    found = _read_as(row, data)
    if not model.language:
        return found
    case, step_time, _ = found
    silent, like = _may_recompute(row, model), row.text(RECOMPUTING)
    if counts_twice(row, case, step_time):
        notes.append("forward is computed again, for the FLOP that are counted have it twice")
    elif silent and like == "full":
        notes.append("forward is assumed to be computed again, as in the calibrated run")
    elif silent and not like and _needs_recomputing(case):
        notes.append("forward is assumed to be computed again, for else nothing has room for it")
    else:
        notes += ["as it is read, it has no room in memory"] * _has_no_room(case)
        return found
    data["recompute"] = "full"
    return _read_as(row, data)


def _read_as(row: TrainingRow, data: dict[str, Any]) -> tuple[Case, float, bool]:
    """The case of `data`, and what was measured of it (`measured`)."""
    named = row.text("row_id") or f"line {row.line}"
    case = shared(Case(load(data, Path(), named).scenario, Path()), data)
    return case, *measured(row, case)


def _may_recompute(row: TrainingRow, model: ModelChoice) -> bool:
    """Whether `row` says nothing of what is computed again, and its `model` has blocks, of which a
    stand-in's room is near enough; MLPerf's submissions hold what others have no room for, by means
    of their own."""
    submitted = "mlcommons" in row.text("source_repo").lower()
    other = model.note and vocabulary().models.no_images.search(row.text("model").lower())
    return not (tells_of_again(row) or submitted or other)


def _needs_recomputing(case: Case) -> bool:
    """Whether a step of `case`, which was run, has room where forward is computed again, and
    surely none where activations are kept."""
    again = Variant("full", {"recompute": "full"}).of(case)
    kept = case.scenario.recompute == "none" and _has_no_room(case)
    return kept and not _has_no_room(again)


def _has_no_room(case: Case) -> bool:
    """Whether its memory surely does not fit; what cannot be played is refused when it is."""
    with suppress(Refused):
        return memory_of(case).fits == "no"
    return False


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
    stated = row.get("seq_len") or length_of_step(row, notes)
    tokens = _without_padding(row, int(stated), notes) if stated else None
    found = _chosen(row, mesh, tokens)
    require_classifies(row, found.data)
    if found.language and not tokens:
        usual = found.data["sequence_length"]
        length = int(usual * float(row.text("times_usual_length") or 1.0))
        # a sequence cannot be longer than all tokens of a GPU
        length = min(length, tokens_per_gpu(row, mesh) or length)
        if length < usual:
            found = _chosen(row, mesh, length)
        notes.append(f"sequences of {length:,} tokens are assumed")
    notes += [found.note] * bool(found.note) + list(found.assumed)
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
    count = None if millions is None else millions * 1e6
    split = mesh.tensor, mesh.pipeline
    return choose_model(row.text("model"), row.text("task"), count, tokens, split, row.text)


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
        if stated or error.path != ("gpus_per_node",):
            raise
        # no node of that accelerator has more
        per_node = share if share != per_node else _whole_node(row)
        found = _platform(row, per_node)
    found = Platform(with_run(row, found.readings, lambda: _usual_batch(row)))
    if stated:
        return found
    assumed = f"{per_node} GPUs a node are assumed" if per_node > 1 else "1 GPU a node is assumed"
    if nodes and nodes > 1 and share < per_node:
        assumed = (
            f"nodes of {per_node} GPUs are assumed, of which {share} train on each of {nodes:g}"
        )
    return Platform(tuple(replace(r, notes=(assumed, *r.notes)) for r in found.readings))


def _usual_batch(row: TrainingRow) -> float:
    """The usual batch of a GPU that trains the model of `row`; one of any size where that cannot be
    read, which is refused when it is played."""
    with suppress(Refused):
        whole = with_degrees(row, [])
        return usual_batch(_model(whole, mesh_of(whole), []))
    return math.inf


def _whole_node(row: TrainingRow) -> int:
    """GPUs of a node of the usual machine of `row`."""
    return load_machine(_platform(row, None).readings[0].cluster["machine"]).gpus_per_node


def _platform(row: TrainingRow, per_node: int | None) -> Platform:
    nodes = row.get("nodes")
    return platform(
        accelerator=accelerator_of(row),
        gpus_per_node=per_node,
        intra_node=_with_settings(row, "intra_node"),
        inter_node=_with_settings(row, "inter_node"),
        inter_gbits_s=row.get("inter_gbits_s_per_node"),
        nodes=int(nodes) if nodes else -(-row.gpus // per_node) if per_node else None,
        ranks=row.gpus,
    )


def _with_settings(row: TrainingRow, column: str) -> str:
    """What `column` says, with NCCL's settings of it that column notes tells."""
    words, notes = vocabulary().network, row.text("notes").lower()
    said = (
        text for text in re.split(r"[;.](?!\d)", notes) if not words.settings_aside.search(text)
    )
    found = [one for text in said for one in words.settings[column].findall(text)]
    return " ; ".join((row.text(column), *found)) if found else row.text(column)


def _cluster(row: TrainingRow, reading: MachineReading) -> dict[str, Any]:
    gpus, nodes, stated = row.gpus, row.get("nodes"), row.get("gpus_per_node")
    cluster = {**reading.cluster, "ranks": gpus}
    if nodes and nodes > 1 and gpus < nodes * (stated or _GPUS_PER_NODE):
        cluster["gpus_per_node"] = -(-gpus // int(nodes))
    return cluster | along_axes(row, cluster)
