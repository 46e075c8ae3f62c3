"""One switch that every NIC is plugged into."""

from __future__ import annotations

import networkx as nx

from dpsim.fabrics import Network, Vertex
from dpsim.fabrics._wire import wire
from dpsim.hardware import Link
from dpsim.record import record

_SWITCH: Vertex = ("leaf", 0)


@record
class Star(Network):
    """A single non-blocking switch.  `link` is a NIC's cable, one way [B/s].

    Two cables and two GPU-to-PCIe links make one step over the network: 14 us in NCCL
    (NVIDIA/nccl 2.30.7 src/graph/tuning.cc, NET), 5.7 us of it paid inside the nodes.
    """

    link: Link

    def build(self, graph: nx.DiGraph[Vertex], nodes: int, nics: int) -> None:
        for node in range(nodes):
            for nic in range(nics):
                wire(graph, ("nic", node, nic), _SWITCH, self.link)

    def route(self, source: Vertex, target: Vertex) -> tuple[Vertex, ...]:
        return source, _SWITCH, target
