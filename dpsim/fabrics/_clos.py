"""What the two-level networks share: fields and the uplinks from leaves to the spine."""

from __future__ import annotations

from typing import Annotated

import networkx as nx

from dpsim.fabrics import Network, Vertex
from dpsim.fabrics._wire import wire
from dpsim.hardware import Link
from dpsim.record import Count, record
from dpsim.units import Seconds, Unit

SPINE: Vertex = ("spine", 0)
Oversubscription = Annotated[float, Unit("1", low=1.0, high=1e6)]


@record
class Clos(Network):
    """Leaf switches below one spine.

    link              a NIC's cable to its leaf, one way [B/s]; its latency counts twice a step
    nodes_per_leaf    nodes whose NICs share a leaf (or, with rails, a group of leaves) [1]
    oversubscription  a leaf's downlink bandwidth over its uplink bandwidth, at least 1 [1]
    uplink_latency    extra time of a leaf-to-spine hop [s]; 0 because the 14 us that NCCL states
                      for a network step (2.30.7 src/graph/tuning.cc) hold for any path

    The spine switches are one vertex: traffic is taken to be spread evenly over them.
    """

    link: Link
    nodes_per_leaf: Count
    oversubscription: Oversubscription = 1.0
    uplink_latency: Seconds = 0.0

    def uplink(self, ports: int) -> Link:
        """The bundle from a leaf with `ports` NICs to the spine."""
        return Link(
            bandwidth=ports * self.link.bandwidth / self.oversubscription,
            latency=self.uplink_latency,
            kind=self.link.kind,
        )

    def leaf_of(self, nic: Vertex) -> Vertex:
        """The leaf that the vertex `nic` is plugged into."""
        raise NotImplementedError

    def ports(self, nics: int) -> int:
        """NIC ports of a full leaf, where a node has `nics` NICs."""
        raise NotImplementedError

    def build(self, graph: nx.DiGraph[Vertex], nodes: int, nics: int) -> None:
        leaves: dict[Vertex, None] = {}
        for node in range(nodes):
            for nic in range(nics):
                leaf = self.leaf_of(("nic", node, nic))
                leaves[leaf] = None
                wire(graph, ("nic", node, nic), leaf, self.link)
        uplink = self.uplink(self.ports(nics))
        if len(leaves) > 1:
            for leaf in leaves:
                wire(graph, leaf, SPINE, uplink)

    def route(self, source: Vertex, target: Vertex) -> tuple[Vertex, ...]:
        up, down = self.leaf_of(source), self.leaf_of(target)
        if up == down:
            return source, up, target
        return source, up, SPINE, down, target
