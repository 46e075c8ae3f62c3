"""Ranks on the processors of a node, which has no accelerators."""

from __future__ import annotations

from typing import Annotated

from dpsim.core.deferred import nx
from dpsim.core.record import Check, record
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import NodeFabric, Vertex
from dpsim.machines.wire import wire


@record
class Processors(NodeFabric):
    """A server whose ranks are processes on its own processors.

    `memory` joins every rank to the node's memory, and `nic` every NIC, each one way [B/s, s].
    `processes` is the most that a node has.
    There is no copy between a device and its host, and nothing that libraries of GPUs know (NCCL);
    how fast two processes of a node exchange messages is not said (`shared_memory` of backend mpi).
    """

    memory: Link
    nic: Link | None = None
    processes: Annotated[int, Check(1, 1024)] = 1024

    def build(self, graph: nx.DiGraph[Vertex], node: int, gpus: int, nics: int) -> None:
        if gpus > self.processes:
            raise ValueError(f"{gpus} processes do not fit: a node has {self.processes}")
        if nics and self.nic is None:
            raise ValueError("NICs need nic, the link from a NIC to the node's memory")
        memory = ("switch", node, 0)
        for rank in range(gpus):
            wire(graph, ("gpu", node, rank), memory, self.memory)
        for nic in range(nics):
            if self.nic is not None:
                wire(graph, ("nic", node, nic), memory, self.nic)
