"""From the columns of a row of a table of training runs to its batch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dpsim.accuracy.training.measured import samples_of_step
from dpsim.accuracy.training.mesh import RowMesh
from dpsim.accuracy.training.models import ModelChoice
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused
from dpsim.models.section import load, make

#: batch per GPU where nothing is stated, and the parameters from which on a language model is large
_BATCH, _LARGE = {"image": 64, "sequence": 8, "large": 1}, 1e9
#: how a note ends that tells a batch of which nothing is stated
_ASSUMED = " per GPU is assumed"
#: how far a rate times a step's time may be off whole samples of a replica: of itself, and samples
_WHOLE = (0.001, 0.05)


def batch_of(
    row: TrainingRow, model: ModelChoice, mesh: RowMesh, notes: list[str]
) -> dict[str, Any]:
    """The `batch:` section of `row`, in samples; appends to `notes` what is assumed.

    Raises Refused where a batch in tokens says no length of a sequence, or counts per node.
    """
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
        total = _of_rate(row, tokens, gpus, notes)
    if batch is None and total is None:
        batch = _assumed_batch(row, model)
        notes.append(f"a batch of {batch:.0f}{_ASSUMED}")
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
    made = total if total is not None else (batch or 0) * accumulation * gpus
    if not _near(made, 1) and made < 1:
        column = "global_batch" if total is not None else "batch_per_gpu"
        raise Refused(f"{column}: {row.text(column)[:60]!r} is less than a sample of all ranks")
    return {"global": round(made), "accumulation": accumulation}


def assumed_batch(notes: Iterable[str]) -> str:
    """The batch that `notes` tell to be assumed, as "8 per GPU"; "" where it is stated."""
    ahead = "a batch of "
    found = (note for note in notes if note.startswith(ahead) and note.endswith(_ASSUMED))
    return next((note.removeprefix(ahead).removesuffix(" is assumed") for note in found), "")


def _of_rate(
    row: TrainingRow, tokens: float | None, replicas: int, notes: list[str]
) -> float | None:
    """The samples of a step that its time and its rate make, where they are a whole number for each
    replica."""
    made = (samples_of_step(row, tokens) or 0.0) / replicas
    each, parts = round(made), int(row.get("grad_accum") or 1)
    if not each or each % parts or abs(made - each) > min(_WHOLE[0] * each, _WHOLE[1]):
        return None
    notes.append(f"a global batch of {each * replicas}, as the rate and the time of a step make")
    return float(each * replicas)


def _implied(micro_batches: float, notes: list[str]) -> int:
    """Micro-batches of a step that both batches make, where column grad_accum is empty."""
    count = round(micro_batches)
    if count < 2 or not _near(count, micro_batches):
        return 1
    notes.append(f"{count} micro-batches a step, as batch_per_gpu and global_batch make")
    return count


def usual_batch(model: ModelChoice) -> int:
    """The usual batch of a GPU that trains `model`."""
    large = model.language and load(make(model.data, file=False), Path()).parameters > _LARGE
    return _BATCH["large" if large else "sequence" if model.language else "image"]


def _assumed_batch(row: TrainingRow, model: ModelChoice) -> float:
    """The usual batch of a GPU, as many times it as a reading of the row has."""
    return max(usual_batch(model) * float(row.text("times_usual_batch") or 1.0), 1.0)


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= 0.02 * b


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


def tokens_per_gpu(row: TrainingRow, mesh: RowMesh) -> int | None:
    """Tokens of a micro-batch on one replica, where batches are counted in tokens."""
    batch, total = row.get("batch_per_gpu"), row.get("global_batch")
    if batch is not None:
        return int(batch) or None if _in_tokens(row, "batch_per_gpu") else None
    if total is None or not _in_tokens(row, "global_batch"):
        return None
    return int(total / mesh.replicas / (row.get("grad_accum") or 1.0)) or None
