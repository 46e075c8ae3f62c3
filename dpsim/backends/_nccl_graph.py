"""What NCCL's topology search finds: channels, bandwidth per channel, and kinds of paths.

The search itself (NVIDIA/nccl 2.30.7 src/graph/search.cc) is not repeated.  The rings of
`dpsim.collectives.ring_orders` say how much all channels carry together; that is rounded down to
the speeds that NCCL tries, so that the estimates by which NCCL chooses are close to its own.
"""

from __future__ import annotations

from itertools import pairwise

from dpsim.backends import Edge, Topology
from dpsim.backends import _nccl_tables as tables
from dpsim.backends._ofi_tuner import machine_of
from dpsim.collectives import Ranks, members_of
from dpsim.collectives.ring_orders import RingOrder, rings
from dpsim.core.lean import dataclass
from dpsim.core.many import added
from dpsim.core.record import Refused
from dpsim.machines.devices import Link, NicMaker
from dpsim.machines.fabrics.processors import Processors
from dpsim.machines.fabrics.torus import Torus
from dpsim.machines.topology import AS_IT_IS, Crossing

#: most channels that a ring search keeps (2.30.7 src/init.cc)
_MAX_CHANNELS = 32
#: compute capability of the first GPUs that came with EFA of the second generation (P5), times ten
_HOPPER = 90


@dataclass(frozen=True)
class NcclGraph:
    """A group of ranks as NCCL sees it; bandwidths in GB/s per channel.

    nodes, per_node   nodes of the group, and ranks per node (NCCL's integer division)
    arch              0 Volta, 1 Ampere, 2 Hopper, 3 Blackwell
    channels, intra, inter  of the ring graph;  tree_intra: the tree graph's bandwidth in a node
    inside, outside   kind of link of the hops inside a node and between nodes ("": none)
    near              the NICs of the ring are on the GPUs' own PCIe switches
    switched          all GPUs of a node are on one NVSwitch
    nvlink            NCCL sees NVLink paths only inside a node
    efa               generation of EFA adapters; 0 where there are none
    amazon            which of the machines that Amazon's tuner knows; "": none
    staged            GPUs of a node reach each other through its memory only
    hosted            NICs don't reach the GPUs' memory: what leaves a node goes through its host
    capability        of the GPUs, NVIDIA's times ten; 0: none is stated
    adapters          whose network adapters the nodes have, as topologies say
    crossing          what a scenario says of the way between nodes
    """

    ranks: int
    nodes: int
    per_node: int
    arch: int
    channels: int
    intra: float
    inter: float
    tree_intra: float
    inside: str
    outside: str
    near: bool
    switched: bool
    nvlink: bool
    nics: int
    local_bandwidth: float
    efa: int = 0
    amazon: str = ""
    staged: bool = False
    hosted: bool = False
    capability: int = 0
    adapters: NicMaker | None = None
    crossing: Crossing = AS_IT_IS

    @property
    def column(self) -> int:
        """The column of NCCL's tables: one node, two, or more."""
        return min(self.nodes, 3) - 1

    @property
    def kind(self) -> str:
        """What the widest hops cross: the network, or else the links inside the node."""
        return self.outside or self.inside

    @property
    def linked(self) -> bool:
        """Whether ranks of a node are joined by NVLink."""
        return self.inside in ("nvlink", "nvswitch")


def require_gpus(topology: Topology) -> None:
    """Refused where the machine has no GPUs but what NCCL does not know: TPUs, or none at all."""
    if isinstance(topology.fabric, Processors):
        message = "NCCL needs GPUs, and this machine has none; collective: {backend: gloo} or mpi"
        raise Refused(message, ("collective", "backend"))
    if isinstance(topology.fabric, Torus):
        message = "NCCL has no TPUs; collective: {backend: ici} is what joins them"
        raise Refused(message, ("collective", "backend"))


def graph_of(topology: Topology, ranks: Ranks) -> NcclGraph:
    """The graph of `ranks`, worked out once."""
    return topology.once(("nccl graph", ranks), lambda: _graph(topology, ranks))


