"""Costs: what collectives cost at a site, by the backend's model or by measured curves."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from dpsim.backends import Backend, Plan, Ranks
from dpsim.backends.curves import MeasuredCurve
from dpsim.backends.curves.file import Calibration, find
from dpsim.backends.nccl import Nccl
from dpsim.cases.far import FarCosts
from dpsim.cases.site import Site
from dpsim.core.lean import dataclass
from dpsim.core.record import Refused
from dpsim.play import Costs
from dpsim.play.measured import MeasuredCosts, stretched

#: how far a NIC's rate may lie from that of a curve: rates are told rounded
SAME_RATE = 0.05
#: operations of which every node must send that part
BOUNDED = ("all_reduce", "all_gather", "reduce_scatter")


@dataclass(frozen=True)
class Transport:
    """The links of `site`, the `collective` backend that uses them (left out: NCCL), and the name
    of a `curves` file of what was measured.  `exchange`: by what a calibration found collectives to
    take longer than modelled, inside a node and between nodes."""

    site: Site
    collective: Backend | None
    curves: str | None
    exchange: tuple[float, float] = (1.0, 1.0)

    @cached_property
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
        if self.site.parts:
            return self._far
        if topology is not None and topology.ranks > 1:
            topology.require_connected()
        if self.calibration is None or topology is None:
            plain = Costs(self.backend, topology)
            return plain if self.exchange == (1.0, 1.0) else Exchanged(plain, *self.exchange)
        for curve in self.calibration.curves:
            self._check_link(curve)
        return MeasuredCosts(self.backend, topology, self.calibration.curves, self.site.group)

    @property
    def _far(self) -> Costs:
        """Over several sites; each plans for itself what it does inside."""
        site = self.site
        own = [replace(self, site=part).costs for part in site.parts]
        return FarCosts(self.backend, own, site.sizes, site.wan)

    def _check_link(self, curve: MeasuredCurve) -> None:
        """Refused where `curve` crossed other links between nodes than this site has: it was
        measured at another rate, or moved more than these carry.

        Whatever the algorithm, a node must send its part of what the others lack: of an all-reduce
        or an all-gather of S bytes over N nodes at least S (N-1)/N.
        """
        rate = self.site.nic_rate
        if not rate or (curve.nodes or 1) < 2 or self.site.machine is None:
            return
        here, what = f"{rate * 8 / 1e9:.4g} Gbit/s", f"{curve.operation} over {curve.ranks} ranks"
        if curve.link_rate and abs(curve.link_rate / rate - 1.0) > SAME_RATE:
            raise Refused(
                f"the curve of {what} was measured at {curve.link_rate * 8 / 1e9:.4g} Gbit/s per "
                f"NIC, and here are {here}; measure there, or leave the calibration out",
                ("calibration",),
            )
        if curve.operation not in BOUNDED:
            return
        nodes = curve.nodes or 2
        nics = self.site.cluster.nics_per_node or self.site.machine.nics_per_node or 1
        fastest = max(size / seconds for size, seconds, _ in curve.points) * (nodes - 1) / nodes
        if fastest > nics * rate * (1.0 + SAME_RATE):
            raise Refused(
                f"the curve of {what} is faster than the link that it is said to cross: every node "
                f"sent {fastest * 8 / 1e9:.4g} Gbit/s, and its {nics} NIC{'s' * (nics > 1)} of "
                f"{here} carry {nics * rate * 8 / 1e9:.4g}; was it another network?",
                ("calibration",),
            )


class Stretched(Costs):
    """Costs with every latency and every transfer time multiplied: what if the network were
    slower or faster?"""

    def __init__(self, costs: Costs, latency: float, transfer: float) -> None:
        super().__init__(costs.backend, costs.topology)
        self._inner, self._latency, self._transfer = costs, latency, transfer

    def capacity(self, link: Any) -> float:
        return self._inner.capacity(link)

    def plan(self, operation: str, ranks: Ranks, size: float) -> Plan:
        """The stretched plan."""
        plan = self._inner.plan(operation, ranks, size)
        return stretched(plan, self._latency, self._transfer)


class Exchanged(Costs):
    """Costs where collectives of one node take `inside` times as long, and those between nodes
    `between` times: what a calibration on several points has found.  What all ranks get whole
    crosses the links of a node between nodes, too, and takes no less than among its ranks alone."""

    def __init__(self, costs: Costs, inside: float, between: float) -> None:
        super().__init__(costs.backend, costs.topology)
        self._inner, self._factors = costs, (inside, between)

    def plan(self, operation: str, ranks: Ranks, size: float) -> Plan:
        """The plan, as long as it was found to be."""
        plan = self._inner.plan(operation, ranks, size)
        topology, (inside, between) = self.topology, self._factors
        if topology is None or topology.node_of(ranks[0]) == topology.node_of(ranks[-1]):
            return stretched(plan, inside, inside)
        factor = between
        if inside > 1.0 and operation in BOUNDED and plan.seconds > 0:
            node = topology.node_of(ranks[0])
            own = tuple(rank for rank in ranks if topology.node_of(rank) == node)
            least = self._inner.plan(operation, own, size).seconds if len(own) > 1 else 0.0
            factor = max(between, inside * least / plan.seconds)
        return stretched(plan, factor, factor)
