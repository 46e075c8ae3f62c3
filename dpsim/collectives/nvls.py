"""In-network reduction by NVSwitch: every rank sends once, the switch adds and multicasts.

All-reduce: the switch reads all n copies of a shard, sends their sum to the shard's rank, and sends
what that rank writes back to everybody.  A rank sends S for the sums and S/n of its own shard, and
receives as much.  Reduce-scatter is the first half (S out, S/n in), all-gather the second (S/n out,
S in).  T = 2 l + (1 + 1/n) S / B, or l + S / B, with the switch hop there and back in l.
Source: Klenk, Jiang, Thorson and Dennison, "An in-network architecture for accelerating
shared-memory multiprocessor collectives", ISCA 2020; NVIDIA/nccl 2.30.7 src/transport/nvls.cc.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpsim.collectives import (
    Algorithm,
    Ranks,
    Stage,
    Topology,
    TransferList,
    Transfers,
    members_of,
    rank_array,
)


class Nvls(Algorithm):
    """Needs all ranks on the NVSwitch of one node."""

    operations = ("all_reduce", "all_gather", "reduce_scatter")
    proportional = True
    in_network = True

    def applies(self, ranks: Ranks, topology: Topology) -> bool:
        return len(members_of(ranks, topology).nodes) == 1 and switched(ranks, topology)

    def stages(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> Iterator[Stage]:
        out, into = size, size / len(ranks)
        if operation == "all_gather":
            out, into = into, out
        if operation == "all_reduce":
            out = into = out + into
        yield Stage(1, TransferList(through_switch(ranks, out, into, topology)))

    def seconds(
        self, operation: str, n: int, size: float, latency: float, bandwidth: float
    ) -> float:
        """On equal links of `latency` and `bandwidth` between every rank and the switch."""
        return latency + (1 + 1 / n if operation == "all_reduce" else 1) * size / bandwidth

    def bytes_sent(self, operation: str, n: int, size: float) -> float:
        return {"all_reduce": 1 + 1 / n, "all_gather": 1 / n, "reduce_scatter": 1.0}[
            operation
        ] * size


def switched(ranks: Ranks, topology: Topology) -> bool:
    """Whether every node's ranks, at least two, sit on one NVSwitch."""
    for mine in members_of(ranks, topology).shapes:
        if len(mine) < 2:
            return False
        hop = topology.inside(("gpu", 0, mine[0]), ("gpu", 0, mine[1]))
        if hop[0][1][0] != "nvswitch":
            return False
    return True


def through_switch(
    ranks: Ranks, out: float, into: float, topology: Topology
) -> Iterator[Transfers]:
    """Every rank sends `out` bytes to its node's switch and receives `into` from it."""
    found = rank_array(ranks)
    switches, order = -1 - found // topology.gpus, 2 * np.arange(len(found))
    yield Transfers(found, switches, out, order)
    yield Transfers(switches, found, into, order + 1)
