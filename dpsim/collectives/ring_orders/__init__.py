"""Ring orders from the topology: which GPU sends to which, and what each ring can carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from dpsim.collectives import Edge, Members, Ranks, Topology, Transfers, as_ranks, members_of
from dpsim.collectives.ring_orders.across import across
from dpsim.collectives.ring_orders.inside import Locals, cycles, edges_of, share_of
from dpsim.core.arrays import IntArray
from dpsim.core.lean import dataclass


@dataclass(frozen=True, eq=False)
class RingOrder:
    """Every rank sends to the next of `order`, the last to the first, at `bandwidth` [B/s].

    The ring goes from node to node in the order of `members`, and through a node in the order of
    its shape's `ways`.  `bandwidth` is what all hops of this ring can carry while the other rings
    run too.
    """

    members: Members
    ways: tuple[Locals, ...]
    gpus: int
    bandwidth: float

    @cached_property
    def order(self) -> tuple[int, ...]:
        """All ranks."""
        shapes = zip(self.members.nodes.tolist(), self.members.shape.tolist(), strict=True)
        return tuple(node * self.gpus + gpu for node, k in shapes for gpu in self.ways[k])

    @property
    def longest(self) -> int:
        """Most ranks of a node."""
        return max(len(way) for way in self.ways)

    def inside(self, step: int) -> tuple[IntArray, IntArray, IntArray]:
        """For every node that has so many ranks: its place among the nodes, the rank before place
        `step` of its way, and the rank there."""
        before, here = (
            np.array([way[k] if step < len(way) else -1 for way in self.ways])
            for k in (step - 1, step)
        )
        places = np.flatnonzero(here[self.members.shape] >= 0)
        nodes, shape = self.members.nodes[places] * self.gpus, self.members.shape[places]
        return places, nodes + before[shape], nodes + here[shape]

    @property
    def ends(self) -> tuple[IntArray, IntArray]:
        """The first and the last rank of every node."""
        nodes = self.members.nodes * self.gpus
        first, last = (np.array([way[k] for way in self.ways]) for k in (0, -1))
        return nodes + first[self.members.shape], nodes + last[self.members.shape]

    def hops(self, bytes_: float) -> Iterator[Transfers]:
        """Every rank sends so many bytes onward; in the order of the ring."""
        for step in range(1, self.longest):
            places, sources, targets = self.inside(step)
            yield Transfers(sources, targets, bytes_, places * self.longest + step - 1)
        first, last = self.ends
        steps = np.array([len(way) - 1 for way in self.ways])[self.members.shape]
        order = np.arange(len(last)) * self.longest + steps
        yield Transfers(last, np.roll(first, -1), bytes_, order)


def rings(topology: Topology, ranks: Iterable[int]) -> tuple[RingOrder, ...]:
    """The rings over `ranks`, which is any set of ranks; none for a single rank.

    One node with an NVLink mesh: as many Hamiltonian cycles as its links allow, each one link
    wide.  One node otherwise: rank order.  Several nodes: node by node in rank order, one ring
    for every NIC in use, each entering and leaving a node through GPUs beside that NIC.
    They are those of the machine with balanced up-links: no library knows where flows collide.
    """
    topology = topology.balanced
    ascending = isinstance(ranks, range) and ranks.step > 0
    known = as_ranks(ranks if ascending else sorted(set(ranks)))
    return topology.once(("rings", known), lambda: _rings(topology, known))


def _rings(topology: Topology, ranks: Ranks) -> tuple[RingOrder, ...]:
    if len(ranks) < 2:
        return ()
    group = members_of(ranks, topology)
    several = len(group.nodes) > 1
    found = across(topology, group) if several else _within(topology, group.shapes[0])
    return tuple(RingOrder(group, ways, topology.gpus, bandwidth) for ways, bandwidth in found)


def _within(topology: Topology, inside: Locals) -> Iterator[tuple[tuple[Locals], float]]:
    """The rings over the GPUs `inside` of one node, each with its bandwidth."""
    orders = cycles(topology, inside) or [inside]
    loads: Counter[Edge] = Counter()
    for order in orders:
        loads.update(edges_of(topology, order, closed=True))
    for order in orders:
        edges = edges_of(topology, order, closed=True)
        yield (order,), min(share_of(topology, edge, loads[edge]) for edge in edges)
