"""Wiring: what a fabric builds where only dpsim looks, without NetworkX and its 300 modules.

It takes what builders give a ``networkx.DiGraph`` (`add_node`, `add_edge`, `has_edge`, `edges`,
`nodes`), and the ways found in it are those that NetworkX finds, equal ones included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any

from dpsim.core.deferred import nx
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Edge, Vertex

Inner = Callable[[Vertex], bool]


class Wiring:
    """Vertices and directed wires between them.

    nodes   attributes of every vertex, in the order of their coming
    edges   attributes of every wire, `link` among them
    """

    def __init__(self) -> None:
        self.nodes: dict[Vertex, dict[str, Any]] = {}
        self.edges: dict[Edge, dict[str, Any]] = {}
        self._after: dict[Vertex, dict[Vertex, None]] = {}
        self._before: dict[Vertex, dict[Vertex, None]] = {}

    @classmethod
    def of(cls, graph: nx.DiGraph[Vertex]) -> Wiring:
        """What is in `graph`."""
        made = cls()
        for vertex, attributes in graph.nodes(data=True):
            made.add_node(vertex, **attributes)
        for a, b, attributes in graph.edges(data=True):
            made.add_edge(a, b, **attributes)
        return made

    def add_node(self, vertex: Vertex, **attributes: Any) -> None:
        """Add `vertex`, or attributes to it."""
        if vertex not in self.nodes:
            self.nodes[vertex], self._after[vertex], self._before[vertex] = {}, {}, {}
        self.nodes[vertex].update(attributes)

    def add_edge(self, a: Vertex, b: Vertex, **attributes: Any) -> None:
        """Add the wire from `a` to `b`, or attributes to it."""
        self.add_node(a)
        self.add_node(b)
        self.edges.setdefault((a, b), {}).update(attributes)
        self._after[a][b] = self._before[b][a] = None

    def has_edge(self, a: Vertex, b: Vertex) -> bool:
        """Whether a wire leads from `a` to `b`."""
        return (a, b) in self.edges

    def __contains__(self, vertex: object) -> bool:
        return vertex in self.nodes

    def __iter__(self) -> Iterator[Vertex]:
        return iter(self.nodes)

    def successors(self, vertex: Vertex) -> Iterator[Vertex]:
        """Where wires from `vertex` lead."""
        return iter(self._after[vertex])

    def link(self, edge: Edge) -> Link:
        """What the wire `edge` is."""
        found: Link = self.edges[edge]["link"]
        return found

    def reached(self, source: Vertex, *, back: bool = False) -> dict[Vertex, int]:
        """How many wires away from `source` every vertex is that can be reached from it, or with
        `back` reaches it; `source` itself is 0 away."""
        beside = self._before if back else self._after
        found = {source: 0}
        for vertex in (order := [source]):
            for other in beside[vertex]:
                if other not in found:
                    found[other] = found[vertex] + 1
                    order.append(other)
        return found

    def shortest(
        self, source: Vertex, target: Vertex, inner: Inner, weight: Callable[[Link], float]
    ) -> list[Vertex] | None:
        """The way from `source` to `target`, over other vertices that `inner` allows, of which the
        `weight` of links adds up to least; None where there is none.

        Dijkstra's search from both ends in turn, as networkx.bidirectional_dijkstra carries it
        out (networkx 3.6, BSD): of equal ways both find the same.
        """
        if source == target:
            return [source]
        search = _Search(self, (source, target), inner, weight)
        while all(search.fringe):
            search.turn = 1 - search.turn
            if search.step(beside=(self._after, self._before)[search.turn]):
                return search.way()
        return None


class _Search:
    """Dijkstra's search from both `ends` in turn; index 0 is from the source, 1 from the target."""

    def __init__(
        self, wires: Wiring, ends: Edge, inner: Inner, weight: Callable[[Link], float]
    ) -> None:
        self.wires, self.ends, self.inner, self.weight = wires, ends, inner, weight
        self.number, self.turn = count(), 1
        self.fringe = [[(0.0, next(self.number), end)] for end in ends]
        self.seen: list[dict[Vertex, float]] = [{end: 0.0} for end in ends]
        self.done: list[set[Vertex]] = [set(), set()]
        self.came: list[dict[Vertex, Vertex]] = [{}, {}]
        self.best, self.meeting = float("inf"), ends[0]

    def step(self, beside: dict[Vertex, dict[Vertex, None]]) -> bool:
        """Look around the nearest vertex that is left; whether the search is at its end."""
        turn = self.turn
        so_far, _, vertex = heappop(self.fringe[turn])
        if vertex in self.done[turn]:
            return False
        self.done[turn].add(vertex)
        if vertex in self.done[1 - turn]:
            return True
        for other in beside[vertex]:
            if other in self.ends or self.inner(other):
                edge = (vertex, other) if turn == 0 else (other, vertex)
                self._relax(vertex, other, so_far + self.weight(self.wires.link(edge)))
        return False

    def _relax(self, vertex: Vertex, other: Vertex, far: float) -> None:
        turn = self.turn
        if other in self.done[turn] or far >= self.seen[turn].get(other, float("inf")):
            return
        self.seen[turn][other] = far
        heappush(self.fringe[turn], (far, next(self.number), other))
        self.came[turn][other] = vertex
        whole = far + self.seen[1 - turn].get(other, float("inf"))
        if whole < self.best:
            self.best, self.meeting = whole, other

    def way(self) -> list[Vertex]:
        """The best way found, both ends included."""
        halves: list[list[Vertex]] = []
        for came in self.came:
            half, vertex = [self.meeting], self.meeting
            while vertex in came:
                vertex = came[vertex]
                half.append(vertex)
            halves.append(half)
        return halves[0][::-1] + halves[1][1:]
