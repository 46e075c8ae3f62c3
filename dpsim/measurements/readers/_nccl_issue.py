"""Rows of nccl-tests that say how fast a thread issues, and nothing of the links.

With `-g 8` one thread launches the kernels of eight GPUs, one after the other, for every repetition
(NVIDIA/nccl-tests src/common.cu, `startColl`), so small sizes all take as long as that takes: 34 to
36 us for an all-reduce, broadcast or reduce of eight A100, and 85 to 90 us up to 2 MiB for an
all-to-all, which has eight sends and eight receives each (logs in microsoft/superbenchmark,
tests/data).  A framework's ranks have a process each.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsim.measurements.findings import Point

#: most GPUs of a thread, and most threads of a process
MOST_GPUS = 1024
#: most that issuing to one GPU takes [s], a tenth more than the 11 us of an all-to-all of eight,
#: and than the 4.5 us of others
_MOST, _MOST_OTHERS = 12e-6, 5e-6
#: how much longer than the quickest row one may take that is as long as issuing takes, and how many
#: such rows there are at least: sizes that take alike
_ALIKE, _LEAST = 1.25, 3


def of_links(
    points: Sequence[Point], operation: str | None, gpus: int
) -> tuple[tuple[Point, ...], str]:
    """The points of a table whose threads issue to `gpus` GPUs each that tell of the links, and
    what to say of the others; "" where all do."""
    least = min(seconds for _, seconds, _ in points)
    longest = gpus * (_MOST if operation == "all_to_all" else _MOST_OTHERS)
    if gpus < 2 or least > longest:
        return tuple(points), ""
    most = min(_ALIKE * least, longest)
    short = [size for size, seconds, _ in points if seconds <= most]
    if len(short) < _LEAST:
        return tuple(points), ""
    last = max(short)
    found = tuple(point for point in points if point[0] > last)
    left = len(points) - len(found)
    return found, (
        f"one thread issues to {gpus} GPUs (nGpus {gpus}): {left} rows take {least * 1e6:.3g} us "
        f"or little more, up to {last:,.0f} bytes, whatever the links; left out, and -g 1 with a "
        "process per GPU would measure them"
    )
