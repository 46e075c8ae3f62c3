"""What Amazon's network plug-in tells NCCL to take on P5, P5en and P6 (A11)."""

from __future__ import annotations

import csv
import math
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from dpsim.backends import _nccl_tables as tables
from dpsim.backends import _ofi_tuner
from dpsim.backends._nccl_graph import graph_of
from dpsim.backends._nccl_tuning import ALGORITHMS, Tuning
from dpsim.backends.nccl import Nccl
from dpsim.machines.machine import load_machine

MiB = 2**20
PAIRS = tuple(product(ALGORITHMS, tables.PROTOCOLS))
#: answers of the plug-in's own code, aws/aws-ofi-nccl at 2daf7d303aa1: src/tuner/
#: nccl_ofi_regions.cpp, compiled with g++ 12 and asked by `region_get_coll_info_internal_v3` with a
#: table of costs in which every pair is allowed; nothing: it left the table as it was
ANSWERS = Path(__file__).parent / "data" / "ofi_tuner.csv"


def test_the_plug_in_answers_as_its_own_code_does() -> None:
    seen: Counter[str] = Counter()
    for row in csv.DictReader(ANSWERS.read_text("utf-8").splitlines()):
        efa, nodes, per_node, size = (
            int(row[name]) for name in ("generation", "nodes", "per_node", "bytes")
        )
        machine = {2: "p5", 3: "p5en", 4: "p6"}[efa]
        theirs = (row["algorithm"], row["protocol"]) if row["algorithm"] else None
        found = _ofi_tuner.told(machine, nodes, nodes * per_node, row["operation"], size, PAIRS)
        assert found == theirs, row
        seen[row["algorithm"]] += 1
    assert set(seen) == {"", "tree", "ring", "nvls_tree", "pat"}


def test_a_pair_that_nccl_has_not_is_passed_over() -> None:
    """NVLSTree of 1 GiB on 16 nodes of P5en; without NVSwitches that add, NCCL chooses."""
    asked = "p5en", 16, 128, "all_reduce", 2**30
    assert _ofi_tuner.told(*asked, PAIRS) == ("nvls_tree", "simple")
    others = [pair for pair in PAIRS if pair[0] != "nvls_tree"]
    assert _ofi_tuner.told(*asked, others) is None


@pytest.mark.parametrize(
    ("efa", "capability", "gpus", "machine"),
    [(2, 90, 8, "p5"), (3, 90, 8, "p5en"), (4, 100, 8, "p6"), (4, 103, 8, ""), (2, 100, 8, ""),
     (4, 100, 4, ""), (2, 90, 1, ""), (2, 89, 8, ""), (1, 80, 8, ""), (0, 90, 8, "")],
)  # fmt: skip
def test_it_knows_amazons_machines_alone(
    efa: int, capability: int, gpus: int, machine: str
) -> None:
    """By EFA, GPUs and how many a node has: not B300, GB200 or L40S over EFA, nor P4d."""
    assert _ofi_tuner.machine_of(efa, capability, gpus) == machine


@pytest.mark.parametrize(
    ("name", "machine"),
    [("p5.48xlarge", "p5"), ("p5en.48xlarge", "p5en"), ("p6-b200.48xlarge", "p6"),
     ("p5e.48xlarge", "p5"), ("p6-b300.48xlarge", ""), ("g6e.48xlarge", ""), ("g7e.48xlarge", ""),
     ("p4d.24xlarge", ""), ("dgx-h100", "")],
)  # fmt: skip
def test_the_shipped_machines_are_known_by_what_their_files_say(name: str, machine: str) -> None:
    assert graph_of(load_machine(name).topology(4), tuple(range(32))).amazon == machine


def first(machine: str, nodes: int, size: float, version: tuple[int, int], **asked: str) -> str:
    there = load_machine(machine).topology(nodes)
    graph = graph_of(there, tuple(range(8 * nodes)))
    choice = Tuning(graph, version).choices("all_reduce", size, **asked)[0]
    return f"{choice.algorithm} {choice.protocol}"


def test_nccl_takes_its_word_for_it_from_the_version_that_asks() -> None:
    """64 MiB among 128 H100: by NCCL's own estimates a tree of NVSwitches, by Amazon's regions a
    tree of GPUs with LL128; on two nodes it says nothing, and of other networks neither."""
    assert first("p5.48xlarge", 16, 64 * MiB, (2, 22)) == "tree ll128"
    assert first("p5.48xlarge", 16, 64 * MiB, (2, 21)) == "tree ll128"
    assert first("p5.48xlarge", 16, 64 * MiB, (2, 20)) == "nvls_tree simple"
    assert first("p5.48xlarge", 2, 64 * MiB, (2, 22)) == "nvls_tree simple"
    assert first("dgx-h100", 16, 64 * MiB, (2, 22)) != "tree ll128"


@pytest.mark.parametrize(("version", "taken"), [((2, 21), "ring simple"), ((2, 22), "ring ll128")])
def test_beside_a_users_choice_it_is_asked_from_2_22_on(
    version: tuple[int, int], taken: str
) -> None:
    """512 MiB among 64 ranks over rings alone (NCCL_ALGO=ring)."""
    assert first("p5.48xlarge", 8, 512 * MiB, version, algorithm="ring") == taken


def test_what_it_prefers_is_no_slower_than_what_nccl_would_choose() -> None:
    """256 MiB among 128 H100: trees with LL128 take longer here than NVSwitches, which NCCL's
    estimates choose; the mean of their logarithms is 191 GB/s of bus bandwidth, where a cluster of
    P5 has 188 at its 95th percentile (A92).  Hops and bytes are as much faster, the launch not."""
    there, size = load_machine("p5.48xlarge").topology(16), 256 * MiB
    ranks = tuple(range(128))
    told, own, asked = (
        Nccl(**keys).plan("all_reduce", ranks, size, there)
        for keys in ({}, {"version": "2.20"}, {"algorithm": "tree", "protocol": "ll128"})
    )
    assert (told.algorithm, own.algorithm) == ("tree ll128", "nvls_tree simple")
    moved, alone, forced = (plan.seconds - plan.launch for plan in (told, own, asked))
    assert forced > 1.05 * alone
    assert moved == pytest.approx(math.sqrt(alone * forced))
    assert told.launch == asked.launch
    assert 2 * 127 / 128 * size / told.seconds == pytest.approx(191e9, rel=0.01)


def test_a_machines_own_share_of_the_bandwidth_counts_before_the_two_are_compared() -> None:
    """At half of it both take longer, and the mean is that of what they then take."""
    there, ranks = load_machine("p5.48xlarge").topology(16), tuple(range(128))
    told, own, asked = (
        Nccl(efficiency=0.5, **keys).plan("all_reduce", ranks, 256 * MiB, there)
        for keys in ({}, {"version": "2.20"}, {"algorithm": "tree", "protocol": "ll128"})
    )
    moved, alone, forced = (plan.seconds - plan.launch for plan in (told, own, asked))
    assert moved == pytest.approx(math.sqrt(alone * forced))
