"""Ranks beyond a power of two: they hand their bytes to a partner, and get the result at the end.

Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005) 49-66.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dpsim.collectives import Ranks, Stage, TransferList, rank_array


def power_below(n: int) -> int:
    """The largest power of two that is at most `n`."""
    return 1 << (n.bit_length() - 1)


def folded(ranks: Ranks, size: float, rounds: Iterable[Stage]) -> Iterator[Stage]:
    """`rounds` of the first power of two of `ranks`, between what the others send and get."""
    p, found = power_below(len(ranks)), rank_array(ranks)
    extra, partners = found[p:], found[: len(ranks) - p]
    if len(extra):
        yield Stage(1, TransferList.between(extra, partners, size))
    yield from rounds
    if len(extra):
        yield Stage(1, TransferList.between(partners, extra, size))
