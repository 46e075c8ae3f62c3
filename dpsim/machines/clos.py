"""What the two-level networks share: fields and the uplinks from leaves to the spine."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

import networkx as nx

from dpsim.core import units
from dpsim.core.record import Check, Count, Natural, Refused, record
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Network, Vertex
from dpsim.machines.wire import wire

SPINE: Vertex = ("spine", 0)
Oversubscription = Annotated[float, units.Unit("1", low=1.0, high=1e6)]
Routing = Literal["balanced", "ecmp"]
Spines = Annotated[int, Check(0, 65_536)]
_MASK = (1 << 64) - 1


@record
class Clos(Network):
    """Leaf switches below a spine.

    link              a NIC's cable to its leaf, one way [B/s]; its latency counts twice a step
    nodes_per_leaf    nodes whose NICs share a leaf (or, with rails, a group of leaves) [1]
    oversubscription  a leaf's downlink bandwidth over its uplink bandwidth, at least 1 [1]
    uplink_latency    extra time of a leaf-to-spine hop [s]; 0 because the 14 us that NCCL states
                      for a network step (2.30.7 src/graph/tuning.cc) hold for any path
    routing           balanced: traffic is spread evenly over the spine switches, so they are one
                      vertex.  ecmp: every flow, from one NIC to another, goes over one spine
                      switch, which a hash of the two NICs chooses; flows collide
    spines            spine switches, or equal-cost cables from a leaf to them [1]; 0: as many as
                      a full leaf needs at the speed of a NIC's cable.  For ecmp only
    hash_seed         of the hash; what the scenario's `seed` replaces
    """

    link: Link
    nodes_per_leaf: Count
    oversubscription: Oversubscription = 1.0
    uplink_latency: units.Seconds = 0.0
    routing: Routing = "balanced"
    spines: Spines = 0
    hash_seed: Natural = 0

    def uplink(self, ports: int) -> Link:
        """The bundle from a leaf with `ports` NICs to the spine, or its part to one spine."""
        bundle = ports * self.link.bandwidth / self.oversubscription
        return Link(
            bandwidth=bundle / len(self._spines), latency=self.uplink_latency, kind=self.link.kind
        )

    @property
    def _spines(self) -> tuple[Vertex, ...]:
        if self.routing == "balanced":
            return (SPINE,)
        if self.spines < 2:
            raise Refused(_ONE_SPINE, ("cluster", "routing"))
        return tuple(("spine", k) for k in range(self.spines))

    def settled(self, nics: int) -> Clos:
        if self.routing == "balanced" or self.spines:
            found = self
        else:
            wanted = round(self.ports(nics) / self.oversubscription)
            found = dataclasses.replace(self, spines=max(wanted, 1))
        _ = found._spines  # refuses a single one
        return found

    def balanced(self) -> Clos:
        return dataclasses.replace(self, routing="balanced")

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
                for spine in self._spines:
                    wire(graph, leaf, spine, uplink)

    def route(self, source: Vertex, target: Vertex) -> tuple[Vertex, ...]:
        up, down = self.leaf_of(source), self.leaf_of(target)
        if up == down:
            return source, up, target
        return source, up, self._spine_of(source, target), down, target

    def _spine_of(self, source: Vertex, target: Vertex) -> Vertex:
        if self.routing == "balanced":
            return SPINE
        flow = (*source[1:], *target[1:])
        return ("spine", flow_hash(self.hash_seed, flow) % self.spines)


_ONE_SPINE = "ecmp needs at least two spine switches to choose from; this network has one"


def flow_hash(seed: int, flow: tuple[int, ...]) -> int:
    """64 bits that look random and are the same on every machine.

    `seed` and the numbers of `flow` (node and NIC of the source, node and NIC of the target) are
    mixed in one after the other by SplitMix64's function (Steele, Lea and Flood, "Fast splittable
    pseudorandom number generators", OOPSLA 2014).  Switches often use a CRC of addresses and
    ports; that is linear, so with it flows that collide for one seed would collide for all.
    """
    state = seed
    for number in flow:
        state = _mixed(state ^ number)
    return state


def _mixed(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)
