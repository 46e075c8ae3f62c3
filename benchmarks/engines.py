"""What playing costs: events, CPU seconds and peak memory per step, by ranks and engine.

    python benchmarks/engines.py [--ranks 8,64,1024] [--scenario llama3-8b-h100]

Each row is a fresh process, so that its peak memory is its own.  Event counts are exact and
repeatable; CPU seconds are this machine's, so compare rows of one run with each other.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time


def measure(scenario: str, ranks: int, engine: str, steps: int) -> dict[str, float]:
    """Play `steps` steps of `scenario` on `ranks` ranks and say what it cost."""
    from dataclasses import replace

    from dpsim.cases.case import Case
    from dpsim.describe.scenario import read
    from dpsim.play import event, vectorised

    loaded = read(scenario, [f"cluster={{machine: dgx-h100, ranks: {ranks}}}", "sweep=null"])
    case = Case(loaded.points[0], loaded.base)
    request = replace(case.plays()[0], steps=steps, warmup=0)
    _ = request.cast(0), case.costs
    for op in request.cast(0).programs[0].ops:
        if op.kind == "collective":
            case.costs.plan(op.operation, tuple(range(ranks)), op.bytes)
    start = time.process_time()
    timeline = event.play(request) if engine == "event" else vectorised.play(request)
    seconds = time.process_time() - start
    return {
        "events_per_step": timeline.events / steps,
        "cpu_seconds_per_step": seconds / steps,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "step_time_s": timeline.step_time,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", default="llama3-8b-h100")
    parser.add_argument("--ranks", default="8,16,64,256,1024")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("RANKS", "ENGINE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        found = measure(options.scenario, int(options.one[0]), options.one[1], options.steps)
        print(json.dumps(found))
        return
    print(
        f"{options.scenario}, jittered, {options.steps} steps; Python {platform.python_version()}, "
        f"{os.cpu_count()} cores"
    )
    print(
        f"{'ranks':>6} {'engine':>10} {'events/step':>12} {'per rank':>9} "
        f"{'CPU s/step':>11} {'peak MB':>8} {'step s':>10}"
    )
    for ranks in options.ranks.split(","):
        for engine in ("event", "vectorised"):
            command = [
                sys.executable,
                __file__,
                "--scenario",
                options.scenario,
                "--steps",
                str(options.steps),
                "--one",
                ranks,
                engine,
            ]
            row = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            print(
                f"{ranks:>6} {engine:>10} {row['events_per_step']:>12,.0f} "
                f"{row['events_per_step'] / int(ranks):>9.1f} {row['cpu_seconds_per_step']:>11.3f} "
                f"{row['peak_memory_mb']:>8.0f} {row['step_time_s']:>10.4f}"
            )


if __name__ == "__main__":
    main()
