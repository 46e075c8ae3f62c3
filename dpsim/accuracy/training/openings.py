"""What the words of a row leave open of the run itself: whether padding is computed, in which
precision, how many samples a GPU has and how long sequences are, and in which micro-batches a
pipeline takes its batch.  Each is a question with named answers, as those of a machine (see
`dpsim.accuracy.questions`); an answer is the row with other words in one of its columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dpsim.accuracy.platforms import MachineReading
from dpsim.accuracy.questions import Option
from dpsim.accuracy.training.numbers import NUMBERS
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.words import LikelyRun, OpenRun, vocabulary

#: most readings of a row: a question that would make more has its usual answer alone, for of some
#: answers some readings would tell nothing right of any
MOST = 12


def with_run(
    row: TrainingRow, machines: Sequence[MachineReading], usual_batch: Callable[[], float]
) -> tuple[MachineReading, ...]:
    """Every one of `machines` with every answer to what `row` leaves open of its run; the
    `usual_batch` of a GPU is asked for where its batch is open."""
    found = list(machines)
    for opening in vocabulary().runs:
        if _leaves_open(row, opening):
            fitting = _fitting(row, opening, usual_batch)
            if len(found) * len(fitting.answers) > MOST:
                fitting = _usual(fitting)
            found = [_answered(one, fitting, name) for one in found for name in fitting.answers]
    return tuple(found)


def _usual(opening: OpenRun) -> OpenRun:
    """`opening` with its most probable answer, the first of those, alone."""
    name = max(opening.answers, key=lambda name: opening.answers[name].weight)
    return replace(opening, answers={name: opening.answers[name]})


def _leaves_open(row: TrainingRow, opening: OpenRun) -> bool:
    """Whether columns hold the words, none the words that settle it, and numbers are as large."""
    if any((row.get(column) or 0.0) < least for column, least in opening.least.items()):
        return False
    if any(words.search(_said(row, columns)) for columns, words in opening.unless.items()):
        return False
    return all(words.search(_said(row, columns)) for columns, words in opening.columns.items())


def _said(row: TrainingRow, columns: str) -> str:
    """What `columns` say, one of them or several with a bar between, in small letters."""
    return " | ".join(row.text(column) for column in columns.split("|")).lower()


def _fitting(row: TrainingRow, opening: OpenRun, usual_batch: Callable[[], float]) -> OpenRun:
    """`opening` with the answers whose micro-batches a replica's batch is a whole number of, and
    those of a sample at least: an eighth of a batch of one is that one again.  With the first one
    where none fits, which the mesh then refuses."""
    replicas = row.gpus // (row.count("tp") * row.count("pp") * row.count("cp")) or 1
    batch = (row.get("global_batch") or 0.0) / replicas
    open_batch = any("times_usual_batch" in one.cells for one in opening.answers.values())
    usual = usual_batch() if open_batch else 1.0

    def fits(answer: LikelyRun) -> bool:
        micro = answer.cells.get("batch_per_gpu")
        samples = usual * float(answer.cells.get("times_usual_batch", 1))
        return samples >= 1 and (micro is None or (batch > 0 and batch % float(micro) == 0))

    kept = {name: answer for name, answer in opening.answers.items() if fits(answer)}
    first = dict(list(opening.answers.items())[:1])
    return replace(opening, answers=kept or first)


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
    """`row` in the words, and numbers, of `reading`."""
    if not reading.cells:
        return row
    numbers = {c: float(text) for c, text in reading.cells.items() if c in NUMBERS}
    cells = {**row.cells, **reading.cells}
    return replace(row, cells=cells, numbers={**row.numbers, **numbers})
