"""One collective over sizes, as nccl-tests times it.

Bus bandwidth is algorithm bandwidth times 2(n-1)/n for all-reduce, (n-1)/n for all-gather,
reduce-scatter and all-to-all, 1 for broadcast, reduce and send (NVIDIA/nccl-tests
doc/PERFORMANCE.md).  Sizes are full, unsharded buffers, as there; of a send, the message, which
every rank sends to the next, as sendrecv_perf does.  Intervals are those of single collectives
(`collective_error`), or of the measured curve where one serves (`coverage`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dpsim.backends import Backend, Plan, unmodelled
from dpsim.backends.curves import MeasuredCurve, bus_factor
from dpsim.backends.curves.file import load
from dpsim.backends.ici import Ici
from dpsim.backends.nccl import Nccl
from dpsim.cases.coverage import served_range
from dpsim.cases.site import MOST_RANKS
from dpsim.core.record import Refused, build
from dpsim.machines.fabrics.torus import Torus
from dpsim.machines.machine import Machine, load_machine
from dpsim.machines.topology import Topology
from dpsim.play import check_time
from dpsim.play.measured import MeasuredCosts
from dpsim.play.network import together
from dpsim.predict.bottleneck import network_sizes, slowest_link
from dpsim.predict.collective_error import interval
from dpsim.predict.varied import changes_of


@dataclass(frozen=True)
class Line:
    """One size of one group.

    size       full buffer [B]
    seconds, low, high   predicted time and the ends of its 90 % interval [s]
    algorithm, protocol  what the library chooses; no protocol where the algorithm has none
    bound      "latency", or the kind of link that takes most of the time
    measured   time of a measurement of the same group and size [s]; None: there is none
    alone      time of one of several collectives at once if the others were not there [s]
    """

    operation: str
    ranks: int
    size: float
    seconds: float
    low: float
    high: float
    algorithm: str
    protocol: str
    bound: str
    measured: float | None = None
    alone: float | None = None

    @property
    def algbw(self) -> float:
        """Algorithm bandwidth [B/s]."""
        return self.size / self.seconds

    @property
    def busbw(self) -> float:
        """Bus bandwidth [B/s]."""
        return self.algbw * bus_factor(self.operation, self.ranks)

    @property
    def error(self) -> float | None:
        """Predicted over measured time, less 1 [1]."""
        return None if self.measured is None else self.seconds / self.measured - 1.0

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "size_bytes": int(self.size),
            "time_s": self.seconds,
            "time_low_s": self.low,
            "time_high_s": self.high,
            "algbw_bytes_per_s": self.algbw,
            "busbw_bytes_per_s": self.busbw,
            "algorithm": self.algorithm,
            "protocol": self.protocol,
            "bound": self.bound,
        }
        if self.measured is not None:
            found |= {"measured_s": self.measured, "error": self.error}
        if self.alone is not None:
            found["alone_s"] = self.alone
        return found


@dataclass(frozen=True)
class RankGroup:
    """The lines of one number of nodes; `kind` is what joins its ranks.

    at_once  how many equal groups `ranks` are split into, each with a collective of its own; the
             lines are those of the slowest one
    """

    nodes: int
    ranks: int
    kind: str
    lines: tuple[Line, ...]
    at_once: int = 1


@dataclass(frozen=True)
class Setup:
    """What a collective runs on: a machine, what is changed of it, the library, measured curves.

    changes  values of `Machine.topology` that replace the machine's own
    """

    machine: Machine
    backend: Backend
    changes: Mapping[str, Any] = field(default_factory=dict)
    curves: tuple[MeasuredCurve, ...] = ()

    @property
    def per_node(self) -> int:
        """GPUs of a node."""
        return int(self.changes.get("gpus_per_node") or self.machine.gpus_per_node)

    def topology(self, ranks: int, nodes: int) -> Topology:
        """`ranks` ranks, evenly on `nodes` nodes; Refused where the machine has no room."""
        if ranks > MOST_RANKS:
            raise Refused(f"{ranks:,} ranks; at most {MOST_RANKS:,} are accepted")
        if not 1 <= nodes <= ranks or ranks % nodes:
            raise Refused(f"{ranks} ranks do not fill {nodes} nodes evenly")
        per_node = ranks // nodes
        if per_node > self.per_node:
            raise Refused(
                f"{ranks} ranks on {nodes} nodes are {per_node} a node; "
                f"{self.machine.name} has {self.per_node} GPUs a node"
            )
        changes = {**self.changes, "gpus_per_node": per_node}
        found = self.machine.topology(nodes, ranks, **changes)
        if ranks > 1:
            found.require_connected()
        return found

    def group(self, operation: str, ranks: int, nodes: int, sizes: Iterable[float]) -> RankGroup:
        """What `operation` takes on so many ranks and nodes, at every size."""
        check_operation(operation)
        if ranks < 2:
            raise Refused("a rank alone communicates with nobody; at least 2 ranks are needed")
        topology = self.topology(ranks, nodes)
        costs = MeasuredCosts(self.backend, topology, self.curves, self.topology)
        kind, everyone = kind_of(topology), range(ranks)
        lines = []
        for size in sizes:
            plan = costs.plan(operation, everyone, size)
            if plan.seconds <= 0:
                raise Refused(f"no time is known for {operation} of {size:,.0f} bytes")
            served = costs.served(operation, everyone, size)
            ends = served_range(served, _around(kind, plan, topology))
            lines.append(_line(operation, ranks, size, plan, topology, plan.seconds, ends))
        return RankGroup(nodes, ranks, kind, tuple(lines))

    def groups(
        self, operation: str, ranks: int, nodes: int, sizes: Iterable[float], count: int
    ) -> RankGroup:
        """What `operation` takes in each of `count` groups at once, at every size.

        Group k has every count-th rank from rank k on: with as many groups as GPUs a node, the
        ranks of one place in all nodes, as in hierarchical and hybrid-sharded training.
        """
        check_operation(operation)
        if self.curves:
            raise Refused("--groups: measured curves are of one collective alone")
        if count < 2 or ranks % count or ranks // count < 2:
            raise Refused(f"--groups: {count} do not split {ranks} ranks evenly, at least 2 each")
        topology = self.topology(ranks, nodes)
        members = [tuple(range(k, ranks, count)) for k in range(count)]
        kind, lines = kind_of(topology), []
        for size in sizes:
            plans = [self.backend.plan(operation, group, size, topology) for group in members]
            ends = together(plans, lambda edge: topology.link(edge).bandwidth)
            slowest = max(ends)
            plan = plans[ends.index(slowest)]
            around = _around(kind, plan, topology)
            line = _line(operation, ranks // count, size, plan, topology, slowest, around)
            lines.append(replace(line, alone=plan.seconds))
        return RankGroup(nodes, ranks, kind, tuple(lines), count)


def _around(kind: str, plan: Plan, topology: Topology) -> tuple[float, float]:
    """By what factors a modelled collective may be off."""
    share = network_sizes([plan], topology)["network_latency"] / plan.seconds
    return interval(kind, share, topology.nodes > 1)


def _line(
    operation: str,
    ranks: int,
    size: float,
    plan: Plan,
    topology: Topology,
    seconds: float,
    around: tuple[float, float],
) -> Line:
    algorithm, _, protocol = plan.algorithm.partition(" ")
    low, high = seconds * around[0], seconds * around[1]
    limit = bound(plan, topology)
    return Line(operation, ranks, size, seconds, low, high, algorithm, protocol, limit)


@dataclass(frozen=True)
class CollectiveTime:
    """What one collective takes on idle links.

    seconds            all of it [s]
    latency, transfer  without and with bytes on the move [s]
    bottleneck         which of the network's parts takes most of it
    """

    seconds: float
    latency: float
    transfer: float
    bottleneck: str


def timing(backend: Backend, operation: str, size: float, topology: Topology) -> CollectiveTime:
    """What `operation` on `size` bytes takes, if all ranks of `topology` take part."""
    plan = backend.plan(operation, tuple(range(topology.ranks)), float(size), topology)
    check_time(plan.seconds, f"{operation} of {size} bytes")
    parts = network_sizes([plan], topology)
    transfer = parts["intra_node_network"] + parts["inter_node_network"]
    most = max(parts, key=lambda name: parts[name])
    return CollectiveTime(plan.seconds, parts["network_latency"], transfer, most)


def check_operation(operation: str) -> None:
    """Refused, by name, where `operation` is not modelled."""
    if why := unmodelled(operation[:60]):
        raise Refused(why)


def bound(plan: Plan, topology: Topology) -> str:
    """ "latency" where that takes most of the time, else the kind of the busiest link."""
    parts = network_sizes([plan], topology)
    if max(parts, key=lambda name: parts[name]) == "network_latency":
        return "latency"
    slowest = max(plan.phases, key=lambda phase: phase.seconds)
    edge = slowest_link(slowest, topology)
    return "network" if edge is None else topology.link(edge).kind


def kind_of(topology: Topology) -> str:
    """What joins the ranks: the kind of the cables between nodes, else of the wires in the node.

    NVLink into a switch is "nvswitch", as for the backend's constants.
    """
    route = topology.route(0, topology.ranks - 1)
    kinds = [({edge[0][0], edge[1][0]}, topology.link(edge).kind) for edge in route]
    for place in ("leaf", "nvswitch"):
        for ends, kind in kinds:
            if place in ends:
                return kind if place == "leaf" else "nvswitch"
    inside = {kind for _, kind in kinds}
    return next((kind for kind in ("nvlink", "xgmi", "ici", "pcie") if kind in inside), "local")


__all__ = [
    "MOST_RANKS", "CollectiveTime", "Line", "RankGroup", "Setup", "check_operation", "kind_of",
    "timing", "unmodelled",
]  # fmt: skip


def setup_of(
    cluster: str,
    settings: Mapping[str, Any],
    calibration: Path | None = None,
    *,
    sets: Sequence[str] = (),
) -> Setup:
    """The machine, with the keys of `cluster` that `sets` give it, and NCCL with `settings`; on
    TPUs, with none but NCCL's own, it is the links' own library."""
    machine = load_machine(cluster, Path())
    try:
        backend = build(Nccl, settings, file=True)
    except Refused as error:
        option = "nccl" if error.path[:1] in ((), ("version",)) else error.path[0]
        raise Refused(f"--{option}: {error.message}") from None
    curves = () if calibration is None else load(calibration).curves
    own = Ici() if backend == Nccl() and isinstance(machine.node, Torus) else backend
    return Setup(machine, own, changes_of(cluster, sets), curves)
