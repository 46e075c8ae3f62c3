"""The NCCL backend: what NCCL chooses, by version, and what that costs on measured machines."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from dpsim.backends import Plan
from dpsim.backends import _nccl_messages as messages
from dpsim.backends import _nccl_tables as tables
from dpsim.backends import nccl as backend
from dpsim.backends._nccl_graph import graph_of
from dpsim.backends._nccl_thresholds import ll_limit, tree_limit
from dpsim.backends._nccl_tuning import Tuning, tree_correction
from dpsim.backends.nccl import Nccl
from dpsim.compile.program import Cast, Op, Program
from dpsim.core import constants
from dpsim.core.plugins import Plugin
from dpsim.core.record import Refused, build
from dpsim.machines.devices import NetworkKind
from dpsim.machines.fabrics import Edge
from dpsim.machines.machine import device_names, load_device, load_machine
from dpsim.machines.topology import Topology
from dpsim.play import Costs, Play, event

#: bus bandwidth of all-reduce on GPUs 0 … k-1 of a DGX-1V [GB/s]: VIA-Research/vTrain's table
DGX_1V = {2: 22.5, 3: 45, 4: 85, 5: 37, 6: 46, 7: 87, 8: 134}

#: the same of a node with eight A100
DGX_A100 = {2: 197, 3: 212, 4: 222, 5: 224, 6: 227, 7: 227, 8: 229}


def machine(name: str, nodes: int = 1, **changes: Any) -> Topology:
    return load_machine(name).topology(nodes, **changes)


def world(topology: Topology) -> tuple[int, ...]:
    return tuple(range(topology.ranks))


def chosen(topology: Topology, size: float, operation: str = "all_reduce", **keys: Any) -> str:
    return Nccl(**keys).plan(operation, world(topology), size, topology).algorithm


def seconds(topology: Topology, size: float, operation: str = "all_reduce", **keys: Any) -> float:
    return Nccl(**keys).plan(operation, world(topology), size, topology).seconds


# -- NCCL's own model -----------------------------------------------------------------------------


def test_channels_are_those_that_nccl_prints() -> None:
    """NVIDIA/nccl issues 1197 (H100: 12 channels of 30), and logs of A100 (12 of 20)."""
    for name, per_channel in (("dgx-h100", 30.0), ("dgx-a100", 20.0)):
        graph = graph_of(machine(name), tuple(range(8)))
        assert (graph.channels, graph.intra) == (12, per_channel)
    one = machine("rack-pcie4", 2, gpus_per_node=1, inter_node_bandwidth=25e9)
    graph = graph_of(one, (0, 1))
    assert (graph.channels, graph.inter) == (1, 24.0)


def test_estimate_of_a_ring_is_the_published_formula() -> None:
    """8 H100, ring, Simple, 2.30: 8.4 + 14 x 3.4 us, and 360 GB/s x 8/14."""
    tuning = Tuning(graph_of(machine("dgx-h100"), tuple(range(8))), (2, 30))
    size = 2.0**30
    expected = 8.4e-6 + 14 * 3.4e-6 + size / (360e9 * 8 / 14)
    assert tuning.seconds("all_reduce", "ring", "simple", size) == pytest.approx(expected)
    ll = 6.6e-6 + 14 * 0.6e-6 + 1024 / (141e9 * 8 / 14)
    assert tuning.seconds("all_reduce", "ring", "ll", 1024.0) == pytest.approx(ll)


def test_estimate_of_a_tree_between_nodes_is_the_published_formula() -> None:
    """4 nodes of 8 A100: 2 (7 x 4 + 2 x 14) us beyond the base, and half of 8 x 17.8 GB/s."""
    tuning = Tuning(graph_of(machine("dgx-a100", 4), tuple(range(32))), (2, 30))
    size = 2.0**28
    speed = 0.5 * 8 * 17.8e9 * tree_correction("simple", size)
    expected = 8.4e-6 + 2 * (7 * 4e-6 + 2 * 14e-6) + size / speed
    assert tuning.seconds("all_reduce", "tree", "simple", size) == pytest.approx(expected)


@pytest.mark.parametrize(("version", "times"), [((2, 17), 1.9), ((2, 30), 1.4)])
def test_large_messages_of_a_ring_between_nodes_pay_more_latency(
    version: tuple[int, int], times: float
) -> None:
    """From 4,096 bytes a rank, and since 2.18 from 64 bytes a rank, channel and direction
    (NVIDIA/nccl src/graph/tuning.cc, ncclTopoGetAlgoTime)."""
    tuning = Tuning(graph_of(machine("dgx-a100", 4), tuple(range(32))), version)
    edge = 4096 * 32 if version < (2, 18) else 64 * 2 * tuning.graph.channels * 32
    call = ("all_reduce", "ring", "simple")
    below, above = (tuning.seconds(*call, size) for size in (edge - 1, edge))
    jump = (times - 1) * tuning.latency(*call) * 1e-6
    assert above - below == pytest.approx(jump, rel=1e-4)


def test_bare_times_are_the_estimates() -> None:
    topology = machine("dgx-a100", 2)
    tuning = Tuning(graph_of(topology, world(topology)), tables.NEWEST)
    for size in (1e3, 1e6, 1e9):
        best = tuning.choices("all_reduce", size)[0].seconds
        found = Nccl().bare().plan("all_reduce", world(topology), size, topology).seconds
        assert found == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter"])
def test_switches_of_a_rack_carry_out_one_pass_of_at_most_32_ranks(operation: str) -> None:
    """NVIDIA/nccl src/enqueue.cc: NCCL_MAX_NVLS_ARITY; all-reduces of more have 32 heads."""
    rack = machine("gb200-nvl72")
    plans = {n: Nccl().plan(operation, range(n), 2.0**20, rack) for n in (32, 33, 72)}
    assert [plans[n].algorithm.split()[0] for n in (32, 33, 72)] == ["nvls", "ring", "ring"]
    assert chosen(rack, 2.0**20).startswith("nvls")


def test_what_is_chosen_depends_on_size_machine_and_version() -> None:
    hopper, nodes = machine("dgx-h100"), machine("dgx-h100", 4)
    assert chosen(hopper, 1e3) == "ring ll"
    assert chosen(hopper, 1e9) == "nvls simple"
    assert chosen(hopper, 1e9, version="2.12") == "ring simple"
    assert chosen(hopper, 1e9, "all_gather") == "ring simple"
    assert chosen(nodes, 1e3) == "tree ll"
    assert chosen(nodes, 1e9) == "nvls_tree simple"
    assert chosen(nodes, 1e3, version="2.3") == "ring ll"
    assert chosen(machine("dgx-a100", 4), 1e9, version="2.18").endswith("simple")


def test_before_2_5_sizes_choose() -> None:
    """Latencies of two nodes with four GPUs: a ring's 7 x 6 us, a tree's 15 + 3 x 4, so that trees
    save 15 us; at 5 GB/s of a ring and 2/3 of it of a tree they lose 1 us every 10 kB."""
    assert tree_limit(8, 2, 1, nvlink=False) == pytest.approx(150e3)
    assert tree_limit(8, 2, 4, nvlink=True) == math.inf
    assert tree_limit(32, 4, 4, nvlink=True) == pytest.approx(3 * 4 * 5e3 * (31 * 6 - 30 - 28))
    assert tree_limit(8, 1, 4, nvlink=True) == tree_limit(2, 2, 4, nvlink=False) == 0
    cards = machine("rtx2080ti-8", 2, gpus_per_node=4)
    assert chosen(cards, 120e3, version="2.4") == "tree ll"
    assert chosen(cards, 140e3, version="2.4") == "tree simple"
    assert chosen(cards, 160e3, version="2.4") == "ring ll"
    assert chosen(cards, 1e8, version="2.4") == "ring simple"
    assert chosen(cards, 1e8, version="2.5") == "tree simple"
    assert chosen(cards, 140e3, version="2.3") == "ring ll"
    assert chosen(machine("dgx-1v", 2), 1e9, version="2.4") == "tree simple"


def test_before_2_5_threads_say_what_ll_is() -> None:
    """256 threads of one channel, each with 64 bytes for every one of eight ranks, twice between
    nodes: 256 KiB."""
    assert ll_limit(1e9, 8, 1, 2) == 256 * 8 * 64 * 2
    assert ll_limit(1e9, 8, 1, 1) == ll_limit(1e9, 8, 1, 2, capability=61) == 256 * 8 * 64
    assert ll_limit(512, 8, 4, 1) == 64 * 8 * 64
    assert ll_limit(1e9, 1, 1, 2, tree=True) == 256 * 64 * 2 * 4


def test_before_2_5_a_ring_without_nvlink_is_one_connection() -> None:
    cards, modules = machine("rtx2080ti-8", 2), machine("dgx-1v", 2)
    old, new = (Tuning(graph_of(cards, world(cards)), version) for version in ((2, 4), (2, 5)))
    assert (old.connections, new.connections) == (1, 2)
    graph = graph_of(modules, world(modules))
    assert Tuning(graph, (2, 4)).connections == Tuning(graph, (2, 5)).connections


def test_ll128_needs_nvlink() -> None:
    topology = machine("rack-100gbe", 4)
    sizes = [2.0**k for k in range(30)]
    assert {chosen(topology, size).split()[1] for size in sizes} == {"ll", "simple"}
    assert "ll128" in {chosen(machine("dgx-a100"), size).split()[1] for size in sizes}


def test_a_forced_choice_is_kept_and_never_better_by_the_estimate() -> None:
    topology = machine("dgx-a100", 4)
    for algorithm in ("ring", "tree"):
        for protocol in tables.PROTOCOLS:
            keys = {"algorithm": algorithm, "protocol": protocol, "fitted": False}
            assert chosen(topology, 1e6, **keys) == f"{algorithm} {protocol}"
            free = seconds(topology, 1e6, fitted=False)
            assert seconds(topology, 1e6, **keys) >= free * (1 - 1e-12)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"version": "1.9"}, "no version from 2.0 to 2.30"),
        ({"version": "newest"}, "no version"),
        ({"protocol": "ll64"}, "there are auto, ll, ll128, simple"),
        ({"algorithm": "collnet"}, "SHARP"),
        ({"algorithm": "rnig"}, "'ring'"),
        ({"algorithm": "collnet_chain"}, "needs switches that add: sharp: true"),
        ({"algorithm": "nvls_sharp"}, "needs switches that add: sharp: true"),
        ({"sharp": True, "version": "2.13"}, "NCCL 2.13 has no CollNet Chain nor Direct"),
    ],
)
def test_what_is_not_there_is_refused_by_name(keys: dict[str, str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        build(Nccl, keys)


@pytest.mark.parametrize(
    ("name", "operation", "algorithm"),
    [
        ("dgx-a100", "all_reduce", "nvls"),
        ("dgx-h100", "all_gather", "tree"),
        ("dgx-h100", "all_reduce", "nvls_tree"),
        ("dgx-h100", "broadcast", "nvls"),
        ("dgx-h100", "reduce", "nvls"),
        ("dgx-h100", "reduce", "tree"),
        ("dgx-h100", "all_gather", "pat"),
    ],
)
def test_what_cannot_be_done_there_is_refused(name: str, operation: str, algorithm: str) -> None:
    with pytest.raises(Refused, match="cannot do"):
        seconds(machine(name), 1e6, operation, algorithm=algorithm)


# -- predicted times ------------------------------------------------------------------------------


@pytest.mark.parametrize(("gpus", "measured"), DGX_1V.items())
def test_uneven_nvlinks_have_the_measured_bandwidth(gpus: int, measured: float) -> None:
    time = seconds(machine("dgx-1v", gpus_per_node=gpus), 2.0**30)
    bus = 2 * (gpus - 1) / gpus * 2.0**30 / time / 1e9
    assert bus == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(("operation", "steps"), [("all_gather", 1), ("all_reduce", 2)])
def test_the_last_step_of_a_ring_in_nvswitches_only_receives_and_takes_time(
    operation: str, steps: int
) -> None:
    """So few GPUs reach less bus bandwidth than many."""
    last = constants.numbers("nccl")["nvswitch.last"]
    keys: dict[str, Any] = {"algorithm": "ring", "protocol": "simple"}
    reached = {}
    for gpus in (2, 4, 8):
        time = seconds(machine("dgx-a100", gpus_per_node=gpus), 2.0**38, operation, **keys)
        sent = steps * (gpus - 1)
        reached[gpus] = sent / gpus / time * (1 + last / sent)
    assert reached[2] == pytest.approx(reached[4], rel=1e-3)
    assert reached[8] == pytest.approx(reached[4], rel=1e-3)


@pytest.mark.parametrize(("gpus", "measured"), DGX_A100.items())
def test_nvswitches_have_the_measured_bandwidth(gpus: int, measured: float) -> None:
    time = seconds(machine("dgx-a100", gpus_per_node=gpus), 2.0**30)
    bus = 2 * (gpus - 1) / gpus * 2.0**30 / time / 1e9
    assert bus == pytest.approx(measured, rel=0.06)


def test_nics_add_up() -> None:
    """0.27, 0.13 and 0.067 s with 1, 2 and 4 H100 and NICs on each of two nodes: NVIDIA/nccl
    issue 1250, which does not say what the NICs are.  They reach 3.7 GB/s each."""
    slow = {"inter_node_bandwidth": 5e9}
    times = [
        seconds(machine("dgx-h100", 2, gpus_per_node=k, nics_per_node=k, **slow), 1e9)
        for k in (1, 2, 4)
    ]
    for time, measured in zip(times, (0.27, 0.13, 0.067), strict=True):
        assert time / times[0] == pytest.approx(measured / 0.27, rel=0.05)


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-a100", "dgx-1v", "rack-10gbe"])
@pytest.mark.parametrize(
    "operation", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"]
)
def test_larger_is_slower_and_never_beats_the_links(name: str, operation: str) -> None:
    """With one pair forced, so that no jump between NCCL's choices is in the way."""
    topology = machine(name, 2)
    sizes = [2.0**k for k in range(0, 33, 2)]
    times = [seconds(topology, s, operation, algorithm="ring", protocol="simple") for s in sizes]
    assert times == sorted(times)
    assert all(math.isfinite(time) and time > 0 for time in times)
    nics = topology.nics * topology.link((("nic", 0, 0), ("leaf", 0))).bandwidth \
        if name == "rack-10gbe" else math.inf  # fmt: skip
    assert times[-1] >= sizes[-1] / 2 / nics


