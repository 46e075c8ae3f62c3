"""ZBV: a split backward on a pipeline folded to a V.

Qi et al. 2023, arXiv:2401.10241, section 6.  The order is that of torch 2.13
(torch/distributed/pipelining/schedules.py, `ScheduleZBVZeroBubble`), which lays out at least
2p - 1 micro-batches and leaves out those that do not exist.  It has no bubble but the start-up
where forward, backward for the input and backward for the weights take equally long.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsim.compile.schedules import Act
from dpsim.compile.schedules._v_shape import VShaped, Writer
from dpsim.core.record import record


@record
class ZBV(VShaped):
    """Two stages per rank, down the ranks and up again, and a split backward."""

    def filling(self, ranks: int) -> int:
        return 2 * ranks

    def order(self, rank: int, ranks: int, micro_batches: int) -> Iterator[Act]:
        acts = _laid_out(rank, ranks, max(2 * ranks - 1, micro_batches))
        return (act for act in acts if act.micro_batch < micro_batches)


def _laid_out(rank: int, ranks: int, micro_batches: int) -> list[Act]:
    """The list for at least 2p - 1 micro-batches."""
    write = Writer((rank, 2 * ranks - 1 - rank))
    write.add(*["F0"] * (2 * (ranks - rank) - 1))
    write.add(*["F1", "F0"] * rank)
    write.add(*["F1", "I1", "W1"] * (ranks - rank))
    while write.count("F", 1) < micro_batches:
        if write.count("F", 0) < micro_batches:
            write.add("F0")
        write.add("I0", "W0", "F1", "I1", "W1")
    write.add(*["I0", "I1"] * rank)
    write.add(*["I0", "W0"] * (ranks - rank))
    write.add(*["W1"] * (micro_batches - write.count("W", 1)))
    write.add(*["W0"] * (micro_batches - write.count("W", 0)))
    return write.acts
