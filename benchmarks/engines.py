"""What playing costs: events, CPU seconds and peak memory per step, by ranks and engine.

    python benchmarks/engines.py [--ranks 8,64,1024] [--scenario llama3-8b-h100]

Each row is a fresh process, so that its peak memory is its own.  Event counts are exact and
repeatable; CPU seconds are this machine's, so compare rows of one run with each other.  The last
column is the ratio to bare SimPy, timed in the same process: operations that the engine plays in a
CPU second, over the timeouts that as many processes of SimPy as there are ranks go through in one.
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
from collections.abc import Callable
from typing import Any

REPEATS = 5


def fastest(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """CPU seconds of the fastest of several calls."""
    found = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return min(found)


def bare_simpy(processes: int, timeouts: int = 200_000) -> None:
    """So many timeouts in all, one after the other in each of several processes of SimPy, which
    like ranks are not in step with each other."""
    import simpy

    env = simpy.Environment()

    def process(delay: float) -> Any:
        for _ in range(timeouts // processes):
            yield env.timeout(delay)

    for number in range(processes):
        env.process(process(1.0 + number / processes))
    env.run()


def measure(scenario: str, ranks: int, engine: str, steps: int) -> dict[str, float]:
    """Play `steps` steps of `scenario` on `ranks` ranks and say what it cost."""
    from dataclasses import replace

    from dpsim.cases.case import Case
    from dpsim.describe.scenario import read
    from dpsim.play import event, vectorised

    loaded = read(scenario, [f"cluster={{machine: dgx-h100, ranks: {ranks}}}", "sweep=null"])
    case = Case(loaded.points[0], loaded.base)
    request = replace(case.plays()[0], steps=steps, warmup=0)
    play: Callable[[Any], Any] = event.play if engine == "event" else vectorised.play
    timeline = play(request)  # makes the plans
    cast = request.cast(0)
    operations = steps * sum(len(cast.program(rank).ops) for rank in range(cast.ranks))
    seconds = fastest(lambda: play(request), REPEATS if ranks <= 256 else 1)
    return {
        "events_per_step": timeline.events / steps,
        "cpu_seconds_per_step": seconds / steps,
        "microseconds_per_operation": 1e6 * seconds / operations,
        "of_bare_simpy": operations / seconds * fastest(lambda: bare_simpy(ranks)) / 200_000,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "step_time_s": timeline.step_time,
    }


def row(scenario: str, ranks: int, engine: str, steps: int) -> dict[str, float]:
    """The same, in a process of its own."""
    options = ["--scenario", scenario, "--steps", str(steps), "--one", str(ranks), engine]
    command = [sys.executable, __file__, *options]
    found = subprocess.run(command, check=True, capture_output=True).stdout
    return dict(json.loads(found))


def table(scenario: str, counts: list[int], steps: int) -> None:
    """Print a row for each count of ranks and engine."""
    print(
        f"{scenario}, jittered, {steps} steps; Python {platform.python_version()}, "
        f"{os.cpu_count()} cores"
    )
    print(
        f"{'ranks':>6} {'engine':>10} {'events/step':>12} {'CPU s/step':>11} {'us/op':>7} "
        f"{'peak MB':>8} {'step s':>10} {'of bare SimPy':>14}"
    )
    for ranks in counts:
        for engine in ("event", "vectorised"):
            found = row(scenario, ranks, engine, steps)
            print(
                f"{ranks:>6} {engine:>10} {found['events_per_step']:>12,.0f} "
                f"{found['cpu_seconds_per_step']:>11.4f} "
                f"{found['microseconds_per_operation']:>7.3f} {found['peak_memory_mb']:>8.0f} "
                f"{found['step_time_s']:>10.4f} {found['of_bare_simpy']:>14.2f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", default="llama3-8b-h100")
    parser.add_argument("--ranks", default="8,16,64,256,1024")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("RANKS", "ENGINE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        ranks, engine = int(options.one[0]), options.one[1]
        print(json.dumps(measure(options.scenario, ranks, engine, options.steps)))
    else:
        table(options.scenario, [int(ranks) for ranks in options.ranks.split(",")], options.steps)


if __name__ == "__main__":
    main()
