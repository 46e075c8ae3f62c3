"""What a thread of this host copies between two places of its memory: `input.copy.staging`.

    python validation/measure_host_copy.py --runs 5 --out validation/records/host/copies.json

Takes two seconds a run on an idle machine.  A run is the median rate of 40 copies of 256 MB by one
thread of torch, and the middle half of them: by the clock, and by the time that a processor worked
for the thread, which leaves out what passes while other jobs have the processor; and what else the
machine had to do.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch

SIZE, REPEATS = 256 * 10**6, 40


def rates() -> tuple[list[float], list[float]]:
    """Bytes a second of each copy, the first left out (it touches the pages): by the clock, and by
    the time of a processor."""
    torch.set_num_threads(1)
    source = torch.zeros(SIZE, dtype=torch.uint8)
    target = torch.empty_like(source)
    clock, busy = [], []
    for _ in range(REPEATS + 1):
        begin, worked = time.perf_counter(), time.thread_time()
        target.copy_(source)
        clock.append(SIZE / (time.perf_counter() - begin))
        busy.append(SIZE / (time.thread_time() - worked))
    return clock[1:], busy[1:]


def middle(found: list[float]) -> dict[str, Any]:
    """The median and the middle half, to 10 MB/s."""
    low, median, high = (round(x, -7) for x in statistics.quantiles(found, n=4))
    return {"bytes_per_s": median, "quartiles": [low, high]}


def run() -> dict[str, Any]:
    """One run, and the load of the machine before it."""
    load = os.getloadavg()[0]
    clock, busy = rates()
    return {"load": round(load, 1), "clock": middle(clock), "processor": middle(busy)}


def processor() -> str:
    """What the processor calls itself."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    shown = {
        "program": "measure_host_copy", "bytes": SIZE, "copies": REPEATS,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "processor": processor(),
        "cores": os.cpu_count(), "torch": torch.__version__, "machine": platform.machine(),
        "runs": [run() for _ in range(asked.runs)],
    }  # fmt: skip
    text = json.dumps(shown, indent=1)
    if asked.out is None:
        print(text)
    else:
        asked.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
