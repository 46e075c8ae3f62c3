"""Double binary tree: two trees at once, each with half of the bytes, reduced up and sent down.

Tree 1 is the in-order tree: the lowest set bit of a node's number is its level, node 0 is the root
with one child.  Tree 2 is its mirror for an even number of nodes and tree 1 shifted by one for an
odd number, so that hardly any node has children in both.  Inside a node the ranks are a chain
below the one that the tree joins to other nodes; every ring's order gives such chains, and carries
its share of the bytes.  The bytes move in PIECES pieces: in round r the ranks d hops from the root
(of D hops in all) send piece r - (D - d) up, and piece r - (D + d) down.  So the deepest ranks
begin, and after 2 D + PIECES - 1 rounds everybody has every piece.

A rank receives and sends at most 2 S, the double of what it must; each round costs the latency and
the pieces on the busiest link.
Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and
scan", Parallel Computing 35 (2009) 581-594; NVIDIA/nccl 2.30.7 src/graph/trees.cc for the shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpsim.collectives import Algorithm, Ranks, Stage, Topology, TransferList, Transfers
from dpsim.collectives.ring_orders import rings
from dpsim.core.arrays import IntArray
from dpsim.core.many import added, settled

#: pieces of a pipelined transfer; NCCL has S / (channels x chunk) of them, at least one
PIECES = 8
Parents = tuple[int, ...]


class DoubleTree(Algorithm):
    """All-reduce over two trees per ring."""

    operations = ("all_reduce",)
    proportional = True

    def stages(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> Iterator[Stage]:
        branches = list(_branches(ranks, topology, together=False))
        deepest = max(int(branch.depth.max()) for branch in branches if len(branch.depth))
        for number in range(2 * deepest + PIECES - 1):
            parts = []
            for branch in branches:
                first = deepest - branch.depth, deepest + branch.depth - 1
                for flow, begins in zip(branch.both(size / PIECES), first, strict=True):
                    now = (begins <= number) & (number < begins + PIECES)
                    parts.append(flow.some(now))
            yield Stage(1, TransferList(parts))

    def traffic(
        self, operation: str, ranks: Ranks, size: float, topology: Topology
    ) -> TransferList:
        return TransferList(
            lambda: (
                flow
                for branch in _branches(ranks, topology, together=True)
                for flow in branch.both(size)
            )
        )

    def seconds(
        self, operation: str, n: int, size: float, latency: float, bandwidth: float
    ) -> float:
        """For one rank a node: every rank has one link in and one out."""
        trees = [(tree, depths(tree)) for tree in two_trees(n)]
        deepest = max(max(levels) for _, levels in trees)
        total = 0.0
        for number in range(2 * deepest + PIECES - 1):
            into, out = [0] * n, [0] * n
            for tree, levels in trees:
                for child, parent in enumerate(tree):
                    if parent < 0:
                        continue
                    up = 0 <= number - (deepest - levels[child]) < PIECES
                    down = 0 <= number - (deepest + levels[child] - 1) < PIECES
                    for sends, a, b in ((up, child, parent), (down, parent, child)):
                        out[a] += sends
                        into[b] += sends
            total += latency + max(*into, *out) * size / (2 * PIECES * bandwidth)
        return total

    def bytes_sent(self, operation: str, n: int, size: float) -> float:
        return 2 * (n - 1) / n * size


class _Branches(NamedTuple):
    """Hops of trees: children, parents, how many hops the children are from the root, the share of
    the bytes, and the order of all branches."""

    children: IntArray
    parents: IntArray
    depth: IntArray
    share: float
    order: IntArray

    def both(self, size: float) -> tuple[Transfers, Transfers]:
        """Their shares of `size` bytes up and down."""
        bytes_ = self.share * size
        up = Transfers(self.children, self.parents, bytes_, 2 * self.order)
        return up, Transfers(self.parents, self.children, bytes_, 2 * self.order + 1)


def _branches(ranks: Ranks, topology: Topology, *, together: bool) -> Iterator[_Branches]:
    """Every branch of the trees; `together`: chains of a node once for both trees, for they are the
    same."""
    found = rings(topology, ranks)
    total = added(ring.bandwidth for ring in found)
    for number, ring in enumerate(found):
        share, width = settled(ring.bandwidth / total) / 2, ring.longest
        heads = ring.ends[0]
        for which, (parents, far) in enumerate(_trees(len(heads))):
            before = (2 * number + which) * len(heads) * width
            places = np.flatnonzero(parents >= 0)
            order = before + places * width
            yield _Branches(heads[places], heads[parents[places]], far[places], share, order)
            for step in range(1, width if not (together and which) else 0):
                places, above, below = ring.inside(step)
                part = 2 * share if together else share
                order = before + places * width + step
                yield _Branches(below, above, far[places] + step, part, order)


def two_trees(n: int) -> tuple[Parents, Parents]:
    """The parents of all nodes in both trees; a root's is -1."""
    first, second = (tuple(parents.tolist()) for parents, _ in _trees(n))
    return first, second


def depths(tree: Parents) -> tuple[int, ...]:
    """How many hops every node is from its root."""
    return tuple(_depths(np.array(tree)).tolist())


@lru_cache(maxsize=64)
def _trees(n: int) -> tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]]:
    """Parents and depths of all nodes in both trees."""
    node = np.arange(n)
    bit = np.maximum(node & -node, 1)
    up = (node ^ bit) | (bit << 1)
    first = np.where(up >= n, node ^ bit, up)  # `ncclGetBtree`: the lowest bit moves one up
    first[0] = -1
    other = first[::-1] if n % 2 == 0 else np.roll(first, 1)
    second = n - 1 - other if n % 2 == 0 else (other + 1) % n
    second = np.where(other < 0, -1, second)
    return (first, _depths(first)), (second, _depths(second))


def _depths(parents: IntArray) -> IntArray:
    found = np.zeros(len(parents), dtype=np.int64)
    above = parents
    while (above >= 0).any():
        found += above >= 0
        above = np.where(above >= 0, parents[above], -1)
    return found
