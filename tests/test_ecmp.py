"""ECMP: flows hashed to up-links collide as balls in bins do, and whatever uses them sees it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import simpy

import dpsim
from dpsim.backends.nccl import Nccl, phase_of
from dpsim.collectives import Stage
from dpsim.collectives.halving_doubling import HalvingDoubling
from dpsim.collectives.ring_orders import rings
from dpsim.core.plugins import Plugin
from dpsim.core.record import Refused
from dpsim.machines.clos import Clos, flow_hash
from dpsim.machines.machine import load_machine
from dpsim.machines.topology import Topology
from dpsim.play.network import Network

CABLE = 10e9
SIZE = 1e9
MAKE: Callable[..., Any] = Plugin("fabrics", "family").make


def fabric(
    nodes: int, per_leaf: int, gpus: int = 1, seed: int = 0, kind: str = "local", **network: Any
) -> Topology:
    """Nodes of `gpus` GPUs, each with a NIC of its own at 10 GB/s, below leaves of `per_leaf`."""
    wide = {"bandwidth": "400 GB/s", "kind": "local"}
    node = {
        "family": "explicit",
        "vertices": ["sw0", *(f"{what}{k}" for what in ("gpu", "nic") for k in range(gpus))],
        "links": [
            *({"from": f"gpu{k}", "to": f"nic{k}", **wide} for k in range(gpus)),
            *({"from": f"gpu{k}", "to": "sw0", **wide} for k in range(gpus)),
        ],
    }
    tree = {
        "family": "fat_tree",
        "link": {"bandwidth": "10 GB/s", "latency": "5 us", "kind": kind},
        "nodes_per_leaf": per_leaf,
        "routing": "ecmp",
        "hash_seed": seed,
    }
    return Topology(
        MAKE(node, file=True), MAKE({**tree, **network}, file=True),
        nodes=nodes, gpus=gpus, nics=gpus,
    )  # fmt: skip


def seconds_of(topology: Topology, flows: Sequence[tuple[int, int]]) -> float:
    """When the last of `flows` of SIZE bytes is through, on links shared as the engine does."""
    env = simpy.Environment()
    network = Network(env, lambda edge: topology.link(edge).bandwidth)
    for flow in flows:
        network.transfer(dict.fromkeys(topology.route(*flow), SIZE))
    env.run()
    return float(env.now)


def most_on_one_link(topology: Topology, flows: Sequence[tuple[int, int]]) -> int:
    """Flows on the busiest link between a leaf and a spine, counted on the routes."""
    crossed = Counter(
        edge for flow in flows for edge in topology.route(*flow) if {edge[0][0], edge[1][0]} ==
        {"leaf", "spine"}
    )  # fmt: skip
    return max(crossed.values())


# -- the hash -------------------------------------------------------------------------------------


def test_the_hash_is_that_of_splitmix64() -> None:
    """Its first output from state 0, as in the authors' reference program."""
    assert flow_hash(0, (0,)) == 0xE220A8397B1DCDAF
    assert flow_hash(0, (1, 0, 2, 0)) != flow_hash(0, (2, 0, 1, 0)) != flow_hash(1, (2, 0, 1, 0))


def test_a_seed_changes_which_flows_collide() -> None:
    """With a linear hash, such as a CRC, two flows would collide for all seeds or for none."""
    together = [
        flow_hash(seed, (0, 0, 9, 0)) % 8 == flow_hash(seed, (1, 0, 8, 0)) % 8
        for seed in range(4000)
    ]
    assert sum(together) / len(together) == pytest.approx(1 / 8, abs=0.02)


def test_flows_spread_evenly_over_the_spines() -> None:
    counts = Counter(
        flow_hash(0, (a, 0, b, 0)) % 16 for a in range(100) for b in range(100) if a != b
    )
    expected = 9900 / 16
    chi_square = sum((counts[k] - expected) ** 2 / expected for k in range(16))
    assert chi_square < 37.7  # 15 degrees of freedom, 0.1 %


# -- flows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_flows_on_one_up_link_share_it(k: int, seed: int) -> None:
    """k NICs of a leaf send to k of another over m = 8 up-links as fast as a NIC: the last flow
    takes as many times as long as there are flows on the fullest up-link."""
    topology = fabric(16, 8, seed=seed)
    flows = [(i, 8 + i) for i in range(k)]
    spines = Counter(flow_hash(seed, (i, 0, 8 + i, 0)) % 8 for i in range(k))
    assert most_on_one_link(topology, flows) == max(spines.values())
    assert seconds_of(topology, flows) == pytest.approx(max(spines.values()) * SIZE / CABLE)


def test_flows_below_one_leaf_never_collide() -> None:
    topology = fabric(16, 8)
    assert seconds_of(topology, [(i, (i + 3) % 8) for i in range(8)]) == pytest.approx(SIZE / CABLE)


def test_all_flows_of_a_pair_of_nics_take_one_way() -> None:
    topology = fabric(16, 8)
    assert topology.route(0, 8) == topology.route(0, 8)
    assert topology.route(0, 8)[1][1][0] == "leaf"
    assert seconds_of(topology, [(0, 8), (0, 8)]) == pytest.approx(2 * SIZE / CABLE)