def test_sockets_are_limited_by_their_connections() -> None:
    """One NIC of 100 Gbit/s: two connections carry what two carry; eight fill the NIC more."""
    topology = machine("rack-100gbe", 2, gpus_per_node=1)
    flow = constants.shipped("nccl")["ethernet.flow"].value
    one = seconds(topology, 2.0**30)
    assert one == pytest.approx(2.0**30 / (2 * flow), rel=0.05)
    reached = constants.shipped("training")["ethernet.efficiency"].value * 12.5e9
    full = seconds(topology, 2.0**30, sockets=4)
    assert full == pytest.approx(2.0**30 / reached, rel=0.05)
    assert full < one
    rdma = machine("rack-100gbe", 2, gpus_per_node=1, inter_node_kind="infiniband")
    assert seconds(rdma, 2.0**30) < 0.6 * one


@pytest.mark.parametrize(
    ("machine", "kind", "version", "opened"),
    [
        ("p4d.24xlarge", "ethernet", "2.4", 2),
        ("p4d.24xlarge", "ipoib", "", 1),
        ("p4d.24xlarge", "slingshot_ip", "", 1),
        ("a3-mega", "ethernet", "", 4),
        ("p4d.24xlarge", "ethernet", "2.3", 1),
        ("dgx-a100", "ethernet", "", 1),
        ("dgx-a100", "gvnic", "2.5", 4),
        ("dgx-a100", "gvnic", "2.4", 1),
    ],
)
def test_connections_have_threads_by_whose_adapters_there_are(
    machine: str, kind: NetworkKind, version: str, opened: int
) -> None:
    """Two threads over Amazon's, four over Google's: NVIDIA/nccl 2.4.8 and 2.5.6
    src/transport/net_socket.cc.  So many fill 100 Gbit/s more, and all-to-alls have them too;
    other networks' adapters are nobody's of these."""
    there = load_machine(machine).topology(
        2, gpus_per_node=1, nics_per_node=1, inter_node_kind=kind, inter_node_bandwidth=12.5e9
    )
    for operation in ("all_reduce", "all_to_all"):
        told = seconds(there, 2.0**30, operation, version=version)
        assert told == seconds(there, 2.0**30, operation, version=version, sockets=opened)
        less = seconds(there, 2.0**30, operation, version=version, sockets=1)
        assert (told < 0.7 * less) == (opened > 1)


