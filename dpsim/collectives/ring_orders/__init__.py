"""Ring orders from the topology: which GPU sends to which, and what each ring can carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from dpsim.collectives import Edge, Topology
from dpsim.collectives.ring_orders.across import across
from dpsim.collectives.ring_orders.inside import Locals, cycles, edges_of, share_of


@dataclass(frozen=True)
class RingOrder:
    """Every rank sends to the next of `order`, the last to the first, at `bandwidth` [B/s].

    `bandwidth` is what all hops of this ring can carry while the other rings run too.
    """

    order: tuple[int, ...]
    bandwidth: float


def rings(topology: Topology, ranks: Iterable[int]) -> tuple[RingOrder, ...]:
    """The rings over `ranks`, which is any set of ranks; none for a single rank.

    One node with an NVLink mesh: as many Hamiltonian cycles as its links allow, each one link
    wide.  One node otherwise: rank order.  Several nodes: node by node in rank order, one ring
    for every NIC in use, each entering and leaving a node through GPUs beside that NIC.
    They are those of the machine with balanced up-links: no library knows where flows collide.
    """
    topology = topology.balanced
    known = tuple(sorted(set(ranks)))
    return topology.once(("rings", known), lambda: _rings(topology, known))


def _rings(topology: Topology, ranks: tuple[int, ...]) -> tuple[RingOrder, ...]:
    nodes = {
        node: tuple(rank % topology.gpus for rank in group)
        for node, group in groupby(ranks, key=topology.node_of)
    }
    if len(ranks) < 2:
        return ()
    found = across(topology, nodes) if len(nodes) > 1 else _within(topology, *nodes.popitem())
    return tuple(RingOrder(order, bandwidth) for order, bandwidth in found)


def _within(
    topology: Topology, node: int, inside: Locals
) -> Iterator[tuple[tuple[int, ...], float]]:
    """The rings over the GPUs `inside` of one node, each with its bandwidth."""
    orders = cycles(topology, inside) or [inside]
    loads: Counter[Edge] = Counter()
    for order in orders:
        loads.update(edges_of(topology, order, closed=True))
    for order in orders:
        edges = edges_of(topology, order, closed=True)
        bandwidth = min(share_of(topology, edge, loads[edge]) for edge in edges)
        yield tuple(node * topology.gpus + gpu for gpu in order), bandwidth
