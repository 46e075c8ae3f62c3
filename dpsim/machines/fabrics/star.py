"""One switch that every NIC is plugged into."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import networkx as nx

from dpsim.core import units
from dpsim.core.record import Check, record
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
            own = (self.slow_nodes or {}).get(node, self.link.bandwidth)
            link = dataclasses.replace(self.link, bandwidth=own)
            for nic in range(nics):
                wire(graph, ("nic", node, nic), _SWITCH, link)

    def route(self, source: Vertex, target: Vertex) -> tuple[Vertex, ...]:
        return source, _SWITCH, target
