"""Published loaders against `input`: DLPerf's on 1 to 32 V100, and MLPerf Storage's systems.

    python validation/loaders.py                   DLPerf, its TF1 rows, milabench
    python validation/loaders.py --storage TABLE   and systems of MLPerf Storage v1.0

DLPerf: a rate per core of each loader is taken from one point (DataLoader on one GPU, DALI with 8
threads on eight), the level of compute from DALI on one GPU; all else is predicted.  Assumed of
the machine: 24 physical cores a node (an affinity list of the source; its text names two Xeon Gold
6148, which have 40), a second thread of a core adds a quarter, and a process that trains keeps a
core busy.

The same rows are predicted without a word about loaders, too, from the first count of each.

TF1 (same source, AMP with XLA): throughput with real data over that with synthetic data.  Taken are
synthetic throughput at each count, a rate per core of tf.data from real data on eight GPUs, and
what DALI takes the device for a sample from one GPU: it is assumed to decode there.

milabench: one GPU, a model and a machine that are not named.  Taken are the level of compute
(DALI, local, 8 workers), what taking a batch takes a DataLoader (local, 8 workers), and what a
sample takes one of its workers (scratch, 8) and a thread of DALI (scratch, 4) over the network.

MLPerf Storage: TABLE has columns model, hardware, n_gpus and value (samples/s).  How many
accelerators a system feeds is predicted from its other rows: from the samples a second of the same
workload with the other accelerator, for those are the same files in the same format through the
same reader; where there is no such row, from the highest rate in bytes.  There are no more than the
clients have hardware threads: each accelerator is a process that waits at a barrier after every
step (`_train` of dlio_benchmark/main.py), where MPI spins.  A row that has as many was ended by its
clients and says nothing of what is read.  Beside each row stands how busy its accelerators were:
rows that end well above the least that counts were not ended by what the system can read.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dpsim
from dpsim.machines.storage import Storage
from dpsim.predict.point import Point, computed

#: images/s, from Oneflow-Inc/DLPerf at c89430bac64f, PyTorch/resnet50v1.5/README.md (Apache-2.0):
#: loader, workers or threads of a process -> GPUs -> images/s
DLPERF: dict[tuple[str, int], dict[int, float]] = {
    ("torch", 8): {1: 306.35, 4: 1079.19, 8: 1070.37, 16: 2093.53, 32: 4119.84},
    ("torch", 48): {4: 1226.38},
    ("dali", 8): {1: 354.44, 4: 1367.67, 8: 2244.24, 16: 4372.33, 32: 8816.70},
    ("dali", 48): {1: 350.66, 4: 1306.49, 8: 2707.42, 16: 5193.09, 32: 10032.72},
}
#: a row of MLPerf Storage: workload, accelerator, how many were fed, samples/s
Row = tuple[str, str, int, float]
#: images/s, same source, TensorFlow/Classification/ConvNets/resnet50v1.5 of NVIDIA's examples, AMP
#: with XLA, batch 224: data -> GPUs -> images/s
TF1: dict[str, dict[int, float]] = {
    "real": {1: 1233.2, 4: 4560.29, 8: 7886.64},
    "dali": {1: 1202.23, 4: 4398.78, 8: 8578.02},
    "synthetic": {1: 1236.9, 4: 4610.43, 8: 9265.83},
}
#: images/s, mila-iqia/milabench pull request 110: loader, storage, workers, batch
MILABENCH: dict[tuple[str, str, int, int], float] = {
    ("torch", "scratch", 4, 64): 487.3,
    ("torch", "scratch", 4, 128): 386.5,
    ("torch", "scratch", 8, 64): 901.8,
    ("torch", "local", 4, 256): 1106.8,
    ("torch", "local", 8, 256): 1144.5,
    ("dali", "scratch", 4, 64): 1255.3,
    ("dali", "scratch", 4, 128): 1374.2,
    ("dali", "scratch", 8, 128): 1497.4,
    ("dali", "scratch", 8, 256): 1518.1,
    ("dali", "local", 4, 256): 1517.4,
    ("dali", "local", 8, 256): 1524.2,
}
#: of these, where numbers are taken from: level, taking a batch, a worker's and a thread's sample
LEVEL, TAKING = ("dali", "local", 8, 256), ("torch", "local", 8, 256)
FETCHING = {"torch": ("torch", "scratch", 8, 64), "dali": ("dali", "scratch", 4, 64)}
#: where the rate per core of a loader is taken from: workers, GPUs
TAKEN = {"torch": (8, 1), "dali": (8, 8)}
CORES = 24
#: MLPerf Storage v2.0, configs/dlio/workload of mlcommons/storage at caa90c9c7d6a: samples of a
#: batch, seconds of its step, bytes of a sample, and the least utilisation of an accelerator
WORKLOADS = {
    ("resnet50", "a100"): (400, 0.435, 114_660, 0.9),
    ("resnet50", "h100"): (400, 0.224, 114_660, 0.9),
    ("unet3d", "a100"): (7, 0.636, 146_600_628, 0.9),
    ("unet3d", "h100"): (7, 0.323, 146_600_628, 0.9),
    ("cosmoflow", "a100"): (1, 0.00551, 2_828_486, 0.7),
    ("cosmoflow", "h100"): (1, 0.0035, 2_828_486, 0.7),
}


def resnet50(counts: tuple[int, ...]) -> dict[str, Any]:
    """DLPerf's ResNet-50 on so many V100, with nothing said of a loader."""
    machine = {"machine": "v100-1x100g"}
    return {
        "model": {"name": "resnet50"},
        "cluster": {**machine, "ranks": 1},
        "strategy": {"kind": "ddp"},
        "optimizer": {"kind": "momentum"},
        "batch": {"per_device": 128},
        "sweep": [{"cluster": {**machine, "ranks": n}} for n in counts],
    }


