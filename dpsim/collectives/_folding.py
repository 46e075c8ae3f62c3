"""Ranks beyond a power of two: they hand their bytes to a partner, and get the result at the end.

Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005) 49-66.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dpsim.collectives import Stage, Transfer


def power_below(n: int) -> int:
    """The largest power of two that is at most `n`."""
    return 1 << (n.bit_length() - 1)


def folded(ranks: tuple[int, ...], size: float, rounds: Iterable[Stage]) -> Iterator[Stage]:
    """`rounds` of the first power of two of `ranks`, between what the others send and get."""
    p = power_below(len(ranks))
    extra = [(ranks[p + k], ranks[k]) for k in range(len(ranks) - p)]
    if extra:
        yield Stage(1, tuple(Transfer(a, b, size) for a, b in extra))
    yield from rounds
    if extra:
        yield Stage(1, tuple(Transfer(b, a, size) for a, b in extra))
