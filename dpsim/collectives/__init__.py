"""Collective algorithms: rounds of transfers between ranks.

Contract.  A plug-in module of this folder holds one `Algorithm`.  `stages` yields `Stage`s: so
many equal rounds of the same transfers.  In a round every rank's transfers run at once; the next
round of a rank begins when its own transfers of this round, in and out, are through.  `seconds`
is the closed form on a machine where every pair has its own link; tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dpsim.topology import Topology


class Transfer(NamedTuple):
    """One message of one round: ranks and bytes."""

    source: int
    target: int
    bytes: float


class Stage(NamedTuple):
    """`repeats` equal rounds."""

    repeats: int
    transfers: tuple[Transfer, ...]


class Algorithm:
    """Contract of this folder."""

    #: operations it has, of dpsim.program.OPERATIONS
    operations: tuple[str, ...] = ()
    #: all its transfers grow in proportion to the size (so its routes are worked out only once)
    proportional: bool = False

    def applies(self, ranks: tuple[int, ...], topology: Topology) -> bool:
        """Whether this algorithm can serve this group on this machine."""
        return True

    def stages(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology
    ) -> Iterator[Stage]:
        """The rounds of `operation` over `ranks` on `size` bytes (full, unsharded size)."""
        raise NotImplementedError

    def seconds(
        self, operation: str, n: int, size: float, latency: float, bandwidth: float
    ) -> float:
        """Closed form for `n` ranks on equal, private links of `latency` and `bandwidth`."""
        raise NotImplementedError

    def bytes_sent(self, operation: str, n: int, size: float) -> float:
        """Bytes that one rank sends (mean over ranks)."""
        raise NotImplementedError


CONTRACT = Algorithm
