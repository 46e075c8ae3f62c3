"""Costs from measured curves: what was timed beats what is modelled.

A collective takes the curve of its own operation and group (same ranks, same nodes) where there is
one.  On another number of ranks it takes the nearest group's curve times the ratio that the model
of the backend has between the two: curve(size) * model(here, size) / model(there, size).  Nearest
is the rank count's logarithm, and only within a regime: one node, or several.  The backend's plan
is stretched to that time, so phases and links stay, and traffic still shares links.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from dpsim.backends import Backend, Plan, Ranks, Topology
from dpsim.backends.curves import MeasuredCurve, Reading
from dpsim.collectives import members_of
from dpsim.core.lean import dataclass
from dpsim.play import Costs


@dataclass(frozen=True)
class Served:
    """How a measured curve serves one collective.

    reading   of the curve at the collective's size
    away      doublings of the rank count between the curve's group and this one; 0: the same group
    ratio     model here over model there [1]; 1 on the same group
    """

    curve: MeasuredCurve
    reading: Reading
    away: float
    ratio: float

    @property
    def seconds(self) -> float:
        """The collective's time [s]."""
        return self.reading.seconds * self.ratio

    @property
    def exact(self) -> bool:
        """Measured on this very group and within the measured sizes."""
        return self.away == 0 and self.reading.beyond == 0


class MeasuredCosts(Costs):
    """Costs of `backend` where nothing was measured, of `curves` where something was.

    elsewhere   makes the topology of a curve's group: (ranks, nodes) -> Topology
    """

    def __init__(
        self,
        backend: Backend,
        topology: Topology,
        curves: Iterable[MeasuredCurve],
        elsewhere: Callable[[int, int], Topology],
    ) -> None:
        super().__init__(backend, topology)
        self._here = topology
        self._curves = tuple(curves)
        self._elsewhere = elsewhere
        self._there: dict[tuple[int, int], Topology] = {}
        self._served: dict[tuple[str, Ranks, float], Served | None] = {}

    def plan(self, operation: str, ranks: Ranks, size: float) -> Plan:
        plan = super().plan(operation, ranks, size)
        served = self.served(operation, ranks, size)
        if served is None or plan.seconds <= 0:
            return plan
        factor = served.seconds / plan.seconds
        return stretched(plan, factor, factor)

    def served(self, operation: str, ranks: Ranks, size: float) -> Served | None:
        """The curve that serves this collective; None where none does."""
        key = (operation, ranks, size)
        if key not in self._served:
            self._served[key] = self._serve(*key)
        return self._served[key]

    def _serve(self, operation: str, ranks: Ranks, size: float) -> Served | None:
        n, nodes = len(ranks), len(members_of(ranks, self._here).nodes)
        curve = self._nearest(operation, n, nodes)
        if curve is None or n == 1 or size <= 0:
            return None
        there = (curve.ranks, self._nodes(curve))
        reading = curve.at(size)
        if there == (n, nodes):
            return Served(curve, reading, 0.0, 1.0)
        model = self._modelled(operation, there, size)
        here = super().plan(operation, ranks, size).seconds
        if model <= 0 or here <= 0:
            return None
        away = max(abs(math.log2(n / curve.ranks)), abs(math.log2(nodes / there[1])))
        return Served(curve, reading, away, here / model)

    def _nearest(self, operation: str, n: int, nodes: int) -> MeasuredCurve | None:
        near = [
            curve
            for curve in self._curves
            if curve.operation == operation and (self._nodes(curve) > 1) == (nodes > 1)
        ]
        per_node = n / nodes

        def distance(curve: MeasuredCurve) -> tuple[float, float, int]:
            ratio = curve.ranks / self._nodes(curve) / per_node
            return abs(math.log(curve.ranks / n)), abs(math.log(ratio)), curve.ranks

        return min(near, key=distance, default=None)

    def _nodes(self, curve: MeasuredCurve) -> int:
        """The nodes of a curve's group; full nodes of this machine where it doesn't say."""
        return curve.nodes or -(-curve.ranks // self._here.gpus)

    def _modelled(self, operation: str, group: tuple[int, int], size: float) -> float:
        if group not in self._there:
            self._there[group] = self._elsewhere(*group)
        topology = self._there[group]
        return self.backend.plan(operation, range(group[0]), size, topology).seconds


def stretched(plan: Plan, latency: float, transfer: float) -> Plan:
    """`plan` with its launch and every latency, and every transfer, so many times as long."""
    phases = tuple(
        replace(
            phase,
            latency=phase.latency * latency,
            seconds=phase.seconds * transfer,
            size=phase.size * transfer,
        )
        for phase in plan.phases
    )
    return replace(plan, phases=phases, stages=None, launch=plan.launch * latency)
