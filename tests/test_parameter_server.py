"""Parameter servers: the load on the busiest server's link, pushes and pulls, servers that work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpsim.backends.ideal_ring import IdealRing
from dpsim.backends.nccl import Nccl, phase_of
from dpsim.backends.parameter_server import ParameterServer as Servers
from dpsim.collectives.parameter_server import PushAndPull
from dpsim.core.plugins import Plugin
from dpsim.core.record import Refused, build
from dpsim.describe.scenario import load
from dpsim.machines.machine import load_machine
from dpsim.machines.topology import Topology
from dpsim.predict.prediction import predict

S, B, ALPHA = 1e8, 10e9, 10e-6


def star(nodes: int) -> Topology:
    """Nodes of one GPU and one NIC on one switch: 10 us and 10 GB/s one way."""
    wire = {"from": "gpu0", "to": "nic0", "bandwidth": "20 GB/s", "latency": "2 us"}
    inside = {"family": "explicit", "vertices": ["gpu0", "nic0"], "links": [wire]}
    cable = {"family": "star", "link": {"bandwidth": "10 GB/s", "latency": "3 us"}}
    make = Plugin("fabrics", "family").make
    return Topology(make(inside, file=True), make(cable, file=True), nodes=nodes, gpus=1, nics=1)


# -- servers among the ranks ----------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 5, 8, 16])
@pytest.mark.parametrize("servers", [1, 2, 3, 5, 8])
def test_push_and_pull_take_their_closed_form(n: int, servers: int) -> None:
    algorithm, topology, ranks = PushAndPull(servers), star(n), tuple(range(n))
    if not algorithm.applies(ranks, topology):
        assert n < servers
        return
    stages = algorithm.stages("all_reduce", ranks, S, topology)
    played = sum(p.latency + p.seconds for p in (phase_of(s, topology) for s in stages))
    assert played == pytest.approx(algorithm.seconds("all_reduce", n, S, ALPHA, B), rel=1e-9)
    if n > servers:
        busiest = max((n - 1) / servers, 1.0)
        assert played == pytest.approx(2 * (ALPHA + busiest * S / B), rel=1e-9)


def test_every_rank_a_server_moves_what_a_ring_does() -> None:
    """2 (n-1)/n S on every link, in two rounds instead of 2 (n-1)."""
    algorithm = PushAndPull(8)
    found = algorithm.seconds("all_reduce", 8, S, 0.0, B)
    assert found == pytest.approx(2 * 7 / 8 * S / B)
    assert algorithm.bytes_sent("all_reduce", 8, S) == pytest.approx(2 * 7 / 8 * S)


@pytest.mark.parametrize("servers", [1, 3, 4])
def test_a_push_brings_each_server_its_part_of_everybody_s_bytes(servers: int) -> None:
    algorithm, ranks = PushAndPull(servers), tuple(range(20, 28))
    push, pull = algorithm.push(ranks, S), algorithm.pull(ranks, S)
    chosen = algorithm.chosen(ranks)
    assert len(set(chosen)) == servers
    for server in chosen:
        came = [t for t in push.transfers if t.target == server]
        assert {t.source for t in came} == set(ranks) - {server}
        assert sum(t.bytes for t in came) == pytest.approx(7 * S / servers)
    assert sorted((b, a) for a, b, _ in pull.transfers) == sorted(
        (a, b) for a, b, _ in push.transfers
    )


def test_one_server_on_a_machine_is_slower_the_more_workers_there_are() -> None:
    server, ring = Nccl(algorithm="parameter_server"), Nccl(algorithm="ring")
    machine = load_machine("rack-25gbe")
    times = {
        (name, n): backend.plan(
            "all_reduce", tuple(range(n)), S, machine.topology(n, gpus_per_node=1)
        ).seconds
        for name, backend in (("server", server), ("ring", ring))
        for n in (4, 16)
    }
    assert times["server", 16] == pytest.approx(5 * times["server", 4], rel=0.05)  # 15 / 3
    assert times["ring", 16] < 1.5 * times["ring", 4]


# -- servers of their own -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "servers", "largest", "times"),
    [
        (8, 1, None, 8.0),  # 2 N S / B
        (8, 4, None, 2.0),  # 2 N S / (s B)
        (8, 8, None, 1.0),  # as many as workers: their own links set the pace
        (8, 32, None, 1.0),  # more don't help
        (8, 4, 0.5, 4.0),  # half of the bytes on one server
        (64, 4, 0.98, 62.72),  # one huge variable
        (1, 1, None, 1.0),  # even a lone worker has its servers elsewhere
    ],
)
def test_the_busiest_server_s_link_sets_the_pace(
    workers: int, servers: int, largest: float | None, times: float
) -> None:
    """2 N f S / B, f the fraction of the bytes on the busiest server, at least 2 S / B."""
    backend = Servers(latency=ALPHA, bandwidth=B, servers=servers, largest=largest)
    plan = backend.plan("all_reduce", tuple(range(workers)), S, None)
    assert plan.seconds == pytest.approx(2 * (ALPHA + times * S / B))
    assert (plan.algorithm, plan.sent) == ("push and pull", S)
    push = backend.plan("reduce_scatter", tuple(range(workers)), S, None)
    pull = backend.plan("broadcast", tuple(range(workers)), S, None)
    assert push.seconds + pull.seconds == pytest.approx(plan.seconds)
    assert (push.algorithm, pull.algorithm) == ("push", "pull")


def test_a_ring_moves_no_more_however_many_workers_there_are() -> None:
    """Eight workers: one server takes 8/(7/8) times as long as a ring, eight servers 8/7."""
    ring = IdealRing(bandwidth=B).plan("all_reduce", tuple(range(8)), S, None).seconds
    for servers, factor in ((1, 64 / 7), (8, 8 / 7)):
        found = Servers(bandwidth=B, servers=servers).plan("all_reduce", tuple(range(8)), S, None)
        assert found.seconds / ring == pytest.approx(factor)


def test_what_is_no_push_and_no_pull_is_refused() -> None:
    with pytest.raises(Refused, match="no all_to_all; there are all_reduce"):
        Servers().plan("all_to_all", (0, 1), S, None)
    with pytest.raises(Refused, match="less than the mean of 4 servers"):
        build(Servers, {"servers": 4, "largest": 0.2}, file=True)


def test_a_scenario_names_its_servers(tmp_path: Path) -> None:
    """DDP in one bucket: 1 ms and 2 ms of compute, then 2 x 8/4 x 4 MB at 1 GB/s."""
    data: dict[str, Any] = {
        "model": {
            "layers": [
                {"name": "a", "parameters": 1_000_000, "forward": "1 ms", "backward": "2 ms"}
            ]
        },
        "cluster": {"ranks": 8},
        "strategy": {"kind": "ddp", "broadcast_buffers": False},
        "collective": {"backend": "parameter_server", "servers": 4, "bandwidth": "1 GB/s"},
        "optimizer": {"kind": "none"},
    }
    found = predict(load(data, tmp_path, "servers")).step_time_s
    assert found == pytest.approx(3e-3 + 16e-3)
