"""Cables by rule: which links between the nodes messages cross, for many messages at once."""

from __future__ import annotations

from collections.abc import Iterator

from dpsim.core.arrays import Array, IntArray
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Edge, Vertex


class Cables:
    """Contract of a network of which no graph is needed: every NIC has one cable, to its leaf; all
    NICs can reach each other; and all cables are of one kind.

    The links between switches, which there need not be, are numbered; a message crosses none of
    them or `levels`, one after the other.
    """

    levels = 0

    def leaf_of(self, nic: Vertex) -> Vertex:
        """The switch that `nic` is plugged into."""
        raise NotImplementedError

    def port(self, node: int) -> Link:
        """The cable of a NIC of `node`, one direction."""
        raise NotImplementedError

    def port_bandwidths(self, nodes: IntArray) -> float | Array:
        """The bandwidth of the cables of the NICs of every one of `nodes` [B/s]; one number where
        they are all equal."""
        raise NotImplementedError

    def trunks(
        self, sources: IntArray, nic: int, targets: IntArray, into: int
    ) -> tuple[IntArray, ...]:
        """For messages from NIC number `nic` of each of the nodes `sources` to NIC number `into` of
        each of `targets`: the links between switches of each level that they cross, by number, -1
        where a message crosses none."""
        return ()

    @property
    def trunk(self) -> Link:
        """A link between switches."""
        raise NotImplementedError

    def trunk_edge(self, number: int) -> Edge:
        """The vertices that link `number` joins."""
        raise NotImplementedError

    def trunk_number(self, edge: Edge) -> int:
        """The number of the link between switches that joins these vertices."""
        raise NotImplementedError

    def leaves(self, nodes: int, nics: int) -> Iterator[tuple[int, int, float, float]]:
        """How many leaves are alike, and of each: how many NICs are plugged in, the fastest of
        their cables, and what all its links to other switches carry together [B/s]."""
        raise NotImplementedError

    def surroundings(self, nodes: IntArray) -> tuple[int | float, ...] | None:
        """What tells `nodes` (ascending) from as many others; None: nothing is known to be like
        them."""
        raise NotImplementedError

    def moved(self, numbers: IntArray, nodes: IntArray, to: IntArray) -> IntArray:
        """The links that are to the nodes `to` what `numbers` are to `nodes`, which have equal
        surroundings."""
        return numbers

    def link(self, edge: Edge) -> Link:
        """The link of an edge that is no node's own."""
        for end in edge:
            if end[0] == "nic":
                return self.port(end[1])
        return self.trunk
