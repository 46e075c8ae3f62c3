"""What every collective algorithm must keep, found by itself in dpsim/collectives.

Data movement: pieces of the ranks' contributions follow the transfers, round by round, and at the
end everybody has everything.  Conservation, bounds and closed forms; and the trees' own shape.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from dpsim.backends.nccl import phase_of
from dpsim.collectives import (
    Algorithm,
    Stage,
    Transfer,
    aggregator,
    collnet_chain,
    collnet_direct,
    nvls_sharp,
    path,
    switch,
)
from dpsim.collectives._folding import power_below
from dpsim.collectives.double_tree import DoubleTree, depths, two_trees
from dpsim.collectives.nvls import Nvls
from dpsim.collectives.nvls_tree import sent as nvls_tree_sent
from dpsim.collectives.pat import Pat
from dpsim.core import plugins
from dpsim.core.plugins import Plugin
from dpsim.machines.fabrics import Network, NodeFabric
from dpsim.machines.machine import load_machine
from dpsim.machines.topology import Topology

SIZE = 1.0e8
#: bytes that the busiest rank must at least move, over (n-1)/n S; a switch that adds spares a pass
LOWEST = {
    "all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1, "reduce": 1,
    "all_to_all": 1,
}  # fmt: skip


def star(nodes: int) -> Topology:
    """Nodes of one GPU and one NIC on one switch: every rank has its own link."""
    wire = {"bandwidth": "20 GB/s", "latency": "2 us"}
    inside = {"family": "explicit", "vertices": ["gpu0", "nic0"],
              "links": [{"from": "gpu0", "to": "nic0", **wire}]}  # fmt: skip
    cable = {"bandwidth": "10 GB/s", "latency": "3 us"}
    make = Plugin("fabrics", "family").make
    node: NodeFabric = make(inside, file=True)
    network: Network = make({"family": "star", "link": cable}, file=True)
    return Topology(node, network, nodes=nodes, gpus=1, nics=1)


GROUPS = {
    **{f"star of {n}": star(n) for n in (2, 3, 4, 5, 6, 7, 8, 11, 16)},
    "2 x 8 H100": load_machine("dgx-h100").topology(2),
    "3 x 2 H100": load_machine("dgx-h100").topology(3, gpus_per_node=2, nics_per_node=2),
    "5 A100": load_machine("dgx-a100").topology(1, gpus_per_node=5),
    "3 x 4 V100": load_machine("rack-10gbe").topology(3),
    "8 V100": load_machine("dgx-1v").topology(1),
    "2 x 8 V100": load_machine("dgx-1v").topology(2),
}
CASES = [
    pytest.param(topology, plugins.find("collectives", name)(), operation,
                 id=f"{name} {operation} over {label}")
    for label, topology in GROUPS.items()
    for name in plugins.names("collectives")
    for operation in plugins.find("collectives", name).operations
    if plugins.find("collectives", name)().applies(tuple(range(topology.ranks)), topology)
]  # fmt: skip


def world(topology: Topology) -> tuple[int, ...]:
    return tuple(range(topology.ranks))


def total_sent(algorithm: Algorithm, operation: str, topology: Topology) -> float:
    """What one rank sends (mean), by the algorithm's own account."""
    n, nodes = topology.ranks, topology.nodes
    for module in (collnet_chain, collnet_direct, nvls_sharp):
        if type(algorithm).__module__ == module.__name__:
            found: float = module.sent(operation, n // nodes, nodes, SIZE)
            return found
    try:
        return algorithm.bytes_sent(operation, n, SIZE)
    except NotImplementedError:
        return nvls_tree_sent(n // nodes, nodes, SIZE)


def moved(stages: Iterator[Stage]) -> tuple[Counter[int], Counter[int]]:
    """Bytes that leave and that reach every end of the transfers."""
    out: Counter[int] = Counter()
    into: Counter[int] = Counter()
    for stage in stages:
        for source, target, size in stage.transfers:
            out[source] += stage.repeats * size  # type: ignore[assignment]
            into[target] += stage.repeats * size  # type: ignore[assignment]
    return out, into


@pytest.mark.parametrize(("topology", "algorithm", "operation"), CASES)
def test_every_rank_ends_with_what_it_needs(
    topology: Topology, algorithm: Algorithm, operation: str
) -> None:
    """A message carries what its sender knew when the round began; a switch adds at once."""
    ranks = world(topology)
    known = {rank: {rank} for rank in ranks}
    for stage in algorithm.stages(operation, ranks, SIZE, topology):
        for _ in range(stage.repeats):
            before = {rank: frozenset(have) for rank, have in known.items()}
            for source, target, _size in stage.transfers:
                if target < 0:
                    known.setdefault(target, set()).update(before[source])
            for source, target, _size in stage.transfers:
                if target >= 0:
                    known[target] |= before[source] if source >= 0 else known[source]
    wanted = {0} if operation == "broadcast" else set(ranks)
    assert all(known[rank] >= wanted for rank in (ranks if operation != "reduce" else ranks[:1]))


@pytest.mark.parametrize(("topology", "algorithm", "operation"), CASES)
def test_bytes_sent_are_received_and_no_fewer_than_needed(
    topology: Topology, algorithm: Algorithm, operation: str
) -> None:
    ranks, n = world(topology), topology.ranks
    out, into = moved(algorithm.stages(operation, ranks, SIZE, topology))
    assert sum(out.values()) == pytest.approx(sum(into.values()), rel=1e-12)
    mean = sum(out[rank] for rank in ranks) / n
    assert mean == pytest.approx(total_sent(algorithm, operation, topology), rel=1e-9)
    passes = 1 if algorithm.in_network else LOWEST[operation]
    lowest = passes * (n - 1) / n * SIZE
    busiest = max(max(out[rank], into[rank]) for rank in ranks)
    assert busiest >= lowest * (1 - 1e-12)


@pytest.mark.parametrize(("topology", "algorithm", "operation"), CASES)
def test_traffic_is_what_the_rounds_add_up_to(
    topology: Topology, algorithm: Algorithm, operation: str
) -> None:
    ranks = world(topology)
    by_rounds: Counter[tuple[int, int]] = Counter()
    for stage in algorithm.stages(operation, ranks, SIZE, topology):
        for a, b, size in stage.transfers:
            by_rounds[a, b] += stage.repeats * size  # type: ignore[assignment]
    at_once: Counter[tuple[int, int]] = Counter()
    for a, b, size in algorithm.traffic(operation, ranks, SIZE, topology):
        at_once[a, b] += size  # type: ignore[assignment]
    assert dict(at_once) == pytest.approx(dict(by_rounds), rel=1e-9)


@pytest.mark.parametrize(("topology", "algorithm", "operation"), CASES)
def test_transfers_follow_the_wires(
    topology: Topology, algorithm: Algorithm, operation: str
) -> None:
    for stage in algorithm.stages(operation, world(topology), SIZE, topology):
        for transfer in stage.transfers:
            route = path(transfer, topology)
            assert route
            assert all(topology.graph.has_edge(*edge) for edge in route)
            assert all(a[1] == b[0] for a, b in pairwise(route))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8, 12, 16])
