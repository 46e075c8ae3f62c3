"""Parameter servers: every worker pushes its gradients to them, and pulls the sums (or new
parameters) back.

Each of s servers holds 1/s of the bytes.  The servers are s of the ranks, spread evenly over them,
and work too.  A push is one round in which every rank sends S/s bytes to every server but itself; a
pull is the way back.  Nothing is overlapped: a server answers when it has everything.
T = 2 (latency + max((n-1)/s, 1) S / B) for n > s: servers' links or workers' own set the pace.
Source: Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014
(push and pull); Jiang et al., "A Unified Architecture for Accelerating Distributed DNN Training",
OSDI 2020 (their load on the servers' links; with s = n it is that of a ring).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpsim.collectives import Algorithm, Ranks, Stage, Topology, TransferList, rank_array
from dpsim.core.arrays import IntArray


class PushAndPull(Algorithm):
    """All-reduce through `servers` of the ranks, by a push and a pull."""

    operations = ("all_reduce",)
    proportional = True

    def __init__(self, servers: int = 1) -> None:
        self.servers = servers

    def applies(self, ranks: Ranks, topology: Topology) -> bool:
        return len(ranks) >= self.servers

    def chosen(self, ranks: Ranks) -> tuple[int, ...]:
        """The ranks that are servers."""
        return tuple(ranks[k * len(ranks) // self.servers] for k in range(self.servers))

    def push(self, ranks: Ranks, size: float) -> Stage:
        """Every rank sends each server its part of `size` bytes."""
        return Stage(1, TransferList.between(*self._ends(ranks), size / self.servers))

    def pull(self, ranks: Ranks, size: float) -> Stage:
        """Each server sends its part of `size` bytes to every rank."""
        workers, servers = self._ends(ranks)
        return Stage(1, TransferList.between(servers, workers, size / self.servers))

    def _ends(self, ranks: Ranks) -> tuple[IntArray, IntArray]:
        """Everybody with each server but itself."""
        servers = np.repeat(rank_array(self.chosen(ranks)), len(ranks))
        workers = np.tile(rank_array(ranks), self.servers)
        others = workers != servers
        return workers[others], servers[others]

    def stages(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> Iterator[Stage]:
        yield self.push(ranks, size)
        yield self.pull(ranks, size)

    def seconds(
        self, operation: str, n: int, size: float, latency: float, bandwidth: float
    ) -> float:
        s = self.servers
        own = 1.0 if n > s else (s - 1) / s  # a server keeps its part of what it sends
        return 2 * (latency + max((n - 1) / s, own) * size / bandwidth)

    def bytes_sent(self, operation: str, n: int, size: float) -> float:
        return 2 * (n - 1) / n * size
