"""What a thread of this host copies between two places of its memory: `input.copy.staging`.

    python validation/measure_host_copy.py            # two seconds, on an idle machine

Prints the median rate of 40 copies of 256 MB by one thread of torch, the middle half of them, and
what else the machine had to do, as a line of JSON.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time

import torch

SIZE, REPEATS = 256 * 10**6, 40


def rates() -> list[float]:
    """Bytes a second of each copy, the first left out: it touches the pages."""
    torch.set_num_threads(1)
    source = torch.zeros(SIZE, dtype=torch.uint8)
    target = torch.empty_like(source)
    found = []
    for _ in range(REPEATS + 1):
        begin = time.perf_counter()
        target.copy_(source)
        found.append(SIZE / (time.perf_counter() - begin))
    return found[1:]


def main() -> None:
    found = rates()
    low, middle, high = statistics.quantiles(found, n=4)
    print(json.dumps({
        "bytes_per_s": round(middle, -7), "quartiles": [round(low, -7), round(high, -7)],
        "load": os.getloadavg()[0], "torch": torch.__version__, "machine": platform.machine(),
        "cores": os.cpu_count(),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
