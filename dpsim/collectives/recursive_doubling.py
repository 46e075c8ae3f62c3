"""Recursive doubling: in round i everybody exchanges all bytes with the partner 2^i away.

The fewest rounds, and log2(n) times the bytes: for small messages.  p is the largest power of two
of at most n; the n - p ranks beyond first send all their bytes to a partner and get the result at
the end.
T = log2(p) (latency + S / B), and 2 (latency + S / B) more where n > p.
Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005) 49-66.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpsim.collectives import Algorithm, Ranks, Stage, Topology, TransferList, rank_array
from dpsim.collectives._folding import folded, power_below


class RecursiveDoubling(Algorithm):
    """All-reduce over any number of ranks."""

    operations = ("all_reduce",)
    proportional = True

    def stages(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> Iterator[Stage]:
        p = power_below(len(ranks))
        first, place = rank_array(ranks)[:p], np.arange(p)
        rounds = (
            Stage(1, TransferList.between(first, first[place ^ far], size))
            for far in (1 << level for level in range(p.bit_length() - 1))
        )
        yield from folded(ranks, size, rounds)

    def seconds(
        self, operation: str, n: int, size: float, latency: float, bandwidth: float
    ) -> float:
        p = power_below(n)
        return (p.bit_length() - 1 + (2 if n > p else 0)) * (latency + size / bandwidth)

    def bytes_sent(self, operation: str, n: int, size: float) -> float:
        p = power_below(n)
        return ((p.bit_length() - 1) * p + 2 * (n - p)) * size / n
