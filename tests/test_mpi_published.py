"""MPI's rules and rounds beside published measurements: Open MPI 4.1.5 and Cray MPICH on CPUs.

validation/published/collectives.csv has series of one algorithm each, forced, and of the library's
default, on the same nodes with one rank each.
"""

from __future__ import annotations

import csv
import statistics
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from dpsim.backends._mpi_rounds import rounds
from dpsim.backends._mpi_rules import MpiRule, choose
from dpsim.backends.mpi import Mpi
from dpsim.machines.devices import Link
from dpsim.machines.fabrics.pcie_tree import PcieTree
from dpsim.machines.fabrics.star import Star
from dpsim.machines.host import HostTree
from dpsim.machines.topology import Topology

TABLE = Path(__file__).parent.parent / "validation" / "published" / "collectives.csv"
#: of both clusters, per node and one way: InfiniBand NDR200, Slingshot 200
NOMINAL = 25e9
#: a message of 256 B in recursive doubling of 16 and 32 nodes, on both clusters
MESSAGE = 4.5e-6
#: what the table calls the algorithms, longest names first
NAMES = {
    "scatter_allgather_ring": "scatter_ring",
    "scatter_allgather": "scatter_recursive_doubling",
    "recursive_doubling": "recursive_doubling",
    "rabenseifner": "rabenseifner",
    "neighbor": "neighbor_exchange",
    "binomial": "binomial_tree",
    "knomial": "knomial_tree",
    "default": "",
    "binary": "binary_tree",
    "brucks": "bruck",
    "ring": "ring",
}


class Row(NamedTuple):
    series: str
    operation: str
    ranks: int
    size: float
    algorithm: str
    seconds: float


@cache
def rows() -> tuple[Row, ...]:
    """Rows of one rank a node on 8 to 64 nodes, of the operations that are modelled."""
    found = []
    with TABLE.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            series, operation = line["series_id"], line["collective"]
            known = series.startswith(("mn5_cpu", "lumi_cpu")) and operation in (
                "all_reduce", "all_gather", "broadcast",
            )  # fmt: skip
            if known and line["ranks"] == line["nodes"] and int(line["ranks"]) <= 64:
                name = next(NAMES[text] for text in NAMES if f"_{text}_" in series)
                found.append(
                    Row(series, operation, int(line["ranks"]), float(line["size_bytes"]), name,
                        float(line["time_us"]) * 1e-6)
                )  # fmt: skip
    return tuple(found)


def predicted(row: Row) -> float:
    wide = Link(bandwidth=1e15)
    node = PcieTree(host=HostTree(gpu=wide, nic=wide, sockets=1, gpus_per_socket=1))
    topology = Topology(node, Star(link=Link(bandwidth=NOMINAL)), nodes=row.ranks, gpus=1, nics=1)
    ranks = tuple(range(row.ranks))
    library, version = ("open_mpi", "5.0") if row.series.startswith("mn5") else ("mpich", "3")
    if not row.algorithm:
        backend = Mpi(implementation=library, version=version, buffers="host", latency=MESSAGE)
        return backend.plan(row.operation, ranks, row.size, topology).seconds
    backend = Mpi(buffers="host", latency=MESSAGE)
    found = rounds(row.operation, MpiRule(row.algorithm), ranks, row.size, topology)
    phases = [backend._phase(one, None, topology) for one in found]
    return sum(phase.latency + phase.seconds for phase in phases)


def test_there_is_something_to_compare_with() -> None:
    assert len(rows()) == 96
    assert {row.ranks for row in rows()} == {8, 16, 32}


def test_defaults_are_as_fast_as_the_algorithm_that_the_rule_names() -> None:
    """Open MPI 4.1.5 on 32 nodes: what it does by default takes the time of the algorithm that its
    rule names, forced, to 5 %, and of no other one that was forced."""
    mine = [row for row in rows() if row.series.startswith("mn5")]
    forced: dict[tuple[str, float], dict[str, float]] = {}
    for row in mine:
        if row.algorithm and "_over" not in row.series:
            forced.setdefault((row.operation, row.size), {})[row.algorithm] = row.seconds
    compared = 0
    for row in mine:
        others = forced.get((row.operation, row.size), {})
        chosen = choose("open_mpi", "5.0", row.operation, row.ranks, row.size).algorithm
        if row.algorithm or chosen not in others:
            continue
        compared += 1
        assert row.seconds == pytest.approx(others[chosen], rel=0.05)
        nearest = min(others, key=lambda name: abs(others[name] - row.seconds))
        assert nearest == chosen
    assert compared == 6


@pytest.mark.parametrize("algorithm", ["binary_tree", "binomial_tree", "knomial_tree"])
def test_broadcasts_down_trees_take_what_their_levels_say(algorithm: str) -> None:
    """64 MiB to 32 nodes: parents send to all their children at once, level by level."""
    (row,) = (r for r in rows() if r.algorithm == algorithm and r.size == 2**26)
    assert predicted(row) == pytest.approx(row.seconds, rel=0.02)


def test_the_median_error_is_that_of_the_assumption() -> None:
    errors = [abs(predicted(row) / row.seconds - 1) for row in rows()]
    assert statistics.median(errors) < 0.19
