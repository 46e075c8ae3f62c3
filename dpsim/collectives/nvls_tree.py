"""NVSwitch inside the nodes, a double binary tree per GPU number between them.

The switches sum the shard of each of the g ranks of a node (S in, S/g out), the ranks with equal
places all-reduce their shards over a double tree, and the switches multicast the sums.
Source: NVIDIA/nccl 2.30.7 src/graph/connect.cc and src/device/all_reduce.h (NVLSTree).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dpsim.collectives import (
    Algorithm,
    Ranks,
    Stage,
    Topology,
    TransferList,
    Transfers,
    members_of,
    places_of,
)
from dpsim.collectives.double_tree import DoubleTree
from dpsim.collectives.nvls import switched, through_switch

#: more than the numbers that order the branches of one tree
PART = 1 << 26


class NvlsTree(Algorithm):
    """Needs at least two nodes with equal numbers of ranks, each node's on one NVSwitch."""

    operations = ("all_reduce",)
    proportional = True
    in_network = True

    def applies(self, ranks: Ranks, topology: Topology) -> bool:
        group = members_of(ranks, topology)
        alike = len(group.nodes) > 1 and len(group.sizes) == 1
        return alike and switched(ranks, topology)

    def stages(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> Iterator[Stage]:
        places = places_of(ranks, topology)
        part = size / len(places)
        yield Stage(1, TransferList(through_switch(ranks, size, part, topology)))
        trees = [DoubleTree().stages(operation, place, part, topology) for place in places]
        for stages in zip(*trees, strict=True):
            found = (TransferList.of(stage.transfers) for stage in stages)
            yield Stage(1, TransferList(_one_after_another(flows.parts for flows in found)))
        yield Stage(1, TransferList(through_switch(ranks, part, size, topology)))

    def traffic(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> TransferList:
        places = places_of(ranks, topology)
        both, part = size * (1 + 1 / len(places)), size / len(places)

        def parts() -> Iterator[Transfers]:
            yield from through_switch(ranks, both, both, topology)
            trees = (DoubleTree().traffic(operation, place, part, topology) for place in places)
            for flow in _one_after_another(tree.parts for tree in trees):
                yield flow._replace(order=flow.order + PART)

        return TransferList(parts)


def _one_after_another(parts: Iterable[Iterable[Transfers]]) -> Iterator[Transfers]:
    """The flows of `parts`, those of each behind all before it."""
    for number, flows in enumerate(parts):
        for flow in flows:
            yield flow._replace(order=flow.order + number * PART)


def sent(g: int, nodes: int, size: float) -> float:
    """Bytes that one of `g` ranks in each of `nodes` nodes sends (mean over ranks)."""
    return (1 + 1 / g) * size + 2 * (nodes - 1) / nodes * size / g