@pytest.mark.parametrize(("kind", "part"), [("ipoib", "training"), ("slingshot_ip", "nccl")])
def test_ip_over_a_fast_fabric_has_the_rate_of_a_connection_that_was_measured_on_it(
    kind: str, part: str
) -> None:
    """Of InfiniBand training runs tell it, of Slingshot NCCL's own test."""
    topology = machine("rack-100gbe", 2, gpus_per_node=1, inter_node_kind=kind)
    flow = constants.shipped(part)[f"{kind}.flow"].value
    assert seconds(topology, 2.0**30) == pytest.approx(2.0**30 / (2 * flow), rel=0.05)


def test_settings_scale_what_they_name() -> None:
    topology = machine("dgx-h100", 2)
    plain = Nccl().plan("all_gather", world(topology), 1e9, topology)
    half = Nccl(efficiency=0.5).plan("all_gather", world(topology), 1e9, topology)
    late = Nccl(launch=1e-3).plan("all_gather", world(topology), 1e9, topology)
    assert half.phases[0].seconds == pytest.approx(2 * plain.phases[0].seconds)
    assert late.seconds - plain.seconds == pytest.approx(1e-3 - plain.launch)


def test_every_step_between_nodes_pays_the_latency_of_the_way_between_them() -> None:
    """An all-reduce of two nodes crosses twice, of four nodes' ring six times, a send once."""
    far = {"inter_node_latency": 20e-3}
    for fitted in (True, False):
        keys = {"algorithm": "ring", "fitted": fitted}
        for nodes, crossings in ((2, 2), (4, 6)):
            longer = crossings * (20e-3 - 8.3e-6)
            for size in (8.0,) if fitted else (8.0, 1e9):
                times = [seconds(machine("dgx-h100", nodes, **c), size, **keys) for c in ({}, far)]
                assert times[1] - times[0] == pytest.approx(longer, rel=1e-4)
    send = [seconds(machine("dgx-h100", 2, **c), 8.0, "send") for c in ({}, far)]
    assert send[1] - send[0] == pytest.approx(20e-3 - 8.3e-6)


