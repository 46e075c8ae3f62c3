"""Parallel aggregated trees: an all-gather in log2(n) rounds, far partners first.

Every rank's part spreads down a binomial tree of its own, shifted to its place; the n trees run at
once, so in a round every rank sends to the one rank a distance d further on, in one message, the
parts that all trees bring there: as many as there are multiples of 2 d, m, with m + d below n.  d
falls from the largest power of two below n to 1: far messages are the small ones, unlike in the
algorithm of Bruck et al., whose distances grow.  A reduce-scatter runs the same trees backwards,
near partners first, and adds on the way.
T = ceil(log2 n) latency + (n-1)/n S / B.
With little room in its buffers a rank sends fewer parts at a time, in more rounds; that is left out
here, and in NCCL's own estimate is a term linear in n.
Source: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
arXiv:2506.20252 (2025); Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE Trans. Parallel Distrib.
Syst. 8 (1997) 1143-1156.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpsim.collectives import Algorithm, Ranks, Stage, Topology, TransferList, rank_array


class Pat(Algorithm):
    """All-gather and reduce-scatter over any number of ranks."""

    operations = ("all_gather", "reduce_scatter")
    proportional = True

    def stages(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> Iterator[Stage]:
        n, found = len(ranks), rank_array(ranks)
        gathers = operation == "all_gather"
        for far in _distances(n) if gathers else reversed(_distances(n)):
            bytes_ = parts(n, far) * size / n
            onward = far if gathers else -far
            yield Stage(1, TransferList.between(found, np.roll(found, -onward), bytes_))

    def seconds(
        self, operation: str, n: int, size: float, latency: float, bandwidth: float
    ) -> float:
        return len(_distances(n)) * latency + (n - 1) / n * size / bandwidth

    def bytes_sent(self, operation: str, n: int, size: float) -> float:
        return (n - 1) / n * size


def _distances(n: int) -> tuple[int, ...]:
    """Powers of two below `n`, the largest first."""
    return tuple(1 << level for level in reversed(range((n - 1).bit_length())))


def parts(n: int, far: int) -> int:
    """How many ranks' parts a rank of `n` sends at the distance `far`, a power of two."""
    return -(-(n - far) // (2 * far))
