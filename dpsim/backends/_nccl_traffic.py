"""What a collective puts on the links, per byte of its size: the same for every size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np

from dpsim.backends import Edge, Phase, Topology
from dpsim.backends._nccl_graph import edge_kind
from dpsim.collectives import (
    Algorithm,
    Ranks,
    Stage,
    Transfer,
    TransferList,
    convoys_of,
    members_of,
)
from dpsim.core.lean import dataclass
from dpsim.machines.loads import Loads
from dpsim.machines.tally import Convoy, Tally

#: NVLinks of a way through a third GPU, which passes the bytes on
RELAYED = "relayed nvlink"
_SWITCHED = ("nvlink", "nvswitch", "xgmi")


@dataclass(frozen=True)
class Traffic:
    """Bytes per byte of the collective's size.

    loads    on each link; what a class of links counts as is its `kind`: PCIe on the way to a NIC
             counts as the network
    paces    seconds per byte on the busiest link of each kind at its nominal bandwidth, with it
    nic      on the busiest cable of a NIC
    """

    loads: Loads
    paces: Mapping[str, tuple[float, Edge]]
    nic: float


def traffic_of(
    algorithm: Algorithm, name: str, operation: str, ranks: Ranks, topology: Topology
) -> Traffic:
    """The traffic of one algorithm, worked out once per machine."""

    def find() -> Traffic:
        scale = 1.0
        if name == "ring" and operation in ("broadcast", "reduce"):
            # NCCL's are pipelines: S over every hop
            scale = len(ranks) / (2 * (len(ranks) - 1))
        found = algorithm.traffic(operation, ranks, scale, topology)
        return summed(tallied(found, ranks, topology))

    return topology.once(("traffic", name, operation, ranks), find)


def tallied(transfers: Iterable[Transfer], ranks: Ranks, topology: Topology) -> Tally:
    """What `transfers` between `ranks` put on links."""
    tally = Tally(topology, members_of(ranks, topology).nodes, partial(names_of, topology))
    for flow in TransferList.of(transfers).parts:
        for convoy, part in convoys_of(flow, topology):
            tally.add(convoy, part.bytes, part.order)
    return tally


def summed(tally: Tally) -> Traffic:
    """The traffic of all messages of `tally`."""
    loads = tally.loads()
    paces: dict[str, tuple[float, Edge]] = {}
    nic = 0.0
    each = zip(loads.classes, loads.carried.tolist(), strict=True)
    for which, load in sorted(each, key=lambda found: found[0].first):
        pace, edge = load / which.bandwidth, loads.layout.edge(which)
        if which.kind not in paces or pace > paces[which.kind][0]:
            paces[which.kind] = pace, edge
        if is_cable(edge):
            nic = max(nic, load)
    return Traffic(loads, paces, nic)


def is_cable(edge: Edge) -> bool:
    """Whether an edge leads from a NIC to its leaf."""
    return bool(edge[0][0] == "nic" and edge[1][0] == "leaf")


def names_of(topology: Topology, route: tuple[Edge, ...]) -> list[tuple[str, bool]]:
    """What the edges of a route count as, if nothing said so before; and whether they do so in any
    case.  Behind the first PCIe edge of a way out all is the network."""
    network = next((e for e in route if e[0][0] == "leaf" or e[1][0] == "leaf"), None)
    outside = topology.link(network).kind if network is not None else ""
    out = False
    relayed = _relays(route)
    found: list[tuple[str, bool]] = []
    for edge in route:
        kind = edge_kind(topology, edge)
        if relayed and edge[0][0] == edge[1][0] == "gpu":
            found.append((RELAYED if kind == "nvlink" else kind, True))
            continue
        out = out or (bool(outside) and kind not in _SWITCHED)
        found.append((outside if out else kind, False))
    return found


def _relays(route: tuple[Edge, ...]) -> bool:
    """Whether a GPU passes the bytes on to another GPU."""
    return any(a[0] == b[0] == "gpu" for a, b in route[1:])


# -- round by round, on the links as they are -----------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """A stage for one byte of the collective's size.

    hops   the distinct (latency, seconds per byte on the most loaded link) of its transfers
    loads  bytes per byte that cross each link in one round; `peak` is the largest
    """

    repeats: int
    hops: frozenset[tuple[float, float]]
    loads: Loads
    pace: float
    peak: float
    busiest: Edge

    def phase(self, size: float, efficiency: float = 1.0) -> Phase:
        """All rounds as one phase.

        A transfer takes the latency of its path plus the time of its most loaded link; the slowest
        transfer sets the pace of the round, and every round is alike.
        """
        size = size / efficiency
        pace = self.pace * size
        slowest = max(latency + busy * size for latency, busy in self.hops)
        moved = self.repeats * self.peak * size
        return Phase(
            self.repeats * (slowest - pace), self.repeats * pace, self.loads, moved, self.busiest
        )


def shapes_of(
    algorithm: Algorithm, name: str, operation: str, ranks: Ranks, size: float, topology: Topology
) -> tuple[Shape, ...]:
    """The shapes of all stages; kept with the topology where they don't depend on the size."""

    def find(size: float = 1.0) -> tuple[Shape, ...]:
        stages = algorithm.stages(operation, ranks, size, topology)
        return tuple(shape(stage, topology, size or 1.0) for stage in stages)

    if algorithm.proportional:
        return topology.once(("shapes", name, operation, ranks), find)
    return find(size)


def shape(stage: Stage, topology: Topology, size: float = 1.0) -> Shape:
    """The shape of `stage`, which was made for `size` bytes."""
    flows = TransferList.of(stage.transfers).parts
    convoys = [found for flow in flows for found in convoys_of(flow, topology)]
    nodes = np.unique(np.concatenate([ends for convoy, _ in convoys for ends in convoy[1:]]))
    tally = Tally(topology, nodes)
    for convoy, flow in convoys:
        tally.add(convoy, flow.bytes / size, flow.order)
    loads = tally.loads()
    hops = frozenset(hop for convoy, _ in convoys for hop in _hops(tally, convoy))
    pace, busiest = loads.slowest
    return Shape(stage.repeats, hops, loads, pace, loads.most, busiest)


def _hops(tally: Tally, convoy: Convoy) -> set[tuple[float, float]]:
    """The distinct latencies and times of the most loaded link of the transfers of `convoy`."""
    busy = np.zeros(len(convoy.sources))
    for _, loads, bandwidths in tally.crossed(convoy):
        busy = np.fmax(busy, loads / bandwidths)
    return {*zip(tally.latencies(convoy).tolist(), busy.tolist(), strict=True)}


def scaled(stage: Stage, factor: float, latency: float | None) -> Stage:
    """`stage` with `factor` times the bytes, and `latency` [s] for every transfer."""
    return Stage(stage.repeats, TransferList.of(stage.transfers).times(factor), latency)