def test_the_machine_s_own_latency_changes_nothing_and_none_is_below_the_way() -> None:
    plain = seconds(machine("dgx-h100", 2), 8.0)
    assert seconds(machine("dgx-h100", 2, inter_node_latency=8.3e-6), 8.0) == plain
    times = [seconds(machine("dgx-h100", 2, inter_node_latency=us * 1e-6), 8.0) for us in range(9)]
    assert times == sorted(times)
    assert times[0] > 0


def test_loads_take_the_predicted_time_at_nominal_bandwidth() -> None:
    """So a collective alone on its links takes its own time, and two at once take both."""
    for name in ("dgx-h100", "dgx-1v", "rack-pcie4"):
        topology = machine(name, 4, inter_node_kind="infiniband")
        for size in (1e4, 1e7, 1e9):
            for operation in ("all_reduce", "all_gather"):
                (phase,) = Nccl().plan(operation, world(topology), size, topology).phases
                assert phase.loads is not None
                slowest = max(
                    load * size / topology.link(edge).bandwidth
                    for edge, load in phase.loads.items()
                )
                assert slowest == pytest.approx(phase.seconds, rel=1e-9)


def test_links_are_never_slower_than_nccl_s_own_estimate_takes_them_to_be() -> None:
    """So engines that share links agree with one that does not, for a collective alone."""
    topology = machine("dgx-h100")
    for ranks in ((0, 1, 2, 3), tuple(range(8))):
        for size in (1e6, 7_383_040.0, 1e9):
            (phase,) = Nccl(fitted=False).plan("all_reduce", ranks, size, topology).phases
            assert phase.loads is not None
            times = [n * size / topology.link(edge).bandwidth for edge, n in phase.loads.items()]
            assert max(times) <= phase.seconds * (1 + 1e-9)


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter"])
def test_rounds_take_as_long_as_the_phase(operation: str) -> None:
    topology = machine("rack-10gbe", 4, gpus_per_node=1)
    talk = Op("C", "collective", stream="c", operation=operation, bytes=1e7)
    cast = Cast.uniform(Program((talk, Op("W", "wait", after=(0,)))), 4)
    costs = Costs(Nccl(algorithm="ring", protocol="simple"), topology)
    play = Play(lambda _: cast, costs, 1, 0, lambda _: [1.0] * 4)  # type: ignore[arg-type,return-value]
    times = [event.play(play, detail=detail).step_time for detail in ("collective", "rounds")]
    assert times[1] == pytest.approx(times[0], rel=1e-9)


# -- operations with a root, and PAT --------------------------------------------------------------


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-a100", "rack-10gbe"])
@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("protocol", ["ll", "simple"])
def test_a_reduce_has_the_estimate_of_a_ring_with_a_root(
    name: str, nodes: int, protocol: str
) -> None:
    """Base latency and one step, and every byte over the channels once: no ring takes it twice."""
    graph = graph_of(machine(name, nodes), tuple(range(machine(name, nodes).ranks)))
    tuning = Tuning(graph, (2, 30))
    era, place = tables.era_of((2, 30)), tables.PROTOCOLS.index(protocol)
    step = (era.net if nodes > 1 else era.nvlink if graph.nvlink else era.pcie)["ring"][place]
    total = graph.channels * (graph.intra if nodes <= 2 else graph.inter)
    if protocol == "ll":
        total = min(tables.LL_MAX[graph.arch if nodes == 1 else 0][graph.column], total / 2)
    expected = (era.base["ring"][place] + step) * 1e-6 + 2.0**26 / (total * 1e9)
    found = tuning.seconds("reduce", "ring", protocol, 2.0**26)
    assert found == pytest.approx(expected, rel=1e-12)
    assert {c.algorithm for c in tuning.choices("reduce", 2.0**26)} == {"ring"}


def test_a_reduce_is_its_broadcast_backwards() -> None:
    for name, nodes in (("dgx-h100", 1), ("dgx-a100", 4)):
        topology = machine(name, nodes)
        plans = [
            Nccl().plan(operation, world(topology), 1e8, topology)
            for operation in ("reduce", "broadcast")
        ]
        assert plans[0].seconds == pytest.approx(plans[1].seconds, rel=1e-12)
        n = topology.ranks
        assert plans[0].sent == pytest.approx((n - 1) / n * 1e8)


def alone(nodes: int, **changes: Any) -> Topology:
    """Nodes of one GPU each."""
    return machine("dgx-h100", nodes, gpus_per_node=1, nics_per_node=1, **changes)


def test_estimate_of_pat_is_the_published_formula() -> None:
    """16 nodes of one GPU: 8 + 4 x 14 / 3.5 + 2.8 x 16 us, and three quarters of the channels."""
    graph = graph_of(alone(16), tuple(range(16)))
    tuning = Tuning(graph, (2, 30))
    for operation in ("all_gather", "reduce_scatter"):
        speed = 0.75 * graph.channels * graph.inter * 1e9
        expected = (8 + 4 * 14 / 3.5 + 2.8 * 16) * 1e-6 + 1e6 / speed
        assert tuning.seconds(operation, "pat", "simple", 1e6) == pytest.approx(expected)


def test_pat_is_for_one_gpu_a_node_and_new_versions() -> None:
    topology, size = alone(64), 2.0**18
    assert chosen(topology, size, "all_gather", algorithm="pat") == "pat simple"
    free = Nccl(version="2.23", fitted=False)
    assert free.plan("all_gather", world(topology), size, topology).algorithm == "pat simple"
    old = Nccl(version="2.22", fitted=False)
    assert old.plan("all_gather", world(topology), size, topology).algorithm.startswith("ring")
    for keys in ({"version": "2.22"}, {"protocol": "ll"}):
        with pytest.raises(Refused, match="cannot do all_gather"):
            chosen(topology, size, "all_gather", algorithm="pat", **keys)
    with pytest.raises(Refused, match="cannot do all_reduce"):
        chosen(topology, size, algorithm="pat")
    pascal = Tuning(replace(graph_of(topology, world(topology)), capability=53), (2, 30))
    assert not pascal.choices("all_gather", size, "pat")


