"""Every pair of GPUs of a node joined by wires of its own, without a switch."""

from __future__ import annotations

from itertools import combinations

from dpsim.core.deferred import nx
from dpsim.core.record import record
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Vertex
from dpsim.machines.host import HostedNode
from dpsim.machines.wire import wire


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
