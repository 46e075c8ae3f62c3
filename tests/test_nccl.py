"""The NCCL backend: what NCCL chooses, by version, and what that costs on measured machines."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dpsim import constants
from dpsim.backends import _nccl_tables as tables
from dpsim.backends import nccl as backend
from dpsim.backends._nccl_graph import graph_of
from dpsim.backends._nccl_tuning import Tuning, tree_correction
from dpsim.backends.nccl import Nccl
from dpsim.engines import Costs, Play, event
from dpsim.machine import load_machine
from dpsim.program import Cast, Op, Program
from dpsim.record import Refused, build
from dpsim.topology import Topology

#: bus bandwidth of all-reduce on GPUs 0 … k-1 of a DGX-1V [GB/s]: VIA-Research/vTrain's table
DGX_1V = {2: 22.5, 3: 45, 4: 85, 5: 37, 6: 46, 7: 87, 8: 134}


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


def test_bare_times_are_the_estimates() -> None:
    topology = machine("dgx-a100", 2)
    tuning = Tuning(graph_of(topology, world(topology)), tables.NEWEST)
    for size in (1e3, 1e6, 1e9):
        best = tuning.choices("all_reduce", size)[0].seconds
        found = Nccl().bare().plan("all_reduce", world(topology), size, topology).seconds
        assert found == pytest.approx(best, rel=1e-9)


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
        ({"algorithm": "pat"}, "not modelled"),
        ({"algorithm": "rnig"}, "'ring'"),
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


def test_nics_add_up() -> None:
    """0.27, 0.13 and 0.067 s with 1, 2 and 4 GPUs and NICs on each of two nodes: NVIDIA/nccl
    issue 1250.  Its NICs reach 3.7 GB/s."""
    slow = {"inter_node_bandwidth": 5e9}
    times = [
        seconds(machine("dgx-a100", 2, gpus_per_node=k, nics_per_node=k, **slow), 1e9)
        for k in (1, 2, 4)
    ]
    for time, measured in zip(times, (0.27, 0.13, 0.067), strict=True):
        assert time / times[0] == pytest.approx(measured / 0.27, rel=0.25)


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-a100", "dgx-1v", "rack-10gbe"])
@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
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


def test_settings_scale_what_they_name() -> None:
    topology = machine("dgx-h100", 2)
    plain = Nccl().plan("all_gather", world(topology), 1e9, topology)
    half = Nccl(efficiency=0.5).plan("all_gather", world(topology), 1e9, topology)
    late = Nccl(launch=1e-3).plan("all_gather", world(topology), 1e9, topology)
    assert half.phases[0].seconds == pytest.approx(2 * plain.phases[0].seconds)
    assert late.seconds - plain.seconds == pytest.approx(1e-3 - plain.launch)


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


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter"])
def test_rounds_take_as_long_as_the_phase(operation: str) -> None:
    topology = machine("rack-10gbe", 4, gpus_per_node=1)
    talk = Op("C", "collective", stream="c", operation=operation, bytes=1e7)
    cast = Cast.uniform(Program((talk, Op("W", "wait", after=(0,)))), 4)
    costs = Costs(Nccl(algorithm="ring", protocol="simple"), topology)
    play = Play(lambda _: cast, costs, 1, 0, lambda _: [1.0] * 4)  # type: ignore[arg-type,return-value]
    times = [event.play(play, detail=detail).step_time for detail in ("collective", "rounds")]
    assert times[1] == pytest.approx(times[0], rel=1e-9)


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
