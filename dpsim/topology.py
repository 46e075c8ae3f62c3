"""Topology: a machine of so many nodes, as a graph with ranks, routes and capacities."""

from __future__ import annotations

from functools import cached_property

import networkx as nx

from dpsim.fabrics import Edge, Network, NodeFabric, Vertex
from dpsim.hardware import Link
from dpsim.record import Refused


class Topology:
    """`nodes` equal nodes of a machine.

    graph    NetworkX DiGraph (see :mod:`dpsim.fabrics`); every edge has a `link`
    devices  the GPU vertex of every rank, node by node
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
    ) -> None:
        if nodes > 1 and (network is None or nics == 0):
            raise Refused("this machine has no network: it is a single node", ("cluster", "nodes"))
        self._node, self._network = node, network
        self.nodes, self.gpus, self.nics = nodes, gpus, nics
        self.ranks = nodes * gpus if ranks is None else ranks

    @cached_property
    def graph(self) -> nx.DiGraph:
        """The whole machine.  Refused where a pair of its GPUs cannot reach each other."""
        graph = nx.DiGraph()
        for number in range(self.nodes):
            self._node.build(graph, number, self.gpus, self.nics)
        if self._network is not None and self.nodes > 1:
            self._network.build(graph, self.nodes, self.nics)
        _require_connected(graph)
        return graph

    @property
    def devices(self) -> tuple[Vertex, ...]:
        return tuple(("gpu", r // self.gpus, r % self.gpus) for r in range(self.ranks))

    def node_of(self, rank: int) -> int:
        return rank // self.gpus

    def link(self, edge: Edge) -> Link:
        found: Link = self.graph.edges[edge]["link"]
        return found

    def route(self, source: int, target: int) -> tuple[Edge, ...]:
        """The edges that a message from rank `source` to rank `target` crosses, in order."""
        a, b = source // self.gpus, target // self.gpus
        i, j = source % self.gpus, target % self.gpus
        if a == b:
            return tuple(_moved(edge, a) for edge in self._inside(("gpu", 0, i), ("gpu", 0, j)))
        assert self._network is not None
        out = self._node.nic_of(i, self.gpus, self.nics)
        into = self._node.nic_of(j, self.gpus, self.nics)
        path = self._network.route(("nic", a, out), ("nic", b, into))
        return (
            *(_moved(edge, a) for edge in self._inside(("gpu", 0, i), ("nic", 0, out))),
            *zip(path, path[1:], strict=False),
            *(_moved(edge, b) for edge in self._inside(("nic", 0, into), ("gpu", 0, j))),
        )

    @cached_property
    def _first_node(self) -> nx.DiGraph:
        graph = nx.DiGraph()
        self._node.build(graph, 0, self.gpus, self.nics)
        return graph

    @cached_property
    def _paths(self) -> dict[tuple[Vertex, Vertex], tuple[Edge, ...]]:
        return {}

    def _inside(self, source: Vertex, target: Vertex) -> tuple[Edge, ...]:
        """Shortest path inside node 0: fewest hops, then the widest, never through another GPU or NIC."""
        if (source, target) not in self._paths:
            graph = self._first_node
            inner = nx.subgraph_view(
                graph,
                filter_node=lambda v: v in (source, target) or v[0] not in ("gpu", "nic"),
            )
            try:
                path = nx.shortest_path(inner, source, target, weight=_weight)
            except nx.NetworkXNoPath:
                raise Refused(f"{source} cannot reach {target}", ("cluster", "machine")) from None
            self._paths[source, target] = tuple(zip(path, path[1:], strict=False))
        return self._paths[source, target]


def _weight(_u: Vertex, _v: Vertex, data: dict[str, Link]) -> float:
    """One per hop, plus a term far below one that prefers the wider of equally short paths."""
    return 1.0 + 1e3 / data["link"].bandwidth


def _moved(edge: Edge, node: int) -> Edge:
    (a, b) = edge
    return (a[0], node, *a[2:]), (b[0], node, *b[2:])


def _require_connected(graph: nx.DiGraph) -> None:
    gpus = [v for v, data in graph.nodes(data=True) if data["kind"] == "gpu"]
    reached = nx.descendants(graph, gpus[0]) | {gpus[0]}
    reaching = nx.ancestors(graph, gpus[0]) | {gpus[0]}
    for gpu in gpus:
        if gpu not in reached or gpu not in reaching:
            raise Refused(f"{gpus[0]} and {gpu} are not connected both ways", ("cluster", "machine"))
