"""Costs: what collectives cost at a site, by the backend's model or by measured curves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dpsim.backends import Backend, Plan, Ranks
from dpsim.backends.curves.file import Calibration, find
from dpsim.backends.nccl import Nccl
from dpsim.cases.site import Site
from dpsim.play import Costs
from dpsim.play.measured import MeasuredCosts, stretched


@dataclass(frozen=True)
class Transport:
    """The links of `site`, the `collective` backend that uses them (left out: NCCL), and the name
    of a `curves` file of what was measured.  `exchange`: by what a calibration found collectives to
    take longer than modelled, inside a node and between nodes."""

    site: Site
    collective: Backend | None
    curves: str | None
    exchange: tuple[float, float] = (1.0, 1.0)

    @property
    def backend(self) -> Backend:
        """Who carries out collectives."""
        return self.collective or Nccl()

    @cached_property
    def calibration(self) -> Calibration | None:
        """What was measured; None where nothing is said to have been."""
        return None if self.curves is None else find(self.curves, self.site.base)

    @cached_property
    def costs(self) -> Costs:
        """Plans of collectives, each made once."""
        topology = self.site.topology
        if topology is not None and topology.ranks > 1:
            topology.require_connected()
        if self.calibration is None or topology is None:
            plain = Costs(self.backend, topology)
            return plain if self.exchange == (1.0, 1.0) else Exchanged(plain, *self.exchange)
        return MeasuredCosts(self.backend, topology, self.calibration.curves, self.site.group)


class Stretched(Costs):
    """Costs with every latency and every transfer time multiplied: what if the network were
    slower or faster?"""

    def __init__(self, costs: Costs, latency: float, transfer: float) -> None:
        super().__init__(costs.backend, costs.topology)
        self._inner, self._latency, self._transfer = costs, latency, transfer

    def plan(self, operation: str, ranks: Ranks, size: float) -> Plan:
        """The stretched plan."""
        plan = self._inner.plan(operation, ranks, size)
        return stretched(plan, self._latency, self._transfer)


class Exchanged(Costs):
    """Costs where collectives of one node take `inside` times as long, and those between nodes
    `between` times: what a calibration on several points has found."""

    def __init__(self, costs: Costs, inside: float, between: float) -> None:
        super().__init__(costs.backend, costs.topology)
        self._inner, self._factors = costs, (inside, between)

    def plan(self, operation: str, ranks: Ranks, size: float) -> Plan:
        """The plan, as long as it was found to be."""
        plan = self._inner.plan(operation, ranks, size)
        topology = self.topology
        several = topology is not None and topology.node_of(ranks[0]) != topology.node_of(ranks[-1])
        factor = self._factors[several]
        return stretched(plan, factor, factor)
