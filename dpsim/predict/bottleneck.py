"""What limits a step: one word, from where its time goes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from dpsim.backends import Edge, Phase, Plan, Topology, link_seconds
from dpsim.cases.case import Case
from dpsim.compile.critical import critical_path
from dpsim.compile.intervals import length, minus, union
from dpsim.compile.program import COMPUTE, Cast
from dpsim.compile.timeline import Step
from dpsim.play import leaves_node
from dpsim.predict.player import Played, step_time

#: nominal rate of a PCIe slot over that of the fastest NIC it is made for: Gen3, 4 and 5 x16 move
#: 12, 24 and 48 GB/s as NCCL counts them, NICs of 100, 200 and 400 Gbit/s 12.5, 25 and 50
SLOT = 0.9
#: kinds of operations beside layers that stream through memory
_STREAM = ("optimizer", "copy")


def bottleneck(case: Case, played: Played) -> str:
    """What most of the last step's critical path is made of, named.

    Time on the path that a quiet machine would not need is the stragglers'; so is a wait that
    nothing on the path explains.  What collectives cost compute beside them is the network's.
    """
    if hungry(played):
        assert played.meal is not None
        return "storage" if played.meal.limit == "storage" else "data_loading"
    pipeline = played.timeline.last.cast.programs[0].transfers
    sizes = _of_ranks(played) if pipeline else _of_path(case, played)
    lost = min(slowed(case, played.timeline.last), max(sizes["compute"], 0.0))
    sizes["compute"] -= lost
    sizes["network"] += lost
    largest = max(sizes, key=lambda name: sizes[name])
    if largest == "compute":
        return compute_bound(case, _cast(case, played))
    return _network_bound(case) if largest == "network" else largest


def hungry(played: Played) -> bool:
    """Whether steps are as long as it takes to feed them: the loader takes longer than they do, or
    they wait for it longer than for anything else."""
    meal = played.meal
    if meal is None or meal.wait <= 0:
        return False
    split = played.timeline.mean_split()
    own = meal.step - meal.wait
    return meal.period > own or meal.wait > max(split)


def slowed(case: Case, step: Step) -> float:
    """By how much collectives that move bytes beside compute lengthen it, on the critical rank [s]:
    it goes on 1 + contention times as slowly there."""
    contention = case.script.contention
    if not contention:
        return 0.0
    rank = step.critical_rank()
    column, ops = step.column(rank), step.cast.program(rank).ops
    times = zip(ops, column.start, column.end, strict=True)
    work = union([(a, b) for op, a, b in times if op.stream == COMPUTE and op.scales])
    talk = union([*step.talk(rank), *step.talk_before(rank)])
    beside = length(work) - length(minus(work, talk))
    return beside * contention / (1.0 + contention)


def _of_path(case: Case, played: Played) -> dict[str, float]:
    """What the last step's critical path is made of [s]."""
    step, late = played.timeline.last, 0.0
    if case.scenario.variability.varies:
        late = max(step.duration - step_time(case, quiet=True), 0.0)
    sizes = dict.fromkeys(("compute", "network", "host"), 0.0)
    path = critical_path(step)
    sizes["host"] += sum(max(b.start - a.end, 0.0) for a, b in pairwise(path))  # delays
    for span in path:
        if not span.on_device:
            sizes["network"] += span.end - span.start
        else:
            sizes["host" if span.op == "serial" else "compute"] += span.end - span.start
    unexplained = max(step.duration - sum(sizes.values()), 0.0)
    host = any(op.issue for op in step.cast.programs[0].ops)  # it may issue the first one late
    sizes["host"] += unexplained if host else 0.0
    sizes["stragglers"] = late + (0.0 if host else unexplained)
    sizes["compute"] -= late
    return sizes


def _of_ranks(played: Played) -> dict[str, float]:
    """What the critical rank's time goes to [s]: in a pipeline the path itself leads through all
    stages and shows no bubble."""
    split = played.timeline.mean_split()
    return {
        "compute": split.compute,
        "network": split.exposed_communication,
        "pipeline_bubble": split.bubble,
        "stragglers": split.stall,
    }


def _cast(case: Case, played: Played) -> Cast | None:
    """What was played, where its updates and copies are those of the case's own step, which may be
    longer: where none of them is part of a micro-batch."""
    if case.mesh.plain or case.scenario.strategy.stage_walk(case.job(max(case.shares))):
        return None
    return played.timeline.last.cast


def compute_bound(case: Case, cast: Cast | None = None) -> str:
    """Which side of the roofline most of a rank's time lies on: that of layers, of every
    micro-batch, and updates and copies, which stream through memory, as they are in `cast` (left
    out: the case's own step)."""
    seconds: dict[str, float] = {}
    job = case.job(max(case.shares))
    for time in job.times:
        each = (time.forward + time.backward) * job.micro_batches
        seconds[time.bound] = seconds.get(time.bound, 0.0) + each
    if case.device is not None:
        ops = (cast or case.programs.asked).program(0).ops
        streamed = sum(op.seconds for op in ops if op.kind in _STREAM)
        seconds["memory_bandwidth"] = seconds.get("memory_bandwidth", 0.0) + streamed
    return max(seconds, key=lambda name: seconds[name])


def _network_bound(case: Case) -> str:
    """Latency, or the links inside or between nodes, whichever takes most of the collectives."""
    cast = case.programs.asked
    plans = [
        case.costs.of(op, cast.peers(0, op.group)) for op in cast.program(0).ops if not op.on_device
    ]
    sizes = network_sizes(plans, case.topology)
    return max(sizes, key=lambda name: sizes[name])


def network_sizes(plans: Iterable[Plan], topology: Topology | None) -> dict[str, float]:
    """Seconds of collectives by what takes them: latency, links inside nodes, or between them."""
    sizes = {
        "network_latency": 0.0, "intra_node_network": 0.0, "inter_node_network": 0.0, "wan": 0.0,
    }  # fmt: skip
    for plan in plans:
        sizes["network_latency"] += plan.launch
        for phase in plan.phases:
            edge = slowest_link(phase, topology)  # a toy's one network joins nodes
            far = edge is not None and edge[0][0] == "wan"  # whose latency is its own too
            sizes["wan" if far else "network_latency"] += phase.latency
            sizes["wan" if far else _place(edge)] += phase.seconds
    return sizes


def _place(edge: Edge | None) -> str:
    outside = edge is None or leaves_node(edge)
    return "inter_node_network" if outside else "intra_node_network"


def slowest_link(phase: Phase, topology: Topology | None) -> Edge | None:
    """The link that `phase` waits for; None on a toy's network.

    Where a link that leads out of the node takes nearly as long as that, it is the one: the slot
    that is made for a NIC is a little slower than the NIC's cable, on paper.
    """
    found = phase.busiest
    if found is None or leaves_node(found) or topology is None or not phase.loads:
        return found
    if topology.link(found).kind != "pcie":
        return found
    times = dict(link_seconds(phase.loads, topology))
    out = max((edge for edge in times if leaves_node(edge)), key=times.__getitem__, default=None)
    near = out is not None and times[out] >= SLOT * times.get(found, 0.0)
    return out if near else found
