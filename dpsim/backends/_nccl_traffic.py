"""What a collective puts on the links, per byte of its size: the same for every size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dpsim.backends import Edge, Phase, Topology
from dpsim.backends._nccl_graph import edge_kind
from dpsim.collectives import Algorithm, Stage, Transfer, path

#: NVLinks of a way through a third GPU, which passes the bytes on
RELAYED = "relayed nvlink"
_SWITCHED = ("nvlink", "nvswitch", "xgmi")


@dataclass(frozen=True)
class Traffic:
    """Bytes per byte of the collective's size.

    loads    on each edge
    kinds    what each edge counts as: PCIe on the way to a NIC counts as the network
    paces    seconds per byte on the busiest edge of each kind at its nominal bandwidth, with it
    nic      on the busiest cable of a NIC
    """

    loads: Mapping[Edge, float]
    kinds: Mapping[Edge, str]
    paces: Mapping[str, tuple[float, Edge]]
    nic: float


def traffic_of(
    algorithm: Algorithm, name: str, operation: str, ranks: tuple[int, ...], topology: Topology
) -> Traffic:
    """The traffic of one algorithm, worked out once per machine."""

    def find() -> Traffic:
        scale = 1.0
        if name == "ring" and operation in ("broadcast", "reduce"):
            # NCCL's are pipelines: S over every hop
            scale = len(ranks) / (2 * (len(ranks) - 1))
        return _traffic(algorithm.traffic(operation, ranks, scale, topology), topology)

    return topology.once(("traffic", name, operation, ranks), find)


def _traffic(transfers: Iterable[Transfer], topology: Topology) -> Traffic:
    loads: dict[Edge, float] = {}
    kinds: dict[Edge, str] = {}
    for transfer in transfers:
        route = path(transfer, topology)
        for edge in route:
            loads[edge] = loads.get(edge, 0.0) + transfer.bytes
        name_edges(kinds, route, topology)
    return summed(loads, kinds, topology)


def summed(loads: dict[Edge, float], kinds: dict[Edge, str], topology: Topology) -> Traffic:
    """The traffic of `loads`; edges that `kinds` does not name count as what they are."""
    paces: dict[str, tuple[float, Edge]] = {}
    nic = 0.0
    for edge, load in loads.items():
        pace = load / topology.link(edge).bandwidth
        kind = kinds.setdefault(edge, edge_kind(topology, edge))
        if kind not in paces or pace > paces[kind][0]:
            paces[kind] = pace, edge
        if edge[0][0] == "nic" and edge[1][0] == "leaf":
            nic = max(nic, load)
    return Traffic(loads, kinds, paces, nic)


def name_edges(kinds: dict[Edge, str], route: tuple[Edge, ...], topology: Topology) -> None:
    """Note in `kinds` what the edges of `route` count as."""
    if any(edge not in kinds for edge in route) or _relays(route):
        _name(kinds, route, topology)


def _relays(route: tuple[Edge, ...]) -> bool:
    """Whether a GPU passes the bytes on to another GPU."""
    return any(a[0] == b[0] == "gpu" for a, b in route[1:])


def _name(kinds: dict[Edge, str], route: tuple[Edge, ...], topology: Topology) -> None:
    """Name the edges of a route; behind the first PCIe edge of a way out all is the network."""
    network = next((e for e in route if e[0][0] == "leaf" or e[1][0] == "leaf"), None)
    outside = topology.link(network).kind if network is not None else ""
    out = False
    relayed = _relays(route)
    for edge in route:
        kind = edge_kind(topology, edge)
        if relayed and edge[0][0] == edge[1][0] == "gpu":
            kinds[edge] = RELAYED if kind == "nvlink" else kind
            continue
        out = out or (bool(outside) and kind not in _SWITCHED)
        kinds.setdefault(edge, outside if out else kind)


# -- round by round, on the links as they are -----------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """A stage for one byte of the collective's size.

    hops   the distinct (latency, seconds per byte on the most loaded link) of its transfers
    loads  bytes per byte that cross each link in one round; `peak` is the largest
    """

    repeats: int
    hops: frozenset[tuple[float, float]]
    loads: Mapping[Edge, float]
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
    algorithm: Algorithm,
    name: str,
    operation: str,
    ranks: tuple[int, ...],
    size: float,
    topology: Topology,
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
    routes = [path(transfer, topology) for transfer in stage.transfers]
    loads: dict[Edge, float] = {}
    for transfer, route in zip(stage.transfers, routes, strict=True):
        for edge in route:
            loads[edge] = loads.get(edge, 0.0) + transfer.bytes / size
    links = {edge: topology.link(edge) for edge in loads}
    busy = {edge: load / links[edge].bandwidth for edge, load in loads.items()}
    hops = frozenset(
        (sum(links[edge].latency for edge in route), max(busy[edge] for edge in route))
        for route in routes
    )
    busiest = max(busy, key=lambda edge: busy[edge])
    return Shape(stage.repeats, hops, loads, busy[busiest], max(loads.values()), busiest)


def scaled(stage: Stage, factor: float, latency: float | None) -> Stage:
    """`stage` with `factor` times the bytes, and `latency` [s] for every transfer."""
    transfers = tuple(Transfer(a, b, factor * size) for a, b, size in stage.transfers)
    return Stage(stage.repeats, transfers, latency)
