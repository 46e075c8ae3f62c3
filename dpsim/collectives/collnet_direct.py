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

import numpy as np

from dpsim.collectives import Ranks, Stage, Topology, TransferList, Transfers, members_of
from dpsim.collectives._sharp import Collnet, heads, through_network
from dpsim.core.arrays import IntArray


class CollnetDirect(Collnet):
    """Needs several nodes with the same places in use."""

    operations = ("all_reduce", "all_gather", "reduce_scatter")

    def stages(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> Iterator[Stage]:
        group = members_of(ranks, topology)
        local, nodes = group.shapes[0], group.nodes * topology.gpus
        chosen = heads(local, topology) if operation == "all_reduce" else local
        part, own = size / len(chosen), size / len(ranks)
        pairs = [(gpu, head) for gpu in local for head in chosen if gpu != head]
        if pairs and operation != "all_gather":
            yield Stage(1, TransferList(_inside(nodes, pairs, part)))
        out = own if operation == "all_gather" else part
        into = own if operation == "reduce_scatter" else part
        yield through_network((nodes + head, out, into) for head in chosen)
        if pairs and operation != "reduce_scatter":
            yield Stage(1, TransferList(_inside(nodes, [(head, gpu) for gpu, head in pairs], part)))


def _inside(nodes: IntArray, pairs: list[tuple[int, int]], part: float) -> Iterator[Transfers]:
    """A part from one GPU to another for each of `pairs`, in all nodes; node by node."""
    order = np.arange(len(nodes)) * len(pairs)
    for number, (a, b) in enumerate(pairs):
        yield Transfers(nodes + a, nodes + b, part, order + number)


def sent(operation: str, g: int, nodes: int, size: float) -> float:
    """Bytes that one of `g` ranks in each of `nodes` nodes sends (mean over ranks)."""
    inside = (1 - 1 / g) * size
    return {
        "all_reduce": 2 * inside + size / g,
        "reduce_scatter": inside + size / g,
        "all_gather": inside + size / (g * nodes),
    }[operation]
