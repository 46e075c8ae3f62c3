"""What playing costs: events, CPU seconds and peak memory per step, by ranks and engine.

    python benchmarks/engines.py [--ranks 8,64,1024] [--rounds 16,64] [--scenario llama3-8b-h100]

Each row is a fresh process, so that its peak memory is its own.  Event counts are exact and
repeatable; CPU seconds are this machine's, so compare rows of one run with each other.  The last
column is the ratio to bare SimPy, timed in the same process: operations that the engine plays in a
CPU second, over the timeouts that as many processes of SimPy as there are ranks go through in one.
A second table says what it costs to play every transfer of every collective (`detail: rounds`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cost import fastest

if TYPE_CHECKING:
    from dpsim.compile.program import Cast
    from dpsim.play import Costs, Play

REPEATS = 5
TIMEOUTS = 200_000
#: the event engine, every transfer of every collective played
ROUNDS = "rounds"


def bare_simpy(processes: int, timeouts: int = TIMEOUTS) -> None:
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


def request_of(scenario: str, ranks: int, steps: int) -> Play:
    """What an engine is asked: `steps` steps of `scenario` on `ranks` ranks."""
    from dpsim.cases.case import Case
    from dpsim.describe.scenario import read

    loaded = read(scenario, [f"cluster={{machine: dgx-h100, ranks: {ranks}}}", "sweep=null"])
    case = Case(loaded.points[0], loaded.base)
    return replace(case.plays()[0], steps=steps, warmup=0)


def operations_of(cast: Cast) -> int:
    """Operations of all ranks in a step."""
    return sum(len(cast.program(rank).ops) for rank in range(cast.ranks))


def measure(scenario: str, ranks: int, engine: str, steps: int) -> dict[str, float]:
    """Play `steps` steps of `scenario` on `ranks` ranks and say what it cost."""
    from dpsim.play import event, vectorised

    request = request_of(scenario, ranks, steps)
    play: Callable[[Any], Any] = event.play if engine == "event" else vectorised.play
    timeline = play(request)  # makes the plans
    operations = steps * operations_of(request.cast(0))
    seconds = fastest(lambda: play(request), REPEATS if ranks <= 256 else 1)
    bare = fastest(lambda: bare_simpy(ranks), REPEATS)
    return {
        "events_per_step": timeline.events / steps,
        "cpu_seconds_per_step": seconds / steps,
        "microseconds_per_operation": 1e6 * seconds / operations,
        "of_bare_simpy": operations / seconds * bare / TIMEOUTS,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "step_time_s": timeline.step_time,
    }


def transfers_of(cast: Cast, costs: Costs) -> int:
    """Transfers of all collectives of a step, over all ranks."""
    known: dict[int, int] = {}
    total = 0
    for name, groups in cast.groups.items():
        for group in groups:
            for op in cast.program(group[0]).ops:
                if op.kind == "collective" and op.group == name:
                    plan = costs.of(op, group)
                    if id(plan) not in known:
                        stages = plan.stages() if plan.stages else ()
                        known[id(plan)] = sum(len(one.transfers) * one.repeats for one in stages)
                    total += known[id(plan)]
    return total


def measure_rounds(scenario: str, ranks: int) -> dict[str, float]:
    """Play one step with every transfer, once, and say what it cost beside a step without them."""
    from dpsim.play import event

    request = request_of(scenario, ranks, 1)
    cast = request.cast(0)
    event.play(request)  # makes the plans
    transfers = transfers_of(cast, request.costs)
    whole = fastest(lambda: event.play(request))
    seconds = fastest(lambda: event.play(request, detail="rounds"), 1)
    operations = operations_of(cast)
    return {
        "transfers": transfers,
        "per_operation": transfers / operations,
        "cpu_seconds": seconds,
        "microseconds_per_transfer": 1e6 * (seconds - whole) / transfers,
        "times": seconds / whole,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
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


def rounds_table(scenario: str, counts: list[int]) -> None:
    """Print a row for each count of ranks, every transfer played."""
    print(f"{scenario}, jittered, one step with detail: rounds")
    print(
        f"{'ranks':>6} {'transfers':>12} {'per op':>8} {'CPU s':>9} {'us/transfer':>12} "
        f"{'peak MB':>8} {'of detail: collective':>22}"
    )
    for ranks in counts:
        found = row(scenario, ranks, ROUNDS, 1)
        print(
            f"{ranks:>6} {found['transfers']:>12,.0f} {found['per_operation']:>8.1f} "
            f"{found['cpu_seconds']:>9.3f} {found['microseconds_per_transfer']:>12.2f} "
            f"{found['peak_memory_mb']:>8.0f} {found['times']:>22,.0f}"
        )


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", default="llama3-8b-h100")
    parser.add_argument("--ranks", default="8,16,64,256,1024", type=numbers)
    parser.add_argument("--rounds", default="16,64", type=numbers, help="ranks of the second table")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("RANKS", "ENGINE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        ranks, engine = int(options.one[0]), options.one[1]
        if engine == ROUNDS:
            print(json.dumps(measure_rounds(options.scenario, ranks)))
        else:
            print(json.dumps(measure(options.scenario, ranks, engine, options.steps)))
        return
    if options.ranks:
        table(options.scenario, options.ranks, options.steps)
    if options.rounds:
        rounds_table(options.scenario, options.rounds)


if __name__ == "__main__":
    main()
