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
from itertools import groupby
from typing import NamedTuple

from dpsim.collectives import Stage, Topology, Transfer
from dpsim.collectives._sharp import Collnet, through_network
from dpsim.collectives.ring_orders import rings


class _Chains(NamedTuple):
    """One ring's chains, a node each and the head first, and its share of the bytes."""

    chains: tuple[tuple[int, ...], ...]
    share: float


class CollnetChain(Collnet):
    """Needs several nodes with the same places in use."""

    operations = ("all_reduce",)

    def stages(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology
    ) -> Iterator[Stage]:
        every = _chains(ranks, topology)
        rounds = range(1, len(every[0].chains[0]))
        for depth in reversed(rounds):
            yield Stage(1, tuple(Transfer(b, a, part) for a, b, part in _hops(every, depth, size)))
        yield through_network(
            (tuple(chain[0] for chain in ring.chains), ring.share * size, ring.share * size)
            for ring in every
        )
        for depth in rounds:
            yield Stage(1, tuple(Transfer(a, b, part) for a, b, part in _hops(every, depth, size)))


def sent(operation: str, g: int, nodes: int, size: float) -> float:
    """Bytes that one of `g` ranks in each of `nodes` nodes sends (mean over ranks)."""
    return (2 - 1 / g) * size


def _chains(ranks: tuple[int, ...], topology: Topology) -> list[_Chains]:
    found = rings(topology, ranks)
    total = sum(ring.bandwidth for ring in found)
    return [
        _Chains(
            tuple(tuple(chain) for _, chain in groupby(ring.order, key=topology.node_of)),
            ring.bandwidth / total,
        )
        for ring in found
    ]


def _hops(every: list[_Chains], depth: int, size: float) -> Iterator[tuple[int, int, float]]:
    """(nearer to the head, further, bytes) `depth` hops from the head, in all chains."""
    for ring in every:
        for chain in ring.chains:
            yield chain[depth - 1], chain[depth], ring.share * size
