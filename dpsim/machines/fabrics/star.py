"""One switch that every NIC is plugged into."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated

import numpy as np

from dpsim.core import units
from dpsim.core.arrays import Array, IntArray
from dpsim.core.deferred import nx
from dpsim.core.record import Check, record
from dpsim.machines.cables import Cables
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Network, Vertex
from dpsim.machines.wire import wire

_SWITCH: Vertex = ("leaf", 0)


@record
class Star(Network):
    """A single non-blocking switch.  `link` is a NIC's cable, one way [B/s].

    `slow_nodes` maps a node's number to the bandwidth of its NICs' cables where that differs, as
    on a port that negotiated a lower speed; nodes that a scenario does not use don't matter.

    Two cables and two GPU-to-PCIe links make one step over the network: 14 us in NCCL
    (NVIDIA/nccl 2.30.7 src/graph/tuning.cc, NET), 5.7 us of it paid inside the nodes.
    """

    link: Link
    slow_nodes: dict[Annotated[int, Check(0, 1_048_575)], units.BytesPerSecond] | None = None

    def build(self, graph: nx.DiGraph[Vertex], nodes: int, nics: int) -> None:
        for node in range(nodes):
            for nic in range(nics):
                wire(graph, ("nic", node, nic), _SWITCH, self.port(node))

    def port(self, node: int) -> Link:
        """The cable of a NIC of `node`."""
        own = (self.slow_nodes or {}).get(node)
        return self.link if own is None else dataclasses.replace(self.link, bandwidth=own)

    def cables(self, nodes: int, nics: int) -> Cables | None:
        return StarCables(self) if type(self) is Star else None

    def route(self, source: Vertex, target: Vertex) -> tuple[Vertex, ...]:
        return source, _SWITCH, target


class StarCables(Cables):
    """Cables to one switch."""

    def __init__(self, star: Star) -> None:
        self._star = star

    def leaf_of(self, nic: Vertex) -> Vertex:
        return _SWITCH

    def port(self, node: int) -> Link:
        return self._star.port(node)

    def port_bandwidths(self, nodes: IntArray) -> float | Array:
        slow = self._star.slow_nodes
        if not slow:
            return self._star.link.bandwidth
        found = np.full(len(nodes), self._star.link.bandwidth)
        for node, bandwidth in slow.items():
            found[nodes == node] = bandwidth
        return found

    def leaves(self, nodes: int, nics: int) -> Iterator[tuple[int, int, float, float]]:
        yield 1, nodes * nics, float(np.max(self.port_bandwidths(np.arange(nodes)))), 0.0

    def surroundings(self, nodes: IntArray) -> tuple[int | float, ...]:
        found = self.port_bandwidths(nodes)
        return () if isinstance(found, float) else tuple(found.tolist())
