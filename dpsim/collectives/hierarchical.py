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

import numpy as np

from dpsim.collectives import (
    Algorithm,
    Ranks,
    Stage,
    Topology,
    TransferList,
    Transfers,
    members_of,
    places_of,
    rank_array,
)
from dpsim.collectives.ring import ring_round


class Hierarchical(Algorithm):
    """Needs at least two nodes with the same number (at least two) of ranks each."""

    operations = ("all_reduce", "all_gather", "reduce_scatter")
    proportional = True

    def applies(self, ranks: Ranks, topology: Topology) -> bool:
        group = members_of(ranks, topology)
        return len(group.sizes) == 1 and group.sizes != {1} and len(group.nodes) > 1

    def stages(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> Iterator[Stage]:
        places = [rank_array(place) for place in places_of(ranks, topology)]
        g, n = len(places), len(places[0])
        inside = Stage(g - 1, TransferList(_inside(ranks, size / g, topology)))
        across = TransferList(
            Transfers(place, np.roll(place, -1), size / (g * n), k * n + np.arange(n))
            for k, place in enumerate(places)
        )
        if operation != "all_gather":
            yield inside
        yield Stage((2 if operation == "all_reduce" else 1) * (n - 1), across)
        if operation != "reduce_scatter":
            yield inside

    def bytes_sent(self, operation: str, n: int, size: float) -> float:
        return (2 if operation == "all_reduce" else 1) * (n - 1) / n * size


def _inside(ranks: Ranks, chunk: float, topology: Topology) -> Iterator[Transfers]:
    """A round of the rings of every node; equal nodes have equal rings."""
    group = members_of(ranks, topology)
    g = len(group.shapes[0])
    for k, shape in enumerate(group.shapes):
        places = np.flatnonzero(group.shape == k)
        nodes = group.nodes[places] * topology.gpus
        one = ring_round(tuple(int(nodes[0]) + gpu for gpu in shape), chunk, topology)
        for number, (a, b, bytes_) in enumerate(TransferList(one)):
            order = places * g * g + number
            yield Transfers(nodes + a - nodes[0], nodes + b - nodes[0], bytes_, order)


def two_level(
    operation: str, g: int, nodes: int, size: float, latency: float, bandwidth: float
) -> float:
    """Closed form for `g` ranks in each of `nodes` nodes on equal, private links."""
    k = 2 if operation == "all_reduce" else 1
    inside = k * (g - 1) * (latency + size / (g * bandwidth))
    return inside + k * (nodes - 1) * (latency + size / (g * nodes * bandwidth))