def test_pat_sends_what_must_be_sent_and_saves_steps() -> None:
    topology, size = alone(128), 2.0**16
    pat, ring = (
        Nccl(algorithm=name, protocol="simple").plan("all_gather", world(topology), size, topology)
        for name in ("pat", "ring")
    )
    assert pat.sent == pytest.approx(127 / 128 * size)
    assert pat.seconds < ring.seconds / 3


# -- switches between the nodes that add (SHARP) --------------------------------------------------


def estimate(name: str, nodes: int, algorithm: str, operation: str = "all_reduce") -> float:
    """NCCL's estimate for 1 GB with the newest constants [s]."""
    topology = machine(name, nodes)
    tuning = Tuning(graph_of(topology, world(topology)), (2, 30), sharp=True)
    return tuning.seconds(operation, algorithm, "simple", 1e9)


def test_estimates_of_collnet_are_the_published_formulas() -> None:
    """4 x 8 A100: 8 channels of 30 GB/s, halved; a step of 31 or 30 us between nodes, inside two of
    3.7 us with 0.4 us for each of 7 others, or 14 of 2.8 us."""
    speed = 8 * 30e9 / 2
    direct = (31 + 2 * (3.7 + 0.4 * 7)) * 1e-6 + 1e9 / speed
    assert estimate("dgx-a100", 4, "collnet_direct") == pytest.approx(direct, rel=1e-12)
    chain = (30 + 14 * 2.8) * 1e-6 + 1e9 / speed
    assert estimate("dgx-a100", 4, "collnet_chain") == pytest.approx(chain, rel=1e-12)
    gather = (31 + 2 * (3.7 + 0.4 * 7)) * 1e-6 + 1e9 / (8 * 0.9 * 24e9)
    found = estimate("dgx-a100", 4, "collnet_direct", "all_gather")
    assert found == pytest.approx(gather, rel=1e-12)


def test_estimates_on_hopper_are_the_published_formulas() -> None:
    """4 x 8 H100: NVLS is bound by 8 NICs of 45 GB/s; Direct's bandwidth counts 85 %."""
    nvls = (25 + 18) * 1e-6 + 1e9 / (8 * 45e9 * 32 / 62)
    assert estimate("dgx-h100", 4, "nvls_sharp") == pytest.approx(nvls, rel=1e-12)
    direct = (31 + 2 * (3.7 + 0.4 * 7)) * 1e-6 + 1e9 / (0.85 * 8 * 45e9 / 2)
    assert estimate("dgx-h100", 4, "collnet_direct") == pytest.approx(direct, rel=1e-12)


def test_a_gpu_without_a_nic_of_its_own_costs_direct_bandwidth() -> None:
    """Two GPUs a NIC: half of the excess, a factor of 1.5."""
    topology = machine("dgx-a100", 4, nics_per_node=4)
    graph = graph_of(topology, world(topology))
    tuning = Tuning(graph, (2, 30), sharp=True)
    chain, direct = (
        tuning.bandwidth("all_reduce", name, "simple")
        for name in ("collnet_chain", "collnet_direct")
    )
    assert chain / direct == pytest.approx(1.5)
    assert not tuning.choices("all_gather", 1e9, "collnet_direct")


def test_sharp_is_chosen_only_where_it_is_asked_for() -> None:
    a100, h100 = machine("dgx-a100", 4), machine("dgx-h100", 16)
    assert chosen(a100, 1e9) == "ring simple"
    assert chosen(a100, 1e9, sharp=True) == "collnet_direct simple"
    assert chosen(h100, 1e9) == "nvls_tree simple"
    assert chosen(h100, 1e9, sharp=True) == "nvls_sharp simple"
    assert chosen(h100, 1e9, sharp=True, algorithm="nvls") == "nvls_sharp simple"
    assert chosen(h100, 1e9, sharp=True, algorithm="nvls", version="2.18") == "nvls_sharp simple"
    assert chosen(h100, 1e9, sharp=True, version="2.14").startswith("collnet")


def test_without_nvswitch_there_is_only_the_chain() -> None:
    topology = machine("dgx-1v", 4, nics_per_node=2)
    keys: dict[str, Any] = {"sharp": True}
    assert chosen(topology, 1e9, algorithm="collnet_chain", **keys) == "collnet_chain simple"
    with pytest.raises(Refused, match="collnet_direct cannot do all_reduce"):
        chosen(topology, 1e9, algorithm="collnet_direct", **keys)


@pytest.mark.parametrize(("nics", "published"), [(4, 80e9), (8, 110e9)])
def test_direct_reaches_the_published_bandwidth(nics: int, published: float) -> None:
    """NVIDIA/nccl issue 320, by its author: DGX A100 with SHARP reach about 80 GB/s of algorithm
    bandwidth with 4 NICs and, where NVLink binds, 110 with 8."""
    topology = machine("dgx-a100", 4, nics_per_node=nics)
    time = seconds(topology, 2.0**33, sharp=True, algorithm="collnet_direct")
    assert 2.0**33 / time == pytest.approx(published, rel=0.15)


@pytest.mark.parametrize("algorithm", ["collnet_chain", "collnet_direct", "nvls"])
def test_with_sharp_the_number_of_nodes_does_not_matter(algorithm: str) -> None:
    """One stream goes up from a leaf, however many nodes there are; a ring's hops add up."""
    few, many = machine("dgx-h100", 4), machine("dgx-h100", 64)
    for size in (1e4, 1e7, 1e10):
        times = [seconds(t, size, sharp=True, algorithm=algorithm) for t in (few, many)]
        assert times[1] == pytest.approx(times[0], rel=1e-9)
        assert times[0] >= size / 8 / 50e9  # no NIC sends more than S/8, and none less
    assert seconds(many, 1e6, algorithm="ring") > 3 * seconds(few, 1e6, algorithm="ring")


def test_sharp_gathers_since_2_20_where_every_gpu_has_a_nic() -> None:
    topology = machine("dgx-h100", 4)
    for operation in ("all_gather", "reduce_scatter"):
        keys: dict[str, Any] = {"algorithm": "collnet_direct", "sharp": True}
        plan = Nccl(**keys).plan(operation, world(topology), 1e9, topology)
        inside = 7 / 8 * 1e9
        out = 1e9 / 8 if operation == "reduce_scatter" else 1e9 / 32
        assert plan.sent == pytest.approx(inside + out, rel=1e-12)
        for changes, settings in (({}, {"version": "2.19"}), ({"nics_per_node": 4}, {})):
            with pytest.raises(Refused, match=f"cannot do {operation}"):
                seconds(machine("dgx-h100", 4, **changes), 1e9, operation, **keys, **settings)


