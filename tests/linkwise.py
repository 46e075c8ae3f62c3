"""What transfers put on links, worked out one transfer and one link at a time.

It knows routes, and nothing of classes of links: the oracle of `tests/test_link_classes.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any

from dpsim.backends._nccl_graph import edge_kind
from dpsim.backends._nccl_traffic import RELAYED
from dpsim.collectives import Stage, Transfer, path
from dpsim.collectives.double_tree import depths, two_trees
from dpsim.machines.fabrics import Edge
from dpsim.machines.topology import Topology, moved

OUTSIDE = ("leaf", "spine")
SWITCHED = ("nvlink", "nvswitch", "xgmi")


def carried(transfers: Iterable[Transfer], topology: Topology) -> dict[Edge, float]:
    """Bytes on each link."""
    found: defaultdict[Edge, float] = defaultdict(float)
    for transfer in transfers:
        for edge in path(transfer, topology):
            found[edge] += transfer.bytes
    return dict(found)


def counted_as(transfers: Iterable[Transfer], topology: Topology) -> dict[Edge, str]:
    """What each link counts as: what the first transfer over it says, where none is relayed."""
    found: dict[Edge, str] = {}
    for transfer in transfers:
        route = path(transfer, topology)
        cables = [e for e in route if "leaf" in (e[0][0], e[1][0])]
        relayed = any(a[0] == b[0] == "gpu" for a, b in route[1:])
        outside = False
        for edge in route:
            kind = edge_kind(topology, edge)
            if relayed and edge[0][0] == edge[1][0] == "gpu":
                found[edge] = RELAYED if kind == "nvlink" else kind
                continue
            outside = outside or (bool(cables) and kind not in SWITCHED)
            found.setdefault(edge, topology.link(cables[0]).kind if outside else kind)
    return found


def paces(loads: dict[Edge, float], kinds: dict[Edge, str], topology: Topology) -> dict[str, float]:
    """The longest time on a link of each kind, per byte of size."""
    found: dict[str, float] = {}
    for edge, load in loads.items():
        found[kinds[edge]] = max(found.get(kinds[edge], 0.0), load / topology.link(edge).bandwidth)
    return found


def round_of(stage: Stage, topology: Topology) -> tuple[float, float, float]:
    """Of one round: the slowest transfer, the slowest link [s], bytes on the most loaded link."""
    loads = carried(stage.transfers, topology)
    busy = {edge: load / topology.link(edge).bandwidth for edge, load in loads.items()}
    routes = [path(transfer, topology) for transfer in stage.transfers]
    slowest = max(
        sum(topology.link(edge).latency for edge in route) + max(busy[edge] for edge in route)
        for route in routes
    )
    return slowest, max(busy.values()), max(loads.values())


def ring_shares(topology: Topology, orders: Sequence[tuple[int, ...]]) -> list[float]:
    """What each of several rings over nodes can carry while all run; an edge inside a node stands
    for those of all nodes with the same GPUs in use, with the load of the busiest."""
    topology = topology.balanced
    node = topology.node_of
    shapes: defaultdict[int, list[int]] = defaultdict(list)
    for rank in sorted(orders[0]):
        shapes[node(rank)].append(rank % topology.gpus)
    first = {tuple(shape): number for number, shape in reversed(shapes.items())}

    def key(edge: Edge) -> Any:
        outside = edge[0][0] in OUTSIDE or edge[1][0] in OUTSIDE
        return (None, edge) if outside else (tuple(shapes[edge[0][1]]), moved(edge, 0))

    between: Counter[Edge] = Counter()
    loads: Counter[Any] = Counter()
    used = []
    for order in orders:
        used.append(set())
        for a, b in zip(order, order[1:] + order[:1], strict=True):
            route = topology.route(a, b)
            used[-1] |= {key(edge) for edge in route}
            if node(a) != node(b):
                between.update(route)
            elif first[tuple(shapes[node(a)])] == node(a):
                loads.update(key(edge) for edge in route)
    most: defaultdict[Any, int] = defaultdict(int)
    for edge, count in between.items():
        most[key(edge)] = max(most[key(edge)], count)
    loads.update(most)
    return [min(topology.link(k[1]).bandwidth / loads[k] for k in keys) for keys in used]


def branches(orders: Sequence[tuple[int, ...]], shares: Sequence[float], topology: Topology) -> Any:
    """Every branch (child, parent) of the two trees of each ring: its hops from the root, and its
    bytes, of one."""
    found: defaultdict[tuple[int, int], float] = defaultdict(float)
    for order, share in zip(orders, shares, strict=True):
        chains = [tuple(chain) for _, chain in groupby(order, key=topology.node_of)]
        for tree in two_trees(len(chains)):
            assert max(depths(tree)) < max(len(tree), 2)
            for chain, parent in zip(chains, tree, strict=True):
                if parent >= 0:
                    found[chain[0], chains[parent][0]] += share / sum(shares) / 2
                for above, below in pairwise(chain):
                    found[below, above] += share / sum(shares) / 2
    return dict(found)
