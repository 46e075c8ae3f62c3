"""GPUs joined by wires of their own, some pairs by more of them than others, and some by none."""

from __future__ import annotations

import dataclasses

from dpsim.core.deferred import nx
from dpsim.core.record import Natural, record
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Vertex
from dpsim.machines.host import HostedNode
from dpsim.machines.wire import wire


@record
class UnevenMesh(HostedNode):
    """Boards whose pairs of GPUs have different numbers of links, as those of MI250X (xGMI).

    `link` is one link, one way [B/s], with the latency of one GPU-to-GPU step [s]; `pairs` lists
    two GPU numbers and how many links join them.  Pairs that are not listed go through the others.
    """

    link: Link
    pairs: tuple[tuple[Natural, Natural, Natural], ...]

    def __post_init__(self) -> None:
        for a, b, count in self.pairs:
            if a == b:
                raise ValueError(f"a link joins two GPUs, not GPU {a} with itself")
            if max(a, b) >= self.host.slots:
                raise ValueError(f"a link names GPU {max(a, b)} of {self.host.slots} slots")
            if not count:
                raise ValueError(f"no links join GPUs {a} and {b}; leave the pair out")
        if len({frozenset(pair[:2]) for pair in self.pairs}) < len(self.pairs):
            raise ValueError("a pair of GPUs is listed twice")

    def build(self, graph: nx.DiGraph[Vertex], node: int, gpus: int, nics: int) -> None:
        super().build(graph, node, gpus, nics)
        for a, b, count in self.pairs:
            if max(a, b) < gpus:
                bundle = dataclasses.replace(self.link, bandwidth=count * self.link.bandwidth)
                wire(graph, ("gpu", node, a), ("gpu", node, b), bundle)
