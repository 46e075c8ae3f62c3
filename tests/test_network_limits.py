"""What limits traffic between nodes: a NIC's PCIe slot, wires that GPU and NIC share, up-links."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import simpy

from dpsim.backends.nccl import Nccl, phase_of
from dpsim.collectives.halving_doubling import HalvingDoubling
from dpsim.core.plugins import Plugin
from dpsim.describe.scenario import read
from dpsim.machines.machine import load_machine
from dpsim.machines.topology import Topology
from dpsim.play.network import SharedLinks, together
from dpsim.predict.collective import Setup
from dpsim.predict.prediction import predict

SIZE = 1e9
PORT = 10e9
COMPARED = str(
    Path(__file__).parent / "data/calibration/new-layout-gh200-8gpu-allreduce-starting-line.txt"
)
MAKE: Callable[..., Any] = Plugin("fabrics", "family").make


def server(nic: str = "12 GB/s", nics: int = 1, nodes: int = 2, **network: Any) -> Topology:
    """Nodes of 4 GPUs on PCIe, two a switch, all on one socket; NIC 0 beside GPU 0 and a port of
    10 GB/s to one switch, or to the `network` given."""
    pcie = {"bandwidth": "12 GB/s", "kind": "pcie"}
    host = {"gpu": pcie, "nic": {**pcie, "bandwidth": nic}, "uplink": pcie, "sockets": 1,
            "gpus_per_socket": 4, "gpus_per_switch": 2}  # fmt: skip
    star = {"family": "star", **network, "link": {"bandwidth": "10 GB/s"}}
    return Topology(
        MAKE({"family": "pcie_tree", "host": host}, file=True), MAKE(star, file=True),
        nodes=nodes, gpus=4, nics=nics,
    )  # fmt: skip


def ends(topology: Topology, flows: Sequence[tuple[int, int]]) -> list[float]:
    """When each of `flows` of SIZE bytes is through, if all start at once."""
    env = simpy.Environment()
    network = SharedLinks(env, lambda edge: topology.link(edge).bandwidth)
    times = dict.fromkeys(range(len(flows)), 0.0)

    def noted(number: int) -> Callable[[simpy.Event], None]:
        return lambda _event: times.__setitem__(number, env.now)

    for number, flow in enumerate(flows):
        event = network.transfer(dict.fromkeys(topology.route(*flow), SIZE))
        assert event.callbacks is not None
        event.callbacks.append(noted(number))
    env.run()
    return [float(time) for time in times.values()]


# -- a node's own wires ---------------------------------------------------------------------------


def test_a_slot_narrower_than_the_port_limits_the_nic() -> None:
    assert ends(server("6 GB/s"), [(0, 4)]) == pytest.approx([SIZE / 6e9])
    assert ends(server("12 GB/s"), [(0, 4)]) == pytest.approx([SIZE / PORT])


def test_two_gpus_share_their_nic() -> None:
    assert ends(server(), [(0, 4), (1, 5)]) == pytest.approx([2 * SIZE / PORT] * 2)


def test_both_directions_run_at_full_rate() -> None:
    """Full duplex everywhere: GPU, PCIe switch, slot, cable."""
    assert ends(server(), [(0, 4), (4, 0)]) == pytest.approx([SIZE / PORT] * 2)
    assert ends(server(), [(0, 2), (2, 0)]) == pytest.approx([SIZE / 12e9] * 2)
    up = server(nodes=4, family="fat_tree", nodes_per_leaf=2, oversubscription=2)
    assert ends(up, [(0, 8), (8, 0)]) == pytest.approx([SIZE / PORT] * 2)


def test_a_gpu_sends_to_its_nic_and_to_its_neighbour_over_one_wire() -> None:
    """12 GB/s for both: 6 each."""
    assert ends(server(), [(0, 4), (0, 1)]) == pytest.approx([SIZE / 6e9] * 2)


def test_traffic_to_the_nic_shares_the_switches_with_traffic_between_gpus() -> None:
    """GPU 2 reaches NIC 0 over the wires between the PCIe switches that GPU 3 reaches GPU 1 over:
    both go from switch 1 over the socket to switch 0."""
    topology = server()
    shared = {*topology.route(2, 4)} & {*topology.route(3, 1)}
    assert shared == {(("pcie", 0, 1), ("socket", 0, 0)), (("socket", 0, 0), ("pcie", 0, 0))}
    assert ends(topology, [(2, 4), (3, 1)]) == pytest.approx([SIZE / 6e9] * 2)
    # beside it, GPU 0 reaches the NIC without them
    assert ends(topology, [(0, 4), (3, 1)]) == pytest.approx([SIZE / PORT, SIZE / 12e9])


def test_what_arrives_shares_nothing_with_what_leaves() -> None:
    assert ends(server(), [(2, 4), (1, 3)]) == pytest.approx([SIZE / PORT, SIZE / 12e9])


def test_a_wider_port_behind_the_same_slot_is_no_faster() -> None:
    """`inter_node_bandwidth` leaves the slot as it is: PCIe 3.0 x16 cannot feed 400 Gbit/s."""
    machine = load_machine("v100-1x100g")
    widths = [
        min(topology.link(edge).bandwidth for edge in topology.route(0, topology.gpus))
        for topology in (
            machine.topology(2, inter_node_bandwidth=bandwidth) for bandwidth in (50e9, 100e9)
        )
    ]
    assert widths[0] == widths[1] < 16e9


# -- up-links -------------------------------------------------------------------------------------


def tree(oversubscription: float, nodes: int = 8, per_leaf: int = 4) -> Topology:
    """Nodes of 1 used NIC below leaves of `per_leaf` nodes."""
    return server(
        nodes=nodes, family="fat_tree", nodes_per_leaf=per_leaf, oversubscription=oversubscription
    )


@pytest.mark.parametrize("oversubscription", [1, 2, 4])
def test_oversubscription_divides_what_crosses_the_middle(oversubscription: int) -> None:
    """All of one leaf send to the other at once: k times as long."""
    flows = [(4 * node, 4 * (node + 4)) for node in range(4)]
    found = ends(tree(oversubscription), flows)
    assert found == pytest.approx([oversubscription * SIZE / PORT] * 4)


def test_one_ring_of_adjacent_hosts_does_not_notice_oversubscription() -> None:
    """A ring in rank order leaves each leaf once: one flow on an up-link as wide as two NICs."""
    ring = Nccl(algorithm="ring")
    times = [
        ring.plan("all_reduce", tuple(range(32)), SIZE, tree(oversubscription)).seconds
        for oversubscription in (1, 2, 4)
    ]
    assert times == pytest.approx([times[0]] * 3)
    lone = [
        ring.plan("all_reduce", tuple(range(32)), SIZE, tree(over, per_leaf=1)).phases[0].seconds
        for over in (1, 2)
    ]
    assert lone[1] == pytest.approx(2 * lone[0])


def test_partners_far_apart_do() -> None:
    """Halving starts between leaves, where all cross the spine, and ends between neighbours."""
    ranks = tuple(range(0, 32, 4))
    for over in (1, 2):
        far, *_, near = list(HalvingDoubling().stages("all_reduce", ranks, SIZE, tree(over)))[:3]
        assert phase_of(far, tree(over)).seconds == pytest.approx(over * SIZE / 2 / PORT)
        assert phase_of(near, tree(over)).seconds == pytest.approx(SIZE / 8 / PORT)


# -- several collectives at once ------------------------------------------------------------------


def all_reduces(topology: Topology, groups: Sequence[tuple[int, ...]]) -> tuple[float, ...]:
    """How many times as long each takes beside the others as alone, latencies left out."""
    ring = Nccl(algorithm="ring")
    plans = [ring.plan("all_reduce", ranks, SIZE, topology) for ranks in groups]
    alone = [sum(phase.seconds for phase in plan.phases) for plan in plans]
    ends = together(plans, lambda edge: topology.link(edge).bandwidth)
    waits = [plan.seconds - moving for plan, moving in zip(plans, alone, strict=True)]
    return tuple((end - wait) / a for end, wait, a in zip(ends, waits, alone, strict=True))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_all_reduces_on_one_saturated_link_share_it(count: int) -> None:
    """Local rank k of both nodes; all leave through the one NIC: `count` times as long."""
    groups = [(k, 4 + k) for k in range(count)]
    assert all_reduces(server("400 GB/s"), groups) == pytest.approx((float(count),) * count)


def test_all_reduces_on_disjoint_links_take_no_longer() -> None:
    """Two pairs of nodes on one switch; and eight local ranks that each have their own NIC."""
    assert all_reduces(server(nodes=4), [(0, 4), (8, 12)]) == pytest.approx((1.0, 1.0))
    rails = load_machine("dgx-h100").topology(2)
    found = all_reduces(rails, [(k, 8 + k) for k in range(8)])
    assert found == pytest.approx((1.0,) * 8)


def test_a_longer_all_reduce_gets_the_link_back_when_the_shorter_one_is_through() -> None:
    """1 and 3 GB at 10 GB/s: 1 GB each in the first 0.2 s, then 2 GB alone."""
    topology = server("400 GB/s")
    plans = [Nccl(algorithm="ring").plan("all_reduce", ranks, size, topology)
             for ranks, size in (((0, 4), 1e9), ((1, 5), 3e9))]  # fmt: skip
    ends = together(plans, lambda edge: topology.link(edge).bandwidth)
    waits = plans[0].seconds - sum(phase.seconds for phase in plans[0].phases)
    assert ends == pytest.approx((0.2 + waits, 0.4 + waits), rel=1e-6)


MIB = 2**20
Cli = Callable[..., tuple[int, str, str]]


def test_a_group_for_each_local_rank_shares_what_they_have_in_common() -> None:
    """Eight NICs: no slower than alone.  One NIC: together as fast as it is, one eighth each."""
    rails = Setup(load_machine("dgx-h100"), Nccl())
    (line,) = rails.groups("all_reduce", 16, 2, [1024 * MIB], 8).lines
    assert line.seconds == pytest.approx(line.alone, rel=1e-12)
    assert line.ranks == 2
    shared = Setup(load_machine("v100-1x100g"), Nccl(algorithm="ring"))
    eight, four = (
        shared.groups("all_reduce", 16, 2, [1024 * MIB], 8).lines[0],
        shared.groups("all_reduce", 8, 2, [1024 * MIB], 4).lines[0],
    )
    assert eight.alone is not None
    assert eight.seconds > 6 * eight.alone
    assert eight.busbw == pytest.approx(four.busbw / 2, rel=0.01)


def test_ranks_of_a_group_are_every_so_manyth() -> None:
    """Groups of four on two nodes of eight: ranks 0, 4, 8, 12, so half of each stays inside."""
    found = Setup(load_machine("dgx-h100"), Nccl()).groups("all_reduce", 16, 2, [64 * MIB], 4)
    assert (found.ranks, found.at_once) == (16, 4)
    assert found.lines[0].ranks == 4


def test_the_command_prints_groups_beside_one_alone(cli: Cli) -> None:
    command = ("collective", "all_reduce", "--cluster", "v100-1x100g", "--nodes", "2", "--sizes",
               "64MiB", "--groups", "8")  # fmt: skip
    code, out, _ = cli(*command)
    assert code == 0
    assert "8 groups of 2 ranks at once; times of the slowest" in out
    assert "slower" in out
    code, out, _ = cli(*command, "--json")
    (group,) = json.loads(out)["groups"]
    assert (code, group["groups_at_once"], group["ranks"]) == (0, 8, 16)
    assert group["lines"][0]["time_s"] > 6 * group["lines"][0]["alone_s"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--groups", "3"), "do not split 16 ranks evenly"),
        (("--groups", "16"), "at least 2 each"),
        (("--routing", "random"), "neither balanced nor ecmp"),
        (("--groups", "8", "--compare", COMPARED), "one collective alone, not of --groups"),
    ],
)
def test_what_cannot_be_split_or_routed_is_refused(
    options: tuple[str, ...], message: str, cli: Cli
) -> None:
    code, _, err = cli("collective", "all_reduce", "--cluster", "dgx-h100", "--nodes", "2",
                       "--sizes", "1MiB", *options)  # fmt: skip
    assert code == 2
    assert message in err


def test_one_switch_has_no_routing(cli: Cli) -> None:
    code, _, err = cli("collective", "all_reduce", "--cluster", "rack-10gbe", "--nodes", "2",
                       "--sizes", "1MiB", "--routing", "ecmp")  # fmt: skip
    assert code == 2
    assert "one switch only" in err


def test_rings_of_neighbours_hardly_collide(cli: Cli) -> None:
    """64 nodes on two leaves a rail: one flow of each rail leaves a leaf, whatever the hash."""
    times = set()
    for routing in (("balanced",), ("ecmp",), ("ecmp", "--seed", "1")):
        code, out, _ = cli("collective", "all_reduce", "--cluster", "dgx-h100", "--nodes", "64",
                           "--sizes", "1GiB", "--algorithm", "hierarchical", "--json", "--routing",
                           *routing)  # fmt: skip
        assert code == 0
        times.add(json.loads(out)["groups"][0]["lines"][0]["time_s"])
    assert len(times) == 1


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([], True),
        (["compute.code=typical"], False),
        (["calibrate={ranks: 1, step_time: 310 ms}"], True),
        (["calibrate={ranks: 8, step_time: 610 ms}"], False),
        (["cluster.ranks=4"], False),
        (["cluster.inter_node_kind=roce"], False),
    ],
    ids=["uncalibrated", "typical code", "one node measured", "two nodes measured", "one node",
         "another network"],
)  # fmt: skip
def test_a_step_that_waits_for_tcp_tells_how_far_others_lay(changes: list[str], told: bool) -> None:
    said = predict(read("vgg16-10gbe", ["sweep=null", "cluster.ranks=16", *changes])).warnings
    assert any("go through the hosts' TCP" in text for text in said) == told


def test_a_step_that_tcp_connections_hold_says_so() -> None:
    """Two connections a NIC carry less than 100 Gbit/s, and eight a channel all of it."""
    thin = ["sweep=null", "cluster.nodes=4", "cluster.inter_node_kind=ethernet"]
    wide = [*thin, "cluster.nics_per_node=2", "cluster.inter_node_bandwidth=100 Gbit/s"]
    more = [*wide, "collective={backend: nccl, sockets: 8}"]
    warned = [predict(read("llama3-8b-h100", one)).warnings for one in (wide, more, thin[:2])]
    told = [any("TCP connections hold exchanges" in text for text in texts) for texts in warned]
    assert told == [True, False, False]
