"""GPUs on PCIe only: peer traffic goes through switches and sockets, or over bridges."""

from __future__ import annotations

from dpsim.core.deferred import nx
from dpsim.core.record import Natural, record
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Vertex
from dpsim.machines.host import HostedNode
from dpsim.machines.wire import wire


@record
class PcieTree(HostedNode):
    """Servers and workstations without NVSwitch.

    `bridge` is the NVLink bridge over a pair of GPUs, all its links together, one way [B/s],
    with the latency of one step [s]; `bridges` lists the pairs of GPU numbers that have one.
    Where the driver offers no peer-to-peer access (GeForce since Turing without a bridge),
    `staged` is set, and `host.gpu` is the rate at which NCCL moves data through host memory, both
    ways at once.
    """

    staged: bool = False
    bridge: Link | None = None
    bridges: tuple[tuple[Natural, Natural], ...] = ()

    def __post_init__(self) -> None:
        if self.bridges and self.bridge is None:
            raise ValueError("bridges needs bridge, the link of one NVLink bridge")
        for a, b in self.bridges:
            if a == b:
                raise ValueError(f"a bridge joins two GPUs, not GPU {a} with itself")
            if max(a, b) >= self.host.slots:
                raise ValueError(f"a bridge names GPU {max(a, b)} of {self.host.slots} slots")

    def build(self, graph: nx.DiGraph[Vertex], node: int, gpus: int, nics: int) -> None:
        super().build(graph, node, gpus, nics)
        for a, b in self.bridges:
            if self.bridge is not None and max(a, b) < gpus:
                wire(graph, ("gpu", node, a), ("gpu", node, b), self.bridge)
