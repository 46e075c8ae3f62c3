"""The lab with a parameter server: one server and 2 to 6 workers of different speeds.

    sudo python validation/lab/servers.py --seed 1 --configurations 40 -o out/servers

draws configurations (synchronous, with late gradients dropped, stale synchronous, asynchronous),
runs each over gloo on rate-limited links, writes each as a dpsim scenario with the updates that
were counted, and prints how far dpsim's updates per second are off.  `--predict` repeats the
comparison without measuring.

Exit codes: 0 done, 3 no network namespaces here.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import network
import numpy as np
import predict
import yaml
from draw import Configuration
from lab import Hosts, about, measure_curve

from dpsim.cases.case import Case
from dpsim.describe.scenario import read
from dpsim.predict.acted import act

#: shares of modes: asynchronous, synchronous, stale synchronous, late gradients dropped
MODES = ("async", "sync", "ssp", "backup")
SHARES = (0.4, 0.25, 0.2, 0.15)
#: seconds that are played at least and at most, and clocks of the slowest worker in them
LEAST, MOST, CLOCKS = 6.0, 14.0, 25
#: the part of the time that is not measured
WARMUP = 0.2


@dataclass(frozen=True)
class Served:
    """One configuration; `compute` [s] is that of the fastest worker, `count` are fp32 numbers."""

    name: str
    mode: str
    workers: int
    rate: float
    count: int
    compute: float
    factors: tuple[float, ...]
    service: float
    jitter: float
    bound: int
    seed: int

    @property
    def strategy(self) -> dict[str, Any]:
        """The scenario's section."""
        found: dict[str, Any] = {"kind": "parameter_server", "lock": "shard",
                                 "service": f"{self.service!r} s"}  # fmt: skip
        if self.mode == "ssp":
            return {**found, "mode": "ssp", "bound": self.bound}
        if self.mode == "backup":
            return {**found, "mode": "sync", "aggregate": self.workers - 1}
        return {**found, "mode": self.mode}

    @property
    def duration(self) -> float:
        """How long it runs [s]."""
        message = 2 * 4 * self.count / self.rate
        clock = max(self.compute * max(self.factors) + message, self.workers * message / 2)
        return min(max(LEAST, CLOCKS * clock), MOST)


def drawn(seed: int, count: int) -> list[Served]:
    """The configurations of a seed."""
    source, found = np.random.default_rng(seed), []
    for number in range(count):
        workers = int(source.integers(2, 7))
        mode = str(source.choice(MODES, p=SHARES))
        rate = float(np.exp(source.uniform(np.log(50e6), np.log(200e6)))) / 8
        compute = float(source.uniform(0.04, 0.2))
        ratio = float(np.exp(source.uniform(np.log(0.05), np.log(0.6))))
        even = source.random() < 0.2
        factors = np.ones(workers) if even else source.uniform(1.0, 3.0, workers)
        found.append(
            Served(
                name=f"{seed}-{number:03}",
                mode=mode if workers > 2 or mode != "backup" else "async",
                workers=workers,
                rate=rate,
                count=max(int(ratio * compute * rate / 4), 100),
                compute=compute,
                factors=tuple(round(float(f / factors.min()), 3) for f in factors),
                service=float(source.choice([0.0, source.uniform(0.0, 0.02)])),
                jitter=float(source.choice([0.0, source.uniform(0.02, 0.1)])),
                bound=int(source.integers(0, 5)),
                seed=int(source.integers(0, 2**31)),
            )
        )
    return found


def measure(switch: network.Switch, hosts: Hosts, config: Served) -> dict[str, Any]:
    """When updates were made, and when clocks were over [s]."""
    for host in range(config.workers + 1):
        switch.limit(host, config.rate)
    own = dataclasses.asdict(config) | {"duration": config.duration}
    own |= {"mode": config.strategy["mode"], "aggregate": config.strategy.get("aggregate")}
    server, *workers = hosts.ask([{"do": "serve", **own}] * (config.workers + 1))
    begin = workers[0]["begin"]
    return {
        "updates": [time - begin for time in server["updates"]],
        "clocks": [[time - begin for time in times] for times in server["clocks"]],
    }


def rate(config: Served, seen: dict[str, Any]) -> float:
    """Updates a second, after the warm-up: of each worker between its own clocks, or of all."""
    low, high = WARMUP * config.duration, config.duration
    each = [seen["updates"]] if config.strategy["mode"] == "sync" else seen["clocks"]
    total = 0.0
    for times in each:
        inside = [time for time in times if low <= time <= high]
        total += (len(inside) - 1) / (inside[-1] - inside[0])
    return total


