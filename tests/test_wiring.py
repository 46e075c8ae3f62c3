"""Ways through a node are NetworkX's own, found without it."""

from __future__ import annotations

import random
from itertools import permutations
from typing import Any

import networkx as nx
import pytest

from dpsim.machines.devices import Link
from dpsim.machines.topology import _weight
from dpsim.machines.wiring import Wiring


def inner(vertex: Any) -> bool:
    return vertex[0] not in ("gpu", "nic")


def way(graph: nx.DiGraph[Any], source: Any, target: Any) -> list[Any] | None:
    """The way that NetworkX finds."""
    allowed = nx.subgraph_view(graph, filter_node=lambda v: v in (source, target) or inner(v))
    try:
        found: list[Any] = nx.shortest_path(
            allowed, source, target, weight=lambda _a, _b, data: _weight(data["link"])
        )
    except nx.NetworkXNoPath:
        return None
    return found


@pytest.mark.parametrize("seed", range(12))
def test_of_equal_ways_it_finds_the_one_that_networkx_finds(seed: int) -> None:
    draw = random.Random(seed)
    vertices = [(draw.choice(["gpu", "nic", "pcie"]), 0, i) for i in range(draw.randint(4, 10))]
    graph: nx.DiGraph[Any] = nx.DiGraph()
    for vertex in vertices:
        graph.add_node(vertex, kind=vertex[0])
    for _ in range(3 * len(vertices)):
        speed = draw.choice([1e9, 2e9])
        link = Link(bandwidth=speed, latency=0.0, kind="pcie")
        graph.add_edge(draw.choice(vertices), draw.choice(vertices), link=link)
    wiring = Wiring.of(graph)
    for source in vertices:
        assert wiring.reached(source) == dict(nx.single_source_shortest_path_length(graph, source))
        assert set(wiring.reached(source, back=True)) == nx.ancestors(graph, source) | {source}
    for source, target in permutations(vertices, 2):
        assert wiring.shortest(source, target, inner, _weight) == way(graph, source, target)
