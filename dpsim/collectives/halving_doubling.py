"""Recursive halving and doubling: log2(n) exchanges each way, with partners ever nearer or farther.

All-reduce halves the vector log2 p times (a reduce-scatter) and doubles it again (an all-gather),
p the largest power of two of at most n.  The n - p ranks beyond first send all their bytes to a
partner and get the result at the end.
T = 2 (log2(p) latency + (p-1)/p S / B), and 2 (latency + S / B) more where n > p.
Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; Thakur,
Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005) 49-66.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpsim.collectives import Algorithm, Ranks, Stage, Topology, TransferList, rank_array
from dpsim.collectives._folding import folded, power_below


class HalvingDoubling(Algorithm):
    """All-reduce over any number of ranks."""

    operations = ("all_reduce",)
    proportional = True

    def stages(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> Iterator[Stage]:
        p = power_below(len(ranks))
        first, place = rank_array(ranks)[:p], np.arange(p)
        rounds = [
            Stage(1, TransferList.between(first, first[place ^ far], size * far / p))
            for far in (p >> level for level in range(1, p.bit_length()))
        ]
        yield from folded(ranks, size, [*rounds, *reversed(rounds)])

    def seconds(
        self, operation: str, n: int, size: float, latency: float, bandwidth: float
    ) -> float:
        p = power_below(n)
        levels = p.bit_length() - 1
        folded = 2 * (latency + size / bandwidth) if n > p else 0.0
        return 2 * (levels * latency + (p - 1) / p * size / bandwidth) + folded

    def bytes_sent(self, operation: str, n: int, size: float) -> float:
        p = power_below(n)
        return (2 * (p - 1) * size + 2 * (n - p) * size) / n
