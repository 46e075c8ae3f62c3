"""Rows of nccl-tests that say how fast a thread issues, and nothing of the links."""

from __future__ import annotations

from collections.abc import Sequence

from dpsim.machines.issuing import issued_up_to
from dpsim.measurements.findings import Point

#: most GPUs of a thread, and most threads of a process
MOST_GPUS = 1024


def of_links(
    points: Sequence[Point], operation: str | None, gpus: int
) -> tuple[tuple[Point, ...], str]:
    """The points of a table whose threads issue to `gpus` GPUs each that tell of the links, and
    what to say of the others; "" where all do."""
    last = issued_up_to([(size, seconds) for size, seconds, _ in points], operation, gpus)
    if not last:
        return tuple(points), ""
    found = tuple(point for point in points if point[0] > last)
    least = min(seconds for _, seconds, _ in points)
    return found, (
        f"one thread issues to {gpus} GPUs (nGpus {gpus}): {len(points) - len(found)} rows take "
        f"{least * 1e6:.3g} us or little more, up to {last:,.0f} bytes, whatever the links; left "
        "out, and -g 1 with a process per GPU would measure them"
    )
