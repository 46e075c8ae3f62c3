"""Ranks that do the same at the same time are played as one.

Where nothing makes ranks differ, those that hold the same stage of a pipeline run in lockstep,
whether they split its layers or are replicas: one player stands for all of them.  A collective or
transfer of players is then one of all these ranks at once, whose bytes share the links that they
have in common.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from dpsim.backends import Edge, Phase, Plan, Ranks, Topology
from dpsim.compile.program import BARRIER, Op
from dpsim.core.arrays import Array, IntArray
from dpsim.machines.loads import Loads
from dpsim.machines.moves import Relocation
from dpsim.play import WAITING, Costs

#: where in a node links are, as columns of a layout have it
_Place = tuple[Edge | None, bool]


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
        self._bundles: dict[Hashable, Plan] = {}
        self._places: dict[str, tuple[Hashable, int] | None] = {}
        self._alike: dict[Hashable, tuple[Ranks, int, Plan]] = {}

    def of(self, op: Op, ranks: Ranks) -> Plan:
        if op.operation == BARRIER:
            return WAITING
        operation = op.carried
        key = (op.group, operation, *op.agreed[1:])
        if key not in self._bundles:
            self._bundles[key] = self._bundle(operation, op)
        return self._bundles[key]

    def _bundle(self, operation: str, op: Op) -> Plan:
        """The plan of all groups of a name; of names whose ranks lie alike, that of the first,
        moved."""
        groups, lies = self._groups[op.group], self._lies(op.group)
        if lies is None or self.topology is None:
            return self._together([self._costs.of(op, group) for group in groups])
        key = (lies[0], operation, *op.agreed[1:])
        if key not in self._alike:
            plan = self._together([self._costs.of(op, group) for group in groups])
            self._alike[key] = _flat(groups), lies[1], plan
        first, node, plan = self._alike[key]
        if node == lies[1]:
            return plan
        return plan.moved(Relocation(self.topology, first, lies[1] - node))

    def _lies(self, name: str) -> tuple[Hashable, int] | None:
        """How the groups of a name lie together, as `lying` has it."""
        if name not in self._places:
            groups = self._groups[name]
            found = self._lying(_flat(groups))
            sizes = tuple(len(group) for group in groups)
            self._places[name] = found and ((sizes, found[0]), found[1])
        return self._places[name]

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
        latency = max(phase.latency for phase in column)
        seconds = max(phase.seconds for phase in column)
        moving = [phase for phase in column if phase.loads]
        if not moving:
            return Phase(latency, seconds)
        assert self.topology is not None
        counted = all(isinstance(phase.loads, Loads) for phase in moving)
        total = CountedLinks(moving) if counted else NamedLinks(moving, self.topology)
        kept = total.of_first if column[0].loads else {}
        busiest, load, longest = total.busiest
        kept.setdefault(busiest, load)
        return Phase(latency, max(seconds, longest), kept, max(kept.values()), busiest)


def _flat(groups: Sequence[Ranks]) -> Ranks:
    return tuple(itertools.chain.from_iterable(groups))


class NamedLinks:
    """What several phases at once put on links, link by link [B]."""

    def __init__(self, phases: Sequence[Phase], topology: Topology) -> None:
        self._first, self._topology = phases[0], topology
        self._loads: dict[Edge, float] = {}
        for phase in phases:
            loads = phase.loads or {}
            most = max(loads.values())
            for edge, load in loads.items():
                own = phase.size * load / most if most else 0.0
                self._loads[edge] = self._loads.get(edge, 0.0) + own

    @property
    def of_first(self) -> dict[Edge, float]:
        """Those that the first of the phases uses."""
        return {edge: self._loads[edge] for edge in self._first.loads or ()}

    @property
    def busiest(self) -> tuple[Edge, float, float]:
        """The link that takes longest, what it carries [B] and for how long [s]."""
        times = {e: load / self._topology.link(e).bandwidth for e, load in self._loads.items()}
        edge = max(times, key=lambda one: times[one])
        return edge, self._loads[edge], times[edge]


class CountedLinks:
    """The same for links that are counted by class: those of one place in all nodes at once."""

    def __init__(self, phases: Sequence[Phase]) -> None:
        self._phases = phases
        parts: dict[_Place, tuple[list[IntArray], list[float], list[float]]] = {}
        told: dict[tuple[int, float], tuple[list[float], list[float]]] = {}
        for phase in phases:
            loads = _counted(phase)
            key = id(loads.carried), phase.size  # of groups that lie alike it is the same
            if key not in told:
                carried = (phase.size * loads.carried / (loads.most or 1.0)).tolist()
                told[key] = carried, [which.bandwidth for which in loads.classes]
            each, bandwidths = told[key]
            for edge, numbers, several, single in loads.layout.columns:
                known = parts.setdefault((edge, single), ([], [], []))
                known[0].append(numbers)
                if isinstance(several, int):
                    known[1].extend([each[several]] * len(numbers))
                    known[2].extend([bandwidths[several]] * len(numbers))
                    continue
                classes = several.tolist()
                known[1].extend([each[which] for which in classes])
                known[2].extend([bandwidths[which] for which in classes])
        self._loads: dict[_Place, Array] = {}
        self._times: dict[_Place, Array] = {}
        for place, (some, every, bandwidth) in parts.items():
            numbers = np.concatenate(some)
            self._loads[place] = np.bincount(numbers, every).astype(np.float64, copy=False)
            speed = np.ones(len(self._loads[place]))
            speed[numbers] = bandwidth
            self._times[place] = self._loads[place] / speed

    @property
    def of_first(self) -> dict[Edge, float]:
        """Those that the first of the phases uses."""
        loads = _counted(self._phases[0])
        columns = loads.layout.columns
        totals = (self._loads[c.edge, c.single][c.numbers].tolist() for c in columns)
        return dict(zip(loads, itertools.chain.from_iterable(totals), strict=True))

    @property
    def busiest(self) -> tuple[Edge, float, float]:
        """The link that takes longest, the first of several, what it carries [B] and for how long
        [s]."""
        longest = max(float(times.max()) for times in self._times.values())
        for loads in map(_counted, self._phases):
            before = 0
            for column in loads.layout.columns:
                times = self._times[column.edge, column.single][column.numbers]
                if times.max() == longest:
                    at = int(times.argmax())
                    edge = next(itertools.islice(loads, before + at, None))
                    total = self._loads[column.edge, column.single][column.numbers[at]]
                    return edge, float(total), longest
                before += len(column.numbers)
        raise AssertionError("no link takes the longest time of all")


def _counted(phase: Phase) -> Loads:
    assert isinstance(phase.loads, Loads)
    return phase.loads