def write(folder: Path, config: Served, fitted: dict[str, float]) -> Path:
    """The scenario and its machine."""
    seed, number = map(int, config.name.split("-"))
    link = Configuration(seed, number, config.workers, config.rate, (), None)
    layer = {"name": "body", "parameters": config.count, "forward": "0 s"}
    slow = {rank: factor for rank, factor in enumerate(config.factors) if factor != 1.0}
    data = {
        "title": f"server lab {config.name}",
        "model": {"layers": [{**layer, "backward": f"{config.compute!r} s"}]},
        "cluster": {"machine": f"./{config.name}.machine.yaml", "nodes": config.workers},
        "strategy": config.strategy,
        "collective": {"backend": "gloo", "latency": f"{fitted['latency']!r} s",
                       "efficiency": fitted["efficiency"]},
        "optimizer": {"kind": "none"},
        "compute": {"spread": 0},
        "variability": {"slow_ranks": slow, "jitter": config.jitter},
        "seed": config.seed,
        "horizon": f"{config.duration!r} s",
    }  # fmt: skip
    path = folder / f"{config.name}.yaml"
    for file, content in (
        (folder / f"{config.name}.machine.yaml", predict.machine(link, fitted)), (path, data),
    ):  # fmt: skip
        file.write_text(yaml.safe_dump(content, sort_keys=False, width=100), encoding="utf-8")
    return path


def run(configs: list[Served], folder: Path) -> None:
    """Measure all configurations and write them."""
    folder.mkdir(parents=True, exist_ok=True)
    most = 1 + max(config.workers for config in configs)
    with network.Switch(most) as switch, Hosts(switch, sys.executable) as hosts:
        lab = about(switch, hosts)
        fitted = predict.fit(measure_curve(switch, hosts))
        print(f"latency {fitted['latency'] * 1e3:.3f} ms, {fitted['efficiency']:.4f} of the rate")
        for config in configs:
            seen = measure(switch, hosts, config)
            record = {"configuration": dataclasses.asdict(config), "fitted": fitted, "lab": lab,
                      "seen": seen}  # fmt: skip
            (folder / f"{config.name}.json").write_text(json.dumps(record) + "\n", "utf-8")
            print(f"{config.name}: {config.mode}, {config.workers} workers, "
                  f"{rate(config, seen):.3f} updates a second", flush=True)  # fmt: skip


def played(path: Path) -> dict[str, Any]:
    """The same as dpsim plays it: from the first moment on, for as long."""
    story = act(Case(read(str(path)).points[0], path.parent)).story
    return {"updates": [one.time for one in story.updates], "clocks": story.ticks}


def compare(folder: Path) -> None:
    """Predict every record in `folder`; a table, `errors.csv`, and quantiles by mode."""
    rows = []
    for path in sorted(folder.glob("*-*.json")):
        record = json.loads(path.read_text("utf-8"))
        own = record["configuration"]
        config = Served(**{**own, "factors": tuple(own["factors"])})
        real = rate(config, record["seen"])
        said = rate(config, played(write(folder, config, record["fitted"])))
        sizes = (config.workers, round(config.rate * 8 / 1e6), 4 * config.count)
        times = (round(one, 4) for one in (config.compute, config.service, config.jitter))
        error = said / real - 1
        rows.append([config.name, config.mode, *sizes, *times, real, said, error])
    head = ["name", "mode", "workers", "mbit_s", "bytes", "compute_s", "service_s", "jitter",
            "measured", "predicted", "error"]  # fmt: skip
    with (folder / "errors.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])
    for mode in ("all", *MODES):
        errors = sorted(abs(row[-1]) for row in rows if mode in ("all", row[1]))
        if errors:
            print(f"{mode}: {len(errors)} runs, median {np.median(errors):.1%}, "
                  f"90 % {np.quantile(errors, 0.9):.1%}, worst {errors[-1]:.1%}")  # fmt: skip


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="servers.py", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--configurations", type=int, default=40)
    parser.add_argument("-o", "--output", type=Path, default=Path("out/servers"))
    parser.add_argument("--predict", action="store_true", help="only compare what was measured")
    found = parser.parse_args(words)
    if not found.predict:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        network.clean()
        try:
            network.require()
        except network.NotAllowed as error:
            print(f"servers.py: {error}", file=sys.stderr)
            return 3
        run(drawn(found.seed, found.configurations), found.output)
    compare(found.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
