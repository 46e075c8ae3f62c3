"""Interleaved 1F1B: every rank holds several stages, which shortens the bubble.

Narayanan et al. 2021 (Megatron-LM, arXiv:2104.04473, section 2.2).  With v chunks per rank and
rounds of g micro-batches, rank r of p runs min((v - 1)g + 2(p - 1 - r), mv) forwards first, then
one forward and one backward in turn, as in torch 2.13 (torch/distributed/pipelining/schedules.py,
`ScheduleInterleaved1F1B`) and Megatron.  With equal stages and p dividing m a step takes
m(F + B) + (p - 1)(F + B)/v, where F and B are the seconds of a rank's v chunks together.
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
class Interleaved1F1B(Schedule):
    """`one_f_one_b` with several stages per rank: a shorter bubble, more transfers.

    Micro-batches must come in equal rounds, as every multiple of the pipeline's ranks does.

    chunks   stages per rank
    """

    chunks: Chunks = 2

    def refuse(self, ranks: int, micro_batches: int) -> None:
        refuse_uneven(ranks, micro_batches)

    def filling(self, ranks: int) -> int:
        """The first rank has up to (v + 1)p stages in flight, which take more than a round to come
        and more than another to go: from the third on, rounds pass through a full pipeline."""
        return 3 * ranks

    def round(self, ranks: int) -> int:
        return ranks

    def order(self, rank: int, ranks: int, micro_batches: int) -> Iterator[Act]:
        shape = (rank, ranks, micro_batches, self.chunks)
        fill = (self.chunks - 1) * round_size(ranks, micro_batches) + 2 * (ranks - 1 - rank)
        warmup = min(fill, micro_batches * self.chunks)
        return alternate(list(forwards(*shape)), list(backwards(*shape, "B")), warmup)
