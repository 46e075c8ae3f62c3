"""Two-level: inside the nodes first, then between equal places of all nodes, then inside again.

With g ranks in each of N nodes:
all-reduce      reduce-scatter(S) inside, all-reduce(S/g) across for each of the g places at once,
                all-gather(S) inside
all-gather      all-gather(S/g) across, then all-gather(S) inside; reduce-scatter is its mirror
Every place uses the NIC nearest to its GPU, so all NICs of a node work at once.
T(all-reduce) = 2 (g-1) (l + S/(g B)) + 2 (N-1) (l + S/(g N B)) on equal private links.
Source: Cho et al., "BlueConnect", MLSys 2019 (decomposition of a ring over a hierarchy).
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsim.collectives import Algorithm, Stage, Topology, Transfer, nodes_of
from dpsim.collectives.ring import ring_round


class Hierarchical(Algorithm):
    """Needs at least two nodes with the same number (at least two) of ranks each."""

    operations = ("all_reduce", "all_gather", "reduce_scatter")
    proportional = True

    def applies(self, ranks: tuple[int, ...], topology: Topology) -> bool:
        sizes = {len(node) for node in nodes_of(ranks, topology)}
        return len(sizes) == 1 and sizes != {1} and len(ranks) > sizes.copy().pop()

    def stages(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology
    ) -> Iterator[Stage]:
        nodes = nodes_of(ranks, topology)
        g, n = len(nodes[0]), len(nodes)
        inside = Stage(
            g - 1, tuple(t for node in nodes for t in ring_round(node, size / g, topology))
        )
        across = tuple(
            Transfer(nodes[k][place], nodes[(k + 1) % n][place], size / (g * n))
            for place in range(g)
            for k in range(n)
        )
        if operation != "all_gather":
            yield inside
        yield Stage((2 if operation == "all_reduce" else 1) * (n - 1), across)
        if operation != "reduce_scatter":
            yield inside

    def bytes_sent(self, operation: str, n: int, size: float) -> float:
        return (2 if operation == "all_reduce" else 1) * (n - 1) / n * size


def two_level(
    operation: str, g: int, nodes: int, size: float, latency: float, bandwidth: float
) -> float:
    """Closed form for `g` ranks in each of `nodes` nodes on equal, private links."""
    k = 2 if operation == "all_reduce" else 1
    inside = k * (g - 1) * (latency + size / (g * bandwidth))
    return inside + k * (nodes - 1) * (latency + size / (g * nodes * bandwidth))
