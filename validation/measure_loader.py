"""Real DataLoaders of PyTorch against `input: {loader: torch}`.

    python validation/measure_loader.py --setups 40 --seed 1 -o loaders-1.jsonl

Draws set-ups (workers, prefetch, batch, decode times fixed or heavy-tailed, step, persistent
workers, epochs), runs each with samples that sleep and steps that sleep, and predicts the time of
all epochs from what the set-up says and a few numbers of this machine: what a sample, a batch and
the start of a worker take beside, measured before and after each with loaders that are none of the
set-ups: what others do on this machine changes them.  Beside it stands max(step, decode / workers),
which knows none of them.

Every row is written as soon as it is there.  After some 400 seconds no further one is begun (exit
code 3); the same command then goes on where it stopped, and sums up all rows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import dpsim
from dpsim.core import plugins
from dpsim.describe.scenario import load
from dpsim.variability.distributions import Distribution

#: floats of a sample
WIDTH = 1000
#: seconds that a run should take, roughly
LONG = 4.0


@dataclass(frozen=True)
class Setup:
    """A loader and what trains on it; times in seconds, `kind` of decode times with its keys."""

    workers: int
    prefetch: int
    batch: int
    decode: float
    kind: dict[str, Any]
    step: float
    persistent: bool
    epochs: int
    batches: int

    def factors(self, seed: int) -> np.ndarray:
        """How many times as long as the mean each sample takes."""
        count = self.batch * self.batches
        if not self.kind:
            return np.ones(count)
        made = plugins.find("variability", self.kind["kind"])
        given = {key: value for key, value in self.kind.items() if key != "kind"}
        factor: Distribution = made(**given)
        return factor.sample(np.random.default_rng(seed), count) / factor.mean()


@dataclass(frozen=True)
class Own:
    """What this machine takes beside [s]: for a sample, a worker's batch, a batch that is taken,
    and per worker and in all at the start of an epoch."""

    sample: float
    collate: float
    take: float
    start: float
    per_worker: float


class Sleeping(Dataset[torch.Tensor]):
    """Samples that take their time."""

    def __init__(self, seconds: np.ndarray) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds[index])
        return torch.zeros(WIDTH)


def run(setup: Setup, seconds: np.ndarray) -> list[float]:
    """The times of every epoch's starts of steps, and of its end, one list after the other [s]."""
    more: dict[str, Any] = {}
    if setup.workers:
        more = {"prefetch_factor": setup.prefetch, "persistent_workers": setup.persistent}
    loader = DataLoader(
        Sleeping(seconds), batch_size=setup.batch, num_workers=setup.workers, **more
    )
    found = []
    for _ in range(setup.epochs):
        begin = time.perf_counter()
        for _batch in loader:
            found.append(time.perf_counter() - begin)
            time.sleep(setup.step)
        found.append(time.perf_counter() - begin)
    return found


def between(one: Own, other: Own) -> Own:
    """The mean of two measurements."""
    return Own(**{key: (value + getattr(other, key)) / 2 for key, value in asdict(one).items()})


def own() -> Own:
    """The numbers of this machine, as it is now."""
    plain = Setup(0, 2, 8, 0.008, {}, 0.0, False, 1, 10)
    starts = run(plain, np.full(80, 0.008))
    sample = (starts[-1] / 10 / 8) - 0.008
    ready = run(Setup(1, 2, 8, 0.0, {}, 0.03, True, 1, 20), np.full(160, 0.0))
    steps = np.diff(ready[:-1])
    sleep = statistics.median(_slept(0.03) for _ in range(10))
    take = max(float(statistics.median(steps)) - sleep, 0.0)
    busy = run(Setup(1, 4, 1, 0.0, {}, 0.0, True, 1, 80), np.full(80, 0.008))
    collate = max((busy[-2] - busy[20]) / 59 - (0.008 + sample), 0.0)
    gaps = {}
    for workers in (1, 4):
        twice = run(Setup(workers, 2, 8, 0.0, {}, 0.0, False, 2, 4), np.full(32, 0.01))
        gaps[workers] = statistics.mean((twice[0], twice[5])) - 8 * (0.01 + sample) - collate
        gaps[workers] += twice[4] - twice[3]
    each = max((gaps[4] - gaps[1]) / 3, 0.0)
    return Own(sample, collate, take, max(gaps[1] - each, 0.0), each)


def _slept(seconds: float) -> float:
    begin = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - begin


def drawn(chance: random.Random) -> Setup:
    """A set-up whose run takes about LONG seconds."""
    workers, batch = chance.randrange(5), chance.choice((4, 8, 16))
    kinds: list[dict[str, Any]] = [
        {},
        {},
        {"kind": "lognormal", "spread": chance.choice((0.5, 1.0, 2.0))},
        {"kind": "bernoulli", "probability": 0.02, "factor": 20.0},
        {"kind": "pareto", "tail_index": 2.5},
    ]
    decode = chance.choice((0.004, 0.008, 0.016))
    made = batch * decode / max(workers, 1)
    step = made * chance.choice((0.3, 0.6, 0.9, 1.0, 1.1, 1.5, 3.0))
    epochs, persistent = chance.choice((1, 2, 3)), workers > 0 and chance.random() < 0.5
    period = step + made if workers == 0 else max(step, made)
    batches = max(int(LONG / epochs / period), 8)
    prefetch = chance.choice((1, 2, 4))
    kind = chance.choice(kinds)
    return Setup(workers, prefetch, batch, decode, kind, step, persistent, epochs, batches)


