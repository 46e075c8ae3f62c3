"""Ring orders: cycles over all ranks, bandwidths near NCCL's, every NIC in use, and fast."""

from __future__ import annotations

import time

import pytest

from dpsim.collectives.ring_orders import rings
from dpsim.machines.machine import load_machine, machine_names
from dpsim.machines.topology import Topology

# Total ring bandwidth that NCCL reaches on GPUs 0 … k-1 of a DGX-1V [GB/s].
DGX_1V = {2: 22.5, 3: 45, 4: 85, 5: 37, 6: 46, 7: 87, 8: 134}


def total(topology: Topology, ranks: range) -> float:
    return sum(ring.bandwidth for ring in rings(topology, ranks))


@pytest.mark.parametrize(("gpus", "measured"), DGX_1V.items())
def test_cube_mesh_near_measured(gpus: int, measured: float) -> None:
    found = total(load_machine("dgx-1v").topology(1), range(gpus)) / 1e9
    assert found == pytest.approx(measured, rel=0.25)


def test_cube_mesh_uses_every_link() -> None:
    found = rings(load_machine("dgx-1v").topology(1), range(8))
    assert len(found) == 6
    assert sum(ring.bandwidth for ring in found) == pytest.approx(120e9)


@pytest.mark.parametrize(("name", "total_bandwidth"), [("a100-4", 240e9), ("mi300x-8", 336e9)])
def test_gpus_that_are_all_joined_use_every_link(name: str, total_bandwidth: float) -> None:
    found = rings(load_machine(name).topology(1), range(load_machine(name).gpus_per_node))
    assert sum(ring.bandwidth for ring in found) == pytest.approx(total_bandwidth)


@pytest.mark.parametrize("name", ["h100-4", "mi300x-8"])
def test_where_all_gpus_are_joined_every_nic_has_a_ring_of_its_own(name: str) -> None:
    topology = load_machine(name).topology(3)
    found = rings(topology, range(topology.ranks))
    assert len({ring.order[0] % topology.gpus for ring in found}) == topology.nics
    assert len({ring.order[-1] % topology.gpus for ring in found}) == topology.nics
    cables = [e for e in topology.route(0, topology.gpus) if e[0][0] == "nic" and e[1][0] != "nic"]
    nics = topology.nics * topology.link(cables[0]).bandwidth
    assert sum(ring.bandwidth for ring in found) >= 0.75 * nics


@pytest.mark.parametrize("name", machine_names())
def test_rings_visit_every_rank_once_and_together_fit_every_link(name: str) -> None:
    machine = load_machine(name)
    for nodes in (1, 3) if machine.network else (1,):
        topology = machine.topology(nodes)
        loads: dict[object, float] = {}
        for ring in rings(topology, range(topology.ranks)):
            assert sorted(ring.order) == list(range(topology.ranks))
            steps = zip(ring.order, ring.order[1:] + ring.order[:1], strict=True)
            edges = [edge for a, b in steps for edge in topology.route(a, b)]
            assert 0 < ring.bandwidth <= min(topology.link(edge).bandwidth for edge in edges)
            for edge in edges:
                loads[edge] = loads.get(edge, 0.0) + ring.bandwidth
        for edge, load in loads.items():
            assert load <= topology.link(edge).bandwidth * (1 + 1e-9)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "nics"), [("dgx-h100", 8), ("dgx-1v", 4), ("rack-10gbe", 1)])
def test_every_nic_sends_and_receives_once(name: str, nics: int) -> None:
    topology = load_machine(name).topology(3)
    found = rings(topology, range(topology.ranks))
    assert len(found) == nics
    used = [
        (edge[0], edge[1])
        for ring in found
        for a, b in zip(ring.order, ring.order[1:] + ring.order[:1], strict=True)
        for edge in topology.route(a, b)
        if "nic" in (edge[0][0], edge[1][0]) and "leaf" in (edge[0][0], edge[1][0])
    ]
    assert len(used) == len(set(used)) == 2 * 3 * nics


def test_single_nic_is_entered_beside_its_gpus() -> None:
    topology = load_machine("v100-1x100g").topology(2)
    (ring,) = rings(topology, range(16))
    assert {ring.order[0], ring.order[7]} == {2, 3}


def test_nvswitch_and_pcie_in_rank_order() -> None:
    (ring,) = rings(load_machine("dgx-h100").topology(1), range(8))
    assert (ring.order, ring.bandwidth) == (tuple(range(8)), pytest.approx(370.8e9))
    (ring,) = rings(load_machine("rack-10gbe").topology(1), range(4))
    assert (ring.order, ring.bandwidth) == ((0, 1, 2, 3), pytest.approx(12e9))


def test_subsets_and_partial_nodes() -> None:
    topology = load_machine("dgx-a100").topology(3, ranks=19)
    for ring in rings(topology, range(19)):
        assert sorted(ring.order) == list(range(19))
    (pair,) = rings(topology, (3, 11))
    assert pair.bandwidth == pytest.approx(24e9)
    assert rings(topology, (5,)) == ()
    assert rings(topology, (3, 11)) is rings(topology, [11, 3])


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1v"])
def test_a_thousand_nodes_take_well_under_a_second(name: str) -> None:
    topology = load_machine(name).topology(1024)
    start = time.process_time()
    found = rings(topology, range(topology.ranks))
    assert time.process_time() - start < 2.0  # 0.3 s where this was written
    assert len(found[0].order) == 8192
