"""What limits a step: one word, from where its time goes."""

from __future__ import annotations

from dpsim.backends import Phase
from dpsim.case import Case
from dpsim.player import Played, step_time
from dpsim.program import COMPUTE


def bottleneck(case: Case, played: Played) -> str:
    """The largest part of the step on its critical rank, named."""
    split = played.timeline.mean_split()
    variability = case.scenario.variability
    late = 0.0
    if variability.random or variability.slow_ranks:
        late = played.step_time - step_time(case, quiet=True)
    sizes = {
        "compute": split.compute - late,
        "network": split.exposed_communication,
        "stragglers": late,
        "host": split.stall,
        "pipeline_bubble": split.bubble,
    }
    largest = max(sizes, key=lambda name: sizes[name])
    if largest == "compute":
        return _compute_bound(case)
    return _network_bound(case, played) if largest == "network" else largest


def _compute_bound(case: Case) -> str:
    """Which side of the roofline most of the layers' time lies on."""
    seconds: dict[str, float] = {}
    for time in case.job(max(case.shares)).times:
        seconds[time.bound] = seconds.get(time.bound, 0.0) + time.forward + time.backward
    return max(seconds, key=lambda name: seconds[name])


def _network_bound(case: Case, played: Played) -> str:
    """Latency, or the links inside or between nodes, whichever takes most of the collectives."""
    sizes = {"network_latency": 0.0, "intra_node_network": 0.0, "inter_node_network": 0.0}
    world = tuple(range(case.ranks))
    for op in played.timeline.last.cast.programs[0].ops:
        if op.stream == COMPUTE:
            continue
        plan = case.costs.plan(op.operation, world, op.bytes)
        sizes["network_latency"] += plan.launch + sum(phase.latency for phase in plan.phases)
        for phase in plan.phases:
            sizes[_where(phase)] += phase.seconds
    largest = max(sizes, key=lambda name: sizes[name])
    if case.backend.ideal and getattr(case.backend, "bandwidth", None):
        return "inter_node_network"  # a toy has one network and no nodes
    return largest


def _where(phase: Phase) -> str:
    """Whether the busiest link of `phase` leads out of a node."""
    kinds = {vertex[0] for vertex in phase.busiest or ()}
    return "inter_node_network" if kinds & {"nic", "leaf", "spine"} else "intra_node_network"
