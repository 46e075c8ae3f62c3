"""Far: what collectives cost over sites that wide-area links join.

A group that lies in one site is planned there, by the backend.  One over several sites goes
hierarchically: what the ranks of a site have is put together inside it, the sites exchange it
around a ring, and each spreads what came.  Such groups come as partitions of all ranks (every rank
is in one of them, and they do the same at the same time), so each has its share of what the links
carry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from dpsim.backends import Backend, Edge, Phase, Plan, Ranks, fixed
from dpsim.backends.free import Free
from dpsim.machines.wan import Wan
from dpsim.play import Costs

#: what is done inside sites before and after the sites exchange
INSIDE: Mapping[str, tuple[str, str]] = {
    "all_reduce": ("reduce_scatter", "all_gather"),
    "reduce_scatter": ("reduce_scatter", ""),
    "all_gather": ("", "all_gather"),
    "broadcast": ("", "broadcast"),
    "reduce": ("reduce", ""),
    "all_to_all": ("all_to_all", ""),
    "send": ("", ""),
}


class FarCosts(Costs):
    """Plans over several sites.

    costs  of every site; `sizes` are their ranks, one site after the other
    """

    def __init__(
        self, backend: Backend, costs: Sequence[Costs], sizes: Sequence[int], wan: Wan
    ) -> None:
        super().__init__(backend, None)
        self._costs, self._sizes, self.wan = tuple(costs), tuple(sizes), wan

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return tuple(sum(self._sizes[:k]) for k in range(len(self._sizes)))

    def members(self, ranks: Ranks) -> dict[int, tuple[int, ...]]:
        """The ranks of every site that has some, counted inside it."""
        found: dict[int, tuple[int, ...]] = {}
        for site, (start, size) in enumerate(zip(self._starts, self._sizes, strict=True)):
            own = tuple(rank - start for rank in ranks if start <= rank < start + size)
            if own:
                found[site] = own
        return found

    def _planned(self, operation: str, ranks: Ranks, size: float) -> Plan:
        if isinstance(self.backend, Free):  # between sites no less than inside one
            return self.backend.plan(operation, ranks, size, None)
        members = self.members(ranks)
        if len(members) == 1:
            site, own = next(iter(members.items()))
            return unshared(self._costs[site].plan(operation, own, size))
        return self._across(operation, ranks, members, size)

    def flows(self, operation: str, ranks: Ranks, size: float) -> dict[tuple[str, str], float]:
        """The bytes that a group's collective sends from site to site; none inside one."""
        members = self.members(ranks)
        names = {site: self.wan.places[site] for site in members}
        if len(members) == 1:
            return {}
        if operation == "send":
            return self._sent_on(ranks, size)
        if operation == "all_to_all":
            return {
                (names[a], names[b]): size * len(members[a]) * len(members[b]) / len(ranks)
                for a in members for b in members if a != b
            }  # fmt: skip
        count = len(members)
        laps = 2.0 if operation == "all_reduce" else 1.0
        ring = operation in ("all_reduce", "all_gather", "reduce_scatter")
        each = laps * (count - 1) / count * size if ring else size
        order = self.wan.lap(names.values(), size / count).order
        hops = list(zip(order, (*order[1:], order[0]), strict=True))
        return dict.fromkeys(hops if ring else hops[:-1], each)

    def _sent_on(self, ranks: Ranks, size: float) -> dict[tuple[str, str], float]:
        """The same where each rank of several sends to the next, or one of two to the other."""
        at = [self.wan.places[next(iter(self.members((rank,))))] for rank in ranks]
        found: dict[tuple[str, str], float] = {}
        for hop in zip(at, (*at[1:], *at[:1]) if len(at) > 2 else at[1:], strict=False):
            if hop[0] != hop[1]:
                found[hop] = found.get(hop, 0.0) + size
        return found

    def _across(
        self, operation: str, ranks: Ranks, members: Mapping[int, tuple[int, ...]], size: float
    ) -> Plan:
        before, after = INSIDE[operation]
        share = max(self._sizes[site] / len(own) for site, own in members.items())
        flows = {hop: share * moved for hop, moved in self.flows(operation, ranks, size).items()}
        busiest = max(self.wan.carried(flows).items(), key=lambda one: one[1] / self._rate(one[0]))[
            0
        ]
        edge: Edge = (("wan", busiest[0]), ("wan", busiest[1]))
        phase = Phase(self._latency(operation, ranks, members, size), self.wan.per_byte(flows),
                      busiest=edge)  # fmt: skip
        inside = [self._slowest(one, members, size) for one in (before, after)]
        phases = (*inside[0], phase, *inside[1])
        launch = self._costs[0].plan("all_reduce", (0,), 0.0).launch
        payload = fixed(0.0, 0.0, operation, len(ranks), size, "sites").sent
        return Plan(phases, None, "sites", payload, launch)

    def _rate(self, hop: tuple[str, str]) -> float:
        return self.wan.trunks[hop].rate

    def _latency(
        self, operation: str, ranks: Ranks, members: Mapping[int, tuple[int, ...]], size: float
    ) -> float:
        names = [self.wan.places[site] for site in members]
        lap = self.wan.lap(names, size / len(names))
        if operation == "send":
            return max(self.wan.latency(*hop) for hop in self._sent_on(ranks, size))
        if operation == "all_to_all":
            return max(self.wan.latency(a, b) for a in names for b in names if a != b)
        return (2.0 if operation == "all_reduce" else 1.0) * (len(names) - 1) * lap.latency

    def _slowest(
        self, operation: str, members: Mapping[int, tuple[int, ...]], size: float
    ) -> tuple[Phase, ...]:
        """What the slowest site does inside it."""
        if not operation:
            return ()
        plans = [
            self._costs[site].plan(operation, own, size)
            for site, own in members.items()
            if len(own) > 1
        ]
        return unshared(max(plans, key=lambda plan: plan.seconds)).phases if plans else ()


def unshared(plan: Plan) -> Plan:
    """`plan` with its times, and without the links that it loads: those of sites are not told
    apart, so collectives of several communicators do not share them."""
    phases = tuple(replace(phase, loads=None) for phase in plan.phases)
    return replace(plan, phases=phases, stages=None)
