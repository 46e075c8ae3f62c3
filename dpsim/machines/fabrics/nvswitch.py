"""Every GPU on one NVSwitch complex, PCIe switches with GPU and NIC pairs behind it."""

from __future__ import annotations

from dpsim.core.deferred import nx
from dpsim.core.record import record
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Vertex
from dpsim.machines.host import HostedNode
from dpsim.machines.wire import wire


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
