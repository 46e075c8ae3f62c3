"""NCCL, first version: ring or two-level, whichever is faster on the links of the graph.

Every hop of the ring is routed, the most loaded link sets the pace, the Simple protocol is
assumed, and one launch costs NCCL's base latency for it (8.4 us: NVIDIA/nccl src/graph/tuning.cc
2.23-2.30, `baseLat`, Ring and Tree, Simple).  NCCL has no two-level all-reduce on its own; it
stands here for the tree that NCCL uses across nodes and is, like it, bandwidth-optimal per NIC
(docs/assumptions.md, A12).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dpsim import plugins
from dpsim.backends import Backend, Phase, Plan
from dpsim.collectives import Algorithm, Stage
from dpsim.fabrics import Edge
from dpsim.record import Refused, Text, record
from dpsim.topology import Topology
from dpsim.units import Factor, Seconds


@record
class Nccl(Backend):
    """Settings: `algorithm` (auto picks the fastest), `launch` [s] per collective,
    `efficiency` of the links' bandwidth (a measured machine's factor; 1 is the nominal)."""

    algorithm: Text = "auto"
    launch: Seconds = 8.4e-6
    efficiency: Factor = 1.0

    def __post_init__(self) -> None:
        try:
            if self.algorithm != "auto":
                plugins.find("dpsim.collectives", self.algorithm)
        except Refused as error:
            raise Refused(f"{error.message}, and auto", ("algorithm",)) from None

    def plan(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology | None
    ) -> Plan:
        if len(ranks) == 1:
            return Plan((), None, "none", 0.0)
        assert topology is not None
        names = (
            plugins.names("dpsim.collectives") if self.algorithm == "auto" else (self.algorithm,)
        )
        call = _Call(operation, ranks, size, topology)
        plans = [
            self._with(algorithm, name, call)
            for name in names
            if operation in (algorithm := plugins.find("dpsim.collectives", name)()).operations
            and algorithm.applies(ranks, topology)
        ]
        if not plans:
            raise Refused(
                f"{self.algorithm} cannot do {operation} over these {len(ranks)} ranks",
                ("collective", "algorithm"),
            )
        return min(plans, key=lambda plan: plan.seconds)

    def _with(self, algorithm: Algorithm, name: str, call: _Call) -> Plan:
        shapes = _shapes(algorithm, name, call)
        phases = tuple(shape.phase(call.size, self.efficiency) for shape in shapes)
        sent = algorithm.bytes_sent(call.operation, len(call.ranks), call.size)
        return Plan(phases, lambda: algorithm.stages(*call), name, sent, self.launch)


class _Call(NamedTuple):
    """What a collective is asked to do; the arguments of `Algorithm.stages`."""

    operation: str
    ranks: tuple[int, ...]
    size: float
    topology: Topology


@dataclass(frozen=True)
class _Shape:
    """A stage for one byte of the collective's size.

    hops   the distinct (latency, seconds per byte on the most loaded link) of its transfers
    loads  bytes per byte that cross each link in one round; `peak` is the largest
    """

    repeats: int
    hops: frozenset[tuple[float, float]]
    loads: Mapping[Edge, float]
    pace: float
    peak: float
    busiest: Edge

    def phase(self, size: float, efficiency: float = 1.0) -> Phase:
        """All rounds as one phase.

        A transfer takes the latency of its path plus the time of its most loaded link; the slowest
        transfer sets the pace of the round, and every round is alike.
        """
        size = size / efficiency
        pace = self.pace * size
        slowest = max(latency + busy * size for latency, busy in self.hops)
        moved = self.repeats * self.peak * size
        return Phase(
            self.repeats * (slowest - pace), self.repeats * pace, self.loads, moved, self.busiest
        )


def _shapes(algorithm: Algorithm, name: str, call: _Call) -> tuple[_Shape, ...]:
    """The shapes of all stages; kept with the topology where they don't depend on the size."""
    topology = call.topology
    if not algorithm.proportional:
        return tuple(_shape(s, topology, call.size or 1.0) for s in algorithm.stages(*call))
    key = ("shapes", name, call.operation, call.ranks)
    if key not in topology.memo:
        stages = algorithm.stages(*call._replace(size=1.0))
        topology.memo[key] = tuple(_shape(stage, topology) for stage in stages)
    found: tuple[_Shape, ...] = topology.memo[key]
    return found


def _shape(stage: Stage, topology: Topology, size: float = 1.0) -> _Shape:
    """The shape of `stage`, which was made for `size` bytes."""
    routes = [topology.route(t.source, t.target) for t in stage.transfers]
    loads: dict[Edge, float] = {}
    for transfer, route in zip(stage.transfers, routes, strict=True):
        for edge in route:
            loads[edge] = loads.get(edge, 0.0) + transfer.bytes / size
    links = {edge: topology.link(edge) for edge in loads}
    busy = {edge: load / links[edge].bandwidth for edge, load in loads.items()}
    hops = frozenset(
        (sum(links[edge].latency for edge in route), max(busy[edge] for edge in route))
        for route in routes
    )
    busiest = max(busy, key=lambda edge: busy[edge])
    return _Shape(stage.repeats, hops, loads, busy[busiest], max(loads.values()), busiest)


def phase_of(stage: Stage, topology: Topology, efficiency: float = 1.0) -> Phase:
    """All rounds of `stage` as one phase."""
    return _shape(stage, topology).phase(1.0, efficiency)
