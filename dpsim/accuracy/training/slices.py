"""Slices of TPUs of a row of a table of training runs: how many, and of which shape, as its words
say it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpsim.accuracy.slices import counted, require_filled
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused
from dpsim.machines.fabrics.torus import Torus
from dpsim.machines.machine import load_machine

#: the columns whose words may tell it
_COLUMNS = (
    "accelerator", "intra_node", "inter_node", "strategy", "strategy_detail", "shard", "notes",
)  # fmt: skip


def slices_of(row: TrainingRow) -> int | None:
    """The slices of `row`, joined by the data centre's network: as counted, else as many as `dp`
    where they are said to be its replicas; None where nothing is said, and of other devices.

    Raises Refused where several are told and nothing counts them, where counts contradict each
    other, and where their chips are not those of the row."""
    if not vocabulary().tpus.search(row.text("accelerator").lower()):
        return None
    words, text = vocabulary().slices, " | ".join(map(row.text, _COLUMNS)).lower()
    if told := counted(text):
        require_filled(text, told, row.gpus)
        return told
    if words.one.search(text):
        return 1
    replicas = row.get("dp")
    if replicas and words.replicas.search(text):
        return int(replicas)
    if several := words.several.search(text):
        raise Refused(f"notes: {several[0]!r} does not say how many; '2 slices' would")
    return None


def accelerator_of(row: TrainingRow) -> str:
    """The words of column accelerator, with the slices that others tell."""
    slices = slices_of(row)
    return f"{row.text('accelerator')}, {slices} slices" if slices else row.text("accelerator")


def along_axes(row: TrainingRow, cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The shape of a slice of TPUs whose mesh is told by its axes ("data 4 x fsdp 64"), which lie
    along those of the torus where it has as many, as MaxText's slices of v5p are made
    (gclouduniverse/reproducibility, Training/TPU-v5p/GPT3-175B-Maxtext: 4x8x64 and others)."""
    axes = vocabulary().strategies.axes.search(row.text("shard").lower())
    if axes is None:
        return {}
    torus = load_machine(cluster["machine"]).node
    if not isinstance(torus, Torus) or not torus.whole:
        return {}
    shape = [int(axes[1]), int(axes[2]), row.count("tp")]
    cubes = math.prod(shape) == cluster["gpus_per_node"] and not any(
        length % torus.wraps_at for length in shape
    )
    return {"slice": shape} if cubes else {}
