"""Ring orders from the topology: which GPU sends to which, and what each ring can carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise, permutations
from weakref import WeakKeyDictionary

from dpsim.machines.fabrics import Edge
from dpsim.machines.topology import Topology

_SEARCH_LIMIT = 8  # GPUs; above, rings are not searched
_PACK_LIMIT = 50_000  # combinations of cycles tried
#: eight GPUs, all joined: seven rings that together use every wire once in each direction (Tillson,
#: J. Combin. Theory B 29 (1980) 68-74, says for which numbers there are such rings)
_EIGHT = (
    (0, 5, 6, 3, 7, 2, 1, 4), (0, 4, 2, 3, 5, 7, 1, 6), (0, 3, 2, 7, 5, 4, 6, 1),
    (0, 7, 6, 2, 4, 1, 5, 3), (0, 6, 7, 4, 3, 1, 2, 5), (0, 2, 6, 5, 1, 3, 4, 7),
    (0, 1, 7, 3, 6, 4, 5, 2),
)  # fmt: skip


@dataclass(frozen=True)
class Ring:
    """Every rank sends to the next of `order`, the last to the first, at `bandwidth` [B/s].

    `bandwidth` is what all hops of this ring can carry while the other rings run too.
    """

    order: tuple[int, ...]
    bandwidth: float


Locals = tuple[int, ...]
Pair = tuple[int, int]
Hops = dict[Pair, tuple[Pair, ...]]  # the wires between two GPUs, direct or through a third
_CACHE: WeakKeyDictionary[Topology, dict[Locals, tuple[Ring, ...]]] = WeakKeyDictionary()


def rings(topology: Topology, ranks: Iterable[int]) -> tuple[Ring, ...]:
    """The rings over `ranks`, which is any set of ranks; none for a single rank.

    One node with an NVLink mesh: as many Hamiltonian cycles as its links allow, each one link
    wide.  One node otherwise: rank order.  Several nodes: node by node in rank order, one ring
    for every NIC in use, each entering and leaving a node through GPUs beside that NIC.
    They are those of the machine with balanced up-links: no library knows where flows collide.
    """
    topology = topology.balanced
    known = _CACHE.setdefault(topology, {})
    key = tuple(sorted(set(ranks)))
    if key not in known:
        known[key] = _rings(topology, key) if len(key) > 1 else ()
    return known[key]


def _rings(topology: Topology, ranks: tuple[int, ...]) -> tuple[Ring, ...]:
    nodes = {
        node: tuple(rank % topology.gpus for rank in group)
        for node, group in groupby(ranks, key=topology.node_of)
    }
    if len(nodes) > 1:
        return _across(topology, nodes)
    (node, inside), *_ = nodes.items()
    orders = _cycles(topology, inside) or [inside]
    loads: Counter[Edge] = Counter()
    for order in orders:
        loads.update(_hops(topology, order, closed=True))
    first = node * topology.gpus
    return tuple(
        Ring(
            tuple(first + gpu for gpu in order),
            min(_share(topology, e, loads[e]) for e in _hops(topology, order, closed=True)),
        )
        for order in orders
    )


def _share(topology: Topology, edge: Edge, load: int) -> float:
    return topology.link(edge).bandwidth / load


def _hops(topology: Topology, order: tuple[int, ...], *, closed: bool) -> Iterator[Edge]:
    """The edges of all hops of `order`, GPU numbers of node 0."""
    after = order[1:] + order[:1] if closed else order[1:]
    for a, b in zip(order, after, strict=False):
        yield from topology.inside(("gpu", 0, a), ("gpu", 0, b))


# --- one node ---------------------------------------------------------------------------------


def _mesh(topology: Topology, inside: Locals) -> dict[Pair, float]:
    """Bandwidth of the wires that join two GPUs of `inside` directly, by (lower, higher) number."""
    found = {}
    for a in inside:
        for b in inside:
            path = topology.inside(("gpu", 0, a), ("gpu", 0, b)) if a < b else ()
            if len(path) == 1:
                found[a, b] = topology.link(path[0]).bandwidth
    return found


def _cycles(topology: Topology, inside: Locals) -> list[Locals]:
    """Rings over a mesh, each one link wide; a cycle of three or more runs in both directions.

    Cycles over direct links only are preferred; where there is none, hops may pass through a
    third GPU.  Empty where NVLinks cannot make a ring.
    """
    mesh = _mesh(topology, inside)
    if not mesh or len(inside) > _SEARCH_LIMIT:
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
        uses = _hamiltonian(inside, hops)
        if uses:
            room = _room(topology, uses, unit)
            chosen = _pack(list(uses.items()), room, _most(inside, room))
            return [ring for order in chosen for ring in (order, (order[0], *order[:0:-1]))]
    return []


def _room(topology: Topology, uses: dict[Locals, Counter[Pair]], unit: float) -> Counter[Pair]:
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
                found[a, b] = (_pair(a, middle), _pair(middle, b))
    return found


def _pair(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


def _hamiltonian(inside: Locals, hops: Hops) -> dict[Locals, Counter[Pair]]:
    """Every undirected cycle through all of `inside`, with the wires that it takes."""
    found = {}
    first, *rest = inside
    for middle in permutations(rest):
        order = (first, *middle)
        pairs = [_pair(a, b) for a, b in zip(order, order[1:] + order[:1], strict=True)]
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


# --- several nodes ----------------------------------------------------------------------------


def _across(topology: Topology, nodes: dict[int, Locals]) -> tuple[Ring, ...]:
    """One ring per NIC; the way through a node is found once for every set of local GPUs."""
    inner = {inside: _inner(topology, inside) for inside in set(nodes.values())}
    count = max(len(ways) for ways in inner.values())
    chosen = [
        [(node, inner[inside][ring % len(inner[inside])]) for node, inside in nodes.items()]
        for ring in range(count)
    ]
    loads, used = _loads(topology, nodes, inner, chosen)
    return tuple(
        Ring(
            tuple(node * topology.gpus + gpu for node, way in ring for gpu in way),
            min(_share(topology, key[1], loads[key]) for key in used[number]),
        )
        for number, ring in enumerate(chosen)
    )


def _inner(topology: Topology, inside: Locals) -> list[Locals]:
    """For every NIC in use, the order in which a ring visits the GPUs `inside` a node."""
    members: dict[int, list[int]] = {}
    for gpu in inside:
        members.setdefault(topology.nic_of(gpu), []).append(gpu)
    mesh = _mesh(topology, inside) if len(inside) <= _SEARCH_LIMIT else {}
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
    inside: Locals,
    near: list[int],
    mesh: dict[Pair, float],
    taken: Counter[Pair],
    ends: set[int],
) -> Locals | None:
    """The widest path over direct links from the first of `near` through all to one of `near`,
    or at least to a GPU that is not yet one of `ends`, so that every NIC sends for one ring."""
    best: tuple[tuple[bool, bool, float], Locals] | None = None
    for order in _candidates(near[0], inside, mesh) if mesh else ():
        hops = list(pairwise(order))
        width = min((mesh[_pair(a, b)] / (1 + taken[a, b]) for a, b in hops), default=0.0)
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
        if gpu not in begun and _pair(begun[-1], gpu) in mesh:
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
            hops = [(shape, edge) for edge in _hops(topology, way, closed=False)]
            loads.update(hops)
            used[number].update(hops)
    return loads, used


def _key(edge: Edge, nodes: dict[int, Locals]) -> Key:
    """An edge inside a node as (its GPUs in use, the edge in node 0); a cable as itself."""
    (a, b) = edge
    if a[0] in ("leaf", "spine") or b[0] in ("leaf", "spine"):
        return None, edge
    return nodes[a[1]], ((a[0], 0, *a[2:]), (b[0], 0, *b[2:]))
