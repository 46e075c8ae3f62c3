"""The NVLink wiring of DGX-1 with V100: two squares of four GPUs, joined corner to corner."""

from __future__ import annotations

import dataclasses

from dpsim.core.deferred import nx
from dpsim.core.record import record
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Vertex
from dpsim.machines.host import HostedNode
from dpsim.machines.wire import wire

NVLINKS = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip


@record
class HybridCubeMesh(HostedNode):
    """Up to eight GPUs with six NVLinks each, as ``nvidia-smi topo -m`` prints for a DGX-1V.

    `nvlink` is one NVLink, one way [B/s], with the latency of one GPU-to-GPU step [s].  Which
    pairs have one or two links: the topology matrix published with Oneflow-Inc/DLPerf
    (c89430ba), the same on DGX-1V and p3.16xlarge.
    """

    nvlink: Link

    def build(self, graph: nx.DiGraph[Vertex], node: int, gpus: int, nics: int) -> None:
        if gpus > 8:
            raise ValueError(f"a hybrid cube mesh has at most 8 GPUs, not {gpus}")
        super().build(graph, node, gpus, nics)
        bundles = {
            count: dataclasses.replace(self.nvlink, bandwidth=count * self.nvlink.bandwidth)
            for count in set(NVLINKS.values())
        }
        for (a, b), count in NVLINKS.items():
            if b < gpus:
                wire(graph, ("gpu", node, a), ("gpu", node, b), bundles[count])
