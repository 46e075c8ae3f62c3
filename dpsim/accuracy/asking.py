"""The questions that `words.yaml` has answers for (section open), asked."""

from __future__ import annotations

from typing import Any

from dpsim.accuracy.questions import Inquiry, Option
from dpsim.accuracy.words import vocabulary

#: questions whose answers are so far apart that none is left out
_WHOLE = ("ethernet",)


def answer(question: str, asked: Inquiry, situation: str = "") -> str:
    """The name of the answer to go on with; of some questions weights differ by `situation`."""
    found: Any = getattr(vocabulary().open, question)
    likely: dict[str, Any] = found[situation] if situation else found
    options = [Option(n, w.weight, w.label) for n, w in likely.items()]
    return asked.ask(question, options, whole=question in _WHOLE).name