def played(scenario: dict[str, Any]) -> list[Point]:
    """The points of `scenario`."""
    return computed(dpsim.predict(scenario).points)


def throughputs(loader: str, workers: int, rate: float, counts: tuple[int, ...]) -> list[Point]:
    """So many GPUs with so many images a second and core."""
    scenario = resnet50(counts)
    scenario["calibrate"] = {"throughput": "354.44 images/s", "ranks": 1, "synthetic": True}
    scenario["input"] = {
        "loader": loader, "workers": workers, "decode": f"{1 / rate!r} s",
        "cores": {"physical": CORES},
    }  # fmt: skip
    return played(scenario)


def half_width(point: Point) -> float:
    """Half the width of the interval of the step, relative to the step."""
    return (point.interval.high - point.interval.low) / 2 / point.step_time_s


def unsaid(rows: dict[int, float]) -> None:
    """The same rows without a word about a loader, calibrated on the first of them."""
    counts = tuple(rows)
    scenario = resnet50(counts)
    first = f"{rows[counts[0]]!r} images/s"
    scenario["calibrate"] = {"throughput": first, "ranks": counts[0]}
    for ranks, point in list(zip(counts, played(scenario), strict=True))[1:]:
        error = (point.throughput_per_s or 0.0) / rows[ranks] - 1
        print(
            f"     nothing said, {ranks:2} GPUs: {error:+.1%}, half-width {half_width(point):.0%}"
        )


def root(of: Callable[[float], float], target: float) -> float:
    """The rate at which `of`, which grows with it, reaches `target`."""
    low, high = 1.0, 1e4
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if of(middle) < target else (low, middle)
    return high


def dlperf() -> list[float]:
    """The errors beyond the points that rates are taken from."""
    errors = []
    for loader, (own, at) in TAKEN.items():
        measured = DLPERF[loader, own][at]
        rate = root(
            lambda r: throughputs(loader, own, r, (at,))[0].throughput_per_s or 0.0,  # noqa: B023
            measured,
        )
        print(f"{loader}: {rate:.1f} images/s a core, from {at} GPUs with {own} a process")
        for (kind, workers), rows in DLPERF.items():
            if kind != loader:
                continue
            found = throughputs(loader, workers, rate, tuple(rows))
            for (ranks, seen), point in zip(rows.items(), found, strict=True):
                said = point.throughput_per_s or 0.0
                error, width = said / seen - 1, half_width(point)
                print(
                    f"  {workers:2} a process, {ranks:2} GPUs: {said:8,.0f} ({error:+.1%}, "
                    f"half-width {width:.0%})"
                )
                if (workers, ranks) != (own, at):
                    errors.append(abs(error))
            if len(rows) > 1:
                unsaid(rows)
    return errors


def tf1() -> list[float]:
    """How far real over synthetic is off, in points of a hundred, beyond what is taken."""

    def share(ranks: int, given: dict[str, Any]) -> float:
        scenario = resnet50((ranks,))
        scenario["cluster"] |= {"ranks": ranks}
        scenario["batch"] = {"per_device": 224}
        scenario["precision"] = {"compute": "fp16"}
        level = {"throughput": f"{TF1['synthetic'][ranks]!r} images/s", "ranks": ranks}
        scenario["calibrate"] = {**level, "synthetic": True}
        scenario["input"] = {"workers": 8, "cores": {"physical": CORES}, **given}
        return (played(scenario)[0].throughput_per_s or 0.0) / TF1["synthetic"][ranks]

    def seen(kind: str, ranks: int) -> float:
        return TF1[kind][ranks] / TF1["synthetic"][ranks]

    def real(rate: float) -> dict[str, Any]:
        return {"loader": "tf_data", "decode": f"{1 / rate!r} s"}

    rate = root(lambda r: share(8, real(r)), seen("real", 8))
    device = 1 / TF1["dali"][1] - 1 / TF1["synthetic"][1]
    given = {"real": real(rate), "dali": {"loader": "dali", "gpu_decode": f"{device!r} s"}}
    taken, errors = {("real", 8), ("dali", 1)}, []
    for kind, one in given.items():
        for ranks in TF1[kind]:
            said = share(ranks, one)
            print(
                f"  {kind} {ranks} GPUs: {said:.1%} of synthetic, measured {seen(kind, ranks):.1%}"
            )
            if (kind, ranks) not in taken:
                errors.append(abs(said - seen(kind, ranks)))
    return errors


