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
from itertools import groupby

from dpsim.collectives import Algorithm, Stage, Topology, Transfer
from dpsim.collectives.ring_orders import rings

#: pieces of a pipelined transfer; NCCL has S / (channels x chunk) of them, at least one
PIECES = 8
Parents = tuple[int, ...]


class DoubleTree(Algorithm):
    """All-reduce over two trees per ring."""

    operations = ("all_reduce",)
    proportional = True

    def stages(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology
    ) -> Iterator[Stage]:
        branches = list(_branches(ranks, topology))
        deepest = max(depth for *_, depth, _ in branches)
        for number in range(2 * deepest + PIECES - 1):
            transfers = []
            for child, parent, depth, share in branches:
                piece = share * size / PIECES
                if 0 <= number - (deepest - depth) < PIECES:
                    transfers.append(Transfer(child, parent, piece))
                if 0 <= number - (deepest + depth - 1) < PIECES:
                    transfers.append(Transfer(parent, child, piece))
            yield Stage(1, tuple(transfers))

    def traffic(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology
    ) -> Iterator[Transfer]:
        for child, parent, _, share in _branches(ranks, topology):
            yield Transfer(child, parent, share * size)
            yield Transfer(parent, child, share * size)

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


def _branches(ranks: tuple[int, ...], topology: Topology) -> Iterator[tuple[int, int, int, float]]:
    """Every (child, parent, hops of the child from its root, share of the bytes)."""
    found = rings(topology, ranks)
    total = sum(ring.bandwidth for ring in found)
    for ring in found:
        chains = [tuple(chain) for _, chain in groupby(ring.order, key=topology.node_of)]
        if len(chains) > 1 and topology.node_of(ring.order[0]) == topology.node_of(ring.order[-1]):
            chains[0] = chains.pop() + chains[0]
        for tree in two_trees(len(chains)):
            share = ring.bandwidth / total / 2
            for place, (parent, depth) in enumerate(zip(tree, depths(tree), strict=True)):
                chain = chains[place]
                if parent >= 0:
                    yield chain[0], chains[parent][0], depth, share
                for step in range(1, len(chain)):
                    yield chain[step], chain[step - 1], depth + step, share


@lru_cache(maxsize=256)
def two_trees(n: int) -> tuple[Parents, Parents]:
    """The parents of all nodes in both trees; a root's is -1."""
    first = tuple(_parent(node, n) for node in range(n))
    if n % 2 == 0:
        mirrored = [first[n - 1 - node] for node in range(n)]
        return first, tuple(-1 if up < 0 else n - 1 - up for up in mirrored)
    shifted = [first[(node - 1) % n] for node in range(n)]
    return first, tuple(-1 if up < 0 else (up + 1) % n for up in shifted)


def _parent(node: int, n: int) -> int:
    """The parent in the in-order tree (`ncclGetBtree`): the lowest bit moves one place up."""
    if node == 0:
        return -1
    bit = node & -node
    up = (node ^ bit) | (bit << 1)
    return node ^ bit if up >= n else up


@lru_cache(maxsize=256)
def depths(tree: Parents) -> tuple[int, ...]:
    """How many hops every node is from its root."""
    found: list[int] = []
    for node in range(len(tree)):
        depth = 0
        while (node := tree[node]) >= 0:
            depth += 1
        found.append(depth)
    return tuple(found)
