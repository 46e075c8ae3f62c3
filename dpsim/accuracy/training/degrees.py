"""Sizes of a mesh that the words of a row say where its columns are empty: "TP8 PP4 DP16".

Columns count where both say something.  What says that ranks share the model, and not how many, is
refused by `mesh_of`; a size that is said twice, and differs, here.
"""

from __future__ import annotations

from dataclasses import replace

from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused

#: the axis of ranks that share sequences, and heads in attention (DeepSpeed's Ulysses): column cp
ULYSSES = "ulysses"


def shares_heads(row: TrainingRow) -> bool:
    """Whether ranks of `row` share sequences as Ulysses has it: where words say a size, or that it
    is Ulysses, beside sharded parameters and without tensor ranks, whose sequences are another
    thing."""
    words, said = vocabulary().strategies, row.strategy_words
    if words.ulysses.search(said):
        return True
    sized = words.degrees[ULYSSES].search(said) and not words.shares["tp"].search(said)
    return bool(sized and words.shared_out.search(said) and row.count("tp") == 1)


def with_degrees(row: TrainingRow, notes: list[str]) -> TrainingRow:
    """`row` with the sizes of its mesh that its words say; appends to `notes` which."""
    if row.gpus == 1:  # whose words are those of the runs beside it
        return row
    said, found = row.strategy_words, dict[str, int]()
    degrees = vocabulary().strategies.degrees
    if not shares_heads(row):
        degrees = {axis: words for axis, words in degrees.items() if axis != ULYSSES}
    for axis in ("tp", "pp", "cp"):
        names = (axis, ULYSSES) if axis == "cp" else (axis,)
        places = (at for name in names if name in degrees for at in degrees[name].finditer(said))
        told = {int(next(filter(None, at.groups()))) for at in places}
        if len(told) > 1:
            sizes = " and ".join(map(str, sorted(told)))
            raise Refused(f"strategy: {axis} is said to be {sizes} ({row.text('strategy')[:60]})")
        if told and not row.text(axis):
            found[axis] = told.pop()
    if not found:
        return row
    shown = ", ".join(f"{axis} {size}" for axis, size in found.items())
    if any(size > 1 for size in found.values()):
        notes.append(f"{shown}, as the strategy's words say")
    cells = row.cells | {axis: str(size) for axis, size in found.items()}
    return replace(row, cells=cells, numbers=row.numbers | {a: float(n) for a, n in found.items()})
