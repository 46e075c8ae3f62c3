"""Ring: every rank sends to its successor, n-1 rounds a pass.

Reduce-scatter and all-gather are one pass over n-1 rounds of S/n bytes; all-reduce is both; a
broadcast passes S/n pieces around in a pipeline of n-1 + n-1 rounds, and a reduce does the same
towards the root, adding on the way.
T = k (n-1) (latency + S / (n bandwidth)), k = 1 for all-gather and reduce-scatter, else 2.
Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", J. Parallel Distrib. Comput. 69 (2009) 117-124.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsim.collectives import Algorithm, Ranks, Stage, Topology, TransferList, Transfers
from dpsim.collectives.ring_orders import rings
from dpsim.core.many import added, settled

_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 2, "reduce": 2}


class Ring(Algorithm):
    """Rings over the whole group, one per channel, each with its share of the bytes."""

    operations = tuple(_PASSES)
    proportional = True

    def stages(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> Iterator[Stage]:
        n = len(ranks)
        passes = _PASSES[operation] * (n - 1)
        yield Stage(passes, TransferList(ring_round(ranks, size / n, topology)))

    def traffic(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> TransferList:
        n = len(ranks)
        passes = _PASSES[operation] * (n - 1)
        return TransferList(
            lambda: (
                flow._replace(bytes=passes * flow.bytes)
                for flow in ring_round(ranks, size / n, topology)
            )
        )

    def seconds(
        self, operation: str, n: int, size: float, latency: float, bandwidth: float
    ) -> float:
        return _PASSES[operation] * (n - 1) * (latency + size / (n * bandwidth))

    def bytes_sent(self, operation: str, n: int, size: float) -> float:
        return _PASSES[operation] * (n - 1) * size / n


def ring_round(ranks: Ranks, chunk: float, topology: Topology) -> Iterator[Transfers]:
    """One round: every rank sends `chunk` bytes onward, split over the machine's rings."""
    found = rings(topology, ranks)
    total = added(ring.bandwidth for ring in found)
    for number, ring in enumerate(found):
        before = number * len(ring.members.nodes) * ring.longest
        for flow in ring.hops(chunk * settled(ring.bandwidth / total)):
            yield flow._replace(order=flow.order + before)
