"""Transfers, one by one or many alike at once, and the ways that they take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from dpsim.core.arrays import Array, IntArray
from dpsim.machines.tally import Convoy
from dpsim.machines.topology import Topology, Way


class Transfer(NamedTuple):
    """One message of one round: ranks and bytes.

    An end may be `switch(node)`, the NVSwitch complex of that node, or `aggregator(tree)`, the
    switches between the nodes: they reduce what comes in and send one copy to each rank.  Then it
    is no message between two ranks.
    """

    source: int
    target: int
    bytes: float


class Transfers(NamedTuple):
    """Many transfers: their ends, the bytes of each, and which place each has in the order of all
    transfers of a round (whatever numbers say so)."""

    sources: IntArray
    targets: IntArray
    bytes: float | Array
    order: IntArray

    def some(self, chosen: npt.NDArray[np.bool_] | IntArray) -> Transfers:
        """Those of its transfers that are `chosen`."""
        bytes_ = self.bytes[chosen] if isinstance(self.bytes, np.ndarray) else self.bytes
        return Transfers(self.sources[chosen], self.targets[chosen], bytes_, self.order[chosen])


class TransferList(Sequence[Transfer]):
    """Transfers as arrays, which a function may make whenever they are asked for.  Who goes through
    them one by one gets them in their order."""

    def __init__(self, parts: Iterable[Transfers] | Callable[[], Iterable[Transfers]]) -> None:
        self._parts = parts if callable(parts) else tuple(parts)

    @property
    def parts(self) -> Iterable[Transfers]:
        """The transfers, many at once."""
        return self._parts() if callable(self._parts) else self._parts

    @classmethod
    def of(cls, transfers: Iterable[Transfer]) -> TransferList:
        """`transfers`, in their order."""
        if isinstance(transfers, TransferList):
            return transfers
        found = tuple(transfers)
        ends = np.array([(a, b) for a, b, _ in found], dtype=np.int64).reshape(-1, 2)
        sizes = np.array([float(size) for *_, size in found])
        return cls((Transfers(ends[:, 0], ends[:, 1], sizes, np.arange(len(found))),))

    @classmethod
    def between(cls, sources: IntArray, targets: IntArray, bytes_: float | Array) -> TransferList:
        """From each of `sources` to the one of `targets` at the same place."""
        return cls((Transfers(sources, targets, bytes_, np.arange(len(sources))),))

    def times(self, factor: float) -> TransferList:
        """`factor` times the bytes."""
        return TransferList(part._replace(bytes=part.bytes * factor) for part in self.parts)

    @property
    def bytes(self) -> float:
        """All bytes together."""
        return sum(
            float(np.broadcast_to(part.bytes, part.order.shape).sum()) for part in self.parts
        )

    def elsewhere(self, move: Callable[[IntArray], IntArray]) -> TransferList:
        """Between the ranks that `move` makes of these."""
        return TransferList(
            part._replace(sources=move(part.sources), targets=move(part.targets))
            for part in self.parts
        )

    @cached_property
    def _listed(self) -> tuple[Transfer, ...]:
        parts = tuple(self.parts)
        if not parts:
            return ()
        order = np.concatenate([part.order for part in parts])
        columns = (
            [part.sources for part in parts],
            [part.targets for part in parts],
            [np.broadcast_to(part.bytes, part.order.shape) for part in parts],
        )
        by = np.argsort(order, kind="stable")
        return tuple(map(Transfer, *(np.concatenate(found)[by].tolist() for found in columns)))

    def __len__(self) -> int:
        return sum(len(part.order) for part in self.parts)

    @overload
    def __getitem__(self, index: int) -> Transfer: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Transfer, ...]: ...
    def __getitem__(self, index: int | slice) -> Transfer | tuple[Transfer, ...]:
        return self._listed[index]

    def __iter__(self) -> Iterator[Transfer]:
        return iter(self._listed)


class Stage(NamedTuple):
    """`repeats` equal rounds.

    latency  of every transfer [s]; None: that of the links on its path
    """

    repeats: int
    transfers: Sequence[Transfer]
    latency: float | None = None


def switch(node: int) -> int:
    """How a transfer names the NVSwitch complex of `node`."""
    return -1 - node


#: numbers from here down name aggregation trees, those above and below 0 nodes' switches
_AGGREGATORS = -(1 << 40)
#: in place of a GPU's number: an NVSwitch complex, and the switches of the network
_SWITCH, _LEAF = -1, -2


def aggregator(tree: int) -> int:
    """How a transfer names the switches of the network that add up stream number `tree`."""
    return _AGGREGATORS - tree


def convoys_of(flow: Transfers, topology: Topology) -> Iterator[tuple[Convoy, Transfers]]:
    """The transfers of `flow` by the way that they take."""
    a, i = _located(flow.sources, topology.gpus)
    b, j = _located(flow.targets, topology.gpus)
    wide = topology.gpus + 2
    code = ((i + 2) * wide + j + 2) * 2 + ((a == b) | (i < 0) | (j < 0))
    if not len(code):
        return
    if code.min() == code.max():
        yield from _laned(int(code[0]), a, b, flow, topology)
        return
    for which in np.unique(code).tolist():
        at = np.flatnonzero(code == which)
        yield from _laned(which, a[at], b[at], flow.some(at), topology)


def _located(ends: IntArray, gpus: int) -> tuple[IntArray, IntArray]:
    """Nodes, and GPUs in them; what is no rank has a number below 0."""
    nodes = ends // gpus
    places = ends - nodes * gpus
    if ends.min(initial=0) < 0:
        below, beyond = ends < 0, ends <= _AGGREGATORS
        nodes = np.where(beyond, -1, np.where(below, -1 - ends, nodes))
        places = np.where(beyond, _LEAF, np.where(below, _SWITCH, places))
    return nodes, places


def _laned(
    code: int, a: IntArray, b: IntArray, flow: Transfers, topology: Topology
) -> Iterator[tuple[Convoy, Transfers]]:
    """`flow`, whose transfers all have the same places in nodes `a` and `b`."""
    ends, same = divmod(code, 2)
    i, j = divmod(ends, topology.gpus + 2)
    way = _way(i - 2, j - 2, bool(same), topology)
    if i - 2 == _LEAF:
        a = b
    elif j - 2 == _LEAF:
        b = a
    if way.nics is None or topology.cables is not None:
        yield Convoy(way, a, b), flow
        return
    for k in range(len(a)):
        one = Convoy(_cabled(way, int(a[k]), int(b[k]), topology), a[k : k + 1], b[k : k + 1])
        yield one, flow.some(np.array([k]))


def _way(i: int, j: int, same: bool, topology: Topology) -> Way:
    """From place `i` to place `j`."""
    if i >= 0 and j >= 0:
        return topology.once(("way", i, j, same), lambda: topology.way(i, j, same=same))
    gpu, other = max(i, j), min(i, j)
    if other == _SWITCH:
        edge = (("gpu", 0, gpu), ("nvswitch", 0, 0))
        return Way((edge,)) if i >= 0 else Way((), None, ((edge[1], edge[0]),))
    out, nics, *_ = topology.way(gpu, gpu, same=False)
    assert nics is not None
    if i >= 0:
        return Way(out, (nics[0], None))
    return Way((), (None, nics[0]), tuple((y, x) for x, y in reversed(out)))


def _cabled(way: Way, a: int, b: int, topology: Topology) -> Way:
    """`way` from node `a` to node `b` over cables that follow no rule; to or from a leaf they are
    those that begin the way to the next node."""
    first, last = way.nics or (None, None)
    if first is not None and last is not None:
        return way._replace(cables=topology.between(("nic", a, first), ("nic", b, last)))
    nic = last if first is None else first
    route = topology.between(("nic", a, nic), ("nic", (a + 1) % topology.nodes, nic))
    cut = next(k for k, (_, end) in enumerate(route) if end[0] == "leaf")
    begun = route[: cut + 1]
    if first is None:
        begun = tuple((y, x) for x, y in reversed(begun))
    return way._replace(cables=begun)