def drawn(leaves: int, hosts: int, spines: int, draw: random.Random) -> tuple[list[int], int]:
    """A random permutation, and its fullest up- or down-link if each flow draws its spine."""
    targets = list(range(leaves * hosts))
    draw.shuffle(targets)
    links: Counter[tuple[str, int, int]] = Counter()
    for source, target in enumerate(targets):
        up, down = source // hosts, target // hosts
        if up != down:
            spine = draw.randrange(spines)
            links["up", up, spine] += 1
            links["down", down, spine] += 1
    return targets, max(links.values())


def test_random_permutations_slow_down_as_balls_in_bins() -> None:
    """4 leaves of 8 hosts, 8 up-links each: the mean slow-down over 400 permutations, each with a
    seed of its own, is that of flows which draw their spine at random."""
    draw, found, expected = random.Random(7), [], []
    for seed in range(400):
        topology = fabric(32, 8, seed=seed)
        targets, most = drawn(4, 8, 8, draw)
        pairs = [(a, b) for a, b in enumerate(targets) if a // 8 != b // 8]
        found.append(most_on_one_link(topology, pairs))
        expected.append(most)
    reference = [drawn(4, 8, 8, draw)[1] for _ in range(4000)]
    mean = sum(reference) / len(reference)
    assert 3.0 < mean < 4.5
    assert sum(found) / len(found) == pytest.approx(mean, abs=0.15)
    assert sum(expected) / len(expected) == pytest.approx(mean, abs=0.15)


def test_fluid_sharing_of_a_permutation_is_bounded_by_its_fullest_link() -> None:
    draw = random.Random(3)
    for seed in range(5):
        topology = fabric(32, 8, seed=seed)
        targets, _ = drawn(4, 8, 8, draw)
        pairs = [(a, b) for a, b in enumerate(targets) if a // 8 != b // 8]
        most = most_on_one_link(topology, pairs)
        assert seconds_of(topology, pairs) >= most * SIZE / CABLE * (1 - 1e-9)
        assert seconds_of(topology, pairs) <= 2 * most * SIZE / CABLE


# -- collectives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_ring_takes_as_long_as_its_fullest_up_link(seed: int) -> None:
    """4 nodes of 4 NICs, each node on its own leaf with 4 up-links: every hop between nodes is 4
    flows of S/4n bytes, of which L share a link.  T = 2(n-1) (latency + L S / (4 n B))."""
    topology = fabric(4, 1, gpus=4, seed=seed)
    ring = Nccl(algorithm="ring")
    ways = [
        (a, b)
        for found in rings(topology, range(16))
        for a, b in zip(found.order, found.order[1:] + found.order[:1], strict=True)
        if a // 4 != b // 4
    ]
    assert len(ways) == 16
    most = most_on_one_link(topology, ways)
    plan = ring.plan("all_reduce", tuple(range(16)), SIZE, topology)
    expected = 2 * 15 * (10e-6 + most * SIZE / (4 * 16 * CABLE))
    assert plan.seconds == pytest.approx(expected)
    even = ring.plan("all_reduce", tuple(range(16)), SIZE, topology.balanced)
    assert even.seconds == pytest.approx(2 * 15 * (10e-6 + SIZE / (4 * 16 * CABLE)))


def test_the_library_does_not_know_where_flows_collide() -> None:
    """Rings carry equal shares, although some of them cross fuller up-links than others."""
    topology = fabric(4, 1, gpus=4)
    assert len({ring.bandwidth for ring in rings(topology, range(16))}) == 1


@pytest.mark.parametrize("seed", range(4))
def test_halving_between_leaves_sees_collisions_and_within_a_leaf_none(seed: int) -> None:
    topology = fabric(16, 8, seed=seed)
    far, near, *_ = HalvingDoubling().stages("all_reduce", tuple(range(16)), SIZE, topology)

    def played(stage: Stage) -> float:
        return phase_of(stage, topology).seconds

    pairs = [(t.source, t.target) for t in far.transfers]
    assert played(far) == pytest.approx(most_on_one_link(topology, pairs) * SIZE / 2 / CABLE)
    assert played(near) == pytest.approx(SIZE / 4 / CABLE)


def test_fitted_times_see_collisions_too() -> None:
    """NCCL on InfiniBand with constants fitted: some seed is slower, none is faster."""
    times = [
        Nccl(algorithm="ring")
        .plan("all_reduce", tuple(range(16)), SIZE, fabric(4, 1, 4, seed, "infiniband"))
        .seconds
        for seed in range(8)
    ]
    even = Nccl(algorithm="ring").plan(
        "all_reduce", tuple(range(16)), SIZE, fabric(4, 1, 4, kind="infiniband").balanced
    )
    assert min(times) >= even.seconds * (1 - 1e-9)
    assert max(times) > 1.3 * even.seconds


MACHINE = """
device: v100-sxm2-16gb
gpus_per_node: 4
nics_per_node: 4
node:
  family: explicit
  vertices: [gpu0, gpu1, gpu2, gpu3, nic0, nic1, nic2, nic3, sw0]
  links:
    - {from: gpu0, to: sw0, bandwidth: 100 GB/s}
    - {from: gpu1, to: sw0, bandwidth: 100 GB/s}
    - {from: gpu2, to: sw0, bandwidth: 100 GB/s}
    - {from: gpu3, to: sw0, bandwidth: 100 GB/s}
    - {from: gpu0, to: nic0, bandwidth: 100 GB/s}
    - {from: gpu1, to: nic1, bandwidth: 100 GB/s}
    - {from: gpu2, to: nic2, bandwidth: 100 GB/s}
    - {from: gpu3, to: nic3, bandwidth: 100 GB/s}
network:
  family: NETWORK
"""
SCENARIO = """
model:
  layers: [{name: a, parameters: 25000000, forward: 1 ms, backward: 2 ms}]
cluster: {machine: m.yaml, nodes: 4}
strategy: {kind: ddp}
collective: {backend: nccl, algorithm: ring}
compute: {contention: 0, spread: 0}
"""
TREE = "fat_tree\n  link: {bandwidth: 10 GB/s, latency: 5 us}\n  nodes_per_leaf: 1"


def step(folder: Path, *sets: str, network: str = TREE) -> float:
    (folder / "m.yaml").write_text(MACHINE.replace("NETWORK", network))
    (folder / "s.yaml").write_text(SCENARIO)
    return float(dpsim.predict(dpsim.read(folder / "s.yaml", sets)).step_time_s)


def test_a_scenario_chooses_routing_and_its_seed_draws_the_hash(tmp_path: Path) -> None:
    default, even = step(tmp_path), step(tmp_path, "cluster.routing=balanced")
    hashed = [step(tmp_path, "cluster.routing=ecmp", f"seed={k}") for k in range(4)]
    assert default == even
    assert min(hashed) >= even
    assert len(set(hashed)) > 1
    swept = dpsim.predict(
        dpsim.read(
            tmp_path / "s.yaml", ["cluster.routing=ecmp", "sweep={seed: [0, 1, 2, 3]}"]
        )
    )  # fmt: skip
    assert [point["step_time_s"] for point in swept.points] == hashed
    assert not any("cluster.routing" in text for text in swept.document["warnings"])


def test_a_single_draw_is_said_to_be_one(tmp_path: Path) -> None:
    step(tmp_path)
    loaded = dpsim.read(tmp_path / "s.yaml", ["cluster.routing=ecmp", "seed=5"])
    (said,) = (t for t in dpsim.predict(loaded).document["warnings"] if "cluster.routing" in t)
    assert "with seed 5 one draw" in said


def test_rounds_and_both_engines_agree_under_ecmp(tmp_path: Path) -> None:
    ecmp = "cluster.routing=ecmp"
    whole = step(tmp_path, ecmp, "engine=event")
    assert step(tmp_path, ecmp, "engine=vectorised") == pytest.approx(whole, rel=1e-9)
    # by rounds, hops that share no link go ahead of those that do
    assert step(tmp_path, ecmp, "engine=event", "detail=rounds") <= whole * (1 + 1e-9)


# -- what is refused ------------------------------------------------------------------------------


def test_one_switch_has_nothing_to_hash_over(tmp_path: Path) -> None:
    star = "star\n  link: {bandwidth: 10 GB/s}"
    with pytest.raises(Refused, match=r"cluster\.routing.*star network: one switch only"):
        step(tmp_path, "cluster.routing=ecmp", network=star)
    assert step(tmp_path, "cluster.routing=balanced", network=star) > 0
    with pytest.raises(Refused, match="at least two spine switches"):
        step(tmp_path, "cluster.routing=ecmp", network=TREE + "\n  spines: 1")
    with pytest.raises(Refused, match="at least two spine switches"):
        step(tmp_path, "cluster.routing=ecmp", "cluster.oversubscription=4")
    with pytest.raises(Refused, match="no network"):
        load_machine("two-rtx3090").topology(1, routing="ecmp")


def test_spines_are_as_many_as_the_bundle_has_cables() -> None:
    """A DGX SuperPOD's leaf: 32 ports down, 32 up; half as many with 2:1."""
    for oversubscription, count in ((1.0, 32), (2.0, 16)):
        topology = load_machine("dgx-h100").topology(
            64, routing="ecmp", oversubscription=oversubscription
        )
        spines = [v for v in topology.graph if v[0] == "spine"]
        assert len(spines) == count
        assert topology.link((("leaf", 0, 0), ("spine", 0))).bandwidth == pytest.approx(50e9)


def test_spines_can_be_stated_and_share_the_bundle() -> None:
    tree: Clos = MAKE(
        {"family": "fat_tree", "link": {"bandwidth": "10 GB/s"}, "nodes_per_leaf": 8,
         "routing": "ecmp", "spines": 2},
        file=True,
    )  # fmt: skip
    assert tree.settled(1).uplink(8).bandwidth == pytest.approx(40e9)
