"""A node given wire by wire."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AliasChoices, Field

from dpsim.core import units
from dpsim.core.deferred import nx
from dpsim.core.record import Refused, Text, record
from dpsim.machines.devices import Link, LinkKind
from dpsim.machines.fabrics import NodeFabric, Vertex
from dpsim.machines.wire import add, wire
from dpsim.machines.wiring import Wiring

_NAME = re.compile(r"^(gpu|nic|nvswitch|pcie|socket|sw)(0|[1-9]\d{0,3})$")


@record
class Wire:
    """One wire between two vertices, written ``{from: gpu0, to: sw0, bandwidth: 24 GB/s}``.

    The wire is full duplex: `bandwidth` one way [B/s], `latency` per step [s]; `kind` as in
    :class:`dpsim.machines.devices.Link`.
    """

    source: Annotated[Text, Field(validation_alias=AliasChoices("from", "source"))]
    target: Annotated[Text, Field(validation_alias=AliasChoices("to", "target"))]
    bandwidth: units.BytesPerSecond
    latency: units.Seconds = 0.0
    kind: LinkKind = "local"

    def link(self) -> Link:
        """One direction of the wire."""
        return Link(bandwidth=self.bandwidth, latency=self.latency, kind=self.kind)


@record
class ExplicitNode(NodeFabric):
    """The user's own node: names of `vertices` and the `links` between them.

    Names are ``gpu0``, ``nic0``, ``nvswitch0``, ``pcie0``, ``socket0`` or ``sw0`` (any switch),
    each kind numbered from 0.  Every vertex must be reachable from ``gpu0``.
    """

    vertices: tuple[Text, ...]
    links: tuple[Wire, ...]

    def __post_init__(self) -> None:
        for index, name in enumerate(self.vertices):
            if not _NAME.match(name):
                raise Refused(f"{name[:60]!r} is not a name like gpu0, nic0, sw0", _at(index))
        _require_unique(self.vertices)
        for kind in ("gpu", "nic"):
            for number in range(self._count(kind)):
                if f"{kind}{number}" not in self.vertices:
                    raise Refused(f"{kind}{number} is missing: number from 0", ("vertices",))
        for index, item in enumerate(self.links):
            for end, name in (("from", item.source), ("to", item.target)):
                if name not in self.vertices:
                    raise Refused(f"no vertex {name[:60]!r}", ("links", index, end))
            if item.source == item.target:
                raise Refused(f"joins {item.source} with itself", ("links", index))
        self._require_connected()

    def _count(self, kind: str) -> int:
        return sum(vertex(name)[0] == kind for name in self.vertices)

    def _require_connected(self) -> None:
        if not self._count("gpu"):
            raise Refused("no GPU; the first is called gpu0", ("vertices",))
        wiring: Any = Wiring()
        self.build(wiring, 0, self._count("gpu"), self._count("nic"))
        reached = wiring.reached(("gpu", 0, 0))
        for index, name in enumerate(self.vertices):
            if vertex(name) not in reached:
                raise Refused(f"{name} is not connected to gpu0", _at(index))

    def build(self, graph: nx.DiGraph[Vertex], node: int, gpus: int, nics: int) -> None:
        for kind, wanted in (("gpu", gpus), ("nic", nics)):
            if wanted > self._count(kind):
                raise ValueError(f"{wanted} {kind}s wanted, {self._count(kind)} named in vertices")
        limit = {"gpu": gpus, "nic": nics}
        kept = {n: v for n in self.vertices if (v := vertex(n, node))[2] < limit.get(v[0], 10**4)}
        for name in kept.values():
            add(graph, name)
        for item in self.links:
            if item.source in kept and item.target in kept:
                wire(graph, kept[item.source], kept[item.target], item.link())

    def nic_of(self, gpu: int, gpus: int, nics: int) -> int:
        return _nearest(self, gpus, nics)[gpu]


def vertex(name: str, node: int = 0) -> Vertex:
    """``gpu3`` as ("gpu", node, 3); ``sw0`` as ("switch", node, 0)."""
    found = _NAME.match(name)
    assert found is not None
    kind, number = found.groups()
    return ("switch" if kind == "sw" else kind, node, int(number))


def _at(index: int) -> tuple[str | int, ...]:
    return ("vertices", index)


def _require_unique(names: tuple[str, ...]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise Refused(f"{name} is named twice", ("vertices",))


@lru_cache(maxsize=64)
def _nearest(fabric: ExplicitNode, gpus: int, nics: int) -> tuple[int, ...]:
    """For every GPU the NIC fewest hops away; among equals in blocks of equal size."""
    wiring: Any = Wiring()
    fabric.build(wiring, 0, gpus, nics)
    result = []
    for gpu in range(gpus):
        hops = wiring.reached(("gpu", 0, gpu))
        far = [hops.get(("nic", 0, nic), len(wiring.nodes)) for nic in range(nics)]
        near = [nic for nic in range(nics) if far[nic] == min(far)]
        result.append(near[gpu * len(near) // gpus])
    return tuple(result)
