"""Collective algorithms: rounds of transfers between ranks.

Contract.  A plug-in module of this folder holds one `Algorithm`.  `stages` yields `Stage`s: so
many equal rounds of the same transfers.  In a round every rank's transfers run at once; the next
round of a rank begins when its own transfers of this round, in and out, are through.  `seconds`
is the closed form on a machine where every pair has its own link; tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dpsim.fabrics import Edge
from dpsim.topology import Topology


class Transfer(NamedTuple):
    """One message of one round: ranks and bytes.

    An end may be `switch(node)`, the NVSwitch complex of that node, which reduces what comes in
    and sends one copy to each rank: then it is no message between two ranks.
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


def path(transfer: Transfer, topology: Topology) -> tuple[Edge, ...]:
    """The edges that `transfer` crosses."""
    source, target, _ = transfer
    if source >= 0 and target >= 0:
        return topology.route(source, target)
    node = -1 - min(source, target)
    gpu = ("gpu", node, max(source, target) % topology.gpus)
    ends = (gpu, ("nvswitch", node, 0))
    return (ends,) if source >= 0 else (ends[::-1],)


class Algorithm:
    """Contract of this folder."""

    #: operations it has, of dpsim.program.OPERATIONS
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
        """Closed form for `n` ranks on equal, private links of `latency` and `bandwidth`."""
        raise NotImplementedError

    def bytes_sent(self, operation: str, n: int, size: float) -> float:
        """Bytes that one rank sends (mean over ranks)."""
        raise NotImplementedError


CONTRACT = Algorithm
