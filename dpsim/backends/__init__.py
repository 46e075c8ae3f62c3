"""Backends: who decides how a collective is carried out, and what it then costs.

Contract.  A plug-in module of this folder holds one `Backend`: a record whose fields are its keys
under ``collective:`` and whose `plan` turns (operation, ranks, bytes) into a `Plan`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from dpsim.collectives import OPERATIONS, Ranks, Stage, Transfer, TransferList, ring_payload
from dpsim.core import plugins
from dpsim.core.lean import dataclass
from dpsim.core.many import added
from dpsim.machines.fabrics import Edge
from dpsim.machines.loads import Loads
from dpsim.machines.moves import Relocation
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
    def rates(self) -> Mapping[Edge, float]:
        """The links that carry its bytes, and how fast at most on otherwise idle links [B/s]."""
        found = [_rates(phase) for phase in self.phases if phase.loads]
        return found[0] if len(found) == 1 else _Most(found)

    @cached_property
    def seconds(self) -> float:
        """Duration on otherwise idle links [s]."""
        return self.launch + added(phase.latency + phase.seconds for phase in self.phases)

    def meets(self, other: Plan) -> bool:
        """Whether both use a link, without naming any."""
        mine, theirs = ([p.loads for p in plan.phases if p.loads] for plan in (self, other))
        return any(_meet(a, b) for a in mine for b in theirs)

    def moved(self, move: Relocation) -> Plan:
        """The plan of a group that lies alike on other nodes."""
        phases = tuple(
            replace(
                phase,
                loads=None if phase.loads is None else move.loads(phase.loads),
                busiest=None if phase.busiest is None else move.edge(phase.busiest),
            )
            for phase in self.phases
        )
        stages = None if self.stages is None else _Moved(self.stages, move)
        return replace(self, phases=phases, stages=stages)

    def repeated(self, times: float) -> Plan:
        """The same collective `times` times, one after the other; its rounds are not kept.  A
        fraction is the part of it that falls to a step."""
        phases = tuple(
            replace(
                phase,
                latency=phase.latency * times,
                seconds=phase.seconds * times,
                size=phase.size * times,
                loads=phase.loads and scaled(phase.loads, times),
            )
            for phase in self.phases
        )
        return Plan(phases, None, self.algorithm, self.sent * times, self.launch * times)


@dataclass(frozen=True)
class _Moved:
    """Makes the rounds of `stages` on other nodes."""

    stages: Callable[[], Iterable[Stage]]
    move: Relocation

    def __call__(self) -> Iterator[Stage]:
        for stage in self.stages():
            flows = TransferList.of(stage.transfers)
            yield stage._replace(transfers=flows.elsewhere(self.move.ends))


def scaled(loads: Mapping[Edge, float], factor: float) -> Mapping[Edge, float]:
    """`factor` times as much on every link."""
    if isinstance(loads, Loads):
        return loads.of(loads.carried * factor)
    return {edge: load * factor for edge, load in loads.items()}


def _meet(loads: Mapping[Edge, float], others: Mapping[Edge, float]) -> bool:
    if isinstance(loads, Loads) and isinstance(others, Loads):
        return loads.layout.meets(others.layout)
    return not loads.keys().isdisjoint(others)


def most_loaded(loads: Mapping[Edge, float]) -> float:
    """What the most loaded link carries."""
    return loads.most if isinstance(loads, Loads) else max(loads.values(), default=0.0)


def link_seconds(loads: Mapping[Edge, float], topology: Topology) -> Iterator[tuple[Edge, float]]:
    """A link of every class with its load over its bandwidth, those first that were used first; all
    links where there are no classes."""
    if isinstance(loads, Loads):
        each = zip(loads.classes, loads.edges(), loads.seconds.tolist(), strict=True)
        for _, edge, time in sorted(each, key=lambda found: found[0].first):
            yield edge, time
    else:
        for edge, load in loads.items():
            yield edge, load / topology.link(edge).bandwidth


def _rates(phase: Phase) -> Mapping[Edge, float]:
    """How fast the links of `phase` carry its bytes [B/s]."""
    loads = phase.loads or {}
    most = most_loaded(loads)
    if isinstance(loads, Loads):
        every = phase.size * loads.carried / (most or 1.0)
        every = every / phase.seconds if phase.seconds else np.full(len(every), math.inf)
        return loads.of(np.where(loads.carried > 0, every, 0.0))
    each = {edge: phase.size * load / (most or 1.0) for edge, load in loads.items()}
    return {
        edge: (rate / phase.seconds if phase.seconds else math.inf) if rate else 0.0
        for edge, rate in each.items()
    }


class _Most(Mapping[Edge, float]):
    """On each link the most of `parts`; worked out when somebody goes through them."""

    def __init__(self, parts: Sequence[Mapping[Edge, float]]) -> None:
        self._parts = parts

    @cached_property
    def _links(self) -> dict[Edge, float]:
        found: dict[Edge, float] = {}
        for part in self._parts:
            for edge, rate in part.items():
                found[edge] = max(found.get(edge, 0.0), rate)
        return found

    def __bool__(self) -> bool:
        return any(self._parts)

    def __getitem__(self, edge: Edge) -> float:
        return self._links[edge]

    def __iter__(self) -> Iterator[Edge]:
        return iter(self._links)

    def __len__(self) -> int:
        return len(self._links)


class Backend:
    """Contract of this folder."""

    tag = "backend"
    #: no machine needed; control traffic and copies take no time
    ideal: bool = False

    @property
    def by_place(self) -> bool:
        """Whether a plan depends on where ranks are in their nodes and which of these share a leaf,
        but not on the nodes' numbers: then plans of groups that lie alike are made once."""
        return False

    @property
    def concurrency(self) -> int:
        """How many collectives of one communicator run at once, issued in order."""
        return 1

    def plan(self, operation: str, ranks: Ranks, size: float, topology: Topology | None) -> Plan:
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


def ideal_ones() -> str:
    """The backends that need no machine, in words."""
    *names, last = (name for name, kind in plugins.usable("backends") if kind.ideal is True)
    return f"{', '.join(names)} or {last}"


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
    "CONTRACT",
    "Backend",
    "Edge",
    "Phase",
    "Plan",
    "Ranks",
    "Topology",
    "Transfer",
    "fixed",
    "link_seconds",
    "most_loaded",
    "scaled",
    "unmodelled",
]  # fmt: skip
