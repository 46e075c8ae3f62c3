"""The rounds of MPI's algorithms, in the order of ranks.

A round is so many equal repeats of messages that are under way together, and what a rank adds up
after each.  In a tree a parent sends to all its children at once and shares its link among them.

Sources: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005) 49-66;
open-mpi/ompi ompi/mca/coll/base/coll_base_topo.c (0da975f6) for the trees, coll_base_bcast.c
(07a69c33) for sending to all children at once, coll_base_{allreduce,allgather}.c; k-nomial trees
have the radix 4, and chains the fan-out 0, which becomes 1: a pipeline of whole messages
(ompi/mca/coll/tuned); Chen et al., CLUSTER 2005 (neighbour exchange);
coll_base_{reduce_scatter,alltoall}.c.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dpsim.backends import Topology
from dpsim.backends._mpi_rules import MpiRule
from dpsim.collectives import Ranks, Transfer, TransferList, rank_array
from dpsim.collectives.halving_doubling import HalvingDoubling
from dpsim.collectives.recursive_doubling import RecursiveDoubling
from dpsim.core.arrays import IntArray
from dpsim.core.record import Refused

_RADIX = 4


class Round(NamedTuple):
    """`repeats` times these messages at once; then a rank adds up `added` bytes."""

    repeats: int
    transfers: Sequence[Transfer]
    added: float = 0.0


def rounds(
    operation: str, rule: MpiRule, ranks: Ranks, size: float, topology: Topology
) -> list[Round]:
    """The rounds of `operation` on `size` bytes (full size) over `ranks`, as `rule` says."""
    name = rule.algorithm
    if operation == "all_reduce":
        return _all_reduce(rule, ranks, size, topology)
    if operation == "all_gather":
        return _GATHERS[name](ranks, size)
    if operation in ("reduce_scatter", "all_to_all"):
        return _scattered(operation, name, ranks, size)
    if name in _PARENTS:
        return _down(_PARENTS[name], ranks, size)
    if name in ("pipeline", "chain"):
        return _pipeline(ranks, size, rule.segment)
    if name in ("binomial_rounds", "scatter_recursive_doubling", "scatter_ring"):
        whole = name == "binomial_rounds"
        return _binomial_rounds(ranks, size) if whole else _scatter_gather(name, ranks, size)
    raise _unmodelled("broadcast", name, ranks, size)


def _unmodelled(operation: str, name: str, ranks: Ranks, size: float) -> Refused:
    message = f"{operation} of {size:,.0f} bytes over {len(ranks)} ranks by {name} is not modelled"
    return Refused(message, ("collective", "backend"))


# -- all-reduce -----------------------------------------------------------------------------------


def _all_reduce(rule: MpiRule, ranks: Ranks, size: float, topology: Topology) -> list[Round]:
    name, n = rule.algorithm, len(ranks)
    if name == "reduce_broadcast":
        return _reduce_broadcast(ranks, size)
    if name in ("recursive_doubling", "rabenseifner"):
        plugin = RecursiveDoubling() if name == "recursive_doubling" else HalvingDoubling()
        stages = list(plugin.stages("all_reduce", ranks, size, topology))
        adding = n.bit_length() - (n.bit_count() == 1)  # the first rounds add, the others pass on
        return [
            Round(s.repeats, s.transfers, s.transfers[0].bytes if k < adding else 0.0)
            for k, s in enumerate(stages)
        ]
    chunk = size / n
    count = math.ceil(chunk / rule.segment) if rule.segment else 1
    piece = chunk / count
    return [
        Round((n - 1) * count, _turned(ranks, 1, piece), piece),
        Round(n - 1, _turned(ranks, 1, chunk)),
    ]


def _reduce_broadcast(ranks: Ranks, size: float) -> list[Round]:
    """Up a binomial tree, and down the tree by which Open MPI broadcasts."""
    from dpsim.backends._mpi_rules import choose

    n = len(ranks)
    if n >= 2048:
        message = f"reduce and broadcast of {n} ranks, which the library takes, is not modelled"
        raise Refused(message, ("collective", "backend"))
    down = _down(_in_order_parent, ranks, size)
    up = [
        Round(1, tuple(Transfer(b, a, s) for a, b, s in r.transfers), _most_into(r) * size)
        for r in reversed(down)
    ]
    rule = choose("open_mpi", "5.0", "broadcast", n, size)
    return up + _down(_PARENTS[rule.algorithm], ranks, size)


def _most_into(level: Round) -> int:
    """Children of the parent that has most of them."""
    parents = [transfer.source for transfer in level.transfers]
    return max(parents.count(parent) for parent in set(parents))


def _turned(ranks: Ranks, by: int, piece: float) -> TransferList:
    """From every rank to the one `by` places on."""
    found = rank_array(ranks)
    return TransferList.between(found, np.roll(found, -by), piece)


# -- all-gather -----------------------------------------------------------------------------------


def _ring_gather(ranks: Ranks, size: float) -> list[Round]:
    return [Round(len(ranks) - 1, _turned(ranks, 1, size / len(ranks)))]


def _doubling_gather(ranks: Ranks, size: float) -> list[Round]:
    n, found = len(ranks), rank_array(ranks)
    place = np.arange(n)
    return [
        Round(1, TransferList.between(found, found[place ^ far], size * far / n))
        for far in (1 << level for level in range(n.bit_length() - 1))
    ]


def _bruck_gather(ranks: Ranks, size: float) -> list[Round]:
    n = len(ranks)
    return [
        Round(1, _turned(ranks, -far, min(far, n - far) * size / n))
        for far in (1 << level for level in range((n - 1).bit_length()))
    ]


def _neighbour_gather(ranks: Ranks, size: float) -> list[Round]:
    """Own block to one neighbour, then the last two blocks to one and the other in turn.

    The rounds of one kind are given together; in time that makes no difference.
    """
    n = len(ranks)

    def swaps(first: int, piece: float) -> TransferList:
        turned = np.roll(rank_array(ranks), -first)
        others = turned.reshape(-1, 2)[:, ::-1].ravel()
        return TransferList.between(turned, others, piece)

    later = n // 2 - 1
    found = [Round(1, swaps(0, size / n))]
    for first, count in ((1, (later + 1) // 2), (0, later // 2)):
        if count:
            found.append(Round(count, swaps(first, 2 * size / n)))
    return found


_GATHERS: dict[str, Callable[[Ranks, float], list[Round]]] = {
    "ring": _ring_gather,
    "recursive_doubling": _doubling_gather,
    "bruck": _bruck_gather,
    "neighbor_exchange": _neighbour_gather,
    "two_ranks": _ring_gather,
}


# -- reduce-scatter and all-to-all ----------------------------------------------------------------


def _scattered(operation: str, name: str, ranks: Ranks, size: float) -> list[Round]:
    """Every rank ends with what all have for it: the sum, or their parts.

    Small all-to-alls by Bruck's algorithm copy all they have in every round, at a rate that nobody
    states, so they are refused.
    """
    n, piece = len(ranks), size / len(ranks)
    added = piece if operation == "reduce_scatter" else 0.0
    if name == "ring":
        return [Round(n - 1, _turned(ranks, 1, piece), added)]
    if name == "pairwise":
        return [Round(1, _turned(ranks, far, piece), added) for far in range(1, n)]
    if name == "linear":
        far = np.arange(1, n)
        found = rank_array(ranks)
        sources = np.repeat(found, n - 1)
        targets = found[(np.arange(n)[:, None] + far) % n].ravel()
        return [Round(1, TransferList.between(sources, targets, piece))]
    if name in ("recursive_halving", "butterfly"):
        return _halving_scatter(ranks, size)
    if name == "recursive_doubling":
        doubled = [size - far * piece for far in _powers(n)]
        return [
            Round(1, _turned(ranks, far, part), part)
            for far, part in zip(_powers(n), doubled, strict=True)
        ]
    raise _unmodelled(operation, name, ranks, size)


def _powers(n: int) -> list[int]:
    """1, 2, 4 … below `n`."""
    return [1 << level for level in range((n - 1).bit_length())]


def _halving_scatter(ranks: Ranks, size: float) -> list[Round]:
    """Half of what is left goes to a partner ever nearer.  The ranks beyond a power of two give all
    they have before, and get their part at the end (a butterfly does without the last exchange,
    and pays for it in uneven halves)."""
    n, found = len(ranks), rank_array(ranks)
    p = 1 << (n.bit_length() - 1)
    first, place = found[:p], np.arange(p)
    rounds = [
        Round(1, TransferList.between(first, first[place ^ far], size * far / p), size * far / p)
        for far in reversed(_powers(p))
    ]
    if n == p:
        return rounds
    extra, partners = found[p:], found[: n - p]
    fold = Round(1, TransferList.between(extra, partners, size), size)
    return [fold, *rounds, Round(1, TransferList.between(partners, extra, size / n))]


# -- broadcast ------------------------------------------------------------------------------------


def _binary_parent(place: int) -> int:
    """Level by level; the children of a level of 2^k places are 2^k and 2^(k+1) further on."""
    wide = 1 << ((place + 1).bit_length() - 2)
    return place - wide if place < 3 * wide - 1 else place - 2 * wide


def _binomial_parent(place: int) -> int:
    """Without the highest bit."""
    return place - (1 << (place.bit_length() - 1))


def _in_order_parent(place: int) -> int:
    """Without the lowest bit: the binomial tree of reductions."""
    return place & (place - 1)


def _knomial_parent(place: int) -> int:
    """Without the lowest digit that is not 0."""
    digit = 1
    while place // digit % _RADIX == 0:
        digit *= _RADIX
    return place - place // digit % _RADIX * digit


#: the place before each place of a tree whose root is 0
_PARENTS: dict[str, Callable[[int], int]] = {
    "linear": lambda place: 0,
    "binary_tree": _binary_parent,
    "binomial_tree": _binomial_parent,
    "knomial_tree": _knomial_parent,
}


def _down(parent: Callable[[int], int], ranks: Ranks, size: float) -> list[Round]:
    """A round for each level of the tree."""
    n, found = len(ranks), rank_array(ranks)
    above = np.array([0, *(parent(place) for place in range(1, n))])
    depth, deepest = np.zeros(n, dtype=np.int64), -1
    while depth.max() > deepest:  # a level further down is right each time
        deepest = int(depth.max())
        depth = np.where(np.arange(n) > 0, depth[above] + 1, 0)
    levels = (np.flatnonzero(depth == level) for level in range(1, deepest + 1))
    return [Round(1, TransferList.between(found[above[at]], found[at], size)) for at in levels]


def _pipeline(ranks: Ranks, size: float, segment: int) -> list[Round]:
    """A chain; the last segment is at its end after n - 2 rounds more than there are segments."""
    n, found = len(ranks), rank_array(ranks)
    if not segment:
        return [Round(1, (Transfer(a, b, size),)) for a, b in pairwise(ranks)]
    count = max(math.ceil(size / segment), 1)
    hops = TransferList.between(found[:-1], found[1:], size / count)
    return [Round(count + n - 2, hops)]


def _binomial_rounds(ranks: Ranks, size: float) -> list[Round]:
    """MPICH's order of sends: farthest first, so that after round k 2^k ranks have it."""
    found = rank_array(ranks)
    return [
        Round(1, TransferList.between(found[at], found[at + far], size))
        for at, far in _halves(len(ranks))
    ]


def _scatter_gather(name: str, ranks: Ranks, size: float) -> list[Round]:
    """Halves of halves down a binomial tree, then an all-gather."""
    n, found = len(ranks), rank_array(ranks)
    if name == "scatter_recursive_doubling" and n.bit_count() != 1:
        message = f"{name} over {n} ranks, no power of two, is not modelled"
        raise Refused(message, ("collective", "backend"))
    scatter = [
        Round(1, TransferList.between(
            found[at], found[at + far], (np.minimum(at + 2 * far, n) - at - far) * size / n
        ))
        for at, far in _halves(n)
    ]  # fmt: skip
    ring = name == "scatter_ring"
    return scatter + (_ring_gather(ranks, size) if ring else _doubling_gather(ranks, size))


def _halves(n: int) -> Iterator[tuple[IntArray, int]]:
    """Distances from far to near, and the places that send so far: those that were reached."""
    for far in (1 << level for level in reversed(range((n - 1).bit_length()))):
        yield np.arange(0, n - far, 2 * far), far
