"""NVSwitch inside the nodes, a double binary tree per GPU number between them.

The switches sum the shard of each of the g ranks of a node (S in, S/g out), the ranks with equal
places all-reduce their shards over a double tree, and the switches multicast the sums.
Source: NVIDIA/nccl 2.30.7 src/graph/connect.cc and src/device/all_reduce.h (NVLSTree).
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsim.collectives import Algorithm, Stage, Topology, Transfer, nodes_of
from dpsim.collectives.double_tree import DoubleTree
from dpsim.collectives.nvls import switched, through_switch


class NvlsTree(Algorithm):
    """Needs at least two nodes with equal numbers of ranks, each node's on one NVSwitch."""

    operations = ("all_reduce",)
    proportional = True
    in_network = True

    def applies(self, ranks: tuple[int, ...], topology: Topology) -> bool:
        nodes = nodes_of(ranks, topology)
        return (
            len(nodes) > 1 and len({len(node) for node in nodes}) == 1 and switched(ranks, topology)
        )

    def stages(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology
    ) -> Iterator[Stage]:
        nodes = nodes_of(ranks, topology)
        g = len(nodes[0])
        yield Stage(1, tuple(through_switch(ranks, size, size / g, topology)))
        trees = [
            DoubleTree().stages(operation, place, size / g, topology)
            for place in zip(*nodes, strict=True)
        ]
        for stages in zip(*trees, strict=True):
            yield Stage(1, tuple(t for stage in stages for t in stage.transfers))
        yield Stage(1, tuple(through_switch(ranks, size / g, size, topology)))

    def traffic(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology
    ) -> Iterator[Transfer]:
        nodes = nodes_of(ranks, topology)
        g = len(nodes[0])
        yield from through_switch(ranks, size * (1 + 1 / g), size * (1 + 1 / g), topology)
        for place in zip(*nodes, strict=True):
            yield from DoubleTree().traffic(operation, place, size / g, topology)


def sent(g: int, nodes: int, size: float) -> float:
    """Bytes that one of `g` ranks in each of `nodes` nodes sends (mean over ranks)."""
    return (1 + 1 / g) * size + 2 * (nodes - 1) / nodes * size / g
