"""Topology: a machine of so many nodes, as a graph with ranks, routes and capacities."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from dpsim.core.deferred import nx
from dpsim.core.many import larger, smaller
from dpsim.core.record import Refused
from dpsim.machines.cables import Cables
from dpsim.machines.devices import Link, NicMaker
from dpsim.machines.fabrics import Edge, Network, NodeFabric, Vertex
from dpsim.machines.wiring import Wiring

_OUTSIDE = ("leaf", "spine")
Found = TypeVar("Found")


class Crossing(NamedTuple):
    """A message's way between two nodes where it is not as long as the machine file says: one way
    from NIC to NIC below one switch, and how much longer that is [s]."""

    way: float = 0.0
    longer: float = 0.0

    def added(self, step: float) -> float:
        """What a step over such a way takes more than the `step` [s] over the machine file's: it
        does not become shorter than the way."""
        return larger(self.longer, smaller(step, self.way) - step)


class Way(NamedTuple):
    """How messages leave a node and arrive in another, or cross one: edges of node 0.

    nics   numbers of the NICs between `out` and `into`; None in place of one: the message begins
           or ends at the leaf; no pair at all: it stays in the node
    cables edges between the NICs, of one message only, in a network that has no rule
    """

    out: tuple[Edge, ...]
    nics: tuple[int | None, int | None] | None = None
    into: tuple[Edge, ...] = ()
    cables: tuple[Edge, ...] = ()


#: the machine file's own way
AS_IT_IS = Crossing()
#: GPUs in the largest single server (DGX-2); more are an NVLink domain over several
LARGEST_SERVER = 16
#: GPUs of each server of a larger one (NVIDIA GB200 NVL72 datasheet: 18 compute trays of four)
TRAY = 4


def alike(ranks: int, whole: int, step: int) -> int | None:
    """GPUs of each NVLink domain of `whole`, as many in each, by `step`, that hold `ranks`: in the
    fewest domains of which at least half is used, as schedulers with topologies of blocks place a
    job's segments (SchedMD/slurm doc/html/topology.shtml, `--segment`).  None where there is no
    such number."""
    shares = range(whole - whole % step, -(-whole // 2) - 1, -step)
    return next((share for share in shares if ranks % share == 0), None)


class Topology:
    """`nodes` equal nodes of a machine.

    fabric   the inside of a node
    graph    NetworkX DiGraph (see :mod:`dpsim.machines.fabrics`); every edge has a `link`
    devices  the GPU vertex of every rank, node by node
    compute_capability  of its GPUs, NVIDIA's times ten (H100: 90), or 0 where there is none
    gpudirect  whether NICs reach the memory of its GPUs
    crossing  for models whose steps between nodes were not fitted on these cables
    adapters  whose network adapters its nodes have, where libraries ask

    Everything is computed on first use.  Routes and links need one node and the cables only, so
    that a machine of thousands of nodes stays cheap until someone asks for its whole `graph`.
    """

    def __init__(
        self,
        node: NodeFabric,
        network: Network | None,
        *,
        nodes: int,
        gpus: int,
        nics: int,
        ranks: int | None = None,
        compute_capability: int = 0,
        gpudirect: bool = True,
        crossing: Crossing = AS_IT_IS,
        adapters: NicMaker | None = None,
    ) -> None:
        if nodes > 1 and (network is None or nics == 0):
            raise Refused("this machine has no network: it is a single node", ("cluster", "nodes"))
        self.fabric = node
        self._network = network.settled(nics) if network is not None and nodes > 1 else network
        self.known: dict[Hashable, Any] = {}  # what was worked out for this machine
        self.nodes, self.gpus, self.nics = nodes, gpus, nics
        self.compute_capability, self.gpudirect = compute_capability, gpudirect
        self.crossing, self.adapters = crossing, adapters
        self.ranks = nodes * gpus if ranks is None else ranks
        if not 1 <= self.ranks <= nodes * gpus:
            message = f"{self.ranks} ranks on {nodes} nodes of {gpus} GPUs"
            raise Refused(message, ("cluster", "ranks"))

    @property
    def of_servers(self) -> bool:
        """Whether a node here is made of several servers."""
        return self.gpus > LARGEST_SERVER

    def once(self, key: Hashable, find: Callable[[], Found]) -> Found:
        """What `find` finds for this machine, which never changes: only the first call under `key`
        looks."""
        if key not in self.known:
            self.known[key] = find()
        found: Found = self.known[key]
        return found

    @cached_property
    def graph(self) -> nx.DiGraph[Vertex]:
        """The whole machine.  Refused where a pair of its GPUs cannot reach each other."""
        graph: nx.DiGraph[Vertex] = nx.DiGraph()
        self._build(graph, self.nodes)
        _require_connected(Wiring.of(graph))
        return graph

    def _build(self, graph: nx.DiGraph[Vertex], nodes: int) -> None:
        for number in range(nodes):
            self._build_node(graph, number)
        if self._network is not None and nodes > 1:
            self._network.build(graph, nodes, self.nics)

    def _wiring(self, build: Callable[[Any], None]) -> Wiring:
        """What `build` puts into a graph.  Fabrics of other packages get one of NetworkX, of which
        they may ask anything."""
        fabrics = (self.fabric, self._network)
        if all(f is None or type(f).__module__.startswith("dpsim.") for f in fabrics):
            build(made := Wiring())
            return made
        graph: nx.DiGraph[Vertex] = nx.DiGraph()
        build(graph)
        return Wiring.of(graph)

    def require_connected(self) -> None:
        """Refused where a pair of its GPUs cannot reach each other: where cables are laid by rule
        all NICs can, so two nodes show it."""
        if self.nodes > 1 and self.cables is None:
            _ = self.graph
        else:
            nodes = min(self.nodes, 2)
            _require_connected(self._wiring(lambda graph: self._build(graph, nodes)))

    @cached_property
    def cables(self) -> Cables | None:
        """The rule of its network; None where there is none."""
        if self._network is None or self.nodes == 1:
            return None
        return self._network.cables(self.nodes, self.nics)

    @property
    def port(self) -> Link | None:
        """What joins a NIC to the network; None where there is none, or nodes of several kinds."""
        found: Link | None = getattr(self._network, "link", None)
        return found if self.nics else None

    @cached_property
    def balanced(self) -> Topology:
        """The same machine with traffic spread evenly over equal paths between its switches.

        That is what a library can plan with: it does not know which path a flow is hashed to.
        """
        network = None if self._network is None else self._network.balanced()
        if network == self._network:
            return self
        return Topology(
            self.fabric,
            network,
            nodes=self.nodes,
            gpus=self.gpus,
            nics=self.nics,
            ranks=self.ranks,
            compute_capability=self.compute_capability,
            gpudirect=self.gpudirect,
            crossing=self.crossing,
            adapters=self.adapters,
        )

    @property
    def devices(self) -> tuple[Vertex, ...]:
        return tuple(("gpu", r // self.gpus, r % self.gpus) for r in range(self.ranks))

    def node_of(self, rank: int) -> int:
        return rank // self.gpus

    def nic_of(self, gpu: int) -> int:
        """The NIC through which GPU number `gpu` of a node leaves it."""
        return self._nics[gpu]

    def link(self, edge: Edge) -> Link:
        (a, b) = edge
        if a[0] in _OUTSIDE or b[0] in _OUTSIDE:
            if self.cables is not None:
                return self.cables.link(edge)
            return self._wired.link(edge)
        return self.first_node.link(moved(edge, 0))

    def route(self, source: int, target: int) -> tuple[Edge, ...]:
        """The edges that a message from rank `source` to rank `target` crosses, in order.

        Inside a node: an NVLink of the two GPUs; else two NVLinks through a third GPU; else the
        shortest way over switches and sockets.  Between nodes: the NICs nearest to both GPUs.
        Where the network has rails, the message first goes over NVLink to the GPU beside the NIC
        of the target's rail (NCCL does the same since 2.12, "PXN").
        """
        (a, i), (b, j) = divmod(source, self.gpus), divmod(target, self.gpus)
        way = self.way(i, j, same=a == b)
        out = tuple(moved(edge, a) for edge in way.out)
        if way.nics is None:
            return out
        between = self.between(("nic", a, way.nics[0]), ("nic", b, way.nics[1]))
        return *out, *between, *(moved(edge, b) for edge in way.into)

    def between(self, source: Vertex, target: Vertex) -> tuple[Edge, ...]:
        """The cables from NIC `source` to NIC `target` of another node."""
        assert self._network is not None
        return tuple(pairwise(self._network.route(source, target)))

    def way(self, gpu: int, other: int, *, same: bool) -> Way:
        """How messages from GPU number `gpu` of a node reach GPU `other` of the same or another
        (see `route`)."""
        if same:
            return Way(self.inside(("gpu", 0, gpu), ("gpu", 0, other)))
        into = self.nic_of(other)
        out = self._way_out(gpu, into)
        return Way(out, (out[-1][1][2], into), self.inside(("nic", 0, into), ("gpu", 0, other)))

    def _way_out(self, gpu: int, rail: int) -> tuple[Edge, ...]:
        """From GPU number `gpu` of node 0 to the NIC that it sends through to NIC `rail`."""
        return self.once(("way out", gpu, rail), lambda: self._find_way_out(gpu, rail))

    def _find_way_out(self, gpu: int, rail: int) -> tuple[Edge, ...]:
        own = self.nic_of(gpu)
        if self._network is not None and self._network.rails and own != rail:
            for other in range(self.gpus):
                if self.nic_of(other) == rail:
                    hop = self.inside(("gpu", 0, gpu), ("gpu", 0, other))
                    if all(self.link(e).kind in ("nvlink", "nvswitch") for e in hop):
                        return (*hop, *self.inside(("gpu", 0, other), ("nic", 0, rail)))
        return self.inside(("gpu", 0, gpu), ("nic", 0, own))

    def _build_node(self, graph: nx.DiGraph[Vertex], number: int) -> None:
        try:
            self.fabric.build(graph, number, self.gpus, self.nics)
        except Refused:
            raise
        except ValueError as error:
            raise Refused(str(error), ("cluster", "gpus_per_node")) from None

    @cached_property
    def first_node(self) -> Wiring:
        """What is inside node 0."""
        return self._wiring(lambda graph: self._build_node(graph, 0))

    @cached_property
    def sockets(self) -> tuple[int, ...]:
        """The CPU sockets of a node, by number; none where the machine file names none."""
        return tuple(sorted(v[2] for v in self.first_node if v[0] == "socket"))

    @cached_property
    def _wired(self) -> Wiring:
        network = self._network
        if network is None or self.nodes == 1:
            return Wiring()
        return self._wiring(lambda graph: network.build(graph, self.nodes, self.nics))

    @cached_property
    def _nics(self) -> tuple[int, ...]:
        return tuple(self.fabric.nic_of(gpu, self.gpus, self.nics) for gpu in range(self.gpus))

    def inside(self, source: Vertex, target: Vertex) -> tuple[Edge, ...]:
        """The edges from `source` to `target`, both vertices of node 0 (see `route`)."""

        def find() -> tuple[Edge, ...]:
            wiring = self.first_node
            path = self.fabric.path(source, target, self.gpus, self.nics)
            path = path or _relayed(wiring, source, target) or _shortest(wiring, source, target)
            return tuple(pairwise(path))

        return self.once(("inside", source, target), find)


def _relayed(wiring: Wiring, source: Vertex, target: Vertex) -> list[Vertex] | None:
    """Two wires through a third GPU, where no wire joins the two GPUs: the widest such way.

    NCCL takes these too (path type NVB, NVIDIA/nccl 2.30.7 src/graph/paths.cc).
    """
    if (source[0], target[0]) != ("gpu", "gpu") or wiring.has_edge(source, target):
        return None

    def width(middle: Vertex) -> float:
        return min(wiring.link(e).bandwidth for e in ((source, middle), (middle, target)))

    between = [v for v in wiring.successors(source) if v[0] == "gpu" and wiring.has_edge(v, target)]
    return [source, max(between, key=width), target] if between else None


def _shortest(wiring: Wiring, source: Vertex, target: Vertex) -> list[Vertex]:
    """Fewest hops, then the widest, never through another GPU or NIC."""
    path = wiring.shortest(source, target, lambda v: v[0] not in ("gpu", "nic"), _weight)
    if path is None:
        raise Refused(f"{source} cannot reach {target}", ("cluster", "machine"))
    return path


def _weight(link: Link) -> float:
    """One per hop, plus a term far below one that prefers the wider of equally short paths."""
    return 1.0 + 1e3 / link.bandwidth


def moved(edge: Edge, node: int) -> Edge:
    """An edge inside a node as it is in `node`."""
    (a, b) = edge
    return (a[0], node, *a[2:]), (b[0], node, *b[2:])


def _require_connected(wiring: Wiring) -> None:
    gpus = [v for v, data in wiring.nodes.items() if data["kind"] == "gpu"]
    reached, reaching = wiring.reached(gpus[0]), wiring.reached(gpus[0], back=True)
    for gpu in gpus:
        if gpu not in reached or gpu not in reaching:
            message = f"{gpus[0]} and {gpu} are not connected both ways"
            raise Refused(message, ("cluster", "machine"))
