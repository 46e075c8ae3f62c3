#!/usr/bin/env python3
"""Measure collectives over sizes, with a table like nccl-tests', for `dpsim calibrate`.

    torchrun --nproc-per-node 8 measure_collectives.py --output collectives.json
    torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
        measure_collectives.py --sizes 1KiB:1GiB:2 --output collectives.json

Needs torch and numpy, and _measure.py beside it.  records/README.md describes the record.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

from _measure import (
    OPERATIONS,
    Failed,
    Record,
    World,
    add_world_options,
    curve,
    joined,
    leave,
    parse_sizes,
    positive,
)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_world_options(parser)
    add = parser.add_argument
    add("--sizes", type=parse_sizes, default=None, help="FIRST:LAST:FACTOR, or 1KiB,1MiB")
    add("--operations", default=",".join(OPERATIONS), help=f"of {', '.join(OPERATIONS)}")
    add("--steps", type=positive, default=20, help="samples per size")
    add("--warmup", type=positive, default=5, help="calls before them")
    add("--budget", type=float, default=2.0, metavar="S", help="time per size, 3 samples at least")
    found = parser.parse_args()
    found.operations = found.operations.split(",")
    strange = [name for name in found.operations if name not in OPERATIONS]
    if strange:
        parser.error(f"--operations: {strange[0]!r} is none of {', '.join(OPERATIONS)}")
    if found.sizes is None:
        found.sizes = parse_sizes("1KiB:16MiB:4" if found.quick else "1KiB:1GiB:2")
    return found


def measure(operation: str, chosen: argparse.Namespace, world: World) -> dict[str, Any]:
    count = min(5, chosen.steps) if chosen.quick else chosen.steps
    found = curve(
        operation, chosen.sizes, world, count=count, warmup=chosen.warmup, budget=chosen.budget
    )
    if world.leads:
        show(found)
    if not found["points"]:
        raise Failed(found.get("reason", "nothing was measured"))
    return {"curves": [found]}


def show(found: dict[str, Any]) -> None:
    """The curve as a table; times are the slowest rank's, median over repetitions."""
    print(f"# {found['operation']}, float32, time of the slowest rank, median and highest")
    print(f"#{'size':>13}{'time':>13}{'highest':>13}{'algbw':>10}{'busbw':>10}")
    print(f"#{'(B)':>13}{'(us)':>13}{'(us)':>13}{'(GB/s)':>10}{'(GB/s)':>10}")
    for point in found["points"]:
        highest = max(max(each) for each in point["samples_s"])
        print(
            f"{point['bytes']:>14}{point['seconds'] * 1e6:>13.2f}{highest * 1e6:>13.2f}"
            f"{point['algorithm_bytes_per_s'] / 1e9:>10.3f}{point['bus_bytes_per_s'] / 1e9:>10.3f}"
        )
    rates = [point["bus_bytes_per_s"] for point in found["points"]]
    if rates:
        print(f"# mean bus bandwidth: {statistics.mean(rates) / 1e9:.3f} GB/s")
    if "reason" in found:
        print(f"# ended: {found['reason']}")
    sys.stdout.flush()


def main() -> int:
    chosen = options()
    with joined(chosen) as world:
        record = Record("measure_collectives", chosen, world)
        for operation in chosen.operations:
            record.section(operation, lambda name=operation: measure(name, chosen, world))
        record.end()
    return 0


if __name__ == "__main__":
    leave(main())
