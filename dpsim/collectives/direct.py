"""Direct exchange: every rank sends to every other at once.

An all-to-all sends each rank its part, a reduce-scatter each its part of the sum, an all-gather
one's own part to everybody; an all-reduce is the last two.  Two rounds at most, the fewest bytes,
and n - 1 messages of a rank at once.
T = k (latency + (n-1)/n S / B), k = 2 for all-reduce, else 1.
Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005) 49-66
(pairwise exchange, with all its steps at once).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpsim.collectives import Algorithm, Ranks, Stage, Topology, TransferList, rank_array


class Direct(Algorithm):
    """All-reduce, all-gather, reduce-scatter and all-to-all over any number of ranks."""

    operations = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    proportional = True

    def stages(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> Iterator[Stage]:
        found, n = rank_array(ranks), len(ranks)
        sources, targets = np.repeat(found, n), np.tile(found, n)
        others = sources != targets
        pairs = TransferList.between(sources[others], targets[others], size / n)
        yield Stage(_rounds(operation), pairs)

    def seconds(
        self, operation: str, n: int, size: float, latency: float, bandwidth: float
    ) -> float:
        return _rounds(operation) * (latency + (n - 1) / n * size / bandwidth)

    def bytes_sent(self, operation: str, n: int, size: float) -> float:
        return _rounds(operation) * (n - 1) / n * size


def _rounds(operation: str) -> int:
    return 2 if operation == "all_reduce" else 1
