"""Backends: who decides how a collective is carried out, and what it then costs.

Contract.  A plug-in module of this folder holds one `Backend`: a record whose fields are its keys
under ``collective:`` and whose `plan` turns (operation, ranks, bytes) into a `Plan`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from dpsim.collectives import OPERATIONS, Stage, Transfer, ring_payload
from dpsim.machines.fabrics import Edge
from dpsim.machines.topology import Topology


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
    algorithm, sent   its name, and the bytes that a rank sends (mean over ranks; of a send, what
             its sender sends)
    """

    phases: tuple[Phase, ...]
    stages: Callable[[], Iterable[Stage]] | None
    algorithm: str
    sent: float
    launch: float = 0.0

    @cached_property
    def rates(self) -> dict[Edge, float]:
        """The links that carry its bytes, and how fast at most on otherwise idle links [B/s]."""
        found: dict[Edge, float] = {}
        for phase in self.phases:
            most = max((phase.loads or {}).values(), default=0.0)
            for edge, load in (phase.loads or {}).items():
                rate = phase.size * load / most / phase.seconds if phase.seconds else math.inf
                found[edge] = max(found.get(edge, 0.0), rate if load else 0.0)
        return found

    @cached_property
    def seconds(self) -> float:
        """Duration on otherwise idle links [s]."""
        return self.launch + sum(phase.latency + phase.seconds for phase in self.phases)

    def repeated(self, times: int) -> Plan:
        """The same collective `times` times, one after the other; its rounds are not kept."""
        phases = tuple(
            replace(
                phase,
                latency=phase.latency * times,
                seconds=phase.seconds * times,
                size=phase.size * times,
                loads=phase.loads and {edge: load * times for edge, load in phase.loads.items()},
            )
            for phase in self.phases
        )
        return Plan(phases, None, self.algorithm, self.sent * times, self.launch * times)


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
        """How to carry out `operation` on `size` bytes (full size) over `ranks`.

        The root of a broadcast or reduce is the first of `ranks`.  A send goes from the first of
        two ranks to the second; of more than two, each sends to the next and the last to the
        first, all at once, as in nccl-tests' sendrecv.
        """
        raise NotImplementedError


def fixed(
    latency: float, transfer: float, operation: str, n: int, size: float, algorithm: str
) -> Plan:
    """A plan that takes `latency` + `transfer` seconds whatever else happens."""
    return Plan((Phase(latency, transfer),), None, algorithm, ring_payload(operation, n, size))


def unmodelled(operation: str) -> str:
    """Why there is nothing to say about `operation`; empty where it is modelled."""
    if operation in OPERATIONS:
        return ""
    there = f"there are {', '.join(OPERATIONS)}"
    joined = re.sub("[_-]", "", operation.lower())  # all-reduce, AllReduce
    if meant := next((known for known in OPERATIONS if known.replace("_", "") == joined), ""):
        return f"no operation {operation[:60]!r}; did you mean {meant!r}?"
    return f"{operation} is not modelled; {there}"


CONTRACT = Backend

#: what plug-ins of this folder, and engines, take from here
__all__ = [
    "CONTRACT", "Backend", "Edge", "Phase", "Plan", "Topology", "Transfer", "fixed", "unmodelled",
]  # fmt: skip
