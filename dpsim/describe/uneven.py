"""Uneven shares of a batch: which ranks are meant, and how many samples each gets.

Samples are dealt by Hamilton's method of largest remainders: everybody gets the whole part of what
is due to him, and what is left goes, one each, to those with the largest fractions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator

from dpsim.core.record import Refused

#: ranks beyond which no text reaches
MOST = 1_048_575


def _text(value: Any) -> Any:
    """Keys of YAML may be numbers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Ranks = Annotated[str, BeforeValidator(_text)]


def ranks_of(text: str) -> tuple[range, ...]:
    """The ranks that `text` means, as ranges in the order of the text.

    >>> ranks_of("8-15,3")
    (range(8, 16), range(3, 4))
    """
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})\s*(?:-\s*(\d{1,7})\s*)?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= MOST:
            raise Refused(f"{text[:60]!r} names no ranks; write for example 3, 8-15 or 0-3,8-11")
        found.append(range(first, last + 1))
    return tuple(found)


def disjoint(texts: Sequence[str]) -> None:
    """Refuse texts that name a rank twice."""
    known: list[tuple[range, str]] = []
    for text in texts:
        for ranks in ranks_of(text):
            twice = next((other for span, other in known if _meet(span, ranks)), None)
            if twice is not None:
                raise Refused(f"{twice!r} and {text!r} both name rank {max(ranks[0], 0)}")
            known.append((ranks, text))


def _meet(first: range, second: range) -> bool:
    return first[0] <= second[-1] and second[0] <= first[-1]


def proportional(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """`total` dealt in proportion to `weights` (positive), by largest remainders; of equal
    remainders the first comes first.  The arithmetic is exact.

    >>> proportional(64, [2, 1, 1])
    (32, 16, 16)
    >>> proportional(10, [1, 1, 1])
    (4, 3, 3)
    """
    kinds = {weight: Fraction(weight) for weight in weights}
    if not kinds or min(kinds) <= 0:
        raise ValueError("every weight must be positive")
    whole = sum(kinds[weight] for weight in weights)
    due = {weight: total * exact / whole for weight, exact in kinds.items()}
    shares = [int(due[weight]) for weight in weights]
    rest = total - sum(shares)
    fractions = {weight: value - int(value) for weight, value in due.items()}
    order = sorted(range(len(weights)), key=lambda k: (-fractions[weights[k]], k))
    for k in order[:rest]:
        shares[k] += 1
    return tuple(shares)
