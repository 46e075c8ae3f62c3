"""What the two-level networks share: fields and the uplinks from leaves to the spine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt

from dpsim.core import units
from dpsim.core.arrays import IntArray
from dpsim.core.deferred import nx
from dpsim.core.record import Check, Count, Natural, Refused, record
from dpsim.machines.cables import Cables
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Edge, Network, Vertex
from dpsim.machines.wire import wire

SPINE: Vertex = ("spine", 0)
Oversubscription = Annotated[float, units.Unit("1", low=1.0, high=1e6)]
Routing = Literal["balanced", "ecmp"]
Spines = Annotated[int, Check(0, 65_536)]
HashArray = npt.NDArray[np.uint64]
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
        """The leaf that the vertex `nic` is plugged into: that of its node, or with rails, that of
        its number and its node's group."""
        group = nic[1] // self.nodes_per_leaf
        return ("leaf", group, nic[2]) if self.rails else ("leaf", group)

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

    def cables(self, nodes: int, nics: int) -> Cables | None:
        mine = type(self)
        if mine.leaf_of is not Clos.leaf_of or mine.route is not Clos.route:
            return None
        return ClosCables(self, nodes, nics)


_ONE_SPINE = "ecmp needs at least two spine switches to choose from; this network has one"


class ClosCables(Cables):
    """Cables to leaves, and from each leaf to every spine switch.

    Leaves are numbered group by group; a trunk has the number leaf x spines + spine, and on the way
    down as many more as there are trunks.
    """

    levels = 2

    def __init__(self, clos: Clos, nodes: int, nics: int) -> None:
        self._clos = clos
        self._width = nics if clos.rails else 1
        self._spines = 1 if clos.routing == "balanced" else clos.spines
        groups = -(-nodes // clos.nodes_per_leaf)
        self._down = groups * self._width * self._spines
        self._uplink = clos.uplink(clos.ports(nics))

    def leaf_of(self, nic: Vertex) -> Vertex:
        return self._clos.leaf_of(nic)

    def port(self, node: int) -> Link:
        return self._clos.link

    def port_bandwidths(self, nodes: IntArray) -> float:
        return self._clos.link.bandwidth

    @property
    def trunk(self) -> Link:
        return self._uplink

    def trunks(
        self, sources: IntArray, nic: int, targets: IntArray, into: int
    ) -> tuple[IntArray, ...]:
        up, down = self._leaves(sources, nic), self._leaves(targets, into)
        spine: IntArray | int = 0
        if self._spines > 1:
            hashes = flow_hashes(self._clos.hash_seed, sources, nic, targets, into)
            spine = (hashes % np.uint64(self._spines)).astype(np.int64)
        there = up != down
        return (
            np.where(there, up * self._spines + spine, -1),
            np.where(there, self._down + down * self._spines + spine, -1),
        )

    def _leaves(self, nodes: IntArray, nic: int) -> IntArray:
        groups = nodes // self._clos.nodes_per_leaf
        return groups * self._width + nic if self._width > 1 else groups

    def trunk_edge(self, number: int) -> Edge:
        down, up = divmod(number, self._down)
        leaf, spine = divmod(up, self._spines)
        group, nic = divmod(leaf, self._width)
        ends: Edge = (
            ("leaf", group, nic) if self._clos.rails else ("leaf", group), ("spine", spine)
        )  # fmt: skip
        return (ends[1], ends[0]) if down else ends

    def trunk_number(self, edge: Edge) -> int:
        down = edge[0][0] == "spine"
        leaf, spine = edge[down], edge[not down]
        number = leaf[1] * self._width + (leaf[2] if self._clos.rails else 0)
        return int(number * self._spines + spine[1] + down * self._down)

    def leaves(self, nodes: int, nics: int) -> Iterator[tuple[int, int, float, float]]:
        full, rest = divmod(nodes, self._clos.nodes_per_leaf)
        each = nics // self._width
        several = (full + bool(rest)) * self._width > 1
        above = self._spines * self._uplink.bandwidth if several else 0.0
        for groups, below in ((full, self._clos.nodes_per_leaf), (bool(rest), rest)):
            if groups:
                yield groups * self._width, below * each, self._clos.link.bandwidth, above

    def surroundings(self, nodes: IntArray) -> tuple[int | float, ...] | None:
        """How many nodes are on each leaf; hashed flows are like no others."""
        groups = nodes // self._clos.nodes_per_leaf
        if groups[0] == groups[-1]:
            return () if self._spines == 1 or not self._clos.rails else None
        if self._spines > 1:
            return None
        return tuple(np.diff(np.flatnonzero(np.diff(groups, prepend=-1, append=-1))).tolist())

    def moved(self, numbers: IntArray, nodes: IntArray, to: IntArray) -> IntArray:
        back = np.where(numbers >= self._down, self._down, 0)
        group, rest = np.divmod(numbers - back, self._width * self._spines)
        own, first = np.unique(nodes // self._clos.nodes_per_leaf, return_index=True)
        there: IntArray = to[first] // self._clos.nodes_per_leaf
        moved: IntArray = there[np.searchsorted(own, group)]
        return moved * (self._width * self._spines) + rest + back


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


def flow_hashes(seed: int, sources: IntArray, nic: int, targets: IntArray, into: int) -> HashArray:
    """`flow_hash` of the flows from NIC `nic` of each of `sources` to NIC `into` of `targets`."""
    state = np.full(len(sources), seed & _MASK, dtype=np.uint64)
    for number in (sources.astype(np.uint64), np.uint64(nic), targets.astype(np.uint64),
                   np.uint64(into)):  # fmt: skip
        state = (state ^ number) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


def _mixed(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)
