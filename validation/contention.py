"""Concurrent all-reduces on shared links: predicted and measured.

    python validation/contention.py TABLE

reads a table with the columns nodes, concurrent_jobs, size_bytes and avg_latency_us: identical
ring all-reduces, started together on the same nodes.  Two numbers are fitted, on the rows of 1 job
and of the most jobs: what one flow reaches, and what a link carries.  All rows are then played on
`dpsim.play.network`'s shared links.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import simpy

from dpsim.collectives import ring_payload
from dpsim.play.network import Network


class Row(NamedTuple):
    """`payload` is what one job sends over each link [B]; `seconds` measured."""

    nodes: int
    jobs: int
    payload: float
    seconds: float


def read(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(
                int(row["nodes"]),
                int(row["concurrent_jobs"]),
                ring_payload("all_reduce", int(row["nodes"]), float(row["size_bytes"])),
                float(row["avg_latency_us"]) * 1e-6,
            )
            for row in csv.DictReader(file)
        ]


def fit(rows: Sequence[Row]) -> tuple[float, float]:
    """What a flow reaches and what a link carries [B/s]: geometric means."""
    most = max(row.jobs for row in rows)
    flow = [row.payload / row.seconds for row in rows if row.jobs == 1]
    link = [row.jobs * row.payload / row.seconds for row in rows if row.jobs == most]
    return _mean(flow), _mean(link)


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def predict(row: Row, flow: float, link: float) -> float:
    """When the last of the jobs ends: in a ring every job loads every node's link alike [s]."""
    env = simpy.Environment()
    network = Network(env, lambda _: link)
    loads = dict.fromkeys(range(row.nodes), row.payload)
    ends = [network.transfer(loads, alone=row.payload / flow) for _ in range(row.jobs)]
    env.run(simpy.AllOf(env, ends))
    return float(env.now)


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    rows = read(Path(arguments[0]))
    flow, link = fit(rows)
    print(f"a flow reaches {flow / 1e6:,.0f} MB/s, a link carries {link / 1e6:,.0f} MB/s")
    errors: dict[str, list[float]] = {"fitted on": [], "held out": []}
    most: Any = max(row.jobs for row in rows)
    for row in rows:
        error = predict(row, flow, link) / row.seconds - 1.0
        errors["fitted on" if row.jobs in (1, most) else "held out"].append(error)
    for name, found in errors.items():
        ordered = sorted(map(abs, found))
        print(
            f"{name}: n = {len(found)}, median |error| {ordered[len(ordered) // 2]:.1%}, "
            f"worst {ordered[-1]:.1%}, within 15 %: {sum(e <= 0.15 for e in ordered)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
