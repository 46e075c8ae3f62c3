"""Collectives: algorithms as rounds of transfers between ranks.

Contract.  A plug-in module of this folder holds one `Algorithm`.  `stages` yields `Stage`s: so
many equal rounds of the same transfers.  In a round every rank's transfers run at once; the next
round of a rank begins when its own transfers of this round, in and out, are through.  `seconds`
is the closed form on a machine where every pair has its own link; tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from dpsim.machines.fabrics import Edge
from dpsim.machines.topology import Topology

SEND, RECEIVE = "send", "receive"
#: operation of a collective that moves nothing: ranks wait for each other
BARRIER = "barrier"
OPERATIONS = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", SEND,
)  # fmt: skip


class Transfer(NamedTuple):
    """One message of one round: ranks and bytes.

    An end may be `switch(node)`, the NVSwitch complex of that node, or `aggregator(tree)`, the
    switches between the nodes: they reduce what comes in and send one copy to each rank.  Then it
    is no message between two ranks.
    """

    source: int
    target: int
    bytes: float


class Stage(NamedTuple):
    """`repeats` equal rounds.

    latency  of every transfer [s]; None: that of the links on its path
    """

    repeats: int
    transfers: tuple[Transfer, ...]
    latency: float | None = None


def switch(node: int) -> int:
    """How a transfer names the NVSwitch complex of `node`."""
    return -1 - node


#: numbers from here down name aggregation trees, those above and below 0 nodes' switches
_AGGREGATORS = -(1 << 40)


def aggregator(tree: int) -> int:
    """How a transfer names the switches of the network that add up stream number `tree`."""
    return _AGGREGATORS - tree


def path(transfer: Transfer, topology: Topology) -> tuple[Edge, ...]:
    """The edges that `transfer` crosses."""
    source, target, _ = transfer
    if source >= 0 and target >= 0:
        return topology.route(source, target)
    rank, other = max(source, target), min(source, target)
    way = _to_leaf(rank, topology) if other <= _AGGREGATORS else _to_switch(rank, topology)
    return way if source >= 0 else tuple((b, a) for a, b in reversed(way))


def _to_switch(rank: int, topology: Topology) -> tuple[Edge, ...]:
    node, gpu = divmod(rank, topology.gpus)
    return ((("gpu", node, gpu), ("nvswitch", node, 0)),)


def _to_leaf(rank: int, topology: Topology) -> tuple[Edge, ...]:
    """From a GPU over its own NIC to the leaf switch, where its stream is added to others.

    The way to the GPU of the same place in the next node begins so, also on rails.
    """
    route = topology.route(rank, (rank + topology.gpus) % (topology.nodes * topology.gpus))
    last = next(k for k, (_, end) in enumerate(route) if end[0] == "leaf")
    return route[: last + 1]


def nodes_of(ranks: Iterable[int], topology: Topology) -> list[tuple[int, ...]]:
    """The ranks of every node, in order."""
    return [tuple(group) for _, group in groupby(sorted(ranks), key=topology.node_of)]


class Algorithm:
    """Contract of this folder."""

    #: operations it has, of OPERATIONS
    operations: tuple[str, ...] = ()
    #: all its transfers grow in proportion to the size (so its routes are worked out only once)
    proportional: bool = False
    #: switches reduce: a rank moves fewer bytes than any exchange between ranks needs
    in_network: bool = False

    def applies(self, ranks: tuple[int, ...], topology: Topology) -> bool:
        """Whether this algorithm can serve this group on this machine."""
        return True

    def stages(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology
    ) -> Iterator[Stage]:
        """The rounds of `operation` over `ranks` on `size` bytes (full, unsharded size)."""
        raise NotImplementedError

    def traffic(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology
    ) -> Iterable[Transfer]:
        """All bytes that `stages` move, by whom they join; in any order, rounds added up."""
        for stage in self.stages(operation, ranks, size, topology):
            for transfer in stage.transfers:
                yield transfer._replace(bytes=stage.repeats * transfer.bytes)

    def seconds(
        self, operation: str, n: int, size: float, latency: float, bandwidth: float
    ) -> float:
        """Closed form for `n` ranks on equal, private links of `latency` and `bandwidth`, where
        that does not depend on nodes."""
        raise NotImplementedError("depends on how the ranks lie in nodes")

    def bytes_sent(self, operation: str, n: int, size: float) -> float:
        """Bytes that one rank sends (mean over ranks), where that does not depend on nodes."""
        raise NotImplementedError("depends on how the ranks lie in nodes")


def ring_payload(operation: str, n: int, size: float) -> float:
    """Bytes that a rank sends, where none is sent that need not be (mean over ranks).

    2(n-1)/n S for all-reduce, S for a send (what its sender sends), (n-1)/n S otherwise: of a
    broadcast and a reduce all ranks but one send S, in an all-to-all each sends n-1 parts of S/n.
    """
    if operation == SEND:
        return size if n > 1 else 0.0
    return (2 if operation == "all_reduce" else 1) * (n - 1) * size / n


CONTRACT = Algorithm

#: what plug-ins of this folder, and other rooms, take from here
__all__ = [
    "BARRIER", "CONTRACT", "OPERATIONS", "RECEIVE", "SEND", "Algorithm", "Edge", "Stage",
    "Topology", "Transfer", "aggregator", "nodes_of", "path", "ring_payload", "switch",
]  # fmt: skip
