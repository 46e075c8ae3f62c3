"""The PCIe side of a node: sockets, optional PCIe switches, GPU slots and NICs."""

from __future__ import annotations

from itertools import combinations
from typing import Annotated

from dpsim.core.deferred import nx
from dpsim.core.record import Check, Natural, record
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import NodeFabric, Vertex
from dpsim.machines.wire import wire

Few = Annotated[int, Check(1, 64)]
UpTo64 = Annotated[int, Check(0, 64)]


@record
class HostTree:
    """Sockets, PCIe switches and slots.

    GPU number i sits in slot i; slots are numbered socket by socket.  Links are one way
    [B/s, s].  The latency of a path is the sum over its edges.  NCCL states one PCIe latency
    for every path inside a node (5.7 us per ring step, NVIDIA/nccl 2.30.7 src/graph/tuning.cc),
    so the two GPU ends pay half of it each and the wires between switches and sockets nothing.

    gpu               GPU to its PCIe switch, or to the socket where there are no switches
    nic               NIC to the same place; needed as soon as a node has NICs
    uplink            PCIe switch to its socket
    inter_socket      one socket to another
    sockets           CPU sockets [1]
    gpus_per_socket   GPU slots per socket [1]
    gpus_per_switch   GPU slots per PCIe switch [1]; 0: slots hang on the socket's root complex
    nics_beside       the slot whose PCIe switch holds NIC j, one entry per NIC; empty: NICs are
                      spread evenly over the slots in use, or over all slots where there are
                      more NICs than GPUs
    """

    gpu: Link
    nic: Link | None = None
    uplink: Link | None = None
    inter_socket: Link | None = None
    sockets: Few = 2
    gpus_per_socket: Few
    gpus_per_switch: UpTo64 = 0
    nics_beside: tuple[Natural, ...] = ()

    def __post_init__(self) -> None:
        if self.gpus_per_switch and self.uplink is None:
            raise ValueError("gpus_per_switch needs uplink, the link from a switch to its socket")
        if self.gpus_per_switch and self.gpus_per_socket % self.gpus_per_switch:
            raise ValueError("gpus_per_socket must be a multiple of gpus_per_switch")
        if self.sockets > 1 and self.inter_socket is None:
            raise ValueError("more than one socket needs inter_socket")
        if any(slot >= self.slots for slot in self.nics_beside):
            raise ValueError(f"nics_beside names a slot outside 0 … {self.slots - 1}")

    @property
    def slots(self) -> int:
        """GPU slots of the node."""
        return self.sockets * self.gpus_per_socket

    def build(self, graph: nx.DiGraph[Vertex], node: int, gpus: int, nics: int) -> None:
        """Add the GPUs, NICs, switches and sockets that are in use."""
        if gpus > self.slots:
            raise ValueError(f"{gpus} GPUs do not fit: a node has {self.slots} slots")
        used = list(range(gpus))
        for gpu in range(gpus):
            wire(graph, ("gpu", node, gpu), self._parent(node, gpu), self.gpu)
        for nic in range(nics):
            if self.nic is None:
                raise ValueError("NICs need host.nic, the link from a NIC to its PCIe switch")
            slot = self.slot_of(nic, nics, gpus)
            wire(graph, ("nic", node, nic), self._parent(node, slot), self.nic)
            used.append(slot)
        self._join(graph, node, used)

    def _join(self, graph: nx.DiGraph[Vertex], node: int, used: list[int]) -> None:
        """Switches to their sockets, and the sockets to each other."""
        if self.gpus_per_switch and self.uplink is not None:
            for first in sorted({s - s % self.gpus_per_switch for s in used}):
                socket = ("socket", node, first // self.gpus_per_socket)
                wire(graph, self._parent(node, first), socket, self.uplink)
        if self.inter_socket is not None:
            sockets = sorted({slot // self.gpus_per_socket for slot in used})
            for a, b in combinations(sockets, 2):
                wire(graph, ("socket", node, a), ("socket", node, b), self.inter_socket)

    def _parent(self, node: int, slot: int) -> Vertex:
        if self.gpus_per_switch:
            return ("pcie", node, slot // self.gpus_per_switch)
        return ("socket", node, slot // self.gpus_per_socket)

    def slot_of(self, nic: int, nics: int, gpus: int) -> int:
        """The slot beside NIC number `nic` of `nics`, of a node with `gpus` GPUs in use."""
        if len(self.nics_beside) == nics and max(self.nics_beside, default=0) < gpus:
            return self.nics_beside[nic]
        if nics <= gpus:
            return nic * gpus // nics
        return self.nics_beside[nic] if len(self.nics_beside) == nics else nic * self.slots // nics

    def nic_of(self, gpu: int, gpus: int, nics: int) -> int:
        """The NIC nearest to slot `gpu`: same PCIe switch, then same socket, then by number."""

        def distance(nic: int) -> tuple[bool, bool, int, int]:
            slot = self.slot_of(nic, nics, gpus)
            far = slot // self.gpus_per_socket != gpu // self.gpus_per_socket
            return far, self._parent(0, slot) != self._parent(0, gpu), abs(slot - gpu), nic

        return min(range(nics), key=distance)


@record
class HostedNode(NodeFabric):
    """A node whose GPUs and NICs sit in the PCIe slots of `host`."""

    host: HostTree

    def build(self, graph: nx.DiGraph[Vertex], node: int, gpus: int, nics: int) -> None:
        self.host.build(graph, node, gpus, nics)

    def nic_of(self, gpu: int, gpus: int, nics: int) -> int:
        return self.host.nic_of(gpu, gpus, nics)
