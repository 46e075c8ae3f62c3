"""What the algorithms share in which switches between the nodes add (InfiniBand's SHARP).

A stream is an aggregation tree: one rank of every node, its head, sends to the switch beside it and
receives the sum (or everybody's parts) from there.  A leaf adds up what its nodes send, so a single
stream per tree goes on to the other leaves; it is never slower than the NICs below it, and is not
counted on the cables between switches.
Source: Graham et al., "Scalable Hierarchical Aggregation and Reduction Protocol (SHARP) streaming-
aggregation hardware design and evaluation", ISC High Performance 2020.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from dpsim.collectives import (
    Algorithm,
    Ranks,
    Stage,
    Topology,
    TransferList,
    Transfers,
    aggregator,
    members_of,
    rank_array,
)
from dpsim.machines.members import Locals


def alike(ranks: Iterable[int], topology: Topology) -> bool:
    """Whether there are several nodes, all with the same places in use, hence the same NICs."""
    group = members_of(ranks, topology)
    return len(group.nodes) > 1 and group.alike


def heads(local: Locals, topology: Topology) -> Locals:
    """For each NIC that the GPUs `local` of a node use, the GPU nearest to it."""
    users: dict[int, list[int]] = {}
    for gpu in local:
        users.setdefault(topology.nic_of(gpu), []).append(gpu)

    def steps(gpu: int, nic: int) -> int:
        return len(topology.inside(("gpu", 0, gpu), ("nic", 0, nic)))

    return tuple(
        min(group, key=lambda gpu, nic=nic: steps(gpu, nic))  # type: ignore[misc]
        for nic, group in sorted(users.items())
    )


def through_network(trees: Iterable[tuple[Iterable[int], float, float]]) -> Stage:
    """Every rank of a tree (ranks, out, into) sends `out` bytes and receives `into`.

    Bytes stream up and down at once, and a round counts the latency of one way: two rounds of half
    of the bytes take the latency there and back, and each byte's time once.
    """

    def flows() -> Iterator[Transfers]:
        before = 0
        for tree, (ranks, out, into) in enumerate(trees):
            found = rank_array(ranks)
            above = np.full(len(found), aggregator(tree))
            order = before + 2 * np.arange(len(found))
            yield Transfers(found, above, out / 2, order)
            yield Transfers(above, found, into / 2, order + 1)
            before += 2 * len(found)

    return Stage(2, TransferList(flows()))


class Collnet(Algorithm):
    """What NCCL's two ways to use these switches share: several nodes, the same places in use."""

    proportional = True
    in_network = True

    def applies(self, ranks: Ranks, topology: Topology) -> bool:
        return alike(ranks, topology)

    def seconds(
        self, operation: str, n: int, size: float, latency: float, bandwidth: float
    ) -> float:
        """For one rank a node, which is its own head."""
        return latency + size / bandwidth
