"""What sharing links and finding routes costs, and how it grows.

    python benchmarks/sharing.py

Seconds are this machine's, so compare rows of one run with each other.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dpsim.cases.case import Case
from dpsim.describe.scenario import read
from dpsim.play.network import fair_rates


def seconds(work: Callable[[], Any]) -> float:
    """The fastest of three calls: CPU time [s]."""
    found = []
    for _ in range(3):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return min(found)


def symmetric(flows: int) -> list[dict[int, float]]:
    """A ring over as many links: every flow crosses two, every link carries two."""
    return [{k: 1.0, (k + 1) % flows: 1.0} for k in range(flows)]


def random(flows: int) -> tuple[list[dict[int, float]], np.ndarray]:
    """Flows over four of as many links each, of unequal capacity."""
    rng = np.random.default_rng(0)
    made = [dict.fromkeys(map(int, rng.choice(flows, 4, replace=False)), 1.0) for _ in range(flows)]
    return made, rng.uniform(1e9, 1e10, flows)


def routes(hosts: int) -> None:
    """All routes of a ring over the hosts of a fat tree, from a fresh machine."""
    loaded = read(
        "llama3-8b-h100", [f"cluster={{machine: dgx-h100, nodes: {hosts}}}", "sweep=null"]
    )
    topology = Case(loaded.points[0], loaded.base).topology
    assert topology is not None
    for host in range(hosts):
        topology.route(8 * host, 8 * ((host + 1) % hosts))


def main() -> None:
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {os.cpu_count()} cores")
    for flows in (256, 1024, 4096):
        cost = seconds(partial(fair_rates, symmetric(flows), lambda _: 1e9))
        print(f"{flows:>6} symmetric flows {cost:8.4f} s")
    for flows in (128, 256, 512):
        drawn, capacity = random(flows)
        cost = seconds(partial(fair_rates, drawn, capacity.__getitem__))
        print(f"{flows:>6} random flows    {cost:8.4f} s")
    for hosts in (64, 256, 1024):
        print(f"{hosts:>6} hosts, routes   {seconds(partial(routes, hosts)):8.4f} s")


if __name__ == "__main__":
    main()
