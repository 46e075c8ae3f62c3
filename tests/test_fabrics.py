"""Every fabric family keeps the contract; networks have the bisection and routes they claim."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import networkx as nx
import pytest

from dpsim.core.plugins import Plugin, find, names
from dpsim.core.record import Refused, dump
from dpsim.machines.fabrics import Network, NodeFabric
from dpsim.machines.fabrics.fat_tree import FatTree
from dpsim.machines.fabrics.rail_optimized import RailOptimized
from dpsim.machines.topology import Topology

PCIE = {"bandwidth": "12 GB/s", "latency": "2.85 us", "kind": "pcie"}
NVLINK = {"bandwidth": "20 GB/s", "latency": "3.4 us", "kind": "nvlink"}
ICI = {"bandwidth": "100 GB/s", "kind": "ici"}
CABLE = {"bandwidth": "10 GB/s", "latency": "4.15 us", "kind": "infiniband"}
HOST = {
    "gpu": PCIE,
    "nic": {"bandwidth": "12 GB/s", "kind": "pcie"},
    "uplink": {"bandwidth": "12 GB/s", "kind": "pcie"},
    "inter_socket": {"bandwidth": "6 GB/s", "kind": "inter_socket"},
    "gpus_per_socket": 4,
    "gpus_per_switch": 2,
}


def wires(*pairs: str) -> list[dict[str, str]]:
    return [
        {"from": a, "to": b, "bandwidth": "12 GB/s", "latency": "1 us", "kind": "pcie"}
        for a, b in (pair.split("-") for pair in pairs)
    ]


EXPLICIT = {
    "vertices": ["gpu0", "gpu1", "gpu2", "gpu3", "sw0", "nic0", "nic1"],
    "links": wires("gpu0-sw0", "gpu1-sw0", "gpu2-sw0", "gpu3-sw0", "sw0-nic0", "sw0-nic1"),
}
NODES: dict[str, dict[str, Any]] = {
    "nvswitch": {"host": HOST, "nvlink": NVLINK},
    "hybrid_cube_mesh": {"host": HOST, "nvlink": NVLINK},
    "pcie_tree": {"host": HOST, "bridge": NVLINK, "bridges": [[0, 1]]},
    "full_mesh": {"host": HOST, "pair": NVLINK},
    "uneven_mesh": {"host": HOST, "link": NVLINK, "pairs": [[0, 1, 4], [0, 2, 1], [1, 3, 2]]},
    "processors": {"memory": NVLINK, "nic": PCIE, "processes": 8},
    "explicit": EXPLICIT,
    "torus": {"link": ICI, "nic": PCIE, "shapes": [[1, 1], [2, 1], [2, 2]], "wraps_at": 4},
}
NETWORKS: dict[str, dict[str, Any]] = {
    "star": {"link": CABLE},
    "fat_tree": {"link": CABLE, "nodes_per_leaf": 2, "oversubscription": 3},
    "rail_optimized": {"link": CABLE, "nodes_per_leaf": 2},
}


def make(family: str, **fields: Any) -> Any:
    plugin = Plugin("fabrics", "family")
    return plugin.make({"family": family, **(NODES | NETWORKS)[family], **fields}, file=True)


def test_every_family_is_covered() -> None:
    known = names("fabrics")
    assert {n for n in known if issubclass(find("fabrics", n), NodeFabric)} == set(NODES)
    assert {n for n in known if issubclass(find("fabrics", n), Network)} == set(NETWORKS)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize(("gpus", "nics"), [(1, 1), (2, 1), (4, 2)])
def test_conformance(node: str, network: str, gpus: int, nics: int) -> None:
    check(Topology(make(node), make(network), nodes=5, gpus=gpus, nics=nics))


def check(topology: Topology) -> None:
    """Connected both ways, equal capacity both ways, and routes that are paths in the graph."""
    graph = topology.graph
    assert nx.is_strongly_connected(graph)
    assert all(data["kind"] == v[0] for v, data in graph.nodes(data=True))
    for a, b, data in graph.edges(data=True):
        back = graph.edges[b, a]["link"]
        assert (back.bandwidth, back.latency) == (data["link"].bandwidth, data["link"].latency)
    assert set(topology.devices) == {v for v in graph if v[0] == "gpu"}
    for source in range(topology.ranks):
        for target in range(topology.ranks):
            if source == target:
                continue
            route = topology.route(source, target)
            assert route[0][0] == topology.devices[source]
            assert route[-1][1] == topology.devices[target]
            assert all(e[1] == f[0] for e, f in pairwise(route))
            assert all(graph.edges[e]["link"] == topology.link(e) for e in route)


@pytest.mark.parametrize("family", [*NODES, *NETWORKS])
def test_dump_reads_back(family: str) -> None:
    fabric = make(family)
    again = Plugin("fabrics", "family").make({"family": family, **dump(fabric)}, file=True)
    assert again == fabric


@pytest.mark.parametrize("oversubscription", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("nics", [1, 4])
def test_fat_tree_bisection(oversubscription: float, nics: int) -> None:
    tree: FatTree = make("fat_tree", nodes_per_leaf=4, oversubscription=oversubscription)
    graph: nx.DiGraph[Any] = nx.DiGraph()
    tree.build(graph, 16, nics)
    for data in (d for _, _, d in graph.edges(data=True)):
        data["capacity"] = data["link"].bandwidth
    for node in range(16):
        for nic in range(nics):
            ends = ("from", ("nic", node, nic)) if node < 8 else (("nic", node, nic), "to")
            graph.add_edge(*ends, capacity=1e18)
    found = nx.maximum_flow_value(graph, "from", "to")
    assert found == pytest.approx(8 * nics * 10e9 / oversubscription)


def test_one_rail_does_not_cross_the_spine() -> None:
    rail: RailOptimized = make("rail_optimized")
    assert ("spine", 0) not in rail.route(("nic", 0, 1), ("nic", 1, 1))
    assert ("spine", 0) in rail.route(("nic", 0, 0), ("nic", 1, 1))
    assert ("spine", 0) in rail.route(("nic", 0, 1), ("nic", 2, 1))


def test_messages_change_rail_over_nvlink_where_they_can() -> None:
    rail = make("rail_optimized")
    for family, crosses in (("nvswitch", False), ("pcie_tree", True)):
        topology = Topology(make(family), rail, nodes=2, gpus=8, nics=8)
        visited = {vertex for edge in topology.route(0, 8 + 5) for vertex in edge}
        assert (("spine", 0) in visited) is crosses


def test_latency_of_one_step_is_that_of_nccl() -> None:
    star = make("star")
    mesh = Topology(make("hybrid_cube_mesh"), star, nodes=2, gpus=8, nics=4)
    tree = Topology(make("pcie_tree"), star, nodes=2, gpus=8, nics=4)
    for topology, ranks, expected in (
        (mesh, (0, 1), 3.4e-6),
        (tree, (0, 7), 5.7e-6),
        (tree, (2, 3), 5.7e-6),
        (tree, (0, 1), 3.4e-6),
        (tree, (0, 8), 14e-6),
        (mesh, (7, 8), 14e-6),
    ):
        found = sum(topology.link(edge).latency for edge in topology.route(*ranks))
        assert found == pytest.approx(expected)


def test_cube_mesh_has_six_links_per_gpu() -> None:
    graph = Topology(make("hybrid_cube_mesh"), None, nodes=1, gpus=8, nics=0).graph
    for gpu in range(8):
        out = graph.out_edges(("gpu", 0, gpu), data="link")
        assert sum(link.bandwidth for _, v, link in out if v[0] == "gpu") == 6 * 20e9
    ends = {(a[2], b[2]) for a, b in graph.edges if a[0] == b[0] == "gpu"}
    assert (0, 5) not in ends
    assert (0, 4) in ends


def test_nearest_nic() -> None:
    topology = Topology(make("hybrid_cube_mesh"), make("star"), nodes=2, gpus=8, nics=4)
    assert [topology.nic_of(gpu) for gpu in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vertices": ["gpu0", "gpu1", "sw0"], "links": wires("gpu0-sw0")}, "gpu1"),
        ({"vertices": ["gpu0", "sw0"], "links": wires("gpu0-sw7")}, "no vertex 'sw7'"),
        ({"vertices": ["gpu0", "gpu0"], "links": []}, "named twice"),
        ({"vertices": ["gpu0", "gpu2"], "links": wires("gpu0-gpu2")}, "gpu1 is missing"),
        ({"vertices": ["gpu0", "tpu1"], "links": []}, "'tpu1'"),
        ({"vertices": ["gpu0"], "links": wires("gpu0-gpu0")}, "itself"),
        ({"vertices": ["sw0"], "links": []}, "no GPU"),
    ],
)
def test_explicit_refuses_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message):
        make("explicit", **change)


def test_explicit_refuses_zero_bandwidth() -> None:
    links = [{"from": "gpu0", "to": "gpu1", "bandwidth": "0 GB/s"}]
    with pytest.raises(Refused, match="excluded"):
        make("explicit", vertices=["gpu0", "gpu1"], links=links)


def test_too_many_gpus_are_refused() -> None:
    for family in NODES:
        with pytest.raises(Refused, match="9"):
            _ = Topology(make(family), None, nodes=1, gpus=9, nics=0).graph


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_full_mesh_joins_every_pair_once(gpus: int) -> None:
    graph = Topology(make("full_mesh"), None, nodes=1, gpus=gpus, nics=0).graph
    wires = [link for a, b, link in graph.edges(data="link") if a[0] == b[0] == "gpu"]
    assert len(wires) == gpus * (gpus - 1)
    assert {link.bandwidth for link in wires} == {20e9}


def test_pairs_of_an_uneven_mesh_have_as_many_links_as_are_listed() -> None:
    topology = Topology(make("uneven_mesh"), None, nodes=1, gpus=8, nics=0)
    wires = {
        (a[2], b[2]): link.bandwidth / 20e9
        for a, b, link in topology.graph.edges(data="link")
        if a[0] == b[0] == "gpu"
    }
    listed = {(0, 1): 4, (0, 2): 1, (1, 3): 2}
    assert wires == listed | {(b, a): count for (a, b), count in listed.items()}


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([[0, 0, 1]], "itself"),
        ([[0, 8, 1]], "8 slots"),
        ([[0, 1, 0]], "leave the pair out"),
        ([[0, 1, 1], [1, 0, 2]], "listed twice"),
    ],
)
def test_links_of_an_uneven_mesh_join_two_gpus_once(pairs: list[list[int]], says: str) -> None:
    with pytest.raises(Refused, match=says):
        make("uneven_mesh", pairs=pairs)
