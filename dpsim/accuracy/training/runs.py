"""Rows of tables that are no training run, or whose numbers are none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused
from dpsim.models.zoo import expanded

#: architectures that classify images
_CLASSIFYING = (
    "alexnet", "convnext", "densenet", "efficientnet", "inception_v3", "mobilenet", "resnet",
    "resnet50", "swin", "vgg", "vgg16", "vision_transformer",
)  # fmt: skip
#: columns that tell what a run computes
_TOLD = ("task", "framework", "strategy")


def training(row: TrainingRow) -> TrainingRow:
    """Raise Refused where a number of `row` is none, and where it is no training."""
    if (column := row.unclear()) is not None:
        cell = row.text(column)
        accepted = " from 0 up" if cell.startswith("-") else ""
        raise Refused(f"{column}: {cell[:60]!r} is not one number{accepted}")
    words, unit = vocabulary().tables, row.text("unit")
    whole = unit in words.run_times or words.part_times.search(unit.lower())
    if row.get("value") and whole and not row.get("step_time_s"):
        raise Refused(
            f"unit {unit!r} is of a whole run or of an epoch, and the steps are not stated; the "
            "time of a step in step_time_s, or a rate (samples/s) in value and unit, would tell"
        )
    said = " | ".join(row.text(column) for column in ("task", "metric", "framework"))
    if words.inference.search(said.lower()):
        raise Refused(
            f"task: rows of inference are not read ({said.strip(' |')[:60]!r}); `dpsim serve` "
            "predicts serving, and tables take training runs"
        )
    cells = [(column, row.text(column)) for column in _TOLD]
    for column, cell in (one for one in cells if words.more_passes.search(one[1].lower())):
        raise Refused(
            f"{column}: {cell[:60]!r} computes more than a forward and a backward pass of one "
            "model, which is not modelled; rows of supervised training and pre-training are read"
        )
    return row


def require_classifies(row: TrainingRow, data: Mapping[str, Any]) -> None:
    """Raise Refused where the task of `row` puts more behind the network `data`, which classifies
    images."""
    said = vocabulary().tables.not_classified.search(row.text("task").lower())
    name = expanded(data).get("name")
    if said and name in _CLASSIFYING and not row.get("params_m"):
        raise Refused(
            f"model: {row.text('model')[:60]!r} alone does no task {said[0][:60]!r}; the "
            "detector's own name ('SSD300', 'Mask R-CNN R50-FPN'), or its params_m, would tell"
        )
