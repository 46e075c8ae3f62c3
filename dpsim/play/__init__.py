"""Play: engines that play programs, over a network that flows share, and say what happened.

`event` (SimPy) plays every operation of every rank; `vectorised` (NumPy) makes one pass in issue
order over arrays of ranks.  Both take a `Play` and return a Timeline; where both apply they agree
to 1e-9 relative.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from dpsim.backends import Backend, Edge, Phase, Plan, Ranks, Topology, link_seconds
from dpsim.collectives import as_ranks
from dpsim.compile.program import BARRIER, COPY_IN, Cast, Op
from dpsim.core import plugins
from dpsim.core.arrays import Array
from dpsim.core.errors import SimulationError
from dpsim.core.lean import dataclass
from dpsim.machines.moves import Relocation, lying
from dpsim.play.host_copies import copy_plan

_Asked = tuple[str, Ranks, float]

#: for every role, the operations that are delayed, by index, and by how much on its ranks [s]
Late = Sequence[Mapping[int, Array]]
#: ranks that wait for each other and move nothing
WAITING = Plan((), None, BARRIER, 0.0)


def leaves_node(edge: Edge) -> bool:
    """Whether a link leads out of a node."""
    return bool({vertex[0] for vertex in edge} & {"nic", "leaf", "spine", "wan"})


class NotApplicable(Exception):
    """This engine cannot play this program faithfully; the message says why."""


class Costs:
    """Plans of collectives on one machine, each made once; of groups that lie alike, one of them
    has it made.

    known  what else was worked out from its plans, by whoever did: one play follows another
    """

    def __init__(self, backend: Backend, topology: Topology | None) -> None:
        self.backend = backend
        self.topology = topology
        self.known: dict[Hashable, Any] = {}
        self._plans: dict[_Asked, Plan] = {}
        self._first: dict[Hashable, tuple[Ranks, int, Plan]] = {}
        self._slowed: dict[tuple[int, float], tuple[Plan, Plan]] = {}
        self._repeated: dict[tuple[str, Ranks, float, float], Plan] = {}

    @property
    def concurrency(self) -> int:
        """How many collectives of one communicator run at once."""
        return self.backend.concurrency

    def capacity(self, link: Any) -> float:
        """What a link of its plans carries, one way [B/s]."""
        assert self.topology is not None
        return self.topology.link(link).bandwidth

    def plan(self, operation: str, ranks: Ranks, size: float) -> Plan:
        """How `ranks` carry out `operation` on `size` bytes."""
        key = (operation, ranks, size)
        if key not in self._plans:
            self._plans[key] = self._planned(operation, as_ranks(ranks), size)
        return self._plans[key]

    def plans(self, op: Op, groups: Iterable[Ranks]) -> list[tuple[Plan, list[Ranks]]]:
        """How each of `groups` carries out `op`: a plan for those that lie alike, whose links are
        those of the first of them."""
        found: dict[Hashable, list[Ranks]] = {}
        for group in groups:
            lies = self._lying(group)
            found.setdefault(lies[0] if lies else group, []).append(group)
        return [(self.of(op, alike[0]), alike) for alike in found.values()]

    def _planned(self, operation: str, ranks: Ranks, size: float) -> Plan:
        """The plan of a group that lies alike, moved; or a new one."""
        lies = self._lying(ranks)
        if lies is None or self.topology is None:
            return self._made(operation, ranks, size)
        key = (operation, lies[0], size)
        if key not in self._first:
            self._first[key] = ranks, lies[1], self._made(operation, ranks, size)
        first, node, plan = self._first[key]
        if node == lies[1]:
            return plan
        return plan.moved(Relocation(self.topology, first, lies[1] - node))

    def _lying(self, ranks: Ranks) -> tuple[Hashable, int] | None:
        if self.topology is None or not self.backend.by_place or len(ranks) < 2:
            return None
        return lying(ranks, self.topology)

    def _made(self, operation: str, ranks: Ranks, size: float) -> Plan:
        if operation == COPY_IN:
            return copy_plan(self.topology, ranks, size)
        with plugins.asked(self.backend, f"plan of {operation}"):
            plan = self.backend.plan(operation, ranks, size, self.topology)
            check_time(plan.seconds, f"{operation} of {size:g} bytes")
        return plan

    def slowed(self, plan: Plan, factor: float) -> Plan:
        """`plan` where bytes between nodes take `factor` times as long; no rounds are kept."""
        if factor == 1.0:
            return plan
        key = (id(plan), factor)
        if key not in self._slowed:
            phases = tuple(self._slowed_phase(phase, factor) for phase in plan.phases)
            self._slowed[key] = plan, replace(plan, phases=phases, stages=None)
        return self._slowed[key][1]

    def _slowed_phase(self, phase: Phase, factor: float) -> Phase:
        """As slow as its links between nodes are now, if those are the slowest; a toy has one
        network."""
        if not phase.loads or self.topology is None:
            inside = phase.busiest is not None and not leaves_node(phase.busiest)
            return phase if inside else replace(phase, seconds=phase.seconds * factor)
        times = list(link_seconds(phase.loads, self.topology))
        most = max(time for _, time in times)
        outside = max((time for edge, time in times if leaves_node(edge)), default=0.0)
        longer = factor * outside / most if most else 1.0
        return replace(phase, seconds=phase.seconds * max(longer, 1.0))

    def of(self, op: Op, ranks: Ranks) -> Plan:
        """How `ranks` carry out `op`, a collective or a transfer, with all its repeats."""
        if op.operation == BARRIER:
            return WAITING
        operation = op.carried
        if op.root and self.concurrency > 1:
            # one after the other they take the same wherever they begin; at once they meet
            ranks = (*ranks[op.root :], *ranks[: op.root])
        if op.repeats == 1:
            return self.plan(operation, ranks, op.bytes)
        key = (operation, ranks, op.bytes, op.repeats)
        if key not in self._repeated:
            self._repeated[key] = self.plan(*key[:3]).repeated(op.repeats)
        return self._repeated[key]


@dataclass(frozen=True)
class Play:
    """What an engine is to play.

    cast      the cast of step number k (0, 1, …)
    costs     plans of collectives
    steps     how many steps to play; the first `warmup` are not measured
    factors   step -> multiplier of every rank's compute [ranks]; one number, of many points, where
              these are played at once (which the vectorised engine does) and all ranks are alike
    contention  how much slower a rank computes while a collective moves its bytes: the part of an
              operation that runs beside one takes 1 + contention times as long
    network   step -> how many times as long bytes between nodes take
    delays    step -> what is added to single computations, whatever their factors
    steady    all steps have one cast, and the same factors, delays and network: where one begins as
              the one before did, all that follow are like it
    """

    cast: Callable[[int], Cast]
    costs: Costs
    steps: int
    warmup: int
    factors: Callable[[int], Array | float]
    contention: float = 0.0
    network: Callable[[int], float] = lambda _: 1.0
    delays: Callable[[int], Late] | None = None
    steady: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < self.steps:
            raise ValueError("at least one step must be measured")
        if not 0 <= self.contention < 100:
            raise ValueError(f"a contention of {self.contention} is not in 0 … 100")


def check_time(value: float, what: str) -> float:
    """`value` if it is a finite, non-negative time; SimulationError otherwise."""
    if not 0.0 <= value < inf:
        raise SimulationError(f"{what} takes {value} s, which is no time")
    return value
