"""Who is in a group: ranks, and how they lie in nodes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dpsim.core.arrays import IntArray
from dpsim.core.lean import dataclass

#: ranks of a group: a range where they are evenly spaced, which is compared and hashed at once
Ranks = tuple[int, ...] | range
#: GPUs of one node, by number
Locals = tuple[int, ...]
#: GPUs of a node that one number says are in use or not
_BITS = 62


def as_ranks(ranks: Iterable[int]) -> Ranks:
    """The same ranks in the same order, as a range where they ascend evenly: so that equal groups
    are equal keys."""
    if isinstance(ranks, range):
        return ranks
    known = tuple(ranks)
    if not known:
        return known
    step = known[1] - known[0] if len(known) > 1 else 1
    evenly = range(known[0], known[0] + step * len(known), step) if step > 0 else range(0)
    return evenly if len(evenly) == len(known) and tuple(evenly) == known else known


def rank_array(ranks: Iterable[int]) -> IntArray:
    """The same as an array."""
    if isinstance(ranks, range):
        return np.arange(ranks.start, ranks.stop, ranks.step, dtype=np.int64)
    return np.array(tuple(ranks), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Members:
    """The ranks of a group by node.

    nodes    numbers of the nodes that have some, ascending
    shapes   the GPUs of a node that are in use, each such set once
    shape    for each of `nodes`, which of `shapes` it has
    starts   for each of `nodes`, how many ranks are on nodes before it
    """

    nodes: IntArray
    shapes: tuple[Locals, ...]
    shape: IntArray
    starts: IntArray

    def shape_of(self, node: int) -> Locals:
        """The GPUs of one of `nodes` that are in use."""
        return self.shapes[self.shape[np.searchsorted(self.nodes, node)]]

    @property
    def alike(self) -> bool:
        """Whether all nodes have the same GPUs in use."""
        return len(self.shapes) == 1

    @property
    def sizes(self) -> set[int]:
        """How many ranks a node may have."""
        return {len(shape) for shape in self.shapes}


def members(ranks: Ranks, gpus: int) -> Members:
    """Where `ranks`, each once, lie on nodes of `gpus` GPUs."""
    found = rank_array(ranks)
    if not isinstance(ranks, range) or ranks.step < 0:
        found = np.sort(found)
    node = found // gpus
    place = found - node * gpus
    starts = np.flatnonzero(np.r_[True, node[1:] != node[:-1]])
    ends = np.r_[starts[1:], len(found)]
    shape = np.zeros(len(starts), dtype=np.int64)
    for low in range(0, gpus, _BITS):
        here = (place >= low) & (place < low + _BITS)
        bits = np.where(here, np.left_shift(1, np.where(here, place - low, 0)), 0)
        _, kind = np.unique(np.add.reduceat(bits, starts), return_inverse=True)
        _, shape = np.unique(shape * (len(starts) + 1) + kind, return_inverse=True)
    _, first = np.unique(shape, return_index=True)
    shapes = tuple(tuple(place[starts[k] : ends[k]].tolist()) for k in first)
    return Members(node[starts], shapes, shape, starts)
