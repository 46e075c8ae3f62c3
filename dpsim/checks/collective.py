"""A table of one collective over sizes and node counts, as nccl-tests prints it.

Bus bandwidth is algorithm bandwidth times 2(n-1)/n for all-reduce, (n-1)/n for all-gather,
reduce-scatter and all-to-all, 1 for broadcast, reduce and send (NVIDIA/nccl-tests
doc/PERFORMANCE.md).  Sizes are full, unsharded buffers, as there; of a send, the message, which
every rank sends to the next, as sendrecv_perf does.  Intervals are those of single collectives
(`collective_intervals`), or of the measured curve where one serves (`coverage`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dpsim._version import __version__
from dpsim.accuracy.collective_intervals import interval
from dpsim.accuracy.collective_model import kind_of
from dpsim.backends import Backend, Plan
from dpsim.backends.curves import MeasuredCurve, bus_factor, merged
from dpsim.cases.coverage import served_range
from dpsim.cases.site import MAX_RANKS
from dpsim.collectives import OPERATIONS
from dpsim.core.record import Refused
from dpsim.core.units import parse
from dpsim.machines.machine import Machine
from dpsim.machines.topology import Topology
from dpsim.measurements.findings import Curve
from dpsim.play.measured import MeasuredCosts
from dpsim.play.network import together
from dpsim.predict.bottleneck import network_sizes

SCHEMA_VERSION = 1
#: what nccl-tests calls otherwise
_NCCL_TESTS = {"alltoall": "all_to_all", "sendrecv": "send"}
#: most sizes, and most node counts, of one table
MOST = 1000


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
class Group:
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
class Site:
    """Where a collective runs: a machine, what is changed of it, the library, measured curves.

    changes  values of `Machine.topology` that replace the machine's own
    """

    machine: Machine
    backend: Backend
    changes: Mapping[str, Any] = field(default_factory=dict)
    curves: tuple[MeasuredCurve, ...] = ()

    def topology(self, ranks: int, nodes: int) -> Topology:
        """`ranks` ranks, evenly on `nodes` nodes; Refused where the machine has no room."""
        if ranks > MAX_RANKS:
            raise Refused(f"{ranks:,} ranks; at most {MAX_RANKS:,} are accepted")
        if not 1 <= nodes <= ranks or ranks % nodes:
            raise Refused(f"{ranks} ranks do not fill {nodes} nodes evenly")
        per_node = ranks // nodes
        own = self.machine.gpus_per_node
        if per_node > own:
            raise Refused(
                f"{ranks} ranks on {nodes} nodes are {per_node} a node; "
                f"{self.machine.name} has {own} GPUs a node"
            )
        found = self.machine.topology(nodes, ranks, gpus_per_node=per_node, **self.changes)
        if ranks > 1:
            _ = found.graph  # refuses what is not connected
        return found

    def group(self, operation: str, ranks: int, nodes: int, sizes: Iterable[float]) -> Group:
        """What `operation` takes on so many ranks and nodes, at every size."""
        check_operation(operation)
        if ranks < 2:
            raise Refused("a rank alone communicates with nobody; at least 2 ranks are needed")
        topology = self.topology(ranks, nodes)
        costs = MeasuredCosts(self.backend, topology, self.curves, self.topology)
        kind, everyone = kind_of(topology), tuple(range(ranks))
        lines = []
        for size in sizes:
            plan = costs.plan(operation, everyone, size)
            if plan.seconds <= 0:
                raise Refused(f"no time is known for {operation} of {size:,.0f} bytes")
            low, high = interval(operation, kind, size)
            served = costs.served(operation, everyone, size)
            if served is not None:
                low, high = served_range(served, (low, high))
            algorithm, _, protocol = plan.algorithm.partition(" ")
            lines.append(
                Line(
                    operation, ranks, size, plan.seconds, plan.seconds * low, plan.seconds * high,
                    algorithm, protocol, bound(plan, topology),
                )
            )  # fmt: skip
        return Group(nodes, ranks, kind, tuple(lines))

    def groups(
        self, operation: str, ranks: int, nodes: int, sizes: Iterable[float], count: int
    ) -> Group:
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
            low, high = interval(operation, kind, size)
            algorithm, _, protocol = plan.algorithm.partition(" ")
            lines.append(
                Line(
                    operation, ranks // count, size, slowest, slowest * low, slowest * high,
                    algorithm, protocol, bound(plan, topology), alone=plan.seconds,
                )
            )  # fmt: skip
        return Group(nodes, ranks, kind, tuple(lines), count)


def tables(
    site: Site, operation: str, counts: Iterable[int], sizes: Sequence[float], at_once: int = 1
) -> tuple[Group, ...]:
    """A group for each number of nodes, all GPUs of them in use; or so many groups at once."""
    per_node = site.machine.gpus_per_node
    if at_once == 1:
        return tuple(site.group(operation, n * per_node, n, sizes) for n in counts)
    return tuple(site.groups(operation, n * per_node, n, sizes, at_once) for n in counts)


def routed(site: Site, routing: str, seed: int) -> Site:
    """`site` with flows over its spine switches spread evenly ("balanced") or hashed ("ecmp")."""
    if routing not in ("balanced", "ecmp"):
        raise Refused(f"--routing: {routing[:40]!r} is neither balanced nor ecmp")
    return replace(site, changes={**site.changes, "routing": routing, "seed": seed})


def check_sharp(site: Site, counts: Sequence[int]) -> None:
    """Refused where there is nothing that SHARP could do: all counts of nodes are one."""
    if max(counts) == 1:
        raise Refused(
            f"--sharp: switches between nodes add; {site.machine.name} is asked for one node only, "
            "--nodes 2:16 has several"
        )


def named(operation: str) -> str:
    """`operation` by its name here, where nccl-tests has another."""
    return _NCCL_TESTS.get(operation, operation)


def check_operation(operation: str) -> None:
    """Refused, by name, where `operation` is not modelled."""
    if operation not in OPERATIONS:
        raise Refused(f"{operation[:60]} is not modelled; there are {', '.join(OPERATIONS)}")


def bound(plan: Plan, topology: Topology) -> str:
    """ "latency" where that takes most of the time, else the kind of the busiest link."""
    parts = network_sizes([plan])
    if max(parts, key=lambda name: parts[name]) == "network_latency":
        return "latency"
    slowest = max(plan.phases, key=lambda phase: phase.seconds)
    return "network" if slowest.busiest is None else topology.link(slowest.busiest).kind


# -- what is asked for ----------------------------------------------------------------------------


def node_counts(text: str) -> tuple[int, ...]:
    """ "1:16" as 1, 2, 4, 8, 16 (the last one always); "1,3,8" as it stands."""
    first, colon, last = text.partition(":")
    if not colon:
        found = tuple(_count(part) for part in text.split(","))
        if len(set(found)) != len(found):
            raise Refused(f"--nodes: {text[:60]!r} has a count twice")
        return _few(found, "--nodes")
    low, high = _count(first), _count(last)
    if low > high:
        raise Refused(f"--nodes: {text[:60]!r} ends below its start")
    return _few(_steps(low, high, lambda n: n * 2), "--nodes")


def sizes(text: str, factor: int = 2) -> tuple[int, ...]:
    """ "1KiB:8GiB" as nccl-tests' -b, -e and -f: from the first, times `factor`, up to the last."""
    first, colon, last = text.partition(":")
    low, high = _size(first), _size(last if colon else first)
    if low > high:
        raise Refused(f"--sizes: {text[:60]!r} ends below its start")
    if factor < 2:
        raise Refused(f"--factor: {factor} is not at least 2")
    found, at = [], low
    while at <= high:
        found.append(at)
        at *= factor
    return tuple(found)


