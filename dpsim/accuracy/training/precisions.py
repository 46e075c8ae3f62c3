"""From the words of a row of a table of training runs to the `precision:` section of a scenario."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from dpsim.accuracy.rules import told
from dpsim.accuracy.training.strategies import date_of
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.core.dtypes import OPERANDS
from dpsim.core.record import Refused
from dpsim.machines.devices import Device
from dpsim.models.convolutions import gains_by_tensor_float, has_tensor_float

#: the columns that may tell blocks which stay in 16 bits
_COLUMNS = ("precision", "strategy_detail")


def plainly(row: TrainingRow) -> tuple[TrainingRow, dict[str, int]]:
    """`row` whose precision is told without what it denies, without files in brackets behind a
    format and without the blocks that stay in 16 bits, and these: `wide_first` and `wide_last`.

    Raises Refused where all that it tells of its precision is denied.
    """
    words, wide = vocabulary().few_bits, dict[str, int]()
    for column in _COLUMNS:
        for found in words.wide.finditer(row.text(column).lower()):
            counts = {"wide_first": found["first"], "wide_last": found["last"] or found["end"]}
            wide |= {key: int(count) for key, count in counts.items() if count}
    said = row.text("precision").lower()
    for other, own in words.names.items():
        said = said.replace(other, own)
    plain = words.denied.sub("", words.wide.sub("", said))
    bare = words.aside.sub("", plain)
    plain = bare if words.format.search(bare) else plain
    if plain == row.text("precision").lower():
        return row, wide
    if not re.search(r"\w", plain):
        raise Refused(f"precision: {row.text('precision')[:60]!r} does not say what it is")
    plain += " strict" if "tf32" in said and "tf32" not in plain else ""
    return replace(row, cells={**row.cells, "precision": plain}), wide


def tensor_float(
    row: TrainingRow, own: dict[str, Any], device: Device | None, sample: str, notes: list[str]
) -> dict[str, Any]:
    """The precision `own` of a row with fp32 as its framework multiplies that on `device`: in tf32
    unless told otherwise, where there are such; `sample`: what a sample of its model is."""
    if own["compute"] != "fp32" or device is None or not has_tensor_float(device):
        return own
    if sample == "image" and not gains_by_tensor_float(device):
        return own
    known = row.with_known(date=date_of(row), sample=sample)
    keys, more = next(told(vocabulary().tensor_float, row.software_words, known), ({}, []))
    notes += more
    return {**own, **keys}


def precision_of(row: TrainingRow, wide: dict[str, int], notes: list[str]) -> dict[str, Any]:
    """The `precision:` section of `row`, told plainly, with `wide` where it computes in few bits;
    appends to `notes` what is assumed.

    Raises Refused where no or several precisions are told, or blocks of others.
    """
    words, text = vocabulary(), row.text("precision")
    plain = text.lower()
    if words.no_precision.search(plain):
        raise Refused(f"precision {text!r} is not modelled")
    if words.few_bits.several.search(plain):
        raise Refused(
            f"precision: {text[:60]!r} names NVFP4 and FP8; one of them is accepted, and 'NVFP4 or "
            "FP8' where it is not known which"
        )
    if words.few_bits.alternatives.search(plain):
        raise Refused(f"precision: {text[:60]!r} names several, of which one is accepted")
    for keys, more in told(words.precision, plain, row.text):
        notes += more
        return _with_wide(row, _multiplied(row, keys, notes), wide)
    raise Refused(f"precision {text!r} is not known")


def _with_wide(row: TrainingRow, keys: dict[str, Any], wide: dict[str, int]) -> dict[str, Any]:
    """`keys` with the blocks that stay in 16 bits, where others are in fewer."""
    if keys["compute"] not in OPERANDS:
        return keys
    words = vocabulary().few_bits
    for column in _COLUMNS:
        left = words.wide.sub("", row.text(column).lower())
        if unread := words.unread.search(left):
            raise Refused(
                f"{column}: {unread[0][:60]!r} is not read; 'first 2 and last 8 layers in bf16' is"
            )
    return {**keys, **wide}


def _multiplied(row: TrainingRow, keys: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """`keys` with bf16 where they have fp16, which TPUs do not multiply in."""
    halved = {key: "bf16" for key, value in keys.items() if value == "fp16"}
    if not halved or not vocabulary().tpus.search(row.text("accelerator").lower()):
        return keys
    notes.append("bf16 is taken for fp16, which TPUs do not have")
    return {**keys, **halved}
