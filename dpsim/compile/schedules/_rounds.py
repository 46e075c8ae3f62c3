"""What interleaved schedules share: micro-batches advance in rounds, chunk by chunk.

Narayanan et al. 2021 (Megatron-LM, arXiv:2104.04473, section 2.2) group micro-batches by the
number of pipeline ranks p, which must divide their number m.  torch 2.13
(torch/distributed/pipelining/schedules.py, `ScheduleInterleaved1F1B` and `_get_1f1b_rank_ops`)
makes max(1, m // p) rounds of equal size, which must divide m; where p divides m, rounds are p.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from dpsim.compile.schedules import Act
from dpsim.core.record import Check, Refused

#: chunks per rank
Chunks = Annotated[int, Check(1, 1024)]


def round_size(ranks: int, micro_batches: int) -> int:
    """Micro-batches that one chunk takes before the next chunk has its turn."""
    return micro_batches // max(1, micro_batches // ranks)


def refuse_uneven(ranks: int, micro_batches: int) -> None:
    """Raises Refused where rounds of equal size do not exist, naming the nearest that do."""
    if _even(ranks, micro_batches):
        return
    below = next(m for m in range(micro_batches, 0, -1) if _even(ranks, m))
    above = next(m for m in range(micro_batches, 2 * micro_batches + 1) if _even(ranks, m))
    raise Refused(
        f"{micro_batches} micro-batches cannot be dealt in {micro_batches // ranks} equal rounds "
        f"to {ranks} interleaved pipeline ranks; {below} and {above} are accepted, as is every "
        f"multiple of {ranks}"
    )


def _even(ranks: int, micro_batches: int) -> bool:
    return micro_batches % max(1, micro_batches // ranks) == 0


def forwards(rank: int, ranks: int, micro_batches: int, chunks: int) -> Iterator[Act]:
    """The forwards of a rank: a round of micro-batches through chunk 0, then through chunk 1, …,
    then the next round."""
    for chunk, micro_batch in _walk(ranks, micro_batches, chunks):
        yield Act(chunk * ranks + rank, "F", micro_batch)


def backwards(rank: int, ranks: int, micro_batches: int, chunks: int, kind: str) -> Iterator[Act]:
    """The backwards of a rank: the same with the last chunk first."""
    for chunk, micro_batch in _walk(ranks, micro_batches, chunks):
        yield Act((chunks - 1 - chunk) * ranks + rank, kind, micro_batch)


def _walk(ranks: int, micro_batches: int, chunks: int) -> Iterator[tuple[int, int]]:
    """(turn of the chunk, micro-batch) in order."""
    size = round_size(ranks, micro_batches)
    for first in range(0, micro_batches, size):
        for chunk in range(chunks):
            for micro_batch in range(first, first + size):
                yield chunk, micro_batch


def alternate(first: list[Act], second: list[Act], warmup: int) -> Iterator[Act]:
    """`warmup` of `first`, then one of each in turn, then what is left of `second`."""
    yield from first[:warmup]
    for ahead, behind in zip(first[warmup:], second, strict=False):
        yield ahead
        yield behind
    yield from second[len(first) - warmup :]
