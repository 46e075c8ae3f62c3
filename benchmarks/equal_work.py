"""Jitter, a slow link and two rings that cross it: every transfer played, and one pass.

    python benchmarks/equal_work.py [--ranks 256]

The event engine with `detail: rounds` carries out every transfer; the vectorised engine evaluates
what it takes.  Two nodes; both rings of every all-reduce leave a node over its one slow link.
Communicators that share links at the same time are for the event engine only.
"""

from __future__ import annotations

import argparse
import time

from dpsim.backends.nccl import Nccl
from dpsim.compile.program import Cast, Op, Program
from dpsim.compile.timeline import Timeline
from dpsim.machines.devices import Link
from dpsim.machines.fabrics.explicit import ExplicitNode, Wire
from dpsim.machines.fabrics.star import Star
from dpsim.machines.topology import Topology
from dpsim.play import Costs, Play, event, vectorised
from dpsim.variability import Variability

FAST, SLOW, LATENCY = 50e9, 5e9, 1e-6


def machine(gpus: int) -> Topology:
    """Two nodes of so many GPUs on a switch, whose two NICs are behind a slow link."""
    names = (*(f"gpu{i}" for i in range(gpus)), "nic0", "nic1", "sw0", "sw1")
    ends = [(f"gpu{i}", "sw0", 2 * FAST) for i in range(gpus)]
    ends += [("nic0", "sw1", FAST), ("nic1", "sw1", FAST), ("sw0", "sw1", SLOW)]
    wires = tuple(Wire(source=a, target=b, bandwidth=w, latency=LATENCY) for a, b, w in ends)
    network = Star(link=Link(bandwidth=FAST, latency=LATENCY))
    return Topology(ExplicitNode(vertices=names, links=wires), network, nodes=2, gpus=gpus, nics=2)


def play_of(ranks: int) -> Play:
    """A step of two buckets on `ranks` ranks that jitter by 10 %."""
    ops = []
    for k in range(2):
        ops.append(Op(f"B{k}", "backward", seconds=1e-2))
        ops.append(
            Op(f"AR{k}", "collective", stream="ring", operation="all_reduce", bytes=1e8,
               after=(2 * k,))
        )  # fmt: skip
    cast = Cast.uniform(Program((*ops, Op("W", "wait", after=(3,)))), ranks)
    costs = Costs(Nccl(algorithm="ring"), machine(ranks // 2))
    noise = Variability(jitter=0.1)
    return Play(lambda _: cast, costs, 1, 0, lambda step: noise.factors(1, step, ranks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=256)
    ranks = parser.parse_args().ranks
    play, found = play_of(ranks), []
    _ = play.costs.plan("all_reduce", tuple(range(ranks)), 1e8).seconds
    ways = {
        "event, detail: rounds": lambda: event.play(play, detail="rounds"),
        "event": lambda: event.play(play),
        "vectorised": lambda: vectorised.play(play),
    }
    print(f"{ranks} ranks, two rings over one slow link, jitter 10 %")
    for name, way in ways.items():
        begin = time.process_time()
        timeline: Timeline = way()
        seconds = time.process_time() - begin
        found.append(timeline.step_time)
        print(
            f"{name:22} {timeline.step_time:.15f} s, {timeline.events:>9,} events, "
            f"{seconds:7.3f} CPU s"
        )
    print(f"largest difference: {max(found) / min(found) - 1:.1e}")


if __name__ == "__main__":
    main()
