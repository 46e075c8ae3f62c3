"""Backends: who decides how a collective is carried out, and what it then costs.

Contract.  A plug-in module of this folder holds one `Backend`: a record whose fields are its keys
under ``collective:`` and whose `plan` turns (operation, ranks, bytes) into a `Plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from dpsim.collectives import Stage
from dpsim.fabrics import Edge
from dpsim.topology import Topology


@dataclass(frozen=True)
class Phase:
    """A stretch of a collective in which the same links carry traffic.

    latency   time in which no bytes move [s]
    seconds   time to move the bytes when nobody else uses the links [s]
    loads     how much each link carries in the whole phase; None: no link is used
    size      bytes on the most loaded link [B]; the others carry in proportion to `loads`
    busiest   the link that takes longest
    """

    latency: float
    seconds: float = 0.0
    loads: Mapping[Edge, float] | None = None
    size: float = 0.0
    busiest: Edge | None = None


@dataclass(frozen=True)
class Plan:
    """How one collective is carried out: phases one after the other.

    stages   makes the rounds behind the phases, for playing every round (None: there are none)
    algorithm, sent   its name, and the bytes that a rank sends
    """

    phases: tuple[Phase, ...]
    stages: Callable[[], Iterable[Stage]] | None
    algorithm: str
    sent: float
    launch: float = 0.0

    @cached_property
    def links(self) -> frozenset[Edge]:
        """The links that carry its bytes."""
        return frozenset(edge for phase in self.phases for edge in phase.loads or ())

    @cached_property
    def seconds(self) -> float:
        """Duration on otherwise idle links [s]."""
        return self.launch + sum(phase.latency + phase.seconds for phase in self.phases)


class Backend:
    """Contract of this folder."""

    tag = "backend"
    #: no machine needed; control traffic and copies take no time
    ideal: bool = False

    @property
    def concurrency(self) -> int:
        """How many collectives of one communicator run at once, issued in order."""
        return 1

    def plan(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology | None
    ) -> Plan:
        """How to carry out `operation` on `size` bytes (full size) over `ranks`."""
        raise NotImplementedError


def ring_payload(operation: str, n: int, size: float) -> float:
    """Bytes that a rank of a ring sends: 2(n-1)/n S for all-reduce, (n-1)/n S otherwise."""
    return (2 if operation == "all_reduce" else 1) * (n - 1) * size / n


def fixed(
    latency: float, transfer: float, operation: str, n: int, size: float, algorithm: str
) -> Plan:
    """A plan that takes `latency` + `transfer` seconds whatever else happens."""
    return Plan((Phase(latency, transfer),), None, algorithm, ring_payload(operation, n, size))


CONTRACT = Backend