def test_groups_inside_a_node_and_messages_go_on_without_sharp() -> None:
    topology, inside = machine("dgx-h100", 2), tuple(range(8))
    for group, operation in ((inside, "all_reduce"), (world(topology), "all_to_all")):
        plans = [Nccl(sharp=on).plan(operation, group, 1e8, topology) for on in (False, True)]
        assert plans[0].seconds == plans[1].seconds
        assert plans[0].algorithm == plans[1].algorithm
    with pytest.raises(Refused, match="collnet_chain cannot do all_reduce"):
        Nccl(sharp=True, algorithm="collnet_chain").plan("all_reduce", inside, 1e8, topology)


def test_switches_that_add_work_behind_links_of_which_nothing_is_known() -> None:
    """Two GPUs a node on a wire of 10 GB/s and 2 us, one NIC: up the chain, to the leaf and back
    (4 us each way, 5 GB/s), down the chain."""
    wire = {"bandwidth": "10 GB/s", "latency": "2 us"}
    pairs = (("gpu0", "gpu1"), ("gpu0", "nic0"), ("gpu1", "nic0"))
    links = [{"from": a, "to": b, **wire} for a, b in pairs]
    made = {"family": "explicit", "vertices": ["gpu0", "gpu1", "nic0"], "links": links}
    cable = {"bandwidth": "5 GB/s", "latency": "2 us", "kind": "infiniband"}
    make = Plugin("fabrics", "family").make
    network = make({"family": "star", "link": cable}, file=True)
    topology = Topology(make(made, file=True), network, nodes=3, gpus=2, nics=1)
    backend = Nccl(sharp=True, algorithm="collnet_chain", fitted=False)
    plan = backend.plan("all_reduce", world(topology), 1e9, topology)
    assert plan.algorithm == "collnet_chain"
    assert plan.sent == pytest.approx(1.5e9)
    assert plan.seconds == pytest.approx(2 * (2e-6 + 0.1) + 8e-6 + 0.2, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rack-100gbe", "needs InfiniBand switches; these nodes have ethernet"),
        ("mi300x-8", "needs InfiniBand switches; these nodes have roce"),
        ("dgx-2", "8 NICs of a node are on one leaf switch, which adds at most 2 streams"),
    ],
)
def test_networks_that_cannot_add_are_refused(name: str, words: str) -> None:
    with pytest.raises(Refused, match=words) as error:
        seconds(machine(name, 4), 1e8, sharp=True)
    assert error.value.path == ("collective", "sharp")


# -- sends, and what is made of them --------------------------------------------------------------


def links_of(plan: Plan) -> frozenset[Edge]:
    """The links that carry its bytes."""
    return frozenset(edge for phase in plan.phases for edge in phase.loads or ())


def constant(name: str) -> float:
    return constants.shipped("nccl")[name].value


def test_a_send_is_a_launch_a_message_and_its_bytes() -> None:
    """8 MiB over NVLink, in LL's reach 1 KiB, and over InfiniBand."""
    topology = machine("dgx-a100", 2)
    floor, message = constant("nvswitch.message_floor"), constant("nvswitch.message")
    plan = Nccl().plan("send", (0, 5), 2.0**23, topology)
    busy = 2.0**23 / (240e9 * constant("nvswitch.message_efficiency"))
    shakes = constant("nvswitch.message_handshake")
    assert plan.seconds == pytest.approx(floor + message + shakes + busy, rel=1e-12)
    small = Nccl().plan("send", (0, 5), 1024.0, topology)
    assert small.seconds == pytest.approx(floor + message + busy * 1024 / 2**23, rel=1e-12)
    assert (plan.sent, plan.algorithm) == (2.0**23, "direct")
    far = Nccl().plan("send", (0, 8), 2.0**23, topology)
    busy = 2.0**23 / (24e9 * constant("infiniband.message_efficiency"))
    once = constant("infiniband.message_floor") + constant("infiniband.message")
    assert far.seconds == pytest.approx(once + busy, rel=1e-12)


def test_a_send_crosses_its_route_and_nothing_else() -> None:
    topology = machine("dgx-h100", 4)
    for pair in ((0, 3), (0, 9), (31, 2), (8, 16)):
        plan = Nccl().plan("send", pair, 1e6, topology)
        assert links_of(plan) == set(topology.route(*pair))
        (phase,) = plan.phases
        assert phase.loads is not None
        slowest = max(
            load * 1e6 / topology.link(edge).bandwidth for edge, load in phase.loads.items()
        )
        assert slowest == pytest.approx(phase.seconds, rel=1e-12)
        assert phase.busiest in phase.loads


def test_pairs_with_equal_links_take_the_same_time_and_are_worked_out_once() -> None:
    topology = machine("dgx-h100", 128)
    costs = Costs(Nccl(), topology)
    plans = [costs.plan("send", (rank, (rank + 8) % 1024), 1e7) for rank in range(1024)]
    assert len({plan.seconds for plan in plans}) <= 2  # within a group of leaves, and beyond
    kept = [key for key in topology.known if "message" in str(key[0])]
    assert len(kept) == 8 * 3  # places; below one leaf, on to the next, and round from the last
    assert len({links_of(plan) for plan in plans}) == 1024


def test_more_than_two_ranks_each_send_to_the_next() -> None:
    """As sendrecv_perf does: on a switch large ones are no slower than one message alone."""
    topology = machine("dgx-a100", 1)
    every = Nccl().plan("send", world(topology), 1e9, topology)
    assert every.seconds == pytest.approx(
        Nccl().plan("send", (0, 1), 1e9, topology).seconds, rel=1e-12
    )
    assert len(links_of(every)) == 16


