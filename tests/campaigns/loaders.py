"""A campaign against loaders: what a loop with queues says of DataLoaders that nobody writes.

    python tests/campaigns/loaders.py [--seed 1] [--count 500]

Set-up number k is made from seed + k: workers, prefetch, batches of one to three epochs, slow ones
among them or times with a heavy tail, of one to four ranks that wait for each other, persistent or
not, in order or not, on either engine.  `loop` follows every worker's queue as
torch/utils/data/dataloader.py (torch 2.13) fills it, and shares no arithmetic with dpsim: starts
of steps, and the length of a later epoch, must be equal.  `shared` has workers of eight ranks on
the cores of a node: the step is where the time of a batch on so many cores, as busy as that step
leaves them, is the step (found by halving).  Prints every finding; exits with 1 where there is one.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import dpsim
from dpsim.compile.loaders import Supply
from dpsim.play.feeding import Epochs, feed

CLOSE = 1e-9


@dataclass(frozen=True)
class Setup:
    """A loader of every rank; `seconds` of each rank's batch of an epoch, `step` of training."""

    workers: int
    prefetch: int
    ordered: bool
    take: float
    start: float
    persistent: bool
    step: float
    seconds: Sequence[Sequence[float]]

    @property
    def batches(self) -> int:
        return len(self.seconds[0])


@dataclass
class Queues:
    """The workers of one rank in one epoch: when each is free, and what each has to hand over."""

    setup: Setup
    seconds: Sequence[float]
    since: float
    free: list[float] = field(init=False)
    waiting: list[list[tuple[float, int]]] = field(init=False)
    handed: int = 0
    turn: int = 0

    def __post_init__(self) -> None:
        self.free = [self.since] * self.setup.workers
        self.waiting = [[] for _ in self.free]
        for _ in range(self.setup.workers * self.setup.prefetch):
            self.hand(self.since)

    def hand(self, now: float) -> None:
        """The next worker in turn that has room is asked for the next batch."""
        for _ in self.free:
            worker, self.turn = self.turn, (self.turn + 1) % len(self.free)
            if len(self.waiting[worker]) < self.setup.prefetch:
                break
        else:
            return
        if self.handed < len(self.seconds):
            done = max(self.free[worker], now) + self.seconds[self.handed]
            self.free[worker] = done
            self.waiting[worker].append((done, self.handed))
            self.handed += 1

    def take(self, batch: int, now: float) -> float:
        """When a batch is in hand that is wanted `now`: the one that is next, or ready first."""
        heads = [(queue[0], worker) for worker, queue in enumerate(self.waiting) if queue]
        if self.setup.ordered:
            (done, _), worker = next(one for one in heads if one[0][1] == batch)
        else:
            (done, _), worker = min(heads)
        self.waiting[worker].pop(0)
        found = max(now, done) + self.setup.take
        self.hand(found)
        return found


def loop(setup: Setup, epochs: int = 3) -> tuple[list[float], list[float]]:
    """The starts of all steps, and the ends of epochs [s]."""
    starts: list[float] = []
    ends: list[float] = []
    now = 0.0
    for epoch in range(epochs):
        again = epoch == 0 or not setup.persistent
        since = now + (setup.start if again and setup.workers else 0.0)
        queues = [Queues(setup, own, since) for own in setup.seconds] if setup.workers else []
        for batch in range(setup.batches):
            made = [now + own[batch] + setup.take for own in setup.seconds]
            now = max([queue.take(batch, now) for queue in queues] or made)
            starts.append(now)
            now += setup.step
        ends.append(now)
    return starts, ends


def predicted(chance: random.Random) -> tuple[Setup, dict[str, Any]]:
    """A loader as dpsim's scenarios have it, alike on all ranks."""
    workers, prefetch = chance.choice([0, 1, 2, 3, 4, 5, 8]), chance.randint(1, 4)
    size, batches, ranks = chance.randint(1, 6), chance.randint(1, 14), chance.randint(1, 4)
    decode, collate = chance.choice([0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 7.0]), chance.choice([0, 0.2])
    slow = {chance.randrange(batches): chance.choice([12, 30]) for _ in range(chance.randint(0, 2))}
    each = [float(slow.get(k, decode * size + collate)) for k in range(batches)]
    kept, loose = (workers > 0 and chance.random() < share for share in (0.5, 0.25))
    setup = Setup(
        workers, prefetch, not loose, chance.choice([0, 0, 0.3]), chance.choice([0, 1.5]),
        kept, chance.choice([0.5, 1.0, 2.0]) * size, [each] * ranks,
    )  # fmt: skip
    given: dict[str, Any] = {
        "loader": "torch", "workers": workers, "decode": f"{decode} s",
        "collate": f"{collate} s", "take": f"{setup.take} s", "samples": batches * size * ranks,
    }  # fmt: skip
    given |= {"slow_batches": {k: f"{v} s" for k, v in slow.items()}} if slow else {}
    if workers:
        given |= {"prefetch": prefetch, "start": f"{setup.start} s"}
        given |= {"persistent": kept, "in_order": not loose}
    half = f"{setup.step / size / 2!r} s"
    return setup, {
        **toy(ranks, half, half), "batch": {"per_device": size}, "input": given,
        "engine": chance.choice(["event", "vectorised"]),
    }  # fmt: skip