def _graph(topology: Topology, ranks: Ranks) -> NcclGraph:
    found = rings(topology, ranks)
    nodes = len(members_of(ranks, topology).nodes)
    arch = tables.architecture(topology.compute_capability)
    inner, outer = _hops(topology, found)
    inside, outside = _slowest_inside(topology, inner), _outside(topology, outer)
    local = _local_bandwidth(topology, ranks)
    efa, capability = _efa(outside, topology.compute_capability), topology.compute_capability
    if nodes == 1:
        total = added(ring.bandwidth for ring in found) / 1e9
        channels, speed = _inside_channels(total, len(found), arch)
        inter = speed
    else:
        speed = min(ring.bandwidth for ring in found) / 1e9
        channels, inter = _network_channels(speed, len(found), arch)
        speed = inter
    return NcclGraph(
        ranks=len(ranks),
        nodes=nodes,
        per_node=max(len(ranks) // nodes, 1),
        arch=arch,
        channels=channels,
        intra=speed,
        inter=inter,
        tree_intra=max(speed, min(2 * inter, local / channels)) if nodes > 1 else speed,
        inside=inside,
        outside=outside.kind if outside else "",
        near=not any(_touches(edge, "socket") for hop in outer for edge in hop),
        switched=inside == "nvswitch",
        nvlink=inside in ("nvlink", "nvswitch", ""),
        nics=len({hop_nic(hop) for hop in outer if hop_nic(hop) is not None}),
        local_bandwidth=local,
        efa=efa,
        amazon=machine_of(efa, capability, topology.gpus),
        staged=topology.fabric.staged and inside == "pcie",
        hosted=not topology.gpudirect,
        capability=capability,
        adapters=topology.adapters,
        crossing=topology.crossing,
    )


def _hops(
    topology: Topology, found: tuple[RingOrder, ...]
) -> tuple[list[tuple[Edge, ...]], list[tuple[Edge, ...]]]:
    """Routes inside the first node of every ring, and routes out of it; enough, for all nodes
    are alike."""
    inner, outer = [], []
    for ring in found:
        nodes = ring.members.nodes[:2].tolist()
        way = [nodes[0] * ring.gpus + gpu for gpu in ring.ways[ring.members.shape[0]]]
        if len(nodes) == 1:
            inner += [topology.route(a, b) for a, b in pairwise((*way, way[0]))]
            continue
        inner += [topology.route(a, b) for a, b in pairwise(way)]
        first, last = ring.ends
        outer.append(topology.route(int(last[0]), int(first[1])))
        outer.append(topology.route(int(last[1]), int(first[2 % len(first)])))
    return inner, outer


def _touches(edge: Edge, kind: str) -> bool:
    return kind in (edge[0][0], edge[1][0])


def hop_nic(hop: tuple[Edge, ...]) -> int | None:
    """The number of the NIC through which a route leaves its node."""
    return next((b[2] for _, b in hop if b[0] == "nic"), None)


def edge_kind(topology: Topology, edge: Edge) -> str:
    """The kind of an edge; an NVLink to a switch is "nvswitch", whatever the file calls it."""
    kind: str = topology.link(edge).kind
    return "nvswitch" if kind == "nvlink" and _touches(edge, "nvswitch") else kind


_ORDER = ("nvswitch", "nvlink", "xgmi", "local", "pcie", "inter_socket")


def _slowest_inside(topology: Topology, hops: list[tuple[Edge, ...]]) -> str:
    kinds = {edge_kind(topology, edge) for hop in hops for edge in hop}
    if "local" in kinds:
        return "local"
    return max(kinds, key=lambda kind: _ORDER.index(kind) if kind in _ORDER else 9, default="")


def _outside(topology: Topology, hops: list[tuple[Edge, ...]]) -> Link | None:
    """The cable of a NIC that hops between nodes cross."""
    edges = (edge for hop in hops for edge in hop if _touches(edge, "leaf"))
    return next((topology.link(edge) for edge in edges), None)


def _efa(cable: Link | None, capability: int) -> int:
    """The generation of a NIC's adapters where they are EFA's, else 0.  Where none is stated, that
    of Amazon's machines with such GPUs: the second from Hopper (P5) on, before it the first."""
    if cable is None or cable.kind != "efa":
        return 0
    return cable.generation or (2 if capability >= _HOPPER else 1)


def _local_bandwidth(topology: Topology, ranks: Ranks) -> float:
    """What all channels together can carry inside a node [GB/s]."""
    node = topology.node_of(ranks[0])
    shape = members_of(ranks, topology).shape_of(node)
    local = tuple(node * topology.gpus + gpu for gpu in shape)
    if len(local) == 1:
        return 1e9
    return added(ring.bandwidth for ring in rings(topology, local)) / 1e9


def rounded_down(value: float, speeds: tuple[float, ...]) -> float:
    """The largest of `speeds` that is at most `value`; `value` itself below all of them."""
    return next((speed for speed in speeds if speed <= value * (1 + 1e-9)), value)


def _inside_channels(total: float, rings_found: int, arch: int) -> tuple[int, float]:
    """Channels and GB/s of each inside one node; `total` is what all rings carry together."""
    speeds = tables.INTRA_SPEEDS[max(arch - 1, 0)]
    if rings_found > 1:
        return rings_found, total / rings_found
    speed = rounded_down(total, speeds)
    channels = max(int(total / speed + 1e-9), 1)
    if speed >= 25 and not (arch >= 2 and speed < 50 and channels > 4):
        return min(2 * channels, _MAX_CHANNELS), speed / 2
    return channels, speed


def _network_channels(speed: float, rings_found: int, arch: int) -> tuple[int, float]:
    """Channels and GB/s of each where rings leave the node, one a NIC."""
    speed = rounded_down(speed, tables.INTER_SPEEDS[max(arch - 1, 0)])
    if speed >= 25 and not (arch >= 2 and speed < 50 and rings_found > 4):
        return min(2 * rings_found, _MAX_CHANNELS), speed / 2
    return rings_found, speed
