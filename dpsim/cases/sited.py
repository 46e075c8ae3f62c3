"""Sited: what messages between places cost, where places are at several sites.

A message inside a site is planned there, by the backend.  One between sites leaves over its
sender's links, goes over the wide-area links between, and arrives over its receiver's: it takes the
latency of a message inside a site and those of the links between, and is as fast as the slowest of
all of them, which it shares with every other message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dpsim.backends import Backend, Phase, Plan, Ranks
from dpsim.backends.ideal_ring import IdealRing
from dpsim.cases.costs import Transport
from dpsim.compile.program import SEND
from dpsim.compile.strategies import Strategy
from dpsim.core.record import Refused
from dpsim.machines.wan import Hop, Wan
from dpsim.play import Costs
from dpsim.play.cabled import Cabled

#: kinds of vertices that are outside the nodes
OUTSIDE = "leaf", "spine"
#: kind of the vertices that are sites
WAN = "wan"


class Stand(NamedTuple):
    """Where a place is: the number of its site, and the rank that it has on the site's network."""

    site: int
    rank: int


def sited(transport: Transport, strategy: Strategy) -> SitedCosts:
    """What messages cost between the ranks of `transport`'s sites, and `strategy`'s servers."""
    site, backend = transport.site, transport.backend
    stands = [Stand(k, rank) for k, size in enumerate(site.sizes) for rank in range(size)]
    homes = iter(strategy.servers_in(site.wan.places))
    free = [(part.nodes or part.ranks) * (part.gpus or 1) for part in site.parts]
    for seat in strategy.servers_at(site.ranks):
        if seat is not None:
            stands.append(stands[seat])
            continue
        stands.append(Stand(home := next(homes), free[home]))
        free[home] += site.parts[home].gpus or 1
    costs = []
    for part, border in zip(site.parts, free, strict=True):
        cluster = part.cluster
        if part.nodes:
            cluster = replace(cluster, ranks=None, nodes=border // (part.gpus or 1) + 1)
        own = replace(transport, site=replace(part, cluster=cluster)).costs
        if isinstance(backend, IdealRing) and backend.bandwidth:
            own = Cabled(backend, backend.latency, backend.bandwidth)
        costs.append(own)
    return SitedCosts(backend, costs, free, stands, site.wan)


class SitedCosts(Costs):
    """Plans of messages over several sites.

    costs   of every site, whose network has a node for each place and one more
    border  the rank of that one at each site, which stands for all that is outside
    stands  of every place
    """

    def __init__(
        self, backend: Backend, costs: Sequence[Costs], border: Sequence[int],
        stands: Sequence[Stand], wan: Wan,
    ) -> None:  # fmt: skip
        super().__init__(backend, None)
        self._costs, self._border, self._stands, self.wan = costs, border, stands, wan
        self._edges: dict[Any, tuple[int, Any]] = {}

    def capacity(self, link: Any) -> float:
        """What a link carries, of a site or between two [B/s]."""
        if link[0][0] == WAN:
            return self.wan.trunks[link[0][1], link[1][1]].rate
        site, edge = self._edges[link]
        return self._costs[site].capacity(edge)

    def plan(self, operation: str, ranks: Ranks, size: float) -> Plan:
        """A message from the first of two places to the second."""
        if operation != SEND or len(ranks) != 2:
            said = "collectives of ranks that behave are not modelled over several sites"
            raise Refused(said, ("sites",))
        source, target = (self._stands[rank] for rank in ranks)
        if source == target:  # within one host
            return Plan((), None, "none", 0.0)
        if source.site != target.site:
            return self._between(source, target, size)
        plan = self._costs[source.site].plan(SEND, (source.rank, target.rank), size)
        phases = tuple(self._named(source.site, phase) for phase in plan.phases)
        return replace(plan, phases=phases, stages=None)

    def flows(self, source: int, target: int, size: float) -> dict[Hop, float]:
        """The bytes that a message sends from site to site; none inside one."""
        a, b = (self.wan.places[self._stands[place].site] for place in (source, target))
        return {} if a == b else {(a, b): size}

    def _between(self, source: Stand, target: Stand, size: float) -> Plan:
        names = self.wan.places[source.site], self.wan.places[target.site]
        loads: dict[Any, float] = {((WAN, a), (WAN, b)): size for a, b in self.wan.way(*names)}
        times = {edge: size / self.capacity(edge) for edge in loads}
        latency, launch = self.wan.latency(*names), 0.0
        for here, leaves in ((source, True), (target, False)):
            plan = self._to_border(here, size, leaves=leaves)
            launch = max(launch, plan.launch)
            latency += sum(phase.latency for phase in plan.phases) / 2
            for phase in plan.phases:
                own = self._own(here, self._named(here.site, phase), leaves=leaves)
                loads |= own
                times |= dict.fromkeys(own or [None], phase.seconds)
        busiest = max(times, key=lambda edge: times[edge])
        seconds, most = times[busiest], max(loads.values())
        phase = Phase(latency, seconds, loads if size else None, most, busiest)
        return Plan((phase,), None, "sites", size, launch)

    def _to_border(self, here: Stand, size: float, *, leaves: bool) -> Plan:
        """A message between a place and the border of its site."""
        border = self._border[here.site]
        ranks = (here.rank, border) if leaves else (border, here.rank)
        return self._costs[here.site].plan(SEND, ranks, size)

    def _named(self, site: int, phase: Phase) -> Phase:
        """`phase` of a site, with the names that its links have among those of all sites, and the
        bytes that cross them."""
        loads = phase.loads
        most = max((loads or {}).values(), default=0.0)
        if not loads or not most:
            return replace(phase, loads=None)
        scale, found = phase.size / most, {}
        for edge, load in loads.items():
            name = _name(site, edge)
            self._edges[name] = site, edge
            found[name] = load * scale
        busiest = phase.busiest and _name(site, phase.busiest)
        return replace(phase, loads=found, busiest=busiest)

    def _own(self, here: Stand, phase: Phase, *, leaves: bool) -> dict[Any, float]:
        """What `phase` loads of the node of a place."""
        topology = self._costs[here.site].topology
        node = here.rank if topology is None else topology.node_of(here.rank)
        side = 0 if leaves else 1
        return {
            edge: load
            for edge, load in (phase.loads or {}).items()
            if edge[side][0] not in OUTSIDE and edge[side][1] == (here.site, node)
        }


def _name(site: int, edge: Any) -> Any:
    """The name of a site's link among those of all."""
    return tuple((kind, (site, *rest[:1]), *rest[1:]) for kind, *rest in edge)