@pytest.mark.parametrize("name", plugins.names("collectives"))
def test_closed_forms_hold_on_a_star(name: str, n: int) -> None:
    """One way there are two wires in the nodes and two cables: 10 us, and 10 GB/s."""
    topology, algorithm = star(n), plugins.find("collectives", name)()
    if not algorithm.applies(world(topology), topology):
        return
    for operation in algorithm.operations:
        for size in (1.0, 1e4, SIZE):
            stages = algorithm.stages(operation, world(topology), size, topology)
            played = sum(p.latency + p.seconds for p in (phase_of(s, topology) for s in stages))
            closed = algorithm.seconds(operation, n, size, 10e-6, 10e9)
            assert played == pytest.approx(closed, rel=1e-9)


@pytest.mark.parametrize("operation", Nvls.operations)
@pytest.mark.parametrize("gpus", [2, 5, 8])
def test_a_switch_that_adds_takes_its_closed_form(operation: str, gpus: int) -> None:
    topology = load_machine("dgx-h100").topology(1, gpus_per_node=gpus)
    link = topology.link((("gpu", 0, 0), ("nvswitch", 0, 0)))
    stages = Nvls().stages(operation, world(topology), SIZE, topology)
    played = sum(p.latency + p.seconds for p in (phase_of(s, topology) for s in stages))
    closed = Nvls().seconds(operation, gpus, SIZE, link.latency, link.bandwidth)
    assert played == pytest.approx(closed, rel=1e-9)


# -- the trees ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 70))
def test_two_trees_span_all_nodes_and_share_the_work(n: int) -> None:
    children: list[Counter[int]] = []
    for tree in two_trees(n):
        assert sum(parent < 0 for parent in tree) == 1
        assert max(depths(tree)) <= math.floor(math.log2(n)) + 1
        children.append(Counter(parent for parent in tree if parent >= 0))
        assert max(children[-1].values(), default=0) <= 2
    both = sum(1 for node in range(n) if children[0][node] and children[1][node])
    assert both <= (0 if n % 2 == 0 else n)
    # half of the bytes in each tree: at most two children twice, and a parent in each
    assert max((children[0][k] + children[1][k] for k in range(n)), default=0) <= 3


def test_two_trees_of_four_are_as_drawn() -> None:
    """In order: 0 - 2, 2 - 1, 2 - 3; mirrored: 3 - 1, 1 - 2, 1 - 0."""
    assert two_trees(4) == ((-1, 2, 0, 2), (1, 3, 1, -1))


def test_the_trees_need_few_rounds() -> None:
    """Rounds grow with log2 of the nodes, those of a ring with their number."""

    def rounds(nodes: int) -> int:
        topology = star(nodes)
        stages = DoubleTree().stages("all_reduce", world(topology), SIZE, topology)
        return sum(stage.repeats for stage in stages)

    assert rounds(64) - rounds(32) == 2
    assert rounds(64) < 2 * 63


