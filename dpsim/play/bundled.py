"""Ranks that do the same at the same time are played as one.

Where nothing makes ranks differ, those that hold the same stage of a pipeline run in lockstep,
whether they split its layers or are replicas: one player stands for all of them.  A collective or
transfer of players is then one of all these ranks at once, whose bytes share the links that they
have in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpsim.backends import Edge, Phase, Plan, Ranks
from dpsim.compile.program import BARRIER, RECEIVE, SEND, Op
from dpsim.play import WAITING, Costs


def bundled(costs: Costs, groups: Mapping[str, Sequence[Ranks]]) -> BundledCosts:
    """The costs of players, made once for all plays with the same groups."""
    key = (BundledCosts, *groups.items())
    if key not in costs.known:
        costs.known[key] = BundledCosts(costs, groups)
    found: BundledCosts = costs.known[key]
    return found


class BundledCosts(Costs):
    """Costs of players: whatever they do in a group of `groups`, all ranks of that name do at
    once; their plans are `costs`'."""

    def __init__(self, costs: Costs, groups: Mapping[str, Sequence[Ranks]]) -> None:
        super().__init__(costs.backend, costs.topology)
        self._costs, self._groups = costs, groups
        self._bundles: dict[tuple[str, str, float, int], Plan] = {}

    def of(self, op: Op, ranks: Ranks) -> Plan:
        if op.operation == BARRIER:
            return WAITING
        operation = SEND if op.operation == RECEIVE else op.operation
        key = (operation, op.group, op.bytes, op.repeats)
        if key not in self._bundles:
            plans = [self._costs.of(op, group) for group in self._groups[op.group]]
            self._bundles[key] = self._together(plans)
        return self._bundles[key]

    def _together(self, plans: Sequence[Plan]) -> Plan:
        """All of `plans` at once.  What one rank sends is that of the first."""
        first = plans[0]
        if len(plans) == 1 or any(len(p.phases) != len(first.phases) for p in plans):
            return max(plans, key=lambda plan: plan.seconds)
        columns = zip(*(plan.phases for plan in plans), strict=True)
        phases = tuple(self._phase(column) for column in columns)
        launch = max(plan.launch for plan in plans)
        return Plan(phases, None, first.algorithm, first.sent, launch)

    def _phase(self, column: Sequence[Phase]) -> Phase:
        """Phases that begin at once: no link carries its bytes faster than it can.

        What they meet on the links of the first of them the others meet on theirs, so only those
        links, and the busiest, are kept.
        """
        loads: dict[Edge, float] = {}
        for phase in column:
            most = max((phase.loads or {}).values(), default=0.0)
            for edge, load in (phase.loads or {}).items():
                loads[edge] = loads.get(edge, 0.0) + phase.size * load / most if most else 0.0
        latency = max(phase.latency for phase in column)
        seconds = max(phase.seconds for phase in column)
        if not loads:
            return Phase(latency, seconds)
        times = {edge: load / self._bandwidth(edge) for edge, load in loads.items()}
        busiest = max(times, key=lambda edge: times[edge])
        kept = {edge: loads[edge] for edge in (*(column[0].loads or ()), busiest)}
        size = max(kept.values())
        return Phase(latency, max(seconds, times[busiest]), kept, size, busiest)

    def _bandwidth(self, edge: Edge) -> float:
        assert self.topology is not None
        return self.topology.link(edge).bandwidth
