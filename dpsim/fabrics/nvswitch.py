"""Every GPU on one NVSwitch complex, PCIe switches with GPU and NIC pairs behind it."""

from __future__ import annotations

import networkx as nx

from dpsim.fabrics import Vertex
from dpsim.fabrics._host import HostedNode
from dpsim.fabrics._wire import wire
from dpsim.hardware import Link
from dpsim.record import record


@record
class NVSwitch(HostedNode):
    """DGX-2, DGX A100, DGX H100 and the HGX boards like them.

    `nvlink` joins a GPU to the switch complex: all its NVLinks together, one way [B/s], and
    half of a GPU-to-GPU step in latency [s].  The switches never limit, so they are one vertex
    (NVIDIA/nccl 2.30.7 src/graph/topo.cc merges all NVSwitches of a node in the same way).
    """

    nvlink: Link

    def build(self, graph: nx.DiGraph[Vertex], node: int, gpus: int, nics: int) -> None:
        super().build(graph, node, gpus, nics)
        for gpu in range(gpus):
            wire(graph, ("gpu", node, gpu), ("nvswitch", node, 0), self.nvlink)
