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

from dpsim.collectives import Algorithm, Stage, Topology, Transfer, aggregator, nodes_of

Ranks = tuple[int, ...]


def alike(ranks: Iterable[int], topology: Topology) -> bool:
    """Whether there are several nodes, all with the same places in use, hence the same NICs."""
    nodes = nodes_of(ranks, topology)
    places = {tuple(rank % topology.gpus for rank in node) for node in nodes}
    return len(nodes) > 1 and len(places) == 1


def heads(node: Ranks, topology: Topology) -> Ranks:
    """For each NIC that `node`'s ranks use, the rank nearest to it."""
    members: dict[int, list[int]] = {}
    for rank in node:
        members.setdefault(topology.nic_of(rank % topology.gpus), []).append(rank)

    def steps(rank: int, nic: int) -> int:
        return len(topology.inside(("gpu", 0, rank % topology.gpus), ("nic", 0, nic)))

    return tuple(
        min(group, key=lambda rank, nic=nic: steps(rank, nic))  # type: ignore[misc]
        for nic, group in sorted(members.items())
    )


def through_network(trees: Iterable[tuple[Ranks, float, float]]) -> Stage:
    """Every rank of a tree (ranks, out, into) sends `out` bytes and receives `into`.

    Bytes stream up and down at once, and a round counts the latency of one way: two rounds of half
    of the bytes take the latency there and back, and each byte's time once.
    """

    def transfers() -> Iterator[Transfer]:
        for tree, (ranks, out, into) in enumerate(trees):
            for rank in ranks:
                yield Transfer(rank, aggregator(tree), out / 2)
                yield Transfer(aggregator(tree), rank, into / 2)

    return Stage(2, tuple(transfers()))


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
