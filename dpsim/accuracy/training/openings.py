"""What the words of a row leave open of the run itself: whether padding is computed, and in which
precision.  Each is a question with named answers, as those of a machine (see
`dpsim.accuracy.questions`); an answer is the row with other words in one of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsim.accuracy.platforms import MachineReading
from dpsim.accuracy.questions import Option
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import OpenRun, vocabulary

#: most readings of a row: beyond it the machine's less probable ones go
MOST = 8


def with_run(row: TrainingRow, machines: Sequence[MachineReading]) -> tuple[MachineReading, ...]:
    """Every one of `machines` with every answer to what `row` leaves open of its run."""
    found = list(machines)
    for opening in vocabulary().runs:
        if _leaves_open(row, opening):
            found = [_answered(one, opening, name) for one in found for name in opening.answers]
    kept = sorted(range(len(found)), key=lambda place: -found[place].weight)[:MOST]
    whole = sum(found[place].weight for place in kept)
    return tuple(replace(found[k], weight=found[k].weight / whole) for k in sorted(kept))


def _leaves_open(row: TrainingRow, opening: OpenRun) -> bool:
    """Whether columns hold the words, none the words that settle it, and numbers are as large."""
    if any((row.get(column) or 0.0) < least for column, least in opening.least.items()):
        return False
    if any(words.search(row.text(column).lower()) for column, words in opening.unless.items()):
        return False
    return all(words.search(row.text(column).lower()) for column, words in opening.columns.items())


def _answered(one: MachineReading, opening: OpenRun, name: str) -> MachineReading:
    """`one`, with the answer `name`."""
    answer = opening.answers[name]
    whole = sum(other.weight for other in opening.answers.values())
    return replace(
        one,
        weight=one.weight * answer.weight / whole,
        answers={**one.answers, opening.question: Option(name, answer.weight, answer.label)},
        cells={**one.cells, **answer.cells},
    )


def told_by(row: TrainingRow, reading: MachineReading) -> TrainingRow:
    """`row` in the words of `reading`."""
    return replace(row, cells={**row.cells, **reading.cells}) if reading.cells else row