def toy(ranks: int, forward: str, backward: str) -> dict[str, Any]:
    """One layer on so many ranks that need no time to exchange anything."""
    return {
        "model": {
            "layers": [{"name": "b", "parameters": 1, "forward": forward, "backward": backward}]
        },
        "cluster": {"ranks": ranks},
        "collective": {"backend": "free"},
        "strategy": {"kind": "ddp"},
        "optimizer": {"kind": "none"},
        "compute": {"spread": 0},
    }


def alike(seed: int) -> str | None:
    """What dpsim says otherwise of a scenario."""
    setup, scenario = predicted(random.Random(seed))
    starts, ends = loop(setup)
    told = dpsim.predict(scenario).points[0].input
    pairs = [*zip(told.starts, starts, strict=False), (told.epoch_s, ends[2] - ends[1])]
    return _differs(pairs, scenario["input"])


def heavy(seed: int) -> str | None:
    """What dpsim says otherwise where batches of every rank have a tail of their own."""
    chance = random.Random(seed)
    workers, prefetch, ranks = chance.randint(1, 6), chance.randint(1, 4), chance.randint(1, 4)
    seconds = [[chance.paretovariate(1.5) for _ in range(60)] for _ in range(ranks)]
    take, step = chance.choice([0.0, 0.3]), chance.choice([0.1, 0.5, 2.0])
    setup = Setup(workers, prefetch, chance.random() < 0.7, take, 0.0, True, step, seconds)
    table = np.array(seconds)
    supply = Supply(workers, workers * prefetch, ordered=setup.ordered)
    fed = feed(supply, lambda batch, _: table[:, batch], [step] * 60, Epochs(60), take)
    return _differs(list(zip(fed.starts, loop(setup, 1)[0], strict=True)), setup)


def shared(seed: int) -> str | None:
    """What dpsim says otherwise of loaders that share the cores of a node with those that train."""
    chance = random.Random(seed)
    ranks, workers = chance.choice([2, 4, 8]), chance.choice([1, 2, 4, 8])
    physical, size = chance.choice([4, 8, 16, 24, 48]), chance.choice([4, 16, 32])
    decode, trains = chance.choice([2e-3, 8e-3, 26e-3]), chance.choice([0.05, 0.2, 1.0])
    busy = chance.choice([0.0, 1.0])
    scenario = toy(ranks, f"{trains / size!r} s", "0 s") | {
        "cluster": {"machine": "dgx-1v", "ranks": ranks}, "batch": {"per_device": size},
        "input": {
            "loader": "torch", "workers": workers, "prefetch": 4, "decode": f"{decode} s",
            "training_cores": busy, "cores": {"physical": physical},
        },
    }  # fmt: skip

    def batch(step: float) -> float:
        threads = ranks * workers + busy * ranks * min(trains / step, 1.0)
        done = min(threads, physical) + 0.25 * min(max(threads - physical, 0), physical)
        return max(trains, size * decode * max(threads / done, 1.0) / workers)

    low, high = trains, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if batch(middle) <= middle else (middle, high)
    step = dpsim.predict(scenario).points[0].step_time_s
    return _differs([(step, high)], scenario["input"], 1e-6)


def _differs(
    pairs: Sequence[tuple[float, float]], what: object, close: float = CLOSE
) -> str | None:
    worst = max(abs(one - other) / max(abs(other), CLOSE) for one, other in pairs)
    return f"{worst:.2g} apart: {what}" if worst > close else None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=500)
    asked = parser.parse_args()
    findings = 0
    looks: Sequence[Callable[[int], str | None]] = (alike, heavy, shared)
    for look in looks:
        found = [look(asked.seed + k) for k in range(asked.count)]
        said = [(asked.seed + k, one) for k, one in enumerate(found) if one]
        print(f"{look.__name__}: {asked.count} set-ups, {len(said)} differ")
        for seed, one in said[:10]:
            print(f"  seed {seed}: {one}")
        findings += len(said)
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
