"""Tally: adds up what messages put on links, many messages at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpsim.core.arrays import Array, IntArray
from dpsim.machines._sums import KINDS, NEVER, PLACES, BoolArray, Sums, sorted_out
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Edge
from dpsim.machines.loads import LEAF, LinkClass, LinkColumn, LinkLayout, Loads
from dpsim.machines.topology import Topology, Way

#: for the edges of a way: what each counts as, and whether it does so whoever else crosses it
Names = Callable[[tuple[Edge, ...]], Sequence[tuple[str, bool]]]
#: links that are sorted at once, of short rows
_MANY = 1 << 12
#: links between switches
_TRUNK: Edge = (LEAF, LEAF)


class Convoy(NamedTuple):
    """Messages of one way, each from one of the nodes `sources` to one of `targets`."""

    way: Way
    sources: IntArray
    targets: IntArray


class WayLink(NamedTuple):
    """A link of a way: of the node it leaves or (`into`) that it enters, or a `single` one."""

    edge: Edge
    into: bool
    single: bool
    link: Link
    kind: int
    forced: bool

    @property
    def inside(self) -> bool:
        """Whether it is inside a node."""
        return not self.single and LEAF not in self.edge


class Classes:
    """Links by class, as they are found."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = kinds
        self.columns: list[LinkColumn] = []
        self.classes: list[LinkClass] = []
        self.carried: list[float] = []

    def take(
        self,
        sums: Sums,
        numbers: IntArray,
        bandwidths: Mapping[Edge | None, float | Array],
        *,
        single: bool = False,
    ) -> None:
        """The rows of `sums`, whose links have `numbers`; `bandwidths` by row."""
        even = sums.even() if sums.rows else np.zeros(0, dtype=np.bool_)
        odd: list[tuple[Edge | None, int]] = []
        for edge, row in sums.rows.items():
            bandwidth = bandwidths[edge]
            if not even[row] or isinstance(bandwidth, np.ndarray):
                odd.append((edge, row))
                continue
            keys = sums.keys(row)
            at = int(keys.argmin())
            key = int(keys[at])
            self.classes.append(
                LinkClass(len(keys), bandwidth, self._kinds[key % KINDS], key,
                          len(self.columns), at)
            )  # fmt: skip
            self.carried.append(float(sums.loads(row)[at]))
            self.columns.append(LinkColumn(edge, numbers, len(self.classes) - 1, single))
        many = max(_MANY // sums.width, 1)
        for first in range(0, len(odd), many):
            self._take_odd(sums, odd[first : first + many], numbers, bandwidths, single)

    def _take_odd(
        self,
        sums: Sums,
        some: Sequence[tuple[Edge | None, int]],
        numbers: IntArray,
        bandwidths: Mapping[Edge | None, float | Array],
        single: bool,
    ) -> None:
        """Rows whose links are of several classes."""
        used = [sums.keys(row) < NEVER for _, row in some]
        rows = np.repeat(np.arange(len(some)), [int(here.sum()) for here in used])
        if not len(rows):
            return

        def chosen(values: Any) -> Any:
            return np.concatenate([v[here] for v, here in zip(values, used, strict=True)])

        found = sorted_out(
            rows,
            chosen(sums.loads(row) for _, row in some),
            chosen(sums.keys(row) for _, row in some),
            chosen(sums.kinds(row) for _, row in some),
            chosen(np.broadcast_to(_several(bandwidths[edge]), here.shape)
                   for (edge, _), here in zip(some, used, strict=True)),
        )  # fmt: skip
        before, column = len(self.classes), len(self.columns)
        ends = np.searchsorted(rows, np.arange(1, len(some)))
        parts = np.split(found.classes + before, ends)
        for (edge, _), here, classes in zip(some, used, parts, strict=True):
            self.columns.append(LinkColumn(edge, numbers[here], classes, single))
        for count, row, place, key, kind, load, own in zip(*found[1:], strict=True):
            whole = bandwidths[some[row][0]]
            bandwidth = own if isinstance(whole, np.ndarray) else whole
            self.classes.append(
                LinkClass(count, bandwidth, self._kinds[kind], key, column + row, place)
            )
            self.carried.append(load)


def _several(bandwidths: float | Array) -> float | Array:
    """What tells the links of a row apart: nothing where one number is that of all."""
    return bandwidths if isinstance(bandwidths, np.ndarray) else 0.0


class Tally:
    """What messages between `nodes` (ascending) put on links; `names` says what links count as."""

    def __init__(self, topology: Topology, nodes: IntArray, names: Names | None = None) -> None:
        self.topology, self.nodes = topology, nodes
        self._names = names
        steps = np.unique(np.diff(nodes)).tolist() or [1]
        self._step = steps[0] if len(steps) == 1 else 0  # between nodes that are evenly spaced
        self._kinds = [""]
        self._ways: dict[Way, tuple[WayLink, ...]] = {}
        self._placed, self._single = Sums(len(nodes)), Sums(1)
        self._parts: list[tuple[IntArray, Array, IntArray]] = []  # of links between switches
        self._between: tuple[IntArray, Sums] | None = None

    def add(
        self, convoy: Convoy, bytes_: float | Array, order: IntArray, *, inside: bool = False
    ) -> None:
        """Every message of `convoy` brings so many bytes, as number `order` of all; `inside`: only
        what it loads inside of nodes is counted."""
        base = order * (PLACES * KINDS)
        for place, (hop, at) in enumerate(self._crossed(convoy)):
            if inside and not hop.inside:
                continue
            keys = base + (place * KINDS + hop.kind)
            if hop.edge == _TRUNK:
                there = at >= 0
                if there.any():
                    size = np.broadcast_to(bytes_, there.shape)[there]
                    self._parts.append((at[there], size, keys[there]))
                continue
            sums = self._single if hop.single else self._placed
            row = sums.row(hop.edge)
            sums.add(row, at, bytes_, keys)
            if hop.forced:
                sums.force(row, at, hop.kind)

    def crossed(self, convoy: Convoy) -> Iterator[tuple[WayLink, Array, float | Array]]:
        """For every link of the way of a convoy that was added: what the one that each message
        crosses carries (nan where it crosses none), and its bandwidth."""
        for hop, at in self._crossed(convoy):
            if hop.edge == _TRUNK:
                yield hop, self._trunk_loads(at), hop.link.bandwidth
                continue
            sums = self._single if hop.single else self._placed
            nodes = convoy.targets if hop.into else convoy.sources
            yield hop, sums.loads(sums.row(hop.edge))[at], self._bandwidths(hop.edge, nodes)

    def latencies(self, convoy: Convoy) -> Array:
        """Those of the ways of every message of a convoy [s]: the sums over their links."""
        found = np.zeros(len(convoy.sources))
        for hop, at in self._crossed(convoy):
            found += np.where(at >= 0, hop.link.latency, 0.0)
        return found

    def most(self, edge: Edge, chosen: BoolArray) -> float:
        """The most that `edge` of node 0 carries in one of the nodes that are `chosen`."""
        if edge not in self._placed.rows:
            return 0.0
        return float(self._placed.loads(self._placed.rows[edge])[chosen].max())

    def loads(self) -> Loads:
        """What all messages together put on every link, by class."""
        found = Classes(self._kinds)
        bandwidths = {edge: self._bandwidths(edge, self.nodes) for edge in self._placed.rows}
        found.take(self._placed, self.nodes, bandwidths)
        nowhere = np.zeros(1, dtype=np.int64)
        singles = {edge: self._bandwidths(edge, nowhere) for edge in self._single.rows}
        found.take(self._single, nowhere, singles, single=True)
        if self._parts:
            numbers, links = self._trunks
            found.take(links, numbers, {None: self._bandwidths(None, numbers)})
        layout = LinkLayout(self.topology, tuple(found.columns), tuple(found.classes))
        return Loads(layout, np.array(found.carried))

    @property
    def _trunks(self) -> tuple[IntArray, Sums]:
        """The links between switches that are used, by number; nothing is added any more."""
        if self._between is None:
            every, bytes_, keys = (
                np.concatenate(found) for found in zip(*self._parts, strict=True)
            )
            numbers, at = np.unique(every, return_inverse=True)
            links = Sums(len(numbers))
            links.add(links.row(None), at, bytes_, keys)
            self._between = numbers, links
        return self._between

    def _trunk_loads(self, at: IntArray) -> Array:
        found = np.full(len(at), np.nan)
        there = at >= 0
        if there.any():
            numbers, links = self._trunks
            found[there] = links.loads(0)[np.searchsorted(numbers, at[there])]
        return found

    def _bandwidths(self, edge: Edge | None, nodes: IntArray) -> float | Array:
        cables = self.topology.cables
        if edge is None:
            return self.topology.link(_TRUNK).bandwidth
        if LEAF not in edge or cables is None:
            return self.topology.link(edge).bandwidth
        return cables.port_bandwidths(nodes)

    def _crossed(self, convoy: Convoy) -> Iterator[tuple[WayLink, IntArray]]:
        """Every link of the way, and where in its column is that of each message."""
        sources, targets = self._places(convoy.sources), self._places(convoy.targets)
        trunks: Iterator[IntArray] = iter(())
        cables, (nic, into) = self.topology.cables, convoy.way.nics or (None, None)
        if nic is not None and into is not None and cables is not None:
            trunks = iter(cables.trunks(convoy.sources, nic, convoy.targets, into))
        for hop in self._links(convoy.way):
            if hop.single:
                yield hop, np.zeros(len(sources), dtype=np.int64)
            elif hop.edge == _TRUNK:
                yield hop, next(trunks)
            else:
                yield hop, targets if hop.into else sources

    def _places(self, nodes: IntArray) -> IntArray:
        if not self._step:
            return np.searchsorted(self.nodes, nodes)
        after: IntArray = nodes - self.nodes[0]
        return after if self._step == 1 else after // self._step

    def _links(self, way: Way) -> tuple[WayLink, ...]:
        if way not in self._ways:
            edges = path_of(way, self.topology)
            names = self._names(edges) if self._names else [("", False)] * len(edges)
            self._ways[way] = tuple(
                WayLink(
                    edge,
                    into=k >= len(edges) - len(way.into) or edge[0] == LEAF != edge[1],
                    single=edge in way.cables,
                    link=self.topology.link(edge),
                    kind=self._kind(kind),
                    forced=forced,
                )
                for k, (edge, (kind, forced)) in enumerate(zip(edges, names, strict=True))
            )
        return self._ways[way]

    def _kind(self, name: str) -> int:
        if name not in self._kinds:
            self._kinds.append(name)
        return self._kinds.index(name)


def path_of(way: Way, topology: Topology) -> tuple[Edge, ...]:
    """The links of `way` as they are in node 0, leaves without their numbers."""
    if way.nics is None or way.cables:
        return *way.out, *way.cables, *way.into
    first, last = way.nics
    up: tuple[Edge, ...] = () if first is None else ((("nic", 0, first), LEAF),)
    down: tuple[Edge, ...] = () if last is None else ((LEAF, ("nic", 0, last)),)
    assert topology.cables is not None
    trunks = (_TRUNK,) * topology.cables.levels if up and down else ()
    return *way.out, *up, *trunks, *down, *way.into
