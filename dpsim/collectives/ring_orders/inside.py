"""Rings inside one node: over a mesh of NVLinks, as many as its links allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import permutations

from dpsim.collectives import Edge, Topology

SEARCH_LIMIT = 8  # GPUs; above, rings are not searched
_PACK_LIMIT = 50_000  # combinations of cycles tried
#: eight GPUs, all joined: seven rings that together use every wire once in each direction (Tillson,
#: J. Combin. Theory B 29 (1980) 68-74, says for which numbers there are such rings)
_EIGHT = (
    (0, 5, 6, 3, 7, 2, 1, 4), (0, 4, 2, 3, 5, 7, 1, 6), (0, 3, 2, 7, 5, 4, 6, 1),
    (0, 7, 6, 2, 4, 1, 5, 3), (0, 6, 7, 4, 3, 1, 2, 5), (0, 2, 6, 5, 1, 3, 4, 7),
    (0, 1, 7, 3, 6, 4, 5, 2),
)  # fmt: skip

Locals = tuple[int, ...]
Pair = tuple[int, int]
Hops = dict[Pair, tuple[Pair, ...]]  # the wires between two GPUs, direct or through a third


def share_of(topology: Topology, edge: Edge, load: float) -> float:
    """What one of `load` rings has of a link [B/s]."""
    return topology.link(edge).bandwidth / load


def edges_of(topology: Topology, order: tuple[int, ...], *, closed: bool) -> Iterator[Edge]:
    """The edges of all hops of `order`, GPU numbers of node 0."""
    after = order[1:] + order[:1] if closed else order[1:]
    for a, b in zip(order, after, strict=False):
        yield from topology.inside(("gpu", 0, a), ("gpu", 0, b))


def mesh_of(topology: Topology, inside: Locals) -> dict[Pair, float]:
    """Bandwidth of the wires that join two GPUs of `inside` directly, by (lower, higher) number."""
    found = {}
    for a in inside:
        for b in inside:
            path = topology.inside(("gpu", 0, a), ("gpu", 0, b)) if a < b else ()
            if len(path) == 1:
                found[a, b] = topology.link(path[0]).bandwidth
    return found


def cycles(topology: Topology, inside: Locals) -> list[Locals]:
    """Rings over a mesh, each one link wide; a cycle of three or more runs in both directions.

    Cycles over direct links only are preferred; where there is none, hops may pass through a
    third GPU.  Empty where NVLinks cannot make a ring.
    """
    mesh = mesh_of(topology, inside)
    if not mesh or len(inside) > SEARCH_LIMIT:
        return []
    unit = min(mesh.values())
    if len(mesh) == len(inside) * (len(inside) - 1) // 2 and unit == max(mesh.values()):
        if len(inside) == 8:
            return [tuple(inside[place] for place in order) for order in _EIGHT]
        if len(inside) == 4:
            unit /= 2  # each of the three cycles takes half of its wires
    if len(inside) == 2:
        return [inside] * int(mesh[inside[0], inside[1]] / unit + 1e-9)
    direct: Hops = {pair: (pair,) for pair in mesh}
    for hops in (direct, direct | _relays(topology, inside)):
        uses = _hamiltonian(inside, tuple(hops.items()))
        if uses:
            room = _room(topology, uses, unit)
            chosen = _pack(list(uses.items()), room, _most(inside, room))
            return [ring for order in chosen for ring in (order, (order[0], *order[:0:-1]))]
    return []


def _room(topology: Topology, uses: Mapping[Locals, Counter[Pair]], unit: float) -> Counter[Pair]:
    """How many links of width `unit` each pair of GPUs in `uses` has."""
    pairs = {pair for use in uses.values() for pair in use}
    room: Counter[Pair] = Counter()
    for a, b in pairs:
        room[a, b] = int(topology.link((("gpu", 0, a), ("gpu", 0, b))).bandwidth / unit + 1e-9)
    return room


def _relays(topology: Topology, inside: Locals) -> Hops:
    """The two wires of every pair of GPUs that reach each other through a third."""
    found: Hops = {}
    for a in inside:
        for b in inside:
            path = topology.inside(("gpu", 0, a), ("gpu", 0, b)) if a < b else ()
            if len(path) == 2 and path[0][1][0] == "gpu":
                middle = path[0][1][2]
                found[a, b] = (pair_of(a, middle), pair_of(middle, b))
    return found


def pair_of(a: int, b: int) -> Pair:
    """(lower, higher) number."""
    return (a, b) if a < b else (b, a)


@lru_cache(maxsize=64)  # however fast the wires are, and whatever else a sweep changes
def _hamiltonian(
    inside: Locals, wires: tuple[tuple[Pair, tuple[Pair, ...]], ...]
) -> Mapping[Locals, Counter[Pair]]:
    """Every undirected cycle through all of `inside`, with the `wires` between pairs that it
    takes."""
    found, hops = {}, dict(wires)
    first, *rest = inside
    for middle in permutations(rest):
        order = (first, *middle)
        pairs = [pair_of(a, b) for a, b in zip(order, order[1:] + order[:1], strict=True)]
        if middle[0] < middle[-1] and all(pair in hops for pair in pairs):
            found[order] = Counter(wire for pair in pairs for wire in hops[pair])
    return found


def _most(inside: Locals, room: Counter[Pair]) -> int:
    """No more cycles than half of the fewest links that a GPU has."""
    return min(sum(n for pair, n in room.items() if gpu in pair) for gpu in inside) // 2


def _pack(
    cycles: list[tuple[Locals, Counter[Pair]]], room: Counter[Pair], most: int
) -> list[Locals]:
    """As many cycles as fit in `room` together, at most `most`; depth first, with an end."""
    best: list[Locals] = []
    tries = 0

    def extend(start: int, chosen: list[Locals]) -> None:
        nonlocal best, tries
        if len(chosen) > len(best):
            best = list(chosen)
        for index in range(start, len(cycles)):
            tries += 1
            if len(best) >= most or tries > _PACK_LIMIT:
                return
            order, use = cycles[index]
            if all(room[pair] >= count for pair, count in use.items()):
                room.subtract(use)
                extend(index, [*chosen, order])
                room.update(use)

    extend(0, [])
    return best
