"""CollNet Direct: everybody to everybody in a node, in-network reduction between nodes (SHARP).

Every NIC has a head, the GPU beside it.  All ranks of a node send each of the h heads its h-th of
the bytes, the head adds, the network's switches add what the heads of one NIC send, and the heads
hand the sums back to all.  A rank sends (2 - 1/g) S (mean over the g of a node) and no NIC more
than S/h, half of what a ring needs.  Reduce-scatter is the first half, with every rank a head, and
all-gather the second: S, and (1 - 1/g) S + S/n.  With one rank a node all take T = l + S / B.
Source: NVIDIA/nccl 2.30.7 src/device/all_reduce.h, reduce_scatter.h and all_gather.h, and
src/graph/connect.cc (CollNetDirect); S. Jeaugey in NVIDIA/nccl issues 320 and 919.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsim.collectives import Stage, Topology, Transfer, nodes_of
from dpsim.collectives._sharp import Collnet, heads, through_network


class CollnetDirect(Collnet):
    """Needs several nodes with the same places in use."""

    operations = ("all_reduce", "all_gather", "reduce_scatter")

    def stages(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology
    ) -> Iterator[Stage]:
        nodes = nodes_of(ranks, topology)
        chosen = [heads(node, topology) if operation == "all_reduce" else node for node in nodes]
        part, own = size / len(chosen[0]), size / len(ranks)
        pairs = [
            (rank, head)
            for node, few in zip(nodes, chosen, strict=True)
            for rank in node
            for head in few
            if rank != head
        ]
        if pairs and operation != "all_gather":
            yield Stage(1, tuple(Transfer(rank, head, part) for rank, head in pairs))
        out = own if operation == "all_gather" else part
        into = own if operation == "reduce_scatter" else part
        yield through_network((tree, out, into) for tree in zip(*chosen, strict=True))
        if pairs and operation != "reduce_scatter":
            yield Stage(1, tuple(Transfer(head, rank, part) for rank, head in pairs))


def sent(operation: str, g: int, nodes: int, size: float) -> float:
    """Bytes that one of `g` ranks in each of `nodes` nodes sends (mean over ranks)."""
    inside = (1 - 1 / g) * size
    return {
        "all_reduce": 2 * inside + size / g,
        "reduce_scatter": inside + size / g,
        "all_gather": inside + size / (g * nodes),
    }[operation]
