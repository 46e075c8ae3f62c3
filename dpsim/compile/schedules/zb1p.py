"""ZB1P: the backward is split, and the half for the weights fills the bubble.

Qi et al. 2023, arXiv:2401.10241, ZB-H1.  The order is that of torch 2.13
(torch/distributed/pipelining/schedules.py, `ScheduleInterleavedZeroBubble`): rank r of p runs
min((v - 1)g + p - 1 - r, mv) forwards first (v chunks, rounds of g micro-batches), then one
forward and one backward for the input (I) in turn; W follows r backwards behind its I, and what is
left of it ends the list.  With one chunk and equal stages of which no part of a backward is longer
than a forward, a step takes m(F + I + W) + (p - 1)(F + I - W), and no more than p micro-batches
are in flight on a rank.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsim.compile.schedules import Act, Schedule
from dpsim.compile.schedules._rounds import (
    Chunks,
    alternate,
    backwards,
    forwards,
    refuse_uneven,
    round_size,
)
from dpsim.core.record import record


@record
class ZB1P(Schedule):
    """The backward for the weights runs later than the one for the input, and fills the bubble.

    Micro-batches must come in equal rounds, as every multiple of the pipeline's ranks does.

    chunks   stages per rank; more than one makes it torch's interleaved zero bubble
    """

    chunks: Chunks = 1

    def refuse(self, ranks: int, micro_batches: int) -> None:
        refuse_uneven(ranks, micro_batches)

    def order(self, rank: int, ranks: int, micro_batches: int) -> Iterator[Act]:
        shape = (rank, ranks, micro_batches, self.chunks)
        fill = (self.chunks - 1) * round_size(ranks, micro_batches) + ranks - 1 - rank
        warmup = min(fill, micro_batches * self.chunks)
        inputs, weights = list(backwards(*shape, "I")), list(backwards(*shape, "W"))
        late = 0
        for act in alternate(list(forwards(*shape)), inputs, warmup):
            yield act
            if act.kind == "I":
                late += 1
                if late > rank:
                    yield weights[late - 1 - rank]
        yield from weights[max(0, len(weights) - rank) :]
