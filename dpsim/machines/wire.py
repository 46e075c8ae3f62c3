"""How every fabric puts vertices and wires into a graph."""

from __future__ import annotations

import dataclasses

from dpsim.core.deferred import nx
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Vertex


def add(graph: nx.DiGraph[Vertex], vertex: Vertex) -> None:
    """Add `vertex` with its attribute `kind`, the first part of its name."""
    graph.add_node(vertex, kind=vertex[0])


def wire(graph: nx.DiGraph[Vertex], a: Vertex, b: Vertex, link: Link) -> None:
    """Join `a` and `b` by a full-duplex wire: `link` in each direction.

    A second wire between the same two vertices adds its bandwidth to the edge.
    """
    add(graph, a)
    add(graph, b)
    for edge in ((a, b), (b, a)):
        total = link
        if graph.has_edge(*edge):
            old: Link = graph.edges[edge]["link"]
            total = dataclasses.replace(link, bandwidth=old.bandwidth + link.bandwidth)
        graph.add_edge(*edge, link=total)
