"""Rings over several nodes: node by node, one for every NIC in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from dpsim.collectives import Edge, Topology
from dpsim.collectives.ring_orders.inside import (
    SEARCH_LIMIT,
    Locals,
    Pair,
    edges_of,
    mesh_of,
    pair_of,
    share_of,
)


def across(topology: Topology, nodes: dict[int, Locals]) -> Iterator[tuple[tuple[int, ...], float]]:
    """One ring per NIC, with its bandwidth; the way through a node is found once for every set of
    local GPUs."""
    inner = {inside: _inner(topology, inside) for inside in set(nodes.values())}
    count = max(len(ways) for ways in inner.values())
    chosen = [
        [(node, inner[inside][ring % len(inner[inside])]) for node, inside in nodes.items()]
        for ring in range(count)
    ]
    loads, used = _loads(topology, nodes, inner, chosen)
    for number, ring in enumerate(chosen):
        order = tuple(node * topology.gpus + gpu for node, way in ring for gpu in way)
        yield order, min(share_of(topology, key[1], loads[key]) for key in used[number])


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


Key = tuple[Locals | None, Edge]


def _loads(
    topology: Topology,
    nodes: dict[int, Locals],
    inner: dict[Locals, list[Locals]],
    chosen: list[list[tuple[int, Locals]]],
) -> tuple[Counter[Key], list[set[Key]]]:
    """How many rings share each edge, and the edges of each ring.

    Nodes with the same GPUs in use count as one: an edge inside a node stands for the same edge
    of all of them, with the load of the busiest.
    """
    between: Counter[Edge] = Counter()
    crossed: list[set[Edge]] = []
    for ring in chosen:
        ends = zip(ring, ring[1:] + ring[:1], strict=True)
        mine: set[Edge] = set()
        for (a, out), (b, into) in ends:
            path = topology.route(a * topology.gpus + out[-1], b * topology.gpus + into[0])
            between.update(path)
            mine.update(path)
        crossed.append(mine)
    keys = {edge: _key(edge, nodes) for edge in between}
    loads: Counter[Key] = Counter()
    for edge, count in between.items():
        loads[keys[edge]] = max(loads[keys[edge]], count)
    used = [{keys[edge] for edge in mine} for mine in crossed]
    shapes = sorted(inner)
    for number in range(len(chosen)):
        for shape in shapes:
            way = inner[shape][number % len(inner[shape])]
            hops = [(shape, edge) for edge in edges_of(topology, way, closed=False)]
            loads.update(hops)
            used[number].update(hops)
    return loads, used


def _key(edge: Edge, nodes: dict[int, Locals]) -> Key:
    """An edge inside a node as (its GPUs in use, the edge in node 0); a cable as itself."""
    (a, b) = edge
    if a[0] in ("leaf", "spine") or b[0] in ("leaf", "spine"):
        return None, edge
    return nodes[a[1]], ((a[0], 0, *a[2:]), (b[0], 0, *b[2:]))