@pytest.mark.parametrize(
    ("name", "ranks", "mib", "measured"),
    # xxrjun/nccl-tests-cluster at 455de4f8, and li-plus/playground cuda/bw.md [us]
    [
        ("dgx-h100", 8, 32, 422.2), ("dgx-h100", 8, 64, 820.2), ("dgx-h100", 8, 128, 825.7),
        ("dgx-h100", 8, 256, 896.4), ("dgx-h100", 4, 32, 225.0), ("dgx-h100", 4, 64, 426.5),
        ("dgx-h100", 4, 128, 824.3), ("dgx-h100", 4, 256, 896.6), ("dgx-a100", 8, 128, 1211.2),
        ("dgx-a100", 8, 256, 1423.3),
    ],
)  # fmt: skip
def test_sends_of_a_large_group_go_by_few_channels(
    name: str, ranks: int, mib: int, measured: float
) -> None:
    """Twice as many bytes take no longer where NCCL splits them over twice as many channels."""
    plan = Nccl().plan("send", range(ranks), mib * 2.0**20, machine(name))
    assert plan.seconds * 1e6 == pytest.approx(measured, rel=0.04)


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_an_all_to_all_in_a_node_is_its_messages_and_their_bytes(gpus: int) -> None:
    topology, size = machine("dgx-a100", 1, gpus_per_node=gpus), 2.0**28
    found = seconds(topology, size, "all_to_all")
    handling = (gpus - 1) * constant("nvswitch.message") + constant("nvswitch.message_handshake")
    copied = size / gpus / constant("nvswitch.message_copy")
    moved = size * (gpus - 1) / gpus / (240e9 * constant("nvswitch.message_efficiency"))
    floor = constant("nvswitch.message_floor")
    assert found == pytest.approx(floor + handling + copied + moved, rel=1e-12)


def test_an_all_to_all_between_nodes_is_bound_by_their_nics() -> None:
    """Every GPU sends S/n to each of the other nodes' GPUs, through a PCIe link of its own."""
    for nodes in (2, 4, 16):
        topology, size = machine("dgx-a100", nodes), 2.0**31
        n = topology.ranks
        plan = Nccl().plan("all_to_all", world(topology), size, topology)
        share = constant("infiniband.message_efficiency")
        share *= (nodes / 2) ** -constant("infiniband.crowding") if nodes > 2 else 1.0
        moved = size * (n - 8) / n / (24e9 * share)
        handling = (n - 8) * constant("infiniband.message") + 7 * constant("nvswitch.message")
        expected = constant("infiniband.message_floor") + handling + moved
        assert plan.seconds == pytest.approx(expected, rel=1e-9)
        assert plan.sent == pytest.approx((n - 1) / n * size)


def test_messages_that_fit_into_a_command_cost_more_on_slingshot() -> None:
    """192 bytes go with the command, of which the NIC then cannot fetch them from the GPU."""
    topology = machine("dgx-a100", 2, inter_node_kind="slingshot")
    times = [seconds(topology, 16.0 * part, "all_to_all") for part in (192, 193)]
    assert times[0] - times[1] == pytest.approx(8 * constant("slingshot.message_small"), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "nodes"), [("dgx-h100", 5), ("rack-10gbe", 4), ("dgx-1v", 3), ("rack-pcie4", 6)]
)
def test_nodes_that_are_alike_are_looked_at_once(
    name: str, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairwise = messages.messages_of("all_to_all", *_everybody(name, nodes)).traffic
    monkeypatch.setattr(messages, "_ALL_PAIRS", 0)
    found = messages.messages_of("all_to_all", *_everybody(name, nodes)).traffic
    assert found.loads == pytest.approx(dict(pairwise.loads), rel=1e-9)
    assert found.nic == pytest.approx(pairwise.nic, rel=1e-9)
    for kind, (pace, _) in pairwise.paces.items():
        assert found.paces[kind][0] == pytest.approx(pace, rel=1e-9)


def test_shifts_of_many_nodes_load_the_nics_as_all_pairs_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "_ALL_PAIRS", 0)
    every = messages.messages_of("all_to_all", *_everybody("dgx-a100", 24)).traffic
    monkeypatch.setattr(messages, "_SHIFTS", 6)
    some = messages.messages_of("all_to_all", *_everybody("dgx-a100", 24)).traffic
    assert some.nic == pytest.approx(every.nic, rel=1e-9)
    assert some.paces["infiniband"][0] == pytest.approx(every.paces["infiniband"][0], rel=0.05)


def _everybody(name: str, nodes: int) -> tuple[tuple[int, ...], Topology]:
    topology = machine(name, nodes)
    return world(topology), topology


def test_sockets_limit_a_single_message_more_than_many() -> None:
    topology = machine("rack-100gbe", 2, gpus_per_node=1)
    flow = constant("ethernet.flow")
    assert seconds(topology, 2.0**30, "send") == pytest.approx(2.0**30 / (2 * flow), rel=0.05)
    fast = seconds(topology, 2.0**30, "send", sockets=4)
    assert fast < 0.6 * seconds(topology, 2.0**30, "send")


def test_nccl_itself_has_no_estimate_of_messages() -> None:
    topology = machine("dgx-h100")
    for operation in ("all_to_all", "send"):
        with pytest.raises(Refused, match=f"no estimate of {operation}"):
            Nccl().bare().plan(operation, world(topology), 1e6, topology)


def test_no_algorithm_of_the_tuner_touches_messages() -> None:
    topology = machine("dgx-h100", 2)
    for operation in ("all_to_all", "send"):
        free = seconds(topology, 1e7, operation)
        for algorithm in ("ring", "tree", "hierarchical"):
            assert seconds(topology, 1e7, operation, algorithm=algorithm) == free
    assert seconds(topology, 1e7, "all_to_all", algorithm="direct") != seconds(
        topology, 1e7, "all_to_all"
    )


def test_messages_on_links_of_which_nothing_is_known_take_their_own_numbers() -> None:
    wire = {"bandwidth": "10 GB/s", "latency": "2 us"}
    links = [{"from": f"gpu{a}", "to": f"gpu{b}", **wire} for a, b in ((0, 1), (0, 2), (1, 2))]
    made = {"family": "explicit", "vertices": ["gpu0", "gpu1", "gpu2"], "links": links}
    node = Plugin("fabrics", "family").make(made, file=True)
    topology = Topology(node, None, nodes=1, gpus=3, nics=0)
    assert seconds(topology, 3e9, "all_to_all") == pytest.approx(2e-6 + 0.1, rel=1e-9)
    sent = Nccl().plan("send", (0, 1), 1e9, topology)
    assert sent.seconds == pytest.approx(2e-6 + 0.1, rel=1e-9)
    assert links_of(sent) == {(("gpu", 0, 0), ("gpu", 0, 1))}


