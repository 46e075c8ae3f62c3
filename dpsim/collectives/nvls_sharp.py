"""NVSwitch inside the nodes, in-network reduction between them (NVLink and InfiniBand SHARP).

The NVSwitches sum the shard of each of the g ranks of a node (S in, S/g out), the network's
switches add the shards of equal places, and the NVSwitches multicast the sums.  A rank sends
(1 + 2/g) S.  Reduce-scatter is the first half and all-gather the second: (1 + 1/g) S, and
S/g + S/n.
Source: NVIDIA/nccl 2.30.7 src/transport/nvls.cc and src/device/all_reduce.h (NVLS over several
nodes); release notes of 2.18.1.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsim.collectives import Algorithm, Ranks, Stage, Topology, TransferList, places_of
from dpsim.collectives._sharp import alike, through_network
from dpsim.collectives.nvls import switched, through_switch


class NvlsSharp(Algorithm):
    """Needs several nodes with the same places in use, each node's on one NVSwitch."""

    operations = ("all_reduce", "all_gather", "reduce_scatter")
    proportional = True
    in_network = True

    def applies(self, ranks: Ranks, topology: Topology) -> bool:
        return alike(ranks, topology) and switched(ranks, topology)

    def stages(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> Iterator[Stage]:
        places = places_of(ranks, topology)
        part, own = size / len(places), size / len(ranks)
        if operation != "all_gather":
            yield Stage(1, TransferList(through_switch(ranks, size, part, topology)))
        out = own if operation == "all_gather" else part
        into = own if operation == "reduce_scatter" else part
        yield through_network((place, out, into) for place in places)
        if operation != "reduce_scatter":
            yield Stage(1, TransferList(through_switch(ranks, part, size, topology)))


def sent(operation: str, g: int, nodes: int, size: float) -> float:
    """Bytes that one of `g` ranks in each of `nodes` nodes sends (mean over ranks)."""
    return {
        "all_reduce": 1 + 2 / g,
        "reduce_scatter": 1 + 1 / g,
        "all_gather": 1 / g + 1 / (g * nodes),
    }[operation] * size
