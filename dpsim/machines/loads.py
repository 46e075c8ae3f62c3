"""Loads: what links carry, by class.

Links of one class are at the same place in their nodes (or all between switches), are equally fast
and carry the same.  A machine of many equal nodes has few classes, however many links it has;
single links are named only where somebody goes through them.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dpsim.core.arrays import Array, IntArray
from dpsim.machines.fabrics import Edge, Vertex
from dpsim.machines.topology import Topology, moved

#: stands for the leaf of a NIC in the edges of node 0
LEAF: Vertex = ("leaf",)


class LinkClass(NamedTuple):
    """`links` links that are alike.

    bandwidth  one way [B/s]
    kind       what they count as; "" where nobody asked
    first      the place of the first of them in the order in which links were first used
    column, place  where that one is in the layout
    """

    links: int
    bandwidth: float
    kind: str
    first: int
    column: int
    place: int


@dataclass(frozen=True, eq=False)
class Column:
    """The links at one place of several nodes: `edge` of node 0, or between switches where it is
    None.  `single`: it is that edge and no other.

    numbers  of the nodes, or of the links between switches; ascending
    classes  the class of each; one number where all have it
    """

    edge: Edge | None
    numbers: IntArray
    classes: IntArray | int
    single: bool = False


@dataclass(frozen=True, eq=False)
class Layout:
    """Which links are of which class, and where."""

    topology: Topology
    columns: tuple[Column, ...]
    classes: tuple[LinkClass, ...]

    def links(self) -> Iterator[tuple[Edge, int]]:
        """Every link, with its class."""
        for column in self.columns:
            for place, number in enumerate(column.numbers.tolist()):
                several = column.classes
                which = several if isinstance(several, int) else int(several[place])
                yield self._named(column, number), which

    def edge(self, which: LinkClass) -> Edge:
        """The first of the links of a class."""
        column = self.columns[which.column]
        return self._named(column, int(column.numbers[which.place]))

    def _named(self, column: Column, number: int) -> Edge:
        cables, edge = self.topology.cables, column.edge
        if edge is None:
            assert cables is not None
            return cables.trunk_edge(number)
        if column.single:
            return edge
        a, b = moved(edge, number)
        if LEAF not in edge:
            return a, b
        assert cables is not None
        return (a, cables.leaf_of(a)) if edge[1] == LEAF else (cables.leaf_of(b), b)

    def meets(self, other: Layout) -> bool:
        """Whether they have a link in common."""
        theirs = {(column.edge, column.single): column.numbers for column in other.columns}
        for column in self.columns:
            there = theirs.get((column.edge, column.single))
            if there is not None and len(np.intersect1d(column.numbers, there)):
                return True
        return False


class Loads(Mapping[Edge, float]):
    """What each link carries; `carried` is that of a link of each class of `layout`."""

    def __init__(self, layout: Layout, carried: Array) -> None:
        self.layout, self.carried = layout, carried

    @property
    def classes(self) -> tuple[LinkClass, ...]:
        """Classes of links, as many as `carried` has numbers."""
        return self.layout.classes

    @cached_property
    def most(self) -> float:
        """What the most loaded link carries."""
        return float(self.carried.max()) if len(self.carried) else 0.0

    @cached_property
    def seconds(self) -> Array:
        """For each class what a link carries over its bandwidth: seconds, if that is bytes."""
        found: Array = self.carried / np.array([which.bandwidth for which in self.classes])
        return found

    @property
    def slowest(self) -> tuple[float, Edge]:
        """The most `seconds`, and the first link that takes them."""
        order = [(-time, c.first, k) for k, (time, c) in enumerate(zip(
            self.seconds.tolist(), self.classes, strict=True))]  # fmt: skip
        time, _, k = min(order)
        return -time, self.layout.edge(self.classes[k])

    def edges(self) -> tuple[Edge, ...]:
        """The first link of each class."""
        return tuple(self.layout.edge(which) for which in self.classes)

    def of(self, carried: Array) -> Loads:
        """The same links with other loads, by class."""
        return Loads(self.layout, carried)

    @cached_property
    def _links(self) -> dict[Edge, float]:
        carried = self.carried.tolist()
        return {edge: carried[which] for edge, which in self.layout.links()}

    def __getitem__(self, edge: Edge) -> float:
        return self._links[edge]

    def __iter__(self) -> Iterator[Edge]:
        return iter(self._links)

    def __len__(self) -> int:
        return sum(which.links for which in self.classes)

    def items(self) -> ItemsView[Edge, float]:
        return self._links.items()

    def values(self) -> ValuesView[float]:
        return self._links.values()


@dataclass(frozen=True, eq=False)
class Move:
    """From the nodes `here` to as many nodes `there`, both ascending, with equal surroundings."""

    topology: Topology
    here: IntArray
    there: IntArray

    def loads(self, loads: Loads) -> Loads:
        """The same on the links of the other nodes."""
        columns = tuple(self._column(column) for column in loads.layout.columns)
        return Loads(replace(loads.layout, columns=columns), loads.carried)

    def _column(self, column: Column) -> Column:
        if column.edge is not None:
            return replace(column, numbers=self._nodes(column.numbers))
        cables = self.topology.cables
        assert cables is not None
        numbers = cables.moved(column.numbers, self.here, self.there)
        return replace(column, numbers=numbers)

    def _nodes(self, numbers: IntArray) -> IntArray:
        found: IntArray = self.there[np.searchsorted(self.here, numbers)]
        return found

    def node(self, node: int) -> int:
        """Where one of the nodes goes to."""
        return int(self.there[np.searchsorted(self.here, node)])

    def rank(self, rank: int) -> int:
        """Where a rank goes to."""
        node, gpu = divmod(rank, self.topology.gpus)
        return self.node(node) * self.topology.gpus + gpu

    def edge(self, edge: Edge) -> Edge:
        """Where a link goes to."""
        a, b = edge
        outside = [end for end in edge if end[0] in ("leaf", "spine")]
        if not outside:
            return moved(edge, self.node(a[1]))
        cables = self.topology.cables
        assert cables is not None
        if len(outside) == 2:
            number = np.array([cables.trunk_number(edge)])
            return cables.trunk_edge(int(cables.moved(number, self.here, self.there)[0]))
        if a[0] == "nic":
            there = ("nic", self.node(a[1]), a[2])
            return there, cables.leaf_of(there)
        there = ("nic", self.node(b[1]), b[2])
        return cables.leaf_of(there), there
