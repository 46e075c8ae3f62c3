"""Tally: adds up what messages put on links, many messages at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsim.core.arrays import Array, IntArray
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Edge
from dpsim.machines.loads import LEAF, Column, Layout, LinkClass, Loads
from dpsim.machines.topology import Topology, Way

BoolArray = npt.NDArray[np.bool_]
#: for the edges of a way: what each counts as, and whether it does so whoever else crosses it
Names = Callable[[tuple[Edge, ...]], Sequence[tuple[str, bool]]]
#: a link's key is (message, place on its way, kind): the least is that of its first use
_PLACES, _KINDS = 1 << 8, 1 << 6
_NEVER = np.iinfo(np.int64).max
#: links between switches
_TRUNK: Edge = (LEAF, LEAF)


class Lane(NamedTuple):
    """Messages of one way, each from one of the nodes `sources` to one of `targets`."""

    way: Way
    sources: IntArray
    targets: IntArray


class Stretch(NamedTuple):
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


class _Links:
    """Links at one place of the nodes: what they carry, their keys, what they must count as."""

    def __init__(self, size: int) -> None:
        self.loads = np.zeros(size)
        self.keys = np.full(size, _NEVER)
        self.forced: IntArray | None = None

    def add(self, at: IntArray, bytes_: float | Array, keys: IntArray) -> None:
        np.add.at(self.loads, at, bytes_)
        np.minimum.at(self.keys, at, keys)

    def force(self, at: IntArray, kind: int) -> None:
        if self.forced is None:
            self.forced = np.full(len(self.keys), -1)
        self.forced[at] = kind

    def kinds(self) -> IntArray:
        """What each counts as."""
        found = self.keys % _KINDS
        return found if self.forced is None else np.where(self.forced < 0, found, self.forced)


class Tally:
    """What messages between `nodes` (ascending) put on links; `names` says what links count as."""

    def __init__(self, topology: Topology, nodes: IntArray, names: Names | None = None) -> None:
        self.topology, self.nodes = topology, nodes
        self._names = names
        steps = np.unique(np.diff(nodes)).tolist() or [1]
        self._step = steps[0] if len(steps) == 1 else 0  # between nodes that are evenly spaced
        self._kinds = [""]
        self._ways: dict[Way, tuple[Stretch, ...]] = {}
        self._columns: dict[tuple[Edge, bool], _Links] = {}
        self._parts: list[tuple[IntArray, Array, IntArray]] = []  # of links between switches
        self._between: tuple[IntArray, _Links] | None = None

    def add(
        self, lane: Lane, bytes_: float | Array, order: IntArray, *, inside: bool = False
    ) -> None:
        """Every message of `lane` brings so many bytes, as number `order` of all; `inside`: only
        what it loads inside of nodes is counted."""
        for place, (stretch, at) in enumerate(self._crossed(lane)):
            if inside and not stretch.inside:
                continue
            keys = (order * _PLACES + place) * _KINDS + stretch.kind
            if stretch.edge == _TRUNK:
                there = at >= 0
                if there.any():
                    size = np.broadcast_to(bytes_, there.shape)[there]
                    self._parts.append((at[there], size, keys[there]))
                continue
            links = self._links(stretch)
            links.add(at, bytes_, keys)
            if stretch.forced:
                links.force(at, stretch.kind)

    def crossed(self, lane: Lane) -> Iterator[tuple[Stretch, Array, float | Array]]:
        """For every link of the way of a lane that was added: what the one that each message
        crosses carries (nan where it crosses none), and its bandwidth."""
        for stretch, at in self._crossed(lane):
            if stretch.edge == _TRUNK:
                yield stretch, self._trunk_loads(at), stretch.link.bandwidth
                continue
            nodes = lane.targets if stretch.into else lane.sources
            loads = self._links(stretch).loads[at]
            yield stretch, loads, self._bandwidths(stretch.edge, nodes, stretch.link)

    def latencies(self, lane: Lane) -> Array:
        """Those of the ways of every message of a lane [s]: the sums over their links."""
        found = np.zeros(len(lane.sources))
        for stretch, at in self._crossed(lane):
            found += np.where(at >= 0, stretch.link.latency, 0.0)
        return found

    def most(self, edge: Edge, chosen: BoolArray) -> float:
        """The most that `edge` of node 0 carries in one of the nodes that are `chosen`."""
        links = self._columns.get((edge, False))
        return 0.0 if links is None else float(links.loads[chosen].max())

    def loads(self) -> Loads:
        """What all messages together put on every link, by class."""
        columns: list[Column] = []
        classes: list[LinkClass] = []
        carried: list[float] = []
        for (edge, single), links in self._columns.items():
            used = links.keys < _NEVER
            if not used.any():
                continue
            numbers = np.zeros(1, dtype=np.int64) if single else self.nodes
            bandwidths = self._bandwidths(edge, numbers, self.topology.link(edge))
            found = self._sorted(links, bandwidths, len(columns), len(classes))
            columns.append(Column(edge, numbers[used], found[0], single))
            classes += found[1]
            carried += found[2]
        if self._parts:
            numbers, links = self._trunks
            bandwidth = self.topology.link(_TRUNK).bandwidth
            found = self._sorted(links, bandwidth, len(columns), len(classes))
            columns.append(Column(None, numbers, found[0]))
            classes += found[1]
            carried += found[2]
        return Loads(Layout(self.topology, tuple(columns), tuple(classes)), np.array(carried))

    def _sorted(
        self, links: _Links, bandwidths: float | Array, column: int, before: int
    ) -> tuple[IntArray | int, list[LinkClass], list[float]]:
        """The classes of the links at one place: that of each, all of them, what each carries."""
        used = links.keys < _NEVER
        loads, keys, kinds = links.loads[used], links.keys[used], links.kinds()[used]
        each = np.broadcast_to(bandwidths, used.shape)[used]
        which = np.zeros(len(loads), dtype=np.int64)
        for values in (loads, kinds, each):
            if values.min() != values.max():
                _, code = np.unique(values, return_inverse=True)
                _, which = np.unique(which * len(values) + code, return_inverse=True)
        if not which.any():
            place = np.array([keys.argmin()])
            counts = [len(keys)]
        else:
            counts = np.bincount(which).tolist()
            least = np.full(len(counts), _NEVER)
            np.minimum.at(least, which, keys)
            first = np.flatnonzero(keys == least[which])[::-1]
            place = np.zeros(len(counts), dtype=np.int64)
            place[which[first]] = first
        classes = [
            LinkClass(n, float(each[at]), self._kinds[kinds[at]], int(keys[at]), column, int(at))
            for n, at in zip(counts, place, strict=True)
        ]
        several = which + before if len(counts) > 1 else before
        return several, classes, loads[place].tolist()

    @property
    def _trunks(self) -> tuple[IntArray, _Links]:
        """The links between switches that are used, by number; nothing is added any more."""
        if self._between is None:
            every, bytes_, keys = (
                np.concatenate(found) for found in zip(*self._parts, strict=True)
            )
            numbers, at = np.unique(every, return_inverse=True)
            links = _Links(len(numbers))
            links.add(at, bytes_, keys)
            self._between = numbers, links
        return self._between

    def _trunk_loads(self, at: IntArray) -> Array:
        found = np.full(len(at), np.nan)
        there = at >= 0
        if there.any():
            numbers, links = self._trunks
            found[there] = links.loads[np.searchsorted(numbers, at[there])]
        return found

    def _links(self, stretch: Stretch) -> _Links:
        key = (stretch.edge, stretch.single)
        if key not in self._columns:
            self._columns[key] = _Links(1 if stretch.single else len(self.nodes))
        return self._columns[key]

    def _bandwidths(self, edge: Edge, nodes: IntArray, link: Link) -> float | Array:
        cables = self.topology.cables
        if LEAF not in edge or cables is None:
            return link.bandwidth
        return cables.port_bandwidths(nodes)

    def _crossed(self, lane: Lane) -> Iterator[tuple[Stretch, IntArray]]:
        """Every link of the way, and where in its column is that of each message."""
        sources, targets = self._places(lane.sources), self._places(lane.targets)
        trunks: Iterator[IntArray] = iter(())
        cables, (nic, into) = self.topology.cables, lane.way.nics or (None, None)
        if nic is not None and into is not None and cables is not None:
            trunks = iter(cables.trunks(lane.sources, nic, lane.targets, into))
        for stretch in self._stretches(lane.way):
            if stretch.single:
                yield stretch, np.zeros(len(sources), dtype=np.int64)
            elif stretch.edge == _TRUNK:
                yield stretch, next(trunks)
            else:
                yield stretch, targets if stretch.into else sources

    def _places(self, nodes: IntArray) -> IntArray:
        if not self._step:
            return np.searchsorted(self.nodes, nodes)
        after: IntArray = nodes - self.nodes[0]
        return after if self._step == 1 else after // self._step

    def _stretches(self, way: Way) -> tuple[Stretch, ...]:
        if way not in self._ways:
            edges = path_of(way, self.topology)
            names = self._names(edges) if self._names else [("", False)] * len(edges)
            self._ways[way] = tuple(
                Stretch(
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