def milabench() -> list[float]:
    """The errors beyond the points that numbers are taken from."""
    level = 1 / MILABENCH[LEVEL]
    take = 1 / MILABENCH[TAKING] - level
    sample = {loader: row[2] / MILABENCH[row] for loader, row in FETCHING.items()}
    errors = []
    for row, seen in MILABENCH.items():
        loader, place, workers, batch = row
        given: dict[str, Any] = {"loader": loader, "workers": workers}
        if place == "scratch":
            given["decode"] = f"{sample[loader]!r} s"
        if loader == "torch":
            given["take"] = f"{take * batch!r} s"
        layer = {"name": "body", "parameters": 1, "forward": f"{level!r} s", "backward": "0 s"}
        scenario = {
            "model": {"layers": [layer]},
            "cluster": {"ranks": 1},
            "collective": {"backend": "free"},
            "strategy": {"kind": "ddp"},
            "optimizer": {"kind": "none"},
            "batch": {"per_device": batch},
            "input": given,
        }
        said = played(scenario)[0].throughput_per_s or 0.0
        taken = row in (LEVEL, TAKING, *FETCHING.values())
        print(f"  {loader:5} {place:7} {workers} x{batch:3}: {said:7,.0f} ({said / seen - 1:+.1%})")
        if not taken:
            errors.append(abs(said / seen - 1))
    return errors


#: hardware threads of a system's clients together, from `host_cpu_count` in summary.json of its
#: runs, mlcommons/storage_results_v1.0 at 64c2ce48578a (Apache-2.0): "submitter system" begins so
THREADS = {
    "DDN AI400X2T_24x14TiB_nvme_8xNDR200_18clients": 720,
    "DDN AI400X2T_24x14TiB_nvme_8xNDR200_32clients": 1280,
    "Lightbits_Labs Lightbits-3-SappRapid": 672,
    "Lightbits_Labs Lightbits-6-IceLake": 688,
    "MangoBoost 1-client": 128,
    "Micron Micron_6500": 256,
    "Micron Micron_9400": 48,
    "Micron Micron_9550": 192,
    "Nutanix Nutanix-Unified-Storage-4-Nodes-1-Host": 128,
    "Nutanix Nutanix-Unified-Storage-4-Nodes-5-Hosts": 160,
    "Nutanix Nutanix-Unified-Storage-7-Nodes-10-Hosts": 1280,
    "WEKA weka-1-client": 112,
}


def storage(table: Path) -> list[float]:
    """The errors of how many accelerators systems feed."""
    systems: dict[str, list[Row]] = defaultdict(list)
    with table.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found = re.match(r"(.*) \((\w+) emulated\)$", row["hardware"])
            if found and (row["model"], found[2]) in WORKLOADS and int(row["n_gpus"]) > 1:
                name = re.sub(r"-(resnet50|unet3d|cosmoflow)-\w+$", "", found[1])
                own = (row["model"], found[2], int(row["n_gpus"]), float(row["value"]))
                systems[name].append(own)
    errors = []
    for name, rows in systems.items():
        threads = next((n for begin, n in THREADS.items() if name.startswith(begin)), None)
        if threads is None and len(rows) > 1:
            print(f"  {name[:60]}: how many threads its clients have is not known")
        for row in rows:
            others = [one for one in rows if one is not row]
            if others:
                errors.append(_fed(name, row, _limit(row, others, threads), threads))
    return errors


def _limit(row: Row, others: list[Row], threads: int | None) -> Storage:
    """The storage that `others` show: requests a second of the same files, or else bytes."""
    ended = [one for one in others if threads is None or one[2] < threads] or others
    same = [rate for workload, _, _, rate in ended if workload == row[0]]
    if same:
        return Storage(kind="nfs", bandwidth=1e18, iops=max(same))
    return Storage(kind="nfs", bandwidth=max(rate * WORKLOADS[w, a][2] for w, a, _, rate in ended))


def _fed(name: str, row: Row, limit: Storage, threads: int | None) -> float:
    """The error of how many accelerators a storage feeds, a process of the clients each."""
    workload, accelerator, count, value = row
    batch, step, size, least = WORKLOADS[workload, accelerator]
    rate, busy = limit.rate(size, 1.0, 1), value / count / (batch / step)
    feeds = max(min(math.floor(rate / (least * batch / step)), threads or math.inf), 1)
    print(
        f"  {name[:60]:60} {workload:9} {accelerator} {count:5} {feeds:5} {feeds / count - 1:+.0%}"
        f", busy {busy:.0%}"
    )
    return abs(feeds / count - 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--storage", type=Path, default=None)
    asked = parser.parse_args()
    found = {"DLPerf": dlperf(), "TF1": tf1(), "milabench": milabench()}
    if asked.storage is not None:
        found["MLPerf Storage"] = storage(asked.storage)
    for name, errors in found.items():
        near = sum(error <= 0.15 for error in errors)
        print(
            f"{name}: {len(errors)} rows, median {statistics.median(errors):.1%}, "
            f"largest {max(errors):.1%}, {near} within 15 %"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