def test_every_constant_says_where_it_comes_from() -> None:
    shipped = constants.shipped("nccl")
    for name, constant in shipped.items():
        assert constant.value > 0, name
        assert constant.error >= 0, name
        assert constant.fitted_on, name
        assert constant.meaning, name
    assert shipped["nvswitch.efficiency"].error < 0.1


def test_versions_are_read() -> None:
    assert backend.version_of("2.18.5") == (2, 18)
    assert backend.version_of("") == tables.NEWEST
    assert tables.era_of((2, 22)).since == (2, 21)
    assert [tables.architecture(c) for c in (0, 61, 70, 80, 89, 90, 100)] == [1, 0, 0, 1, 1, 2, 3]


@pytest.mark.parametrize(("operation", "times"), [("broadcast", 2.0), ("reduce", 2.0)])
def test_one_way_through_host_memory_is_twice_as_fast_between_two(
    operation: str, times: float
) -> None:
    """Two RTX 2080 Ti on PCIe Gen3 were measured at 11 GB/s one way, and 4 to 5 both ways."""
    machine = load_machine("rtx2080ti-8")
    peers = replace(machine, node=replace(machine.node, staged=False))
    pair, eight = ([m.topology(1, gpus_per_node=gpus) for m in (machine, peers)] for gpus in (2, 8))
    both = [Nccl().plan(operation, range(2), 2**28, t).phases[0] for t in pair]
    assert both[1].seconds == pytest.approx(times * both[0].seconds)
    assert both[0].size == pytest.approx(both[1].size / times)
    many = [Nccl().plan(operation, range(8), 2**28, t).seconds for t in eight]
    assert many[0] == many[1]
    reduced = [Nccl().plan("all_reduce", range(2), 2**28, t).seconds for t in pair]
    assert reduced[0] == reduced[1]


@pytest.mark.parametrize("operation", ["all_reduce", "all_to_all"])
@pytest.mark.parametrize("kind", ["infiniband", "roce", "ethernet", "efa"])
def test_nics_that_do_not_reach_the_gpus_carry_less(operation: str, kind: str) -> None:
    """GeForce has no GPUDirect RDMA: the fitted share of what NICs carry otherwise.  Sockets go
    through the host on every GPU."""
    lent = load_device("rtx-a5000")  # of Ampere, whose memory EFA reaches
    machine = load_machine("rack-25gbe")
    found = []
    for device in (lent, replace(lent, gpudirect=False)):
        fitted = machine.holding(device, 1)
        topology = fitted.topology(2, gpus_per_node=1, inter_node_kind=kind)
        found.append(Nccl().plan(operation, range(2), 2**33, topology).phases[0].seconds)
    shipped = constants.shipped("nccl")
    left = shipped[f"{kind}.hosted"].value if kind != "ethernet" else 1.0
    assert found[0] / found[1] == pytest.approx(left)


def test_efa_reaches_the_memory_of_ampere_and_later_alone() -> None:
    """Amazon EC2 user guide: GPUDirect RDMA on P4d and newer."""
    reached = {name: machine(name, 2).gpudirect for name in ("p3dn.24xlarge", "p4d.24xlarge")}
    assert reached == {"p3dn.24xlarge": False, "p4d.24xlarge": True}
    assert load_machine("g4dn.12xlarge").topology(2, inter_node_kind="ethernet").gpudirect
    assert not load_machine("g4dn.12xlarge").topology(2, inter_node_kind="efa").gpudirect


def test_geforce_and_titan_have_no_gpudirect() -> None:
    devices = [load_device(name) for name in device_names()]
    without = {d.name for d in devices if not d.gpudirect}
    assert without == {d.name for d in devices if d.name.upper().startswith(("GEFORCE", "TITAN"))}
    assert len(without) == 13


@pytest.mark.parametrize(("name", "rate"), [("dgx-a100", 192e9), ("dgx-h100", 384e9)])
def test_rings_over_infiniband_come_near_the_line_rate(name: str, rate: float) -> None:
    """192 GB/s on eight HDR (NVIDIA/nccl issue 1576), 46 to 48 a NIC on NDR (nccl-tests issue
    290): within a tenth of these."""
    topology = machine(name, 2)
    backend = Nccl(algorithm="ring", protocol="simple")
    (phase,) = backend.plan("all_reduce", world(topology), 2**34, topology).phases
    assert 2 * 15 / 16 * 2**34 / (phase.latency + phase.seconds) == pytest.approx(rate, rel=0.1)


def test_later_generations_of_efa_have_shorter_hops_at_any_rate() -> None:
    newer = constants.shipped("nccl")["efa.newer"].value
    backend = Nccl(algorithm="ring", protocol="ll")

    def hops(name: str, rate: float, **changes: Any) -> float:
        """Latency of six hops between nodes more than of two, which are 8 GPUs each."""
        few, many = (
            load_machine(name).topology(nodes, inter_node_bandwidth=rate, **changes)
            for nodes in (2, 4)
        )
        found = [backend.plan("all_reduce", range(t.ranks), 8.0, t).phases[0] for t in (few, many)]
        return found[1].latency - found[0].latency

    second = hops("p5.48xlarge", 12.5e9)
    assert newer < second / hops("p4d.24xlarge", 12.5e9) < 1  # what NVLink adds is the same
    assert hops("p5.48xlarge", 12.6e9) == pytest.approx(second, rel=1e-2)
    assert hops("p5.48xlarge", 12.5e9, inter_node_kind="efa") == second
    assert hops("dgx-h100", 12.5e9, inter_node_kind="efa") == pytest.approx(second, rel=1e-2)
    first = hops("p4d.24xlarge", 25e9)
    assert hops("dgx-a100", 25e9, inter_node_kind="efa") == pytest.approx(first, rel=1e-2)
    assert hops("p5.48xlarge", 12.5e9, inter_node_kind="roce") != second


def test_rccl_launches_take_longer_between_nodes() -> None:
    longer = constants.shipped("nccl")["xgmi.between"].value
    apart = Nccl().plan("all_reduce", range(16), 8.0, load_machine("mi300x-8").topology(2))
    roce = constants.shipped("nccl")["roce.floor"].value
    assert apart.launch == pytest.approx(roce + longer)
