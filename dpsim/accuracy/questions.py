"""What a text leaves open: questions with a few named answers, each with a weight.

A reader asks where words do not tell ("is it an SXM board or a PCIe card?") and goes on with one
answer.  `explored` lets it read again with the others, so that every reading is one that the same
rules have made.  Weights are data (`words.yaml`, section open).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
#: most readings of a text, and answers of a question that is not the first
MOST, LATER = 4, 2
#: GPUs of a whole node, as servers for training mostly have: weights of some questions are of these
FULL = 8


@dataclass(frozen=True)
class Option:
    """One of a question's answers, in words, and how probable it is beside the others."""

    name: str
    weight: float
    label: str


@dataclass
class Inquiry:
    """The questions that a reader has asked; `given` are the answers that it is to go on with."""

    given: Mapping[str, Option] = field(default_factory=dict)
    fresh: tuple[str, tuple[Option, ...]] | None = None

    def ask(self, question: str, answers: Sequence[Option], *, whole: bool = False) -> Option:
        """The answer to go on with: the given one, else the first; with `whole` all are asked for,
        not the `LATER` first, where others have been given before."""
        if question in self.given:
            return self.given[question]
        if self.fresh is None and len(answers) > 1:
            most = LATER if self.given and not whole else len(answers)
            self.fresh = (question, tuple(answers[:most]))
        return answers[0]


def explored(read: Callable[[Inquiry], T]) -> list[tuple[T, float, dict[str, Option]]]:
    """What `read` finds with every combination of answers: with its probability and the answers,
    in the order in which they are asked; the `MOST` most probable ones."""
    waiting: list[tuple[float, dict[str, Option]]] = [(1.0, {})]
    found: list[tuple[T, float, dict[str, Option]]] = []
    while waiting:
        weight, given = waiting.pop(0)
        asked = Inquiry(given)
        result = read(asked)
        if asked.fresh is None:
            found.append((result, weight, given))
            continue
        question, answers = asked.fresh
        whole = sum(answer.weight for answer in answers)
        waiting += [(weight * a.weight / whole, {**given, question: a}) for a in answers]
    kept = sorted(range(len(found)), key=lambda place: -found[place][1])[:MOST]
    whole = sum(found[place][1] for place in kept)
    return [(found[k][0], found[k][1] / whole, found[k][2]) for k in sorted(kept)]