# -- parallel aggregated trees ---------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 5, 6, 8, 13, 16, 31, 64])
def test_parallel_trees_deliver_every_part_once(n: int) -> None:
    """Part by part, as in figure 3 of the paper: a rank sends to the rank `far` further on what its
    trees bring there, and has it already; nobody gets a part twice."""
    held = {rank: {rank} for rank in range(n)}
    for stage in Pat().stages("all_gather", tuple(range(n)), 1.0, star(n)):
        far = (stage.transfers[0].target - stage.transfers[0].source) % n
        sent = {
            rank: {(rank - m) % n for m in range(0, n - far, 2 * far)} for rank in range(n)
        }  # the trees in which this rank is at a multiple of 2 far
        for source, _target, size in stage.transfers:
            assert size == pytest.approx(len(sent[source]) / n, rel=1e-12)
            assert sent[source] <= held[source]
        for source, target, _size in stage.transfers:
            assert not sent[source] & held[target]
            held[target] |= sent[source]
    assert all(parts == set(range(n)) for parts in held.values())


@pytest.mark.parametrize("n", [2, 5, 8, 33])
def test_parallel_trees_send_far_messages_first_and_small(n: int) -> None:
    gathers = list(Pat().stages("all_gather", tuple(range(n)), SIZE, star(n)))
    sizes = [stage.transfers[0].bytes for stage in gathers]
    assert len(gathers) == math.ceil(math.log2(n))
    assert sizes == sorted(sizes)
    scatters = list(Pat().stages("reduce_scatter", tuple(range(n)), SIZE, star(n)))
    back = [{(t.target, t.source, t.bytes) for t in stage.transfers} for stage in scatters]
    assert back == [set(stage.transfers) for stage in reversed(gathers)]


def test_power_below() -> None:
    found: dict[int, Any] = {n: power_below(n) for n in (1, 2, 3, 4, 7, 8, 9)}
    assert found == {1: 1, 2: 2, 3: 2, 4: 4, 7: 4, 8: 8, 9: 8}
    assert switch(0) < 0


# -- switches between the nodes that add ----------------------------------------------------------


@pytest.mark.parametrize("name", ["collnet_chain", "collnet_direct", "nvls_sharp"])
@pytest.mark.parametrize(("machine", "nics"), [("dgx-h100", 8), ("dgx-a100", 4)])
def test_a_nic_sends_half_of_what_a_ring_needs(name: str, machine: str, nics: int) -> None:
    """All-reduce of S over N nodes with k NICs: S/k out and in, where a ring has 2 (n-1)/n S/k."""
    topology = load_machine(machine).topology(4, nics_per_node=nics)
    algorithm = plugins.find("collectives", name)()
    loads: Counter[Any] = Counter()
    for transfer in algorithm.traffic("all_reduce", world(topology), SIZE, topology):
        for edge in path(transfer, topology):
            loads[edge] += transfer.bytes
    cables = {edge: load for edge, load in loads.items() if "leaf" in (edge[0][0], edge[1][0])}
    assert len(cables) == 2 * 4 * nics
    assert list(cables.values()) == pytest.approx([SIZE / nics] * len(cables), rel=1e-9)
    assert all("spine" not in (edge[0][0], edge[1][0]) for edge in loads)


def test_chains_load_every_nvlink_alike() -> None:
    """Eight chains, each begun by another GPU: (2 - 2/g) S out of every GPU over NVLink."""
    topology = load_machine("dgx-a100").topology(2)
    out: Counter[int] = Counter()
    algorithm = plugins.find("collectives", "collnet_chain")()
    for a, b, size in algorithm.traffic("all_reduce", world(topology), SIZE, topology):
        if a >= 0 and b >= 0:
            out[a] += size
    assert list(out.values()) == pytest.approx([2 * 7 / 8 * SIZE] * 16, rel=1e-9)


def test_ways_to_the_network_are_a_gpu_s_own_nic_and_leaf() -> None:
    topology = load_machine("dgx-h100").topology(3)
    up = path(Transfer(13, aggregator(5), 1.0), topology)
    down = path(Transfer(aggregator(5), 13, 1.0), topology)
    assert up[0][0] == ("gpu", 1, 5)
    assert up[-1] == (("nic", 1, 5), ("leaf", 0, 5))
    assert down == tuple((b, a) for a, b in reversed(up))


def test_nodes_with_different_places_in_use_cannot_stream() -> None:
    topology = load_machine("dgx-h100").topology(2)
    for name in ("collnet_chain", "collnet_direct", "nvls_sharp"):
        algorithm = plugins.find("collectives", name)()
        assert algorithm.applies((0, 3, 8, 11), topology)
        assert not algorithm.applies((0, 3, 8, 12), topology)
        assert not algorithm.applies((0, 1, 2, 3), topology)
