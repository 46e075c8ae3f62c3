"""Leaves: the switches that nodes are plugged into."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dpsim.machines.topology import Topology


class Leaf(NamedTuple):
    """`number` switches that are alike, each with `below` cables of NICs.

    fastest  bandwidth of the fastest of these, one way [B/s]; 0 where there are none
    above    of all links to other switches together [B/s]
    """

    number: int
    below: int
    fastest: float
    above: float


def leaves(topology: Topology) -> Iterator[Leaf]:
    """All leaves of `topology`, several nodes: by its cables' rule, or else from its graph."""
    if topology.cables is not None:
        for number, cables, fastest, above in topology.cables.leaves(topology.nodes, topology.nics):
            yield Leaf(number, cables, fastest, above)
        return
    graph = topology.graph
    for leaf in (v for v, data in graph.nodes(data=True) if data["kind"] == "leaf"):
        speeds: dict[bool, list[float]] = {True: [], False: []}
        for _, end, data in graph.out_edges(leaf, data=True):
            speeds[graph.nodes[end]["kind"] == "nic"].append(data["link"].bandwidth)
        below = speeds[True]
        yield Leaf(1, len(below), max(below, default=0.0), sum(speeds[False]))
