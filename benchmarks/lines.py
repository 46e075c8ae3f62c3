"""The lines of `make bench`: what is done, by which command, and beside which bare pass."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
GROWN = HERE / "llama3-8b-ddp.yaml"
#: ranks between which the growth of a step is told; those of one node are 8
GROWTH = (1_024, 8_192, 131_072, 1_048_576)
RING = (
    "model={layers: [{name: gradients, parameters: 268435456, forward: 0 s, backward: 0 s}]}",
    "collective={backend: ideal_ring, latency: 500 ns, bandwidth: 50 GB/s}",
)


@dataclass(frozen=True)
class Line:
    """A line of the table.

    name, work  what --only calls it, and what is done
    command     the command line
    goal        CPU seconds that it should take; None: none is set
    pass_of     ranks and steps of the bare pass beside it; None: it has none
    note        what to know about the comparison
    """

    name: str
    work: str
    command: tuple[str, ...]
    goal: float | None = None
    pass_of: tuple[int, int] | None = None
    note: str = ""


def dpsim(*words: str) -> tuple[str, ...]:
    """A command of dpsim."""
    return (sys.executable, "-m", "dpsim", *words)


def alone(*sets: str) -> tuple[str, ...]:
    """The step time of the grown scenario and nothing else."""
    return (sys.executable, str(HERE / "step_time.py"), str(GROWN), *sets)


def bare(ranks: int, steps: int) -> tuple[str, ...]:
    """The bare pass beside a line.

    It has a process of its own: where a process starts others, its own memory counts as theirs."""
    return (sys.executable, str(HERE / "bare.py"), str(ranks), str(steps))


def _grown(ranks: int) -> str:
    return f"cluster.nodes={ranks // 8}"


def _sets(*sets: str) -> tuple[str, ...]:
    return tuple(word for text in sets for word in ("--set", text))


def grown() -> list[Line]:
    """Llama-3-8B with DDP on DGX H100, every rank jittered."""
    one = "DDP step, {:,} ranks jittered, step time alone"
    goals = {131_072: 5.0, 1_048_576: 45.0}
    steps = [
        Line(f"step-{ranks}", one.format(ranks), alone(_grown(ranks)), goals.get(ranks), (ranks, 1))
        for ranks in GROWTH
    ]
    hundred = alone(_grown(131_072), "variability.steps=100")
    samples = ("variability.steps=1000", _grown(1_024))
    return [
        Line(
            "run-131072", "DDP step, 131,072 ranks: dpsim run with its interval",
            dpsim("run", str(GROWN), "--json", *_sets(_grown(131_072))), 8.0, (131_072, 1),
        ),
        *steps,
        Line("steps-100", "131,072 ranks, 100 steps, step time alone", hundred, 20.0,
             (131_072, 100)),
        Line("samples", "1,024 ranks, 1,000 steps, without contention",
             alone(*samples, "compute.contention=0"), 5.0, (1_024, 1_000)),
        Line("contention", "1,024 ranks, 1,000 steps, with contention", alone(*samples), 5.0,
             (1_024, 1_000)),
    ]  # fmt: skip


def rings() -> list[Line]:
    """A ring of 1 GiB, and other simulators' work."""
    toy = 'strategy={kind: ddp, torch: "2.13", bucket_cap_mb: 1024}'
    found = []
    for ranks, goal in ((4_096, 1.0), (1_048_576, 4.0)):
        sets = (*RING, toy, f"cluster={{ranks: {ranks}}}", "variability.jitter=0")
        found.append(
            Line(f"ring-{ranks}", f"ideal ring of 1 GiB, {ranks:,} ranks: dpsim run",
                 dpsim("run", "worked/ddp_steady", "--json", *_sets(*sets)), goal)
        )  # fmt: skip
    unequal = "not equal work: ASTRA-sim carries out 2.1 million messages in 76.3 CPU s"
    against = dpsim("run", "against/astra_ddp_1024_jitter", "--json")
    return [
        *found,
        Line("astra", "dpsim run against/astra_ddp_1024_jitter", against, 1.5, note=unequal),
    ]


def bundled() -> list[Line]:
    """Bundled scenarios as users run them."""
    goals = {"quickstart": 0.9, "llama3-8b-h100": 3.0, "gpt3-175b-a100": 8.0}
    return [
        Line(name, f"dpsim run {name}, all points with intervals", dpsim("run", name, "--json"), s)
        for name, s in goals.items()
    ]


def lines() -> list[Line]:
    """All lines that are one command; sweeps and tables of engines have parts of their own."""
    return [*grown(), *rings(), *bundled()]
