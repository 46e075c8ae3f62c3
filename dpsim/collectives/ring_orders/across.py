"""Rings over several nodes: node by node, one for every NIC in use."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from itertools import pairwise

import numpy as np

from dpsim.collectives import Edge, Members, Topology, Transfers, convoys_of
from dpsim.collectives.ring_orders.inside import (
    SEARCH_LIMIT,
    Locals,
    Pair,
    edges_of,
    mesh_of,
    pair_of,
    share_of,
)
from dpsim.core.arrays import Array
from dpsim.core.many import smaller
from dpsim.machines.tally import Convoy, Tally


def across(topology: Topology, group: Members) -> Iterator[tuple[tuple[Locals, ...], float]]:
    """One ring per NIC: the way through a node for every shape, and the ring's bandwidth."""
    inner = [_inner(topology, inside) for inside in group.shapes]
    count = max(len(ways) for ways in inner)
    chosen = [tuple(ways[ring % len(ways)] for ways in inner) for ring in range(count)]
    return zip(chosen, _bandwidths(topology, group, chosen), strict=True)


def _inner(topology: Topology, inside: Locals) -> list[Locals]:
    """For every NIC in use, the order in which a ring visits the GPUs `inside` a node."""
    members: dict[int, list[int]] = {}
    for gpu in inside:
        members.setdefault(topology.nic_of(gpu), []).append(gpu)
    mesh = mesh_of(topology, inside) if len(inside) <= SEARCH_LIMIT else {}
    taken: Counter[Pair] = Counter()
    ways: list[Locals] = []
    for nic, gpus in sorted(members.items()):
        steps = {gpu: len(topology.inside(("gpu", 0, gpu), ("nic", 0, nic))) for gpu in gpus}
        near = [gpu for gpu in gpus if steps[gpu] == min(steps.values())]
        ends = {way[-1] for way in ways}
        way = _mesh_way(inside, near, mesh, taken, ends) or _turned(inside, near)
        taken.update(pairwise(way))
        ways.append(way)
    return ways


def _turned(inside: Locals, near: list[int]) -> Locals:
    """Rank order, turned to start at a GPU of `near` and to end at another if there is one."""
    start = next((g for g in near if inside[inside.index(g) - 1] in near), near[0])
    at = inside.index(start)
    order = inside[at:] + inside[:at]
    others = [gpu for gpu in near if gpu != start]
    if others and order[-1] not in others:
        order = (*(gpu for gpu in order if gpu != others[-1]), others[-1])
    return order


def _mesh_way(
    inside: Locals, near: list[int], mesh: dict[Pair, float], taken: Counter[Pair], ends: set[int]
) -> Locals | None:
    """The widest path over direct links from the first of `near` through all to one of `near`,
    or at least to a GPU that is not yet one of `ends`, so that every NIC sends for one ring."""
    best: tuple[tuple[bool, bool, float], Locals] | None = None
    for order in _candidates(near[0], inside, mesh) if mesh else ():
        hops = list(pairwise(order))
        width = min((mesh[pair_of(a, b)] / (1 + taken[a, b]) for a, b in hops), default=0.0)
        score = (order[-1] in near, order[-1] not in ends, width)
        if best is None or score > best[0]:
            best = (score, order)
    return best[1] if best else None


def _candidates(start: int, inside: Locals, mesh: dict[Pair, float]) -> Iterator[Locals]:
    """Paths from `start` over direct links; where all of an even number are joined, first the
    zigzag, for the zigzags from all starts share no wire in one direction (Walecki)."""
    count = len(inside)
    if count % 2 == 0 and len(mesh) == count * (count - 1) // 2:
        at = inside.index(start)
        steps = [(step + 1) // 2 * (1 if step % 2 else -1) for step in range(count)]
        yield tuple(inside[(at + step) % count] for step in steps)
    yield from _through((start,), inside, mesh)


def _through(begun: Locals, inside: Locals, mesh: dict[Pair, float]) -> Iterator[Locals]:
    """Every path over direct links that goes on from `begun` through all of `inside`."""
    if len(begun) == len(inside):
        yield begun
    for gpu in inside:
        if gpu not in begun and pair_of(begun[-1], gpu) in mesh:
            yield from _through((*begun, gpu), inside, mesh)


#: a link inside nodes, as in node 0, of a shape
Key = tuple[int, Edge]


def _bandwidths(
    topology: Topology, group: Members, chosen: list[tuple[Locals, ...]]
) -> Iterator[float]:
    """What each ring can carry while all run.

    Nodes with the same GPUs in use count as one: an edge inside a node stands for the same edge
    of all of them, with the load of the busiest.
    """
    tally = Tally(topology, group.nodes)
    crossings = [list(_crossing(topology, group, ways)) for ways in chosen]
    inside: Counter[Key] = Counter()
    for ways, convoys in zip(chosen, crossings, strict=True):
        for convoy in convoys:
            tally.add(convoy, 1.0, np.zeros(len(convoy.sources), dtype=np.int64))
        inside.update(_hops(topology, ways))
    shape = [group.shape == k for k in range(len(group.shapes))]
    for ways, convoys in zip(chosen, crossings, strict=True):
        used = set(_hops(topology, ways))
        least = math.inf
        for convoy in convoys:
            for hop, loads, bandwidths in tally.crossed(convoy):
                if hop.inside:
                    nodes = convoy.targets if hop.into else convoy.sources
                    own = group.shape[np.searchsorted(group.nodes, nodes)]
                    used |= {(int(k), hop.edge) for k in np.unique(own)}
                else:
                    least = smaller(least, _least(bandwidths, loads))
        most = {key: tally.most(key[1], shape[key[0]]) for key in used}
        shares = (share_of(topology, key[1], most[key] + inside[key]) for key in used)
        yield reduce(smaller, shares, least)


def _least(bandwidths: float | Array, loads: Array) -> float:
    """The least of bandwidth over load; infinite where no load is a number."""
    if isinstance(bandwidths, np.ndarray):
        return float(np.fmin.reduce(bandwidths / loads, initial=math.inf))
    most = float(np.fmax.reduce(loads, initial=0.0))
    return bandwidths / most if most else math.inf


def _hops(topology: Topology, ways: tuple[Locals, ...]) -> Iterator[Key]:
    """The edges that a ring crosses inside nodes."""
    for k, way in enumerate(ways):
        for edge in edges_of(topology, way, closed=False):
            yield k, edge


def _crossing(topology: Topology, group: Members, ways: tuple[Locals, ...]) -> Iterator[Convoy]:
    """The messages of a ring from node to node."""
    last, first = (np.array([way[k] for way in ways])[group.shape] for k in (-1, 0))
    nodes = group.nodes * topology.gpus
    ends = nodes + last, np.roll(nodes + first, -1)
    flow = Transfers(*ends, 1.0, np.zeros(len(nodes), dtype=np.int64))
    return (convoy for convoy, _ in convoys_of(flow, topology))
