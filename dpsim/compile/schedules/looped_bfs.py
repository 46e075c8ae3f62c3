"""Looped, breadth first: all micro-batches through a chunk before the next chunk.

Lamy-Poirier 2023, arXiv:2211.05953.  The order is that of torch 2.13
(torch/distributed/pipelining/schedules.py, `ScheduleLoopedBFS`): backwards visit chunks and
micro-batches in reverse.  All m micro-batches of all chunks are in flight at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsim.compile.schedules import Act, Schedule
from dpsim.compile.schedules._rounds import Chunks
from dpsim.core.record import record


@record
class LoopedBFS(Schedule):
    """Several stages per rank; all micro-batches go through one before the next.

    chunks   stages per rank
    """

    chunks: Chunks = 2

    def order(self, rank: int, ranks: int, micro_batches: int) -> Iterator[Act]:
        stages = range(rank, ranks * self.chunks, ranks)
        yield from (Act(s, "F", m) for s in stages for m in range(micro_batches))
        yield from (
            Act(s, "B", m) for s in reversed(stages) for m in reversed(range(micro_batches))
        )
