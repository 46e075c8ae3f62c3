"""Rows of nccl-tests that say how fast a thread issues, and nothing of the links.

With `-g 8` one thread launches the kernels of eight GPUs, one after the other, for every repetition
(NVIDIA/nccl-tests src/common.cu, `startColl`), so small sizes all take as long as that takes: 34 to
36 us for an all-reduce, broadcast or reduce of eight A100, and 85 to 89 us up to 1 MiB for an
all-to-all, which has eight sends and eight receives each (logs in microsoft/superbenchmark,
tests/data).  A framework's ranks have a process each.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsim.measurements.findings import Point

#: most that issuing to one GPU takes [s]: 11 us in an all-to-all of eight, and a tenth more
_MOST = 12e-6
#: how much longer than the quickest row one may take that is as long as issuing takes
_ALIKE = 1.25


def of_links(points: Sequence[Point], gpus: int) -> tuple[tuple[Point, ...], str]:
    """The points of a table whose threads issue to `gpus` GPUs each that tell of the links, and
    what to say of the others; "" where all do."""
    least = min(seconds for _, seconds, _ in points)
    if gpus < 2 or least > gpus * _MOST:
        return tuple(points), ""
    most = min(_ALIKE * least, gpus * _MOST)
    last = max(size for size, seconds, _ in points if seconds <= most)
    found = tuple(point for point in points if point[0] > last)
    left = len(points) - len(found)
    return found, (
        f"one thread issues to {gpus} GPUs (nGpus {gpus}), so {left} row{'s' * (left > 1)} up to "
        f"{last:,.0f} bytes take {least * 1e6:.3g} us or little more, whatever the links: left "
        "out; -g 1 with a process per GPU measures them"
    )
