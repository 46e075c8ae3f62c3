"""Every pair of GPUs of a node joined by wires of its own, without a switch."""

from __future__ import annotations

from itertools import combinations

import networkx as nx

from dpsim.fabrics import Vertex
from dpsim.fabrics._host import HostedNode
from dpsim.fabrics._wire import wire
from dpsim.hardware import Link
from dpsim.record import record


@record
class FullMesh(HostedNode):
    """Boards of four V100, A100 or H100 (NVLink), and of eight MI300X (xGMI).

    `pair` is what joins two GPUs: all wires between them together, one way [B/s], with the
    latency of one GPU-to-GPU step [s].  The pairs don't share anything.
    """

    pair: Link

    def build(self, graph: nx.DiGraph[Vertex], node: int, gpus: int, nics: int) -> None:
        super().build(graph, node, gpus, nics)
        for a, b in combinations(range(gpus), 2):
            wire(graph, ("gpu", node, a), ("gpu", node, b), self.pair)
