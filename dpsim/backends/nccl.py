"""NCCL, first version: ring or two-level, whichever is faster on the links of the graph.

Every hop of the ring is routed, the most loaded link sets the pace, the Simple protocol is
assumed, and one launch costs NCCL's base latency for it (8.4 us: NVIDIA/nccl src/graph/tuning.cc
2.23-2.30, `baseLat`, Ring and Tree, Simple).  NCCL has no two-level all-reduce on its own; it
stands here for the tree that NCCL uses across nodes and is, like it, bandwidth-optimal per NIC
(docs/assumptions.md, A12).
"""

from __future__ import annotations

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
        plans = [
            self._with(algorithm, name, operation, ranks, size, topology)
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

    def _with(
        self,
        algorithm: Algorithm,
        name: str,
        operation: str,
        ranks: tuple[int, ...],
        size: float,
        topology: Topology,
    ) -> Plan:
        stages = tuple(algorithm.stages(operation, ranks, size, topology))
        phases = tuple(phase_of(stage, topology, self.efficiency) for stage in stages)
        sent = algorithm.bytes_sent(operation, len(ranks), size)
        return Plan(phases, stages, name, sent, self.launch)


def phase_of(stage: Stage, topology: Topology, efficiency: float = 1.0) -> Phase:
    """All rounds of `stage` as one phase.

    A transfer takes the latency of its path plus the time of its most loaded link; the slowest
    transfer sets the pace of the round, and every round is alike.
    """
    routes = [topology.route(t.source, t.target) for t in stage.transfers]
    loads: dict[Edge, float] = {}
    for transfer, route in zip(stage.transfers, routes, strict=True):
        for edge in route:
            loads[edge] = loads.get(edge, 0.0) + transfer.bytes
    links = {edge: topology.link(edge) for edge in loads}
    busy = {edge: load / (links[edge].bandwidth * efficiency) for edge, load in loads.items()}
    slowest = max(
        sum(links[edge].latency for edge in route) + max(busy[edge] for edge in route)
        for route in routes
    )
    pace = max(busy.values())
    total = {edge: load * stage.repeats / efficiency for edge, load in loads.items()}
    return Phase(stage.repeats * (slowest - pace), stage.repeats * pace, total)
