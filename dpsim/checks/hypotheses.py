"""Faults of a training run, each as steps that a cluster with it would take.

Every fault but the slow loader is a Variant of the same case; several strengths of each are played,
for how bad it is nobody knows beforehand.  What a strength does not show at any of the measured
points is left out: no measurement of steps there can tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpsim.cases.case import Case
from dpsim.cases.variant import Variant
from dpsim.checks.faults import faults
from dpsim.core.record import Refused
from dpsim.predict.collective import Setup
from dpsim.predict.memory import crowded

#: a case, and which of the measured points it is of (fewest ranks first) -> the case with the fault
Change = Callable[[Case, int], Case]

#: the fault that no play shows: steps are longer, by whatever it is
UNKNOWN = "unknown"
#: how likely each fault is before anything is measured, where the rest of 1 is healthy.  Nobody
#: publishes such shares; who asks has a reason to, so a third of runs are taken to have a fault
PRIORS = {
    "slow_loader": 0.06,
    "throttled": 0.06,
    "host_bound": 0.05,
    "slow_rank": 0.05,
    "shared_link": 0.05,
    "wrong_nic": 0.05,
    "p2p_off": 0.04,
    "full_memory": 0.04,
    UNKNOWN: 0.03,
}
#: what so few runs can have that it has no share where they cannot
SOMETIMES = ("full_memory",)
MEANINGS = {
    "slow_loader": "reading and decoding of samples holds up steps",
    "throttled": "all devices compute slower (clocks held down by heat or power)",
    "host_bound": "the host issues kernels slower than the device runs them",
    "slow_rank": "one rank is slower, and all wait for it",
    "shared_link": "half the rate between nodes or less: others use the links, or NICs are missing",
    "wrong_nic": "another interface between nodes, or TCP instead of RDMA",
    "p2p_off": "copies between GPUs of a node go through the host",
    "full_memory": "torch's allocator, short of memory, gives blocks back and asks for them again",
    UNKNOWN: "steps take longer than the other causes explain, or in another pattern",
}
#: strengths: factors on compute of all ranks and of one; shares of the rate between nodes; time to
#: issue a kernel [s]; the loader's time over the quiet step's, where it is largest
THROTTLED = (1.2, 1.5, 2.0, 3.0)
FULL = (2.0, 4.0, 8.0)
SLOW_RANK = (1.25, 1.6, 2.2, 3.5)
SHARED = (0.5, 0.33, 0.2)
LAUNCHES = (15e-6, 30e-6, 60e-6, 120e-6)
LOADER = (1.2, 1.5, 2.0, 3.0, 5.0)
#: a management interface: 1 and 10 Gbit/s [B/s]
MANAGEMENT = (125e6, 1.25e9)
#: message at which a fault's effect on collectives is read: the default bucket of DDP, 25 MiB
BUCKET = 25 * 2**20


@dataclass(frozen=True)
class FaultVariant:
    """A fault of one strength.

    change  what makes a case have it
    kind    in which way it has it: strengths of a kind follow each other, and whatever lies between
            two of them can be too
    loads   of a slow loader: its time over the quiet step's at the point where it is largest
    """

    name: str
    change: Change
    kind: str = ""
    loads: float | None = None


def _same(case: Case, _: int) -> Case:
    return case


HEALTHY = FaultVariant("healthy", _same)


def hypotheses(cases: Sequence[Case]) -> Iterator[FaultVariant]:
    """All faults that `cases` (one per measured point) can have, in the strengths that are played;
    those of a kind one after the other, the weakest first."""
    yield from (FaultVariant("throttled", _throttled(factor)) for factor in THROTTLED)
    if any(crowded(case) for case in cases):
        yield from (FaultVariant("full_memory", _pressed(factor)) for factor in FULL)
    starts = sorted({case.ranks for case in cases if case.ranks > 1})
    for first in starts:  # the slow one may be among the ranks that came last
        for factor in SLOW_RANK:
            yield FaultVariant("slow_rank", _one_slow(factor, first), f"from {first}")
    yield from (FaultVariant("host_bound", _launched(seconds)) for seconds in LAUNCHES)
    if cases[0].scenario.input is None:  # else it is said to be no limit
        yield from (FaultVariant("slow_loader", _same, loads=most) for most in LOADER)
    across = next((case for case in cases if case.nodes and case.nodes > 1), None)
    if across is not None and not across.backend.ideal:
        yield from _between(across)
    inside = max(cases, key=lambda case: case.ranks)
    if inside.machine is not None and inside.ranks > 1 and not inside.backend.ideal:
        yield from _inside(inside)


def _throttled(factor: float) -> Change:
    return lambda case, _: replace(case, compute_scale=case.compute_scale * factor).knowing(case)


def _pressed(factor: float) -> Change:
    """Computing waits for memory where there may be too little."""
    slow = _throttled(factor)
    return lambda case, place: slow(case, place) if crowded(case) else case


def _one_slow(factor: float, first: int) -> Change:
    """One rank slow wherever there are at least `first` ranks."""

    def changed(case: Case, _: int) -> Case:
        if case.ranks < first:
            return case
        slow = {**(case.scenario.variability.slow_ranks or {}), case.ranks - 1: factor}
        own = replace(case.scenario.variability, slow_ranks=slow)
        return Variant("slow rank", {"variability": own}).of(case)

    return changed


def _launched(seconds: float) -> Change:
    def changed(case: Case, _: int) -> Case:
        if (case.scenario.host.launch or 0.0) >= seconds:
            return case
        return Variant("launch", {"host": replace(case.scenario.host, launch=seconds)}).of(case)

    return changed


def _between(across: Case) -> Iterator[FaultVariant]:
    """Faults of what joins the nodes of `across`."""
    machine, said = across.machine, across.scenario.cluster
    assert machine is not None
    rate = said.inter_node_bandwidth or _rate(across)
    for share in SHARED:
        yield FaultVariant("shared_link", _cluster(inter_node_bandwidth=rate * share))
    for slow in MANAGEMENT:
        if slow * 2.5 < rate:
            change = _cluster(inter_node_bandwidth=slow, nics_per_node=1)
            yield FaultVariant("wrong_nic", change, f"{slow:g} B/s")
    kind = said.inter_node_kind or getattr(getattr(machine.network, "link", None), "kind", None)
    if kind not in (None, "ethernet", "ipoib", "slingshot_ip"):
        yield FaultVariant("wrong_nic", _cluster(inter_node_kind="ethernet"), "sockets")
        alone = _cluster(inter_node_kind="ethernet", nics_per_node=1)
        yield FaultVariant("wrong_nic", alone, "sockets on one NIC")


def _rate(case: Case) -> float:
    """The rate of one NIC, one way [B/s]."""
    assert case.topology is not None
    route = case.topology.route(0, case.ranks - 1)
    links = [case.topology.link(edge) for edge in route if edge[0][0] in ("nic", "leaf")]
    every = links or [case.topology.link(edge) for edge in route]
    return min(link.bandwidth for link in every)


def _cluster(**changes: Any) -> Change:
    """Another cluster, at points of several nodes."""

    def changed(case: Case, _: int) -> Case:
        if not case.nodes or case.nodes < 2:
            return case
        cluster = replace(case.scenario.cluster, **changes)
        return Variant("network", {"cluster": cluster}).of(case)

    return changed


def _inside(case: Case) -> Iterator[FaultVariant]:
    """Peers of a node that cannot reach each other: collectives take longer by what the machine
    with such a node would need for one bucket."""
    assert case.machine is not None
    setup = Setup(case.machine, case.backend)
    for name in ("no_nvlink", "no_peer_to_peer"):
        factors: list[float] = []
        for nodes in (1, case.nodes or 1):
            ranks = case.ranks if nodes > 1 else min(case.ranks, case.machine.gpus_per_node)
            factors.append(_slower(setup, name, ranks, nodes))
        inside, between = factors
        if max(factors) > 1.0:
            yield FaultVariant("p2p_off", _exchanges(inside, between))


def _slower(setup: Setup, name: str, ranks: int, nodes: int) -> float:
    """How many times as long one bucket's all-reduce takes with the fault `name`; 1 where the
    machine cannot have it."""
    if ranks < 2 or ranks % nodes:
        return 1.0
    found = (f for f in faults(setup, nodes, ranks // nodes) if f.name == name)
    fault = next(found, None)
    if fault is None:
        return 1.0
    try:
        times = [
            each.group("all_reduce", ranks, nodes, (BUCKET,)).lines[0].seconds
            for each in (fault.setup, setup)
        ]
    except Refused:
        return 1.0
    return max(times[0] / times[1], 1.0)


def _exchanges(inside: float, between: float) -> Change:
    def changed(case: Case, _: int) -> Case:
        own = case.exchange
        return replace(case, exchange=(own[0] * inside, own[1] * between)).knowing(case)

    return changed


__all__ = ["HEALTHY", "MEANINGS", "PRIORS", "UNKNOWN", "FaultVariant", "hypotheses"]
