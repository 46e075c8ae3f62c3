"""Layouts of pipelines as Megatron-LM writes them: "Et*4|(t*4|)*14tmL".

Bars part the stages, which go round the ranks: E is the embedding, t a block, m a module of
multi-token prediction, L the loss; `x*3` is xxx, `(..)*3` three times what is in the brackets, and
commas mean nothing (NVIDIA/Megatron-LM at 00caa53a,
megatron/core/transformer/pipeline_parallel_layer_layout.py, parse_str_to_list).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from dpsim.accuracy.training.models import ModelChoice
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused
from dpsim.models import Model
from dpsim.models.section import load, make

#: stages and blocks of a layout, written out: more than any pipeline has
_MOST = 10_000
_GROUP, _REPEATED = re.compile(r"\(([^()]+)\)\*(\d{1,5})"), re.compile(r"(.)\*(\d{1,5})")


def layout_of(row: TrainingRow) -> tuple[str, ...]:
    """What each stage of the pipeline of `row` holds, one letter each; () where no layout is said.

    Raises Refused where it is none.
    """
    found = vocabulary().strategies.layout.search(row.text("strategy_detail"))
    return _stages(found[1] or found[2]) if found else ()


def _stages(text: str) -> tuple[str, ...]:
    written = text.replace(",", "")
    for pattern in (_GROUP, _REPEATED):
        if sum(int(times[2]) * len(times[1]) for times in pattern.finditer(written)) > _MOST:
            raise Refused(f"strategy_detail: layout {text[:60]!r} has more than {_MOST:,} parts")
        written = pattern.sub(lambda times: times[1] * int(times[2]), written)
    if not re.fullmatch(r"E[t|]*[m|]*L", written):
        raise Refused(
            f"strategy_detail: {text[:60]!r} is no layout of a pipeline; E, then t for every "
            "block, m for modules of multi-token prediction, then L, and | between stages, are "
            "accepted, as in 'Et*4|(t*4|)*14tmL'"
        )
    return tuple(written.split("|"))


def loaded(model: ModelChoice) -> Model:
    """The model that `model` chooses."""
    return load(make(model.data, file=False), Path())


def predicting(row: TrainingRow, model: ModelChoice, notes: list[str]) -> ModelChoice:
    """`model` with its modules of multi-token prediction, where the layout of `row` has such."""
    if "huggingface" not in model.data or "m" not in "".join(layout_of(row)):
        return model
    notes.append("the layout of the pipeline has multi-token prediction, which is trained too")
    return replace(model, data={**model.data, "multi_token": True})


def layers_of(stages: Sequence[str], model: Model) -> list[list[str]]:
    """The names of the layers of each of `stages`: what stands before the first block is with E,
    what stands behind one with the next or, behind the last, with L.

    Raises Refused where the model has other blocks, or a stage holds nothing.
    """
    places = [number for number, stage in enumerate(stages) for part in stage if part in "tm"]
    order = [model.layers[i] for i in model.forward_order]
    runs = [(unit, [layer.name for layer in run]) for unit, run in groupby(order, lambda x: x.unit)]
    blocks = sum(1 for unit, _ in runs if unit)
    if blocks != len(places):
        message = f"its layout has {len(places)} blocks, and {model.name} has {blocks}"
        raise Refused(f"strategy_detail: {message}")
    found: list[list[str]] = [[] for _ in stages]
    passed = 0
    for number, (unit, names) in enumerate(runs):
        ahead = places[passed] if passed < blocks else len(stages) - 1
        found[0 if number == 0 and not unit else ahead] += names
        passed += bool(unit)
    if not all(found):
        place = next(number for number, names in enumerate(found, 1) if not names)
        raise Refused(f"strategy_detail: stage {place} of its layout holds nothing")
    return found