def _steps(low: int, high: int, after: Callable[[int], int]) -> tuple[int, ...]:
    found, at = [], low
    while at < high:
        found.append(at)
        at = after(at)
    return (*found, high)


def _few(found: tuple[int, ...], what: str) -> tuple[int, ...]:
    if len(found) > MOST:
        raise Refused(f"{what}: {len(found):,} of them; at most {MOST:,} are accepted")
    return found


def _count(text: str) -> int:
    plain = text.strip()
    if not plain.isascii() or not plain.isdigit() or not 1 <= int(plain[:9]) <= MAX_RANKS:
        raise Refused(
            f"--nodes: {text[:40]!r} is not a whole number in 1 … {MAX_RANKS:,}; "
            "write 1:16 or 1,2,8"
        )
    return int(plain[:9])


def _size(text: str) -> int:
    try:
        found = parse(text.strip(), "B")
    except ValueError as error:
        raise Refused(f"--sizes: {error}") from None
    if not 1 <= found <= 2**50 or found != int(found):
        raise Refused(f"--sizes: {text[:40]!r} is not a whole number of bytes in 1 B … 1 PiB")
    return int(found)


# -- beside a measurement -------------------------------------------------------------------------


def compared(groups: Sequence[Group], curves: Sequence[Curve]) -> tuple[Group, ...]:
    """`groups` with the measured times of the curves of the same ranks (and nodes, where known).

    Sizes that were measured are matched exactly; a repeated size counts with its median.  Refused
    where no size of any group was measured.
    """
    if any(group.at_once > 1 for group in groups):
        raise Refused("--compare: a measurement is of one collective alone, not of --groups")
    found = tuple(_compared(group, curves) for group in groups)
    if not any(line.measured for group in found for line in group.lines):
        operation = groups[0].lines[0].operation
        there = sorted({f"{c.operation} of {c.ranks or 'unknown'} ranks" for c in curves})
        raise Refused(
            f"--compare: measured {', '.join(there) or 'nothing'}, which is no {operation} of a "
            "number of ranks and a size of this table"
        )
    return found


def _compared(group: Group, curves: Sequence[Curve]) -> Group:
    points = [
        point
        for curve in curves
        if curve.operation == group.lines[0].operation
        and curve.ranks == group.ranks
        and curve.nodes in (None, group.nodes)
        for point in curve.points
    ]
    times = {size: seconds for size, seconds, _ in merged(points)}
    lines = tuple(replace(line, measured=times.get(float(line.size))) for line in group.lines)
    return replace(group, lines=lines)


def document(operation: str, site: Site, groups: Sequence[Group]) -> dict[str, Any]:
    """Everything as plain data, in SI units."""
    return {
        "schema_version": SCHEMA_VERSION,
        "dpsim_version": __version__,
        "operation": operation,
        "machine": site.machine.name,
        "calibrated": bool(site.curves),
        "groups": [
            {
                "nodes": group.nodes,
                "ranks": group.ranks,
                **({"groups_at_once": group.at_once} if group.at_once > 1 else {}),
                "kind": group.kind,
                "lines": [line.document() for line in group.lines],
            }
            for group in groups
        ],
    }
