"""MPI: the libraries' own choices, closed forms of what they choose, and copies from the GPU."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import pytest

from dpsim.backends import Plan
from dpsim.backends._mpi_rounds import Round, rounds
from dpsim.backends._mpi_rules import RULES, MpiRule, choose, forced
from dpsim.backends.mpi import Mpi
from dpsim.backends.nccl import Nccl
from dpsim.core import constants
from dpsim.core.record import Refused, build
from dpsim.describe.scenario import load
from dpsim.machines.devices import Link
from dpsim.machines.fabrics import Edge
from dpsim.machines.fabrics.pcie_tree import PcieTree
from dpsim.machines.fabrics.star import Star
from dpsim.machines.host import HostTree
from dpsim.machines.machine import load_machine
from dpsim.machines.topology import Topology
from dpsim.predict.prediction import predict

B, ALPHA, GAMMA, PCIE = 10e9, 5e-6, 20e9, 12e9
MIB = 2**20


def hosts(nodes: int, gpus: int = 1) -> Topology:
    """Hosts on one switch; the NIC's slot and the GPU's are wider than a cable."""
    wide, gpu = Link(bandwidth=1e15), Link(bandwidth=PCIE)
    node = PcieTree(host=HostTree(gpu=gpu, nic=wide, sockets=1, gpus_per_socket=max(gpus, 1)))
    return Topology(node, Star(link=Link(bandwidth=B)), nodes=nodes, gpus=gpus, nics=1)


def mpi(**changes: Any) -> Mpi:
    return Mpi(**{"buffers": "host", "latency": ALPHA, "reduce": GAMMA, **changes})


def links(plan: Plan) -> frozenset[Edge]:
    """The links that carry its bytes."""
    return frozenset(edge for phase in plan.phases for edge in phase.loads or ())


def seconds(operation: str, n: int, size: float, **changes: Any) -> float:
    return mpi(**changes).plan(operation, tuple(range(n)), size, hosts(n)).seconds


# -- what is chosen -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("library", "version", "operation", "n", "size", "expected"),
    [
        # Open MPI up to 4.0: 10,000 B, then one segment of 1 MiB a rank
        ("open_mpi", "4.0", "all_reduce", 8, 9_999, "recursive_doubling"),
        ("open_mpi", "4.0", "all_reduce", 8, 10_000, "ring"),
        ("open_mpi", "4.0", "all_reduce", 8, 8 * MIB, "ring"),
        ("open_mpi", "4.0", "all_reduce", 8, 8 * MIB + 1, "segmented_ring"),
        ("open_mpi", "4.0", "all_gather", 8, 49_999, "recursive_doubling"),
        ("open_mpi", "4.0", "all_gather", 6, 49_999, "bruck"),
        ("open_mpi", "4.0", "all_gather", 6, 50_000, "neighbor_exchange"),
        ("open_mpi", "4.0", "all_gather", 7, 50_000, "ring"),
        ("open_mpi", "4.0", "all_gather", 2, 1, "two_ranks"),
        ("open_mpi", "4.0", "broadcast", 8, 2_047, "binomial_tree"),
        ("open_mpi", "4.0", "broadcast", 8, 2_048, "split_binary_tree"),
        ("open_mpi", "4.0", "broadcast", 8, 100 * MIB, "pipeline"),
        # Open MPI since 4.1
        ("open_mpi", "5.0", "all_reduce", 2, 4_095, "recursive_doubling"),
        ("open_mpi", "5.0", "all_reduce", 2, 4_096, "ring"),
        ("open_mpi", "5.0", "all_reduce", 3, 262_143, "segmented_ring"),
        ("open_mpi", "5.0", "all_reduce", 3, 262_144, "rabenseifner"),
        ("open_mpi", "5.0", "all_reduce", 2, 4, "recursive_doubling"),  # one element, two ranks
        ("open_mpi", "5.0", "all_reduce", 20, 63, "recursive_doubling"),
        ("open_mpi", "5.0", "all_reduce", 8, 8_191, "recursive_doubling"),
        ("open_mpi", "5.0", "all_reduce", 8, 8_192, "rabenseifner"),
        ("open_mpi", "5.0", "all_reduce", 127, 262_143, "recursive_doubling"),
        ("open_mpi", "5.0", "all_reduce", 128, 131_071, "reduce_broadcast"),
        ("open_mpi", "5.0", "all_reduce", 5000, 32_768, "rabenseifner"),
        ("open_mpi", "5.0", "all_gather", 16, 10**9, "recursive_doubling"),
        ("open_mpi", "5.0", "all_gather", 12, 10**9, "bruck"),
        ("open_mpi", "5.0", "all_gather", 32, 32 * 1_023, "recursive_doubling"),
        ("open_mpi", "5.0", "all_gather", 32, 32 * 1_024, "neighbor_exchange"),
        ("open_mpi", "5.0", "all_gather", 33, 33 * 1_024, "ring"),
        ("open_mpi", "4.0", "reduce_scatter", 8, 12_288, "recursive_halving"),
        ("open_mpi", "4.0", "reduce_scatter", 6, 12_289, "ring"),
        ("open_mpi", "4.0", "reduce_scatter", 8, 262_145, "ring"),
        ("open_mpi", "4.0", "all_to_all", 16, 16 * 199, "bruck"),
        ("open_mpi", "4.0", "all_to_all", 12, 12 * 199, "linear"),
        ("open_mpi", "4.0", "all_to_all", 16, 16 * 3_000, "pairwise"),
        ("open_mpi", "5.0", "reduce_scatter", 32, MIB, "ring"),
        ("open_mpi", "5.0", "reduce_scatter", 64, MIB, "butterfly"),
        ("open_mpi", "5.0", "all_to_all", 32, MIB, "linear"),
        ("open_mpi", "5.0", "all_to_all", 64, 64 * 262_144, "pairwise"),
        ("mpich", "3", "reduce_scatter", 8, 524_287, "recursive_halving"),
        ("mpich", "3", "reduce_scatter", 8, 524_288, "pairwise"),
        ("mpich", "3", "all_to_all", 8, 8 * 256, "bruck"),
        ("mpich", "3", "all_to_all", 8, 8 * 32_768, "linear"),
        ("mpich", "3", "all_to_all", 8, 8 * 32_769, "pairwise"),
        ("open_mpi", "5.0", "broadcast", 8, 32_768, "linear"),
        ("open_mpi", "5.0", "broadcast", 16, MIB, "scatter_recursive_doubling"),
        ("open_mpi", "5.0", "broadcast", 64, MIB, "knomial_tree"),
        # MPICH
        ("mpich", "3", "all_reduce", 8, 2_048, "recursive_doubling"),
        ("mpich", "3", "all_reduce", 8, 2_049, "rabenseifner"),
        ("mpich", "4", "all_reduce", 2, 8, "recursive_doubling"),
        ("mpich", "4", "all_reduce", 2, 9, "rabenseifner"),
        ("mpich", "4", "all_reduce", 64, 255, "recursive_doubling"),  # fewer elements than ranks
        ("mpich", "3", "all_gather", 8, 524_287, "recursive_doubling"),
        ("mpich", "3", "all_gather", 8, 524_288, "ring"),
        ("mpich", "4", "all_gather", 6, 81_919, "bruck"),
        ("mpich", "4", "all_gather", 6, 81_920, "ring"),
        ("mpich", "3", "broadcast", 7, MIB, "binomial_rounds"),
        ("mpich", "3", "broadcast", 8, 12_287, "binomial_rounds"),
        ("mpich", "3", "broadcast", 8, 524_287, "scatter_recursive_doubling"),
        ("mpich", "3", "broadcast", 8, 524_288, "scatter_ring"),
        ("mpich", "4", "broadcast", 16, 524_288, "scatter_recursive_doubling"),
        ("mpich", "4", "broadcast", 16, 524_289, "scatter_ring"),
        ("mpich", "4", "broadcast", 12, 12_288, "binomial_rounds"),
        ("mpich", "4", "broadcast", 12, 12_289, "scatter_ring"),
    ],
)
def test_the_library_s_own_rules(
    library: str, version: str, operation: str, n: int, size: int, expected: str
) -> None:
    assert choose(library, version, operation, n, size).algorithm == expected


def test_the_newest_version_is_the_default() -> None:
    for library, newest in (("open_mpi", "5.0"), ("mpich", "4")):
        for size in (100.0, 1e4, 1e6):
            new, default = (
                mpi(implementation=library, version=v).plan(
                    "all_reduce", tuple(range(8)), size, hosts(8)
                )
                for v in (newest, "")
            )
            assert (new.algorithm, new.seconds) == (default.algorithm, default.seconds)


def parents(rule: str, n: int) -> list[int]:
    """Who sends to ranks 1, 2, … n - 1 in a broadcast."""
    found = {
        target: source
        for round_ in rounds("broadcast", MpiRule(rule), tuple(range(n)), 1.0, hosts(2))
        for source, target, _ in round_.transfers
    }
    return [found[rank] for rank in range(1, n)]


def test_trees_are_those_drawn_in_open_mpi() -> None:
    """The comments of ompi/mca/coll/base/coll_base_topo.c draw them."""
    assert parents("binary_tree", 7) == [0, 0, 1, 2, 1, 2]
    assert parents("binomial_tree", 8) == [0, 0, 1, 0, 1, 2, 3]
    assert parents("knomial_tree", 10) == [0, 0, 0, 0, 4, 4, 4, 0, 8]
    assert parents("pipeline", 4) == parents("chain", 4) == [0, 1, 2]
    assert parents("linear", 4) == [0, 0, 0]


# -- every algorithm moves what it has to ---------------------------------------------------------

CASES = [
    *(("all_reduce", MpiRule(a)) for a in ("recursive_doubling", "rabenseifner", "ring")),
    ("all_reduce", MpiRule("segmented_ring", 1_000)),
    ("all_reduce", MpiRule("reduce_broadcast")),
    *(("all_gather", MpiRule(a)) for a in ("ring", "recursive_doubling", "bruck")),
    ("all_gather", MpiRule("neighbor_exchange")),
    *(
        ("broadcast", MpiRule(a))
        for a in ("linear", "pipeline", "binary_tree", "binomial_tree", "knomial_tree",
                  "binomial_rounds", "scatter_recursive_doubling", "scatter_ring")
    ),
]  # fmt: skip


def applies(rule: MpiRule, operation: str, n: int) -> bool:
    power = n.bit_count() == 1
    if rule.algorithm == "neighbor_exchange":
        return n % 2 == 0
    if operation == "all_gather" and rule.algorithm == "recursive_doubling":
        return power
    return power or rule.algorithm != "scatter_recursive_doubling"


def in_turn(found: list[Round]) -> list[Round]:
    """The first round, then one of each kind by turns, as they are played."""
    first, *kinds = found
    single = [[kind._replace(repeats=1)] * kind.repeats for kind in kinds]
    return [first, *(r for pair in zip_longest(*single) for r in pair if r)]


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 8, 11, 16, 21])
@pytest.mark.parametrize(("operation", "rule"), CASES, ids=lambda x: getattr(x, "algorithm", x))
def test_every_rank_ends_with_what_it_needs(operation: str, rule: MpiRule, n: int) -> None:
    if not applies(rule, operation, n):
        return
    ranks = tuple(range(10, 10 + n))
    found = rounds(operation, rule, ranks, 1e6, hosts(40))
    if rule.algorithm == "neighbor_exchange":
        found = in_turn(found)
    known = {rank: {rank} for rank in ranks}
    received = dict.fromkeys(ranks, 0.0)
    for round_ in found:
        for _ in range(round_.repeats):
            before = {rank: frozenset(have) for rank, have in known.items()}
            for source, target, size in round_.transfers:
                known[target] |= before[source]
                received[target] += size
    if operation == "broadcast":
        assert all(10 in have for have in known.values())
        assert all(received[rank] >= 1e6 * (1 - 1e-9) for rank in ranks[1:])
    else:
        assert all(have == set(ranks) for have in known.values())
        least = (1 if operation == "all_gather" else 2) * (n - 1) / n * 1e6
        assert sum(received.values()) / n >= min(least, 1e6) * (1 - 1e-9)
    if operation == "all_gather":
        assert list(received.values()) == pytest.approx([(n - 1) / n * 1e6] * n)


# -- closed forms ---------------------------------------------------------------------------------

S = 1e8
LARGE = [
    # library, version, operation, n, size, time
    ("open_mpi", "4.0", "all_reduce", 8, 8e3, 3 * (ALPHA + 8e3 / B + 8e3 / GAMMA)),
    ("open_mpi", "4.0", "all_reduce", 8, 8e6, 14 * (ALPHA + 1e6 / B) + 7 * 1e6 / GAMMA),
    ("open_mpi", "4.0", "all_reduce", 8, 32 * MIB,
     (4 + 1) * 7 * ALPHA + 14 * 4 * MIB / B + 28 * MIB / GAMMA),
    ("open_mpi", "5.0", "all_reduce", 8, S, 6 * ALPHA + 1.75 * S / B + 0.875 * S / GAMMA),
    ("mpich", "4", "all_reduce", 6, S,
     6 * ALPHA + (1.5 + 2) * S / B + (0.75 + 1) * S / GAMMA),
    ("open_mpi", "5.0", "all_gather", 8, S, 3 * ALPHA + 0.875 * S / B),
    ("mpich", "3", "all_gather", 8, S, 7 * (ALPHA + S / 8 / B)),
    ("open_mpi", "4.0", "all_gather", 8, S, 4 * ALPHA + 0.875 * S / B),
    ("open_mpi", "5.0", "all_gather", 11, S, 4 * ALPHA + 10 / 11 * S / B),
    ("open_mpi", "5.0", "broadcast", 8, 1e5, ALPHA + 7 * 1e5 / B),
    # a chain of whole messages
    ("open_mpi", "5.0", "broadcast", 7, S, 6 * (ALPHA + S / B)),
    # 0 sends to 1 and 2, 1 to 3: two, then one
    ("open_mpi", "4.0", "broadcast", 4, 2_000, 2 * ALPHA + 3 * 2_000 / B),
    # 0 to 1, 2 and 4; 1 to 3 and 5
    ("open_mpi", "4.0", "broadcast", 6, 2_000, 2 * ALPHA + 5 * 2_000 / B),
    # binary, five ranks: 0 to 1 and 2; then 1 to 3 and 2 to 4 at once
    ("open_mpi", "5.0", "broadcast", 5, 1_000, 2 * ALPHA + 3 * 1_000 / B),
    ("open_mpi", "5.0", "broadcast", 8, S, ALPHA + 7 * S / B),
    ("open_mpi", "4.0", "broadcast", 8, 128 * 1024 * 100, 106 * (ALPHA + 128 * 1024 / B)),
    ("open_mpi", "5.0", "broadcast", 16, S, 8 * ALPHA + 2 * 15 / 16 * S / B),
    ("mpich", "4", "broadcast", 8, 12_288, 3 * (ALPHA + 12_288 / B)),
    ("mpich", "4", "broadcast", 8, S, 10 * ALPHA + 2 * 7 / 8 * S / B),
    # root: three children a digit of 64 = 4^3, all at once; then 6 and 3
    ("open_mpi", "5.0", "broadcast", 64, S, 3 * ALPHA + (9 + 6 + 3) * S / B),
    ("open_mpi", "5.0", "send", 2, S, ALPHA + S / B),
]  # fmt: skip


@pytest.mark.parametrize(("library", "version", "operation", "n", "size", "expected"), LARGE)
def test_closed_forms_between_hosts(
    library: str, version: str, operation: str, n: int, size: float, expected: float
) -> None:
    found = seconds(operation, n, size, implementation=library, version=version)
    assert found == pytest.approx(expected, rel=1e-4)  # the NIC's slot is not quite infinite


def test_reduce_and_broadcast_of_many_small_messages() -> None:
    """128 ranks, 1,000 B: up a binomial tree of 7 levels, whose parents have 7, 6, … 1 children,
    and down a binary tree of 7 levels."""
    up = sum(ALPHA + k * 1e3 / B + k * 1e3 / GAMMA for k in range(1, 8))
    down = 7 * ALPHA + (6 * 2 + 1) * 1e3 / B
    found = mpi().plan("all_reduce", tuple(range(128)), 1e3, hosts(128))
    assert found.algorithm == "reduce_broadcast"
    assert found.seconds == pytest.approx(up + down, rel=1e-3)


def test_ranks_alone_take_no_time_and_bytes_are_counted() -> None:
    assert mpi().plan("all_reduce", (0,), S, None).seconds == 0
    assert mpi().plan("all_reduce", tuple(range(8)), S, hosts(8)).sent == pytest.approx(1.75 * S)
    assert mpi().plan("all_gather", tuple(range(8)), S, hosts(8)).sent == pytest.approx(0.875 * S)


@pytest.mark.parametrize("efficiency", [0.5, 0.9])
def test_efficiency_stretches_bytes_only(efficiency: float) -> None:
    found = seconds("all_gather", 8, S, efficiency=efficiency)
    assert found == pytest.approx(3 * ALPHA + 0.875 * S / (B * efficiency), rel=1e-4)


def test_without_a_latency_that_of_the_links_counts() -> None:
    topology = load_machine("rack-25gbe").topology(2, gpus_per_node=1)
    cable = topology.link((("nic", 0, 0), ("leaf", 0)))
    found = mpi(latency=None).plan("send", (0, 1), 1.0, topology)
    assert found.seconds == pytest.approx(2 * cable.latency, rel=0.01)


# -- GPUs -----------------------------------------------------------------------------------------


def test_gpu_buffers_are_copied_to_the_host_and_back() -> None:
    copies = 2 * (10e-6 + S / PCIE)
    plain = seconds("all_reduce", 8, S)
    assert seconds("all_reduce", 8, S, buffers="device") == pytest.approx(plain + copies, rel=1e-6)
    gathered = seconds("all_gather", 8, S)
    copies = 20e-6 + S / 8 / PCIE + S / PCIE
    assert seconds("all_gather", 8, S, buffers="device") == pytest.approx(
        gathered + copies, rel=1e-6
    )
    slow = seconds("all_reduce", 8, S, buffers="device", copy=2e9, copy_latency=0.0)
    assert slow == pytest.approx(plain + 2 * S / 2e9, rel=1e-6)


def test_a_cuda_aware_library_still_reduces_on_the_host() -> None:
    staged = seconds("all_reduce", 8, S, buffers="device")
    assert seconds("all_reduce", 8, S, buffers="device", cuda_aware=True) == staged
    gathered = seconds("all_gather", 8, S, buffers="device", cuda_aware=True)
    assert gathered == pytest.approx(seconds("all_gather", 8, S), rel=1e-4)


def test_messages_between_hosts_pass_no_gpu() -> None:
    topology = load_machine("dgx-1v").topology(4, gpus_per_node=1)
    for buffers, expected in (("host", False), ("device", True)):
        plan = mpi(buffers=buffers).plan("all_reduce", (0, 1, 2, 3), S, topology)
        assert any("gpu" in (a[0], b[0]) for a, b in links(plan)) is expected
        assert {a[0] for a, _ in links(plan)} >= {"socket", "nic", "leaf"}
        assert all(topology.graph.has_edge(*edge) for edge in links(plan))


def test_processes_of_a_node_talk_through_shared_memory() -> None:
    """Recursive doubling of 2 nodes x 2: first inside the nodes, then both pairs over the NICs."""
    found = mpi(shared_memory=2e9).plan("all_reduce", (0, 1, 2, 3), 4e3, hosts(2, gpus=2))
    inside, across = ALPHA + 4e3 / 2e9, ALPHA + 2 * 4e3 / B
    assert found.algorithm == "recursive_doubling"
    assert found.seconds == pytest.approx(inside + across + 2 * 4e3 / GAMMA, rel=1e-4)
    alone = mpi(shared_memory=2e9).plan("send", (0, 1), S, hosts(1, gpus=2))
    assert alone.seconds == pytest.approx(ALPHA + S / 2e9)
    assert links(alone) == frozenset()


def test_gpus_of_a_node_share_the_way_to_its_host() -> None:
    """Two GPUs below one PCIe switch, whose up-link carries both copies."""
    pcie = Link(bandwidth=PCIE)
    host = HostTree(gpu=pcie, nic=Link(bandwidth=1e15), uplink=pcie, sockets=1, gpus_per_socket=2,
                    gpus_per_switch=2)  # fmt: skip
    node = Topology(PcieTree(host=host), Star(link=Link(bandwidth=B)), nodes=1, gpus=2, nics=1)
    plan = mpi(shared_memory=2e9, buffers="device").plan("all_reduce", (0, 1), 1e3, node)
    copied = [phase.seconds for phase in (plan.phases[0], plan.phases[-1])]
    assert copied == pytest.approx([2 * 1e3 / PCIE] * 2)


def test_gpu_to_gpu_serves_several_ranks_a_node() -> None:
    topology = load_machine("dgx-a100").topology(2)
    plan = mpi(buffers="device", cuda_aware=True).plan("all_gather", tuple(range(16)), S, topology)
    assert plan.algorithm == "recursive_doubling"
    assert any("nvswitch" in (a[0], b[0]) for a, b in links(plan))


# -- reduce-scatter, all-to-all, and algorithms by name -------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("algorithm", ["ring", "pairwise"])
def test_a_reduce_scatter_by_parts(algorithm: str, n: int) -> None:
    """(n - 1) messages of S/n, each added up."""
    expected = (n - 1) * (ALPHA + S / n / B + S / n / GAMMA)
    assert seconds("reduce_scatter", n, S, algorithm=algorithm) == pytest.approx(expected)


@pytest.mark.parametrize(("n", "levels", "folded"), [(8, 3, False), (6, 2, True)])
def test_a_reduce_scatter_by_halves(n: int, levels: int, folded: bool) -> None:
    """log2 p halves; beyond a power of two all of it before, and a part at the end."""
    p = 2**levels
    moved = (1 - 1 / p) * S
    expected = levels * ALPHA + moved / B + moved / GAMMA
    if folded:
        expected += 2 * ALPHA + (S + S / n) / B + S / GAMMA
    assert seconds("reduce_scatter", n, S, algorithm="recursive_halving") == pytest.approx(expected)


def test_a_reduce_scatter_by_doubling_sends_nearly_all_in_every_round() -> None:
    parts = [7 / 8 * S, 6 / 8 * S, 4 / 8 * S]
    expected = 3 * ALPHA + sum(parts) / B + sum(parts) / GAMMA
    found = seconds("reduce_scatter", 8, S, algorithm="recursive_doubling")
    assert found == pytest.approx(expected)


def test_an_all_to_all_at_once_pays_one_latency_and_in_turn_one_each() -> None:
    at_once = seconds("all_to_all", 8, S, algorithm="linear")
    assert at_once == pytest.approx(ALPHA + 7 / 8 * S / B)
    in_turn = seconds("all_to_all", 8, S, algorithm="pairwise")
    assert in_turn == pytest.approx(7 * ALPHA + 7 / 8 * S / B)


@pytest.mark.parametrize(
    ("operation", "algorithm"),
    [("all_reduce", "ring"), ("all_gather", "bruck"), ("broadcast", "binary_tree")],
)
def test_an_algorithm_by_name_takes_what_its_rounds_take(operation: str, algorithm: str) -> None:
    found = mpi(algorithm=algorithm).plan(operation, tuple(range(8)), S, hosts(8))
    assert found.algorithm == algorithm
    own = rounds(operation, MpiRule(algorithm), tuple(range(8)), S, hosts(8))
    assert len(found.phases) == len(own)


def test_what_cannot_have_so_many_ranks_becomes_what_libraries_take() -> None:
    assert forced("recursive_doubling", "all_gather", 6).algorithm == "bruck"
    assert forced("neighbor_exchange", "all_gather", 7).algorithm == "ring"


def test_a_message_over_sockets_has_one_connection() -> None:
    """However fast the NIC is; messages to several ranks at once have a connection each."""
    machine = load_machine("rack-cpu")
    flow = constants.shipped("nccl")["ethernet.flow"].value
    wide = machine.topology(5, inter_node_kind="ethernet", inter_node_bandwidth=12.5e9)
    one = mpi(latency=0.0).plan("send", (0, 1), S, wide)
    assert one.seconds == pytest.approx(S / flow)
    all_ = mpi(latency=0.0, algorithm="linear").plan("all_to_all", tuple(range(5)), S, wide)
    assert all_.seconds == pytest.approx(max(4 / 5 * S / 12.5e9, S / 5 / flow))
    slow = machine.topology(2, inter_node_kind="ethernet", inter_node_bandwidth=1.25e9)
    assert mpi(latency=0.0).plan("send", (0, 1), S, slow).seconds == pytest.approx(S / 1.25e9)


def test_nccl_needs_gpus() -> None:
    with pytest.raises(Refused, match="NCCL needs GPUs"):
        Nccl().plan("all_reduce", (0, 1), S, load_machine("rack-cpu").topology(2))


# -- what is refused ------------------------------------------------------------------------------


def test_what_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(Refused, match=r"one rank each .* or with shared_memory"):
        mpi().plan("all_reduce", (0, 1), S, hosts(1, gpus=2))
    with pytest.raises(Refused, match=r"mpi is modelled .* MPICH over several ranks a node is not"):
        mpi(implementation="mpich", shared_memory=1e10).plan(
            "all_gather", (0, 1), S, hosts(1, gpus=2)
        )
    with pytest.raises(Refused, match="no reduce; there are all_reduce"):
        mpi().plan("reduce", (0, 1), S, hosts(2))
    with pytest.raises(Refused, match="all_to_all of 2,048 bytes over 32 ranks by bruck is not"):
        mpi().plan("all_to_all", tuple(range(32)), 2048, hosts(32))
    with pytest.raises(Refused, match=r'all_to_all MPICH 4 takes is not known; version "3"'):
        mpi(implementation="mpich").plan("all_to_all", (0, 1), S, hosts(2))
    with pytest.raises(Refused, match=r"all_to_all has no algorithm ring .* linear, pairwise"):
        mpi(algorithm="ring").plan("all_to_all", (0, 1), S, hosts(2))
    with pytest.raises(Refused, match="'bruk' is not known; accepted: auto, binary_tree"):
        build(Mpi, {"algorithm": "bruk"}, file=True)
    with pytest.raises(Refused, match="by split_binary_tree is not modelled"):
        mpi(version="4.0").plan("broadcast", (0, 1), 1e5, hosts(2))
    with pytest.raises(Refused, match=r'mpich 5\.0 are not known; accepted: "3", "4"'):
        build(Mpi, {"implementation": "mpich", "version": "5.0"}, file=True)
    with pytest.raises(Refused, match="buffers on the host"):
        build(Mpi, {"buffers": "host", "cuda_aware": True}, file=True)


def test_copies_need_a_socket_in_the_machine_file() -> None:
    from dpsim.machines.fabrics.explicit import ExplicitNode, Wire

    wires = (Wire(**{"from": "gpu0", "to": "nic0", "bandwidth": 1e15}),)
    node = ExplicitNode(vertices=("gpu0", "nic0"), links=wires)
    bare = Topology(node, Star(link=Link(bandwidth=B)), nodes=2, gpus=1, nics=1)
    found = mpi().plan("send", (0, 1), S, bare)  # the ranks are the hosts
    assert found.seconds == pytest.approx(ALPHA + S / B, rel=1e-4)
    with pytest.raises(Refused, match="names no sockets"):
        mpi(buffers="device").plan("send", (0, 1), S, bare)


def test_every_version_has_a_rule_for_every_size() -> None:
    for library, versions in RULES.items():
        for version in versions:
            for operation in ("all_reduce", "all_gather", "broadcast"):
                for n in (2, 3, 7, 8, 31, 32, 200, 400, 1500, 3000, 5000):
                    for size in (1, 100, 3_000, 20_000, 200_000, 10**6, 10**8):
                        assert choose(library, version, operation, n, size).algorithm


def test_reduce_and_broadcast_beyond_what_is_known() -> None:
    with pytest.raises(Refused, match="2048 ranks"):
        rounds("all_reduce", MpiRule("reduce_broadcast"), tuple(range(2048)), 1.0, hosts(2))


# -- in a scenario --------------------------------------------------------------------------------


def test_a_step_over_mpi_and_both_engines_agree(tmp_path: Any) -> None:
    data = {
        "model": {
            "layers": [
                {"name": "a", "parameters": 5_000_000, "forward": "1 ms", "backward": "2 ms"},
                {"name": "b", "parameters": 9_000_000, "forward": "1 ms", "backward": "2 ms"},
            ]
        },
        "cluster": {"machine": "rack-25gbe", "nodes": 4, "gpus_per_node": 1},
        "strategy": {"kind": "ddp"},
        "collective": {"backend": "mpi"},
    }
    found = [
        predict(load({**data, "engine": engine}, tmp_path, "mpi")).step_time_s
        for engine in ("event", "vectorised")
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    aware = {**data, "collective": {"backend": "mpi", "implementation": "mpich"}}
    assert predict(load(aware, tmp_path, "mpich")).step_time_s > 0.006


def test_rounds_are_records_of_equal_messages() -> None:
    (one,) = rounds("all_gather", MpiRule("ring"), (0, 1, 2), 3.0, hosts(3))
    assert isinstance(one, Round)
    assert (one.repeats, one.added) == (2, 0.0)
    assert list(one.transfers) == [(0, 1, 1.0), (1, 2, 1.0), (2, 0, 1.0)]
