"""Links are counted by class: as many machines as chance finds agree with one link at a time."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import linkwise
import networkx as nx
import numpy as np
import pytest
from test_fabrics import NODES, make

from dpsim.backends import Plan
from dpsim.backends._nccl_traffic import traffic_of
from dpsim.backends.gloo import Gloo
from dpsim.backends.nccl import Nccl, phase_of
from dpsim.collectives import Ranks, Transfer, TransferList, as_ranks, members_of
from dpsim.collectives.ring_orders import rings
from dpsim.compile.program import Op
from dpsim.core import plugins
from dpsim.core.record import Refused, record
from dpsim.machines.clos import flow_hash, flow_hashes
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Network, Vertex
from dpsim.machines.leaves import leaves
from dpsim.machines.loads import Loads
from dpsim.machines.machine import load_machine
from dpsim.machines.topology import Topology
from dpsim.machines.wire import wire
from dpsim.play import Costs

SIZE = 1e8
CABLE = Link(bandwidth=10e9, latency=4e-6, kind="infiniband")


@record
class Street(Network):
    """Switches in a line, of which nothing is known but the way from one NIC to another."""

    def build(self, graph: nx.DiGraph[Vertex], nodes: int, nics: int) -> None:
        for node in range(nodes):
            for nic in range(nics):
                wire(graph, ("nic", node, nic), ("leaf", node), CABLE)
            if node:
                wire(graph, ("leaf", node - 1), ("leaf", node), CABLE)

    def route(self, source: Vertex, target: Vertex) -> tuple[Vertex, ...]:
        step = 1 if target[1] > source[1] else -1
        leaves = range(source[1], target[1] + step, step)
        return source, *(("leaf", node) for node in leaves), target


def network(chance: random.Random) -> Network:
    kind = chance.choice(("star", "slow star", "fat_tree", "rail_optimized", "street"))
    if kind == "street":
        return Street()
    if "star" in kind:
        slow = dict.fromkeys(chance.sample(range(9), 3), "3 GB/s")
        found: Network = make("star", **({"slow_nodes": slow} if kind != "star" else {}))
        return found
    fields: dict[str, Any] = {"nodes_per_leaf": chance.choice((1, 2, 3, 8))}
    fields["oversubscription"] = chance.choice((1, 2, 3))
    if chance.random() < 0.5:
        fields |= {
            "routing": "ecmp",
            "spines": chance.choice((2, 3, 5)),
            "hash_seed": chance.randrange(9),
        }
    made: Network = make(kind, **fields)
    return made


def machine(seed: int) -> tuple[Topology, Ranks]:
    """A machine and a group on it: its nodes often not full, and its last leaf neither."""
    chance = random.Random(seed)
    # a torus has a library and a link-by-link oracle of its own, see test_ici; NCCL needs GPUs
    others = ("torus", "processors")
    node = chance.choice((*(name for name in NODES if name not in others), "nvswitch"))
    gpus = chance.choice((1, 2, 3, 4) if node == "explicit" else (1, 2, 4, 5, 8))
    nodes = chance.choice((1, 2, 3, 5, 8, 9))
    nics = chance.choice([n for n in (1, 2, 4) if n <= gpus and (node != "explicit" or n < 3)])
    found = Topology(
        make(node), network(chance), nodes=nodes, gpus=gpus, nics=nics,
        ranks=nodes * gpus - chance.choice((0, gpus // 2)), compute_capability=90,
    )  # fmt: skip
    groups: list[Ranks] = [range(found.ranks)] * 2
    groups += [range(k, found.ranks, step) for step in (2, gpus) for k in (0, step - 1)]
    groups.append(tuple(sorted(chance.sample(range(found.ranks), (found.ranks + 1) // 2))))
    return found, as_ranks(
        chance.choice([group for group in groups if len(group) > 1] or [range(1)])
    )


def applying(ranks: Ranks, topology: Topology) -> Any:
    """Every algorithm with every operation that it can carry out over `ranks`."""
    for name in plugins.names("collectives"):
        algorithm = plugins.find("collectives", name)()
        for operation in algorithm.operations:
            few = name != "direct" or len(ranks) < 20  # as many transfers as pairs
            if algorithm.applies(ranks, topology) and len(ranks) > 1 and few:
                yield name, algorithm, operation


def exactly(found: float, expected: float) -> bool:
    return found == pytest.approx(expected, rel=1e-12, abs=0.0)


@pytest.mark.parametrize("seed", range(60))
def test_every_link_carries_what_single_transfers_bring_it(seed: int) -> None:
    topology, ranks = machine(seed)
    for name, algorithm, operation in applying(ranks, topology):
        found = traffic_of(algorithm, name, operation, ranks, topology)
        scale = len(ranks) / (2 * (len(ranks) - 1)) if operation in ("broadcast", "reduce") else 1.0
        transfers = list(algorithm.traffic(operation, ranks, scale, topology))
        loads = linkwise.carried(transfers, topology)
        kinds = linkwise.counted_as(transfers, topology)
        assert dict(found.loads) == pytest.approx(loads, rel=1e-12)
        layout = found.loads.layout
        assert {edge: layout.classes[k].kind for edge, k in layout.links()} == kinds
        for which in layout.classes:
            assert which.bandwidth == topology.link(layout.edge(which)).bandwidth
        expected = linkwise.paces(loads, kinds, topology)
        assert {kind: pace for kind, (pace, _) in found.paces.items()} == pytest.approx(
            expected, rel=1e-12
        )
        for kind, (pace, edge) in found.paces.items():
            assert kinds[edge] == kind
            assert exactly(loads[edge] / topology.link(edge).bandwidth, pace)


@pytest.mark.parametrize("seed", range(100, 130))
def test_a_round_takes_what_its_slowest_transfer_does(seed: int) -> None:
    topology, ranks = machine(seed)
    for _, algorithm, operation in applying(ranks, topology):
        for stage in list(algorithm.stages(operation, ranks, SIZE, topology))[:4]:
            slowest, pace, most = linkwise.round_of(stage, topology)
            found = phase_of(stage, topology)
            assert exactly(found.latency + found.seconds, stage.repeats * slowest)
            assert exactly(found.seconds, stage.repeats * pace)
            assert exactly(found.size, stage.repeats * most)


@pytest.mark.parametrize("seed", range(200, 260))
def test_rings_and_trees_share_links_as_counted_one_by_one(seed: int) -> None:
    topology, ranks = machine(seed)
    topology.require_connected()
    assert topology.graph.number_of_nodes() >= topology.ranks  # which asks the same of every node
    found = rings(topology, ranks)
    orders = [ring.order for ring in found]
    for order in orders:
        assert sorted(order) == list(ranks)
    if len(members_of(ranks, topology).nodes) < 2:
        return
    shares = linkwise.ring_shares(topology, orders)
    assert [ring.bandwidth for ring in found] == shares
    sent: Counter[tuple[int, int]] = Counter()
    for a, b, size in plugins.find("collectives", "double_tree")().traffic(
        "all_reduce", ranks, 1.0, topology
    ):
        sent[a, b] += size  # type: ignore[assignment]
    expected = linkwise.branches(orders, shares, topology)
    both = Counter(expected)
    both.update({(b, a): size for (a, b), size in expected.items()})
    assert dict(sent) == pytest.approx(dict(both), rel=1e-12)


@pytest.mark.parametrize("routing", ["balanced", "ecmp"])
def test_a_thousand_ranks_are_counted_like_a_few(routing: Any) -> None:
    topology = load_machine("dgx-h100").topology(127, 1011, routing=routing, seed=3)
    for name in ("ring", "double_tree"):
        algorithm = plugins.find("collectives", name)()
        found = traffic_of(algorithm, name, "all_reduce", range(1011), topology)
        transfers = algorithm.traffic("all_reduce", range(1011), 1.0, topology)
        assert dict(found.loads) == pytest.approx(linkwise.carried(transfers, topology), rel=1e-12)
        assert len(found.loads) > 10 * len(found.loads.classes)


def test_a_million_ranks_are_a_machine_like_any_other() -> None:
    """A ring of S: 2 (n-1)/n S/8 out of every NIC, and as much up from each leaf of 32 nodes."""
    topology = load_machine("dgx-h100").topology(131_072)
    topology.require_connected()
    n = topology.ranks
    plan = Nccl(algorithm="ring").plan("all_reduce", range(n), SIZE, topology)
    found = traffic_of(
        plugins.find("collectives", "ring")(), "ring", "all_reduce", range(n), topology
    )
    assert found.nic == pytest.approx(2 * (n - 1) / n / 8)
    links: Counter[tuple[str, str]] = Counter()
    for which, edge in zip(found.loads.classes, found.loads.edges(), strict=True):
        links[edge[0][0], edge[1][0]] += which.links
    cables = n + n // 32 + n // 32 + n  # out of every NIC, up, down, and into every NIC
    assert (
        links["nic", "leaf"]
        + links["leaf", "spine"]
        + links["spine", "leaf"]
        + links["leaf", "nic"]
        == cables
    )
    assert len(plan.rates) == len(found.loads) == sum(links.values())
    assert len(found.loads.classes) < 100


@pytest.mark.parametrize("seed", range(400, 430))
def test_leaves_are_those_of_the_graph(seed: int) -> None:
    topology, _ = machine(seed)
    if topology.nodes == 1:
        return
    listed: Counter[tuple[int, float, float]] = Counter()
    for leaf in leaves(topology):
        listed[leaf.below, leaf.fastest, round(leaf.above)] += leaf.number
    graph, expected = topology.graph, Counter[tuple[int, float, float]]()
    for vertex in (v for v in graph if v[0] == "leaf"):
        links = [(end[0], data["link"].bandwidth) for _, end, data in graph.out_edges(vertex, True)]
        below = [bandwidth for kind, bandwidth in links if kind == "nic"]
        above = sum(bandwidth for kind, bandwidth in links if kind != "nic")
        expected[len(below), max(below), round(above)] += 1
    assert listed == expected


def test_what_is_not_connected_is_refused_without_its_graph() -> None:
    """Of a node whose second GPU hangs on the third, which is not in use."""
    links = [
        {"from": a, "to": b, "bandwidth": "12 GB/s", "kind": "pcie"}
        for a, b in (("gpu0", "nic0"), ("gpu0", "gpu2"), ("gpu2", "gpu1"))
    ]
    node = make("explicit", vertices=["gpu0", "gpu1", "gpu2", "nic0"], links=links)
    for nodes in (1, 5):
        found = Topology(node, make("star"), nodes=nodes, gpus=2, nics=1)
        with pytest.raises(Refused, match="not connected both ways") as said:
            found.require_connected()
        assert "graph" not in vars(found)
        with pytest.raises(Refused, match="not connected both ways") as whole:
            _ = found.graph
        assert str(said.value) == str(whole.value)


# -- groups that lie alike ------------------------------------------------------------------------


def links_of(plan: Plan) -> Any:
    return [
        (phase.latency, phase.seconds, phase.size, phase.busiest, dict(phase.loads or {}))
        for phase in plan.phases
    ]


def partitions(n: int, gpus: int) -> Any:
    """Ranks in consecutive groups, and in groups of every so manyth."""
    for size in (2, gpus, 2 * gpus):
        if size > 1 and n % size == 0:
            yield [range(k, k + size) for k in range(0, n, size)]
            yield [range(k, n, size) for k in range(size)]


@pytest.mark.parametrize("seed", range(300, 316))
def test_a_plan_that_was_moved_is_the_one_that_would_have_been_made(seed: int) -> None:
    topology, _ = machine(seed)
    costs, backend = Costs(Nccl(), topology), Nccl()
    for groups in partitions(topology.ranks, topology.gpus):
        for group in groups:
            if len(group) < 2:
                continue
            for operation in ("all_reduce", "all_gather"):
                own = backend.plan(operation, group, SIZE, topology)
                found = costs.plan(operation, group, SIZE)
                assert (found.seconds, found.algorithm) == (own.seconds, own.algorithm)
                assert links_of(found) == links_of(own)
                rounds = [list(s.transfers) for s in found.stages()] if found.stages else None
                assert rounds == ([list(s.transfers) for s in own.stages()] if own.stages else None)


def test_groups_of_a_partition_that_lie_alike_have_one_plan() -> None:
    """16 nodes of 8 on leaves of 32: of groups inside a node there is one, and of those of equal
    places of all nodes one for each place."""
    topology = load_machine("dgx-h100").topology(16)
    op = Op("x", "comm", operation="all_reduce", bytes=SIZE, group="g")
    costs = Costs(Nccl(), topology)
    ((plan, groups),) = costs.plans(op, [range(k, k + 8) for k in range(0, 128, 8)])
    assert len(groups) == 16
    assert plan is costs.of(op, groups[0])
    assert len(costs.plans(op, [range(k, 128, 8) for k in range(8)])) == 8
    assert len(costs.plans(op, [range(k, 128, 16) for k in range(16)])) == 8


def test_hashed_flows_and_slow_nodes_are_like_no_others() -> None:
    hashed = load_machine("dgx-h100").topology(64, routing="ecmp", seed=1)
    op = Op("x", "comm", operation="all_reduce", bytes=SIZE, group="g")
    pairs = [range(k, k + 16) for k in range(0, 512, 16)]
    assert len(Costs(Nccl(), hashed).plans(op, pairs)) == len(pairs)
    slow = make("star", slow_nodes={3: "1 GB/s"})
    star = Topology(make("nvswitch"), slow, nodes=8, gpus=4, nics=2)
    found = Costs(Nccl(), star).plans(op, [range(k, k + 8) for k in range(0, 32, 8)])
    assert [len(groups) for _, groups in found] == [3, 1]


def test_plans_tell_whether_they_share_a_link() -> None:
    topology = load_machine("dgx-h100").topology(4)
    costs = Costs(Nccl(), topology)

    groups: list[Ranks] = [range(8), range(8, 16), range(0, 32, 8), range(1, 32, 8), range(32)]
    plans = [costs.plan("all_reduce", group, SIZE) for group in groups]
    for one in plans:
        for other in plans:
            assert one.meets(other) == (not one.rates.keys().isdisjoint(other.rates))


# -- pieces ---------------------------------------------------------------------------------------


def test_hashes_of_many_flows_are_those_of_each() -> None:
    sources, targets = np.arange(50), np.arange(50)[::-1] * 2_000
    for seed in (0, 7, 2**63 + 5, 2**64 + 1):
        found = flow_hashes(seed, sources, 3, targets, 5)
        flows = zip(sources.tolist(), targets.tolist(), strict=True)
        assert found.tolist() == [flow_hash(seed, (a, 3, b, 5)) for a, b in flows]


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ((3, 5, 7), range(3, 9, 2)), ((4,), range(4, 5)), ((1, 0), (1, 0)), ((0, 1, 3), (0, 1, 3)),
        (range(0, 9, 4), range(0, 9, 4)), ((2, 2), (2, 2)), ((), ()),
    ],
)  # fmt: skip
def test_evenly_spaced_ranks_are_a_range(ranks: Ranks, expected: Ranks) -> None:
    assert as_ranks(ranks) == expected
    assert type(as_ranks(ranks)) is type(expected)


def test_transfers_come_in_their_order_whatever_holds_them() -> None:
    transfers = [Transfer(5, 1, 2.0), Transfer(0, 9, 1.0), Transfer(-3, 2, 4.0)]
    assert list(TransferList.of(transfers)) == transfers
    assert TransferList.of(transfers)[1:] == tuple(transfers[1:])
    assert [t.bytes for t in TransferList.of(transfers).times(2.0)] == [4.0, 2.0, 8.0]


@pytest.mark.parametrize("gpus", [3, 8, 62, 63, 64])
def test_nodes_with_the_same_ranks_have_the_same_shape(gpus: int) -> None:
    topology = Topology(
        make("nvswitch", host={**make_host(gpus)}), make("star"), nodes=7, gpus=gpus, nics=1
    )
    chance = random.Random(gpus)
    ranks = tuple(sorted(chance.sample(range(7 * gpus), 3 * gpus)))
    found = members_of(ranks, topology)
    listed = [
        node * gpus + gpu
        for node, k in zip(found.nodes.tolist(), found.shape.tolist(), strict=True)
        for gpu in found.shapes[k]
    ]
    assert tuple(listed) == ranks
    assert len(set(found.shapes)) == len(found.shapes)


def make_host(gpus: int) -> dict[str, Any]:
    return {
        **NODES["nvswitch"]["host"],
        "sockets": 1,
        "gpus_per_socket": gpus,
        "gpus_per_switch": 0,
    }


def test_gloo_counts_links_by_class_too() -> None:
    slow = make("star", slow_nodes={2: "1 GB/s"})
    topology = Topology(make("explicit"), slow, nodes=6, gpus=1, nics=1)
    for operation in ("all_reduce", "all_gather", "broadcast", "all_to_all", "reduce"):
        for phase in Gloo().plan(operation, range(6), SIZE, topology).phases:
            assert isinstance(phase.loads, Loads)
            times = {e: load / topology.link(e).bandwidth for e, load in phase.loads.items()}
            assert times[phase.busiest] == max(times.values())  # type: ignore[index]


@pytest.mark.parametrize("seed", range(12))
def test_what_groups_put_on_links_at_once_is_the_same_link_by_link(seed: int) -> None:
    """Bundles add up links by place; and names whose groups lie alike share one, moved."""
    from dpsim.compile.placement import Mesh
    from dpsim.play.bundled import BundledCosts, CountedLinks, NamedLinks

    chance = random.Random(seed)
    mesh = Mesh(chance.choice((1, 2, 4)), chance.choice((2, 3)), 4)
    network: Network = make(
        "fat_tree", nodes_per_leaf=chance.choice((2, 3, 8)), oversubscription=chance.choice((1, 2))
    )
    nodes = -(-mesh.ranks // 4)
    topology = Topology(
        make("nvswitch"), network, nodes=nodes, gpus=4, nics=2, ranks=mesh.ranks,
        compute_capability=90,
    )  # fmt: skip
    groups: dict[str, Any] = {f"data{row}": mesh.data_groups(row) for row in range(4)}
    groups |= {f"to{row}": mesh.pairs(row, row + 1) for row in range(3)}
    costs = BundledCosts(Costs(Nccl(), topology), groups)
    for name, some in groups.items():
        operation = "send" if "to" in name else "all_reduce"
        op = Op("X", "collective", stream="s", operation=operation, group=name, bytes=5e6)
        plans = [costs._costs.of(op, group) for group in some]
        for column in zip(*(plan.phases for plan in plans), strict=True):
            moving = [phase for phase in column if phase.loads]
            if not moving:
                continue
            one, other = CountedLinks(moving), NamedLinks(moving, topology)
            assert one.of_first == pytest.approx(other.of_first, rel=1e-15)
            assert one.busiest == other.busiest
        own, fresh = costs.of(op, some[0]), costs._together(plans)
        assert own.seconds == fresh.seconds
        for phase, expected in zip(own.phases, fresh.phases, strict=True):
            assert dict(phase.loads or {}) == dict(expected.loads or {})
            assert (phase.busiest, phase.size) == (expected.busiest, expected.size)