def predicted(setup: Setup, known: Own, factors: np.ndarray, place: Path) -> float:
    """What all epochs take [s], as far as the decode times of the data set say, in no order."""
    start = known.start + known.per_worker * setup.workers if setup.workers else 0.0
    whole = float(factors.mean()) * setup.decode + known.sample
    decode: dict[str, Any] = {"mean": f"{whole!r} s"}
    if setup.kind:
        rows = (factors * setup.decode + known.sample) / whole
        text = "\n".join(["factor", *(repr(float(one)) for one in rows)])
        (place / "decode.csv").write_text(text + "\n", encoding="utf-8")
        decode |= {"kind": "empirical", "file": "decode.csv"}
    loader: dict[str, Any] = {
        "loader": "torch", "workers": setup.workers, "prefetch": setup.prefetch, "decode": decode,
        "samples": setup.batch * setup.batches, "start": f"{start!r} s",
        "collate": f"{known.collate!r} s" if setup.workers else "0 s",
        "take": f"{known.take!r} s" if setup.workers else "0 s",
    }  # fmt: skip
    if setup.persistent:
        loader["persistent"] = True
    body = {"name": "body", "parameters": 1, "forward": f"{setup.step / setup.batch!r} s"}
    scenario = {
        "model": {"layers": [{**body, "backward": "0 s"}]},
        "cluster": {"ranks": 1},
        "collective": {"backend": "free"},
        "strategy": {"kind": "ddp"},
        "optimizer": {"kind": "none"},
        "batch": {"per_device": setup.batch},
        "input": loader,
    }
    (point,) = dpsim.predict(load(scenario, place, "set-up")).points
    assert point.input is not None
    assert point.input.epoch_s is not None
    return (start if setup.persistent else 0.0) + setup.epochs * point.input.epoch_s


def simple(setup: Setup, factor: float) -> float:
    """The same by max(step, decode / workers), the sum of both without workers [s]."""
    made = setup.batch * setup.decode * factor
    step = max(setup.step, made / setup.workers) if setup.workers else setup.step + made
    return setup.epochs * setup.batches * step


def measured(
    setup: Setup, factors: np.ndarray, before: Own, place: Path
) -> tuple[dict[str, Any], Own]:
    """A row: the set-up, what it took, what is predicted; and this machine's numbers afterwards."""
    times = run(setup, setup.decode * factors)
    after = own()
    known = between(before, after)
    row = {
        **asdict(setup), **asdict(known),
        "measured_s": sum(times[setup.batches :: setup.batches + 1]),
        "predicted_s": predicted(setup, known, factors, place),
        "simple_s": simple(setup, float(factors.mean())), "load": os.getloadavg()[0],
    }  # fmt: skip
    return row, after


def told(number: int, row: dict[str, Any]) -> str:
    """A line of text about a row."""
    off = {key: row[f"{key}_s"] / row["measured_s"] - 1 for key in ("predicted", "simple")}
    return (
        f"{number:3} workers {row['workers']} x{row['prefetch']} batch {row['batch']:2} "
        f"{row['kind'].get('kind', 'fixed'):9} epochs {row['epochs']}"
        f"{' persistent' if row['persistent'] else '':11} {row['measured_s']:7.3f} s "
        f"{off['predicted']:+7.1%}, simple {off['simple']:+7.1%}"
    )


def summed_up(rows: list[dict[str, Any]]) -> None:
    """How far all rows are off."""
    mean = statistics.mean(row["load"] for row in rows)
    print(f"{len(rows)} set-ups, {os.cpu_count()} processors, a load of {mean:.1f} in the mean")
    for name, key in (("dpsim", "predicted_s"), ("simple", "simple_s")):
        ordered = sorted(abs(row[key] / row["measured_s"] - 1) for row in rows)
        ninth = ordered[min(int(0.9 * len(ordered)), len(ordered) - 1)]
        print(f"{name}: median {statistics.median(ordered):.1%}, 90th {ninth:.1%}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--setups", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=400.0, help="begin none after so long")
    parser.add_argument("-o", type=Path, default=None, help="rows as JSON lines, which are kept")
    asked = parser.parse_args()
    path = asked.o or Path(f"loaders-{asked.seed}.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    begun, chance, place = time.perf_counter(), random.Random(asked.seed), Path(tempfile.mkdtemp())
    known = own() if len(rows) < asked.setups else None
    for number in range(asked.setups):
        setup = drawn(chance)
        factors = setup.factors(chance.randrange(2**31))
        if number < len(rows):
            if {key: rows[number].get(key) for key in asdict(setup)} != asdict(setup):
                parser.error(f"{path} has rows of other set-ups; -o names another file")
        elif known is not None and time.perf_counter() - begun < asked.seconds:
            row, known = measured(setup, factors, known, place)
            rows.append(row)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        else:
            break
        print(told(number, rows[number]), flush=True)
    if rows:
        summed_up(rows[: asked.setups])
    if len(rows) < asked.setups:
        print(f"{asked.setups - len(rows)} are left: the same command goes on from {path}")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
