"""CollNet Chain: a chain of a node's ranks to each NIC, in-network reduction between nodes (SHARP).

For every ring over the machine the ranks of a node are a chain that begins at the GPU beside the
ring's NIC, the head.  Partial sums go up the chain to the head, the network's switches add what the
heads send, and the sum comes down the chain.  A rank sends (2 - 1/g) S (mean over the g of a node).
T = 2 (g-1) (l + S / B) + l' + S / B' on one chain that is not pipelined, with l' there and back.
Source: NVIDIA/nccl 2.30.7 src/graph/connect.cc (connectCollNet) and src/device/all_reduce.h
(CollNetChain); the chains as ConnollyLeon lists them in NVIDIA/nccl issue 320.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsim.collectives import Ranks, Stage, Topology, TransferList, Transfers
from dpsim.collectives._sharp import Collnet, through_network
from dpsim.collectives.ring_orders import RingOrder, rings


class CollnetChain(Collnet):
    """Needs several nodes with the same places in use."""

    operations = ("all_reduce",)

    def stages(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> Iterator[Stage]:
        found = rings(topology, ranks)
        rounds = range(1, found[0].longest)
        for depth in reversed(rounds):
            yield Stage(1, TransferList(_hops(found, depth, size, up=True)))
        total = sum(ring.bandwidth for ring in found)
        parts = [ring.bandwidth / total * size for ring in found]
        heads = [ring.ends[0] for ring in found]
        yield through_network(zip(heads, parts, parts, strict=True))
        for depth in rounds:
            yield Stage(1, TransferList(_hops(found, depth, size, up=False)))


def sent(operation: str, g: int, nodes: int, size: float) -> float:
    """Bytes that one of `g` ranks in each of `nodes` nodes sends (mean over ranks)."""
    return (2 - 1 / g) * size


def _hops(
    found: tuple[RingOrder, ...], depth: int, size: float, *, up: bool
) -> Iterator[Transfers]:
    """The hops of all chains `depth` hops from the head, towards it or away from it."""
    total = sum(ring.bandwidth for ring in found)
    for number, ring in enumerate(found):
        places, nearer, further = ring.inside(depth)
        ends = (further, nearer) if up else (nearer, further)
        order = number * len(ring.members.nodes) + places
        yield Transfers(*ends, ring.bandwidth / total * size, order)
