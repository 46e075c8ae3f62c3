"""Loads: what links carry, by class.

Links of one class are at the same place in their nodes (or all between switches), are equally fast
and carry the same.  A machine of many equal nodes has few classes, however many links it has;
single links are named only where somebody goes through them.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
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


class LinkColumn(NamedTuple):
    """The links at one place of several nodes: `edge` of node 0, or between switches where it is
    None.  `single`: it is that edge and no other.

    numbers  of the nodes, or of the links between switches; ascending
    classes  the class of each; one number where all have it
    """

    edge: Edge | None
    numbers: IntArray
    classes: IntArray | int
    single: bool = False


class LinkLayout:
    """Which links are of which class, and where: `columns`, or what makes them when they are first
    asked for."""

    def __init__(
        self,
        topology: Topology,
        columns: tuple[LinkColumn, ...] | Callable[[], tuple[LinkColumn, ...]],
        classes: tuple[LinkClass, ...],
    ) -> None:
        self.topology, self.classes = topology, classes
        self._columns = columns

    @cached_property
    def columns(self) -> tuple[LinkColumn, ...]:
        """All links, by place."""
        return self._columns() if callable(self._columns) else self._columns

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

    def _named(self, column: LinkColumn, number: int) -> Edge:
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

    @cached_property
    def _places(self) -> dict[tuple[Edge | None, bool], IntArray]:
        """The numbers of the links at each place."""
        return {(column.edge, column.single): column.numbers for column in self.columns}

    def meets(self, other: LinkLayout) -> bool:
        """Whether they have a link in common."""
        mine, theirs = self._places, other._places
        return any(_overlap(mine[place], theirs[place]) for place in mine if place in theirs)


def _overlap(one: IntArray, other: IntArray) -> bool:
    """Whether different numbers have one in common; most are far from each other."""
    if one.min() > other.max() or other.min() > one.max():
        return False
    return len(np.intersect1d(one, other, assume_unique=True)) > 0


class Loads(Mapping[Edge, float]):
    """What each link carries; `carried` is that of a link of each class of `layout`."""

    def __init__(self, layout: LinkLayout, carried: Array) -> None:
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

    def __bool__(self) -> bool:
        return bool(self.classes)  # none is empty

    def items(self) -> ItemsView[Edge, float]:
        return self._links.items()

    def values(self) -> ValuesView[float]:
        return self._links.values()
