"""What the words of a row tell of another run than the one that was measured: clauses that compare.

>>> said("FSDP full fine-tuning (LoRA comparison: 2x faster)", _LORA)
Said(text='FSDP full fine-tuning ()', compared='LoRA comparison: 2x faster')
>>> said("FSDP (2x slower than LoRA)", _LORA), said("FSDP + LoRA vs full", _LORA).compared
(Said(text='FSDP ()', compared=''), 'FSDP + LoRA vs full')
>>> said("LoRA, 2x faster than full", _LORA)
Said(text='LoRA, 2x faster than full', compared='')
"""

from __future__ import annotations

import re
from typing import NamedTuple

from dpsim.accuracy.words import vocabulary

_LORA = re.compile(r"lora", re.IGNORECASE)
#: where a clause ends
_END = re.compile(r"[;,|()\n]|\.(?!\d)(?=\s|$)")


class Said(NamedTuple):
    """A text without what it says of another run; `compared` is a clause that it lacks and of which
    nothing says whether it is of this run or of the other."""

    text: str
    compared: str = ""


def said(text: str, thing: re.Pattern[str]) -> Said:
    """`text` without the clauses that compare with `thing`, or it with others: what stands behind
    `than` or `vs` is of the other run."""
    words, kept, compared = vocabulary().compared, list[str](), ""
    ends = [*(found.span() for found in _END.finditer(text)), (len(text), len(text))]
    start = 0
    for stop, end in ends:
        clause = text[start:stop]
        if not thing.search(clause) or not words.told.search(clause.lower()):
            kept.append(clause)
        elif not any(thing.match(clause, one.end()) for one in words.behind.finditer(clause)):
            compared = compared or clause.strip()
        kept.append(text[stop:end])
        start = end
    return Said("".join(kept), compared)


def clauses(text: str) -> list[str]:
    """The clauses of `text`, without what stands around them."""
    return [clause for part in _END.split(text) if (clause := part.strip(" :-+&"))]
