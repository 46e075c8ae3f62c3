"""Loaders, timed alone: how long a worker takes for a sample, cold and from the caches.

What yields batches is gone through twice, without training on them.  The first time reads what the
caches of this machine do not hold; the second time reads from them, so the difference is fetching.
With W workers on C of this machine's processors (no second threads counted), a worker's time for a
sample is W times the time between batches over their samples, or C times where W is more.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Mapping
from typing import Any

from dpsim.core.record import Refused
from dpsim.models.timed_loader import SCHEMA, VERSION

#: batches that a pass needs beside those that its workers begin with
FEWEST = 8


def timed(loader: Iterable[Any], batches: int) -> dict[str, Any]:
    """A record, as plain data, of two passes over `batches` batches of `loader`.

    Raises Refused where it yields too few, or none that tells its size."""
    workers = int(getattr(loader, "num_workers", 0) or 0)
    passes = [_passed(loader, batches + workers) for _ in range(2)]
    sizes = {size for _, size in passes}
    ends = [times for times, _ in passes]
    for times in ends:
        if len(times) < workers + FEWEST:
            what = f"{len(times)} batches; at least {workers + FEWEST} are needed with {workers} "
            raise Refused(f"the loader yields {what}workers")
    at_once = min(max(workers, 1), _processors())
    size = max(sizes)
    cold, cached = (_between(times, workers) * at_once / size for times in ends)
    first = max(ends[1][0] - cached * size, 0.0)
    prefetch = int(getattr(loader, "prefetch_factor", None) or 2)
    return {
        "schema": SCHEMA, "schema_version": VERSION, "workers": workers, "prefetch": prefetch,
        "batch": size, "cold": cold, "cached": cached, "first": first,
    }  # fmt: skip


def _processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _between(times: list[float], workers: int) -> float:
    """Mean time between batches, without those that workers begin with [s]."""
    begun = max(workers, 1) - 1
    return (times[-1] - times[begun]) / (len(times) - 1 - begun)


def _passed(loader: Iterable[Any], batches: int) -> tuple[list[float], int]:
    """When each batch of a pass was there [s], and how many samples they usually have."""
    begin, times, sizes = time.perf_counter(), list[float](), list[int]()
    for batch in loader:
        times.append(time.perf_counter() - begin)
        sizes.append(_size(batch))
        if len(times) == batches:
            break
    return times, statistics.mode(sizes) if sizes else 1


def _size(batch: Any) -> int:
    """How many samples a batch has: the length of the first thing in it."""
    if isinstance(batch, Mapping):
        batch = next(iter(batch.values()), ())
    elif isinstance(batch, tuple | list) and batch and hasattr(batch[0], "__len__"):
        batch = batch[0]
    try:
        return max(len(batch), 1)
    except TypeError:
        raise Refused(
            f"a {type(batch).__name__} is no batch whose samples can be counted"
        ) from None
