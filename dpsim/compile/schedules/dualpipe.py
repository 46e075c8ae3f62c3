"""DualPipe: two pipelines run through the same ranks, one from either end.

DeepSeek-V3 (arXiv:2412.19437, section 3.2.1); the order is that of deepseek-ai/DualPipe at commit
3da1bbea (dualpipe/dualpipe.py, `DualPipe.step`).  Rank r of p holds stage r of one copy of the
model and stage p - 1 - r of another, so parameters are there twice, and each stage's gradients are
summed between its two holders.  Half of the micro-batches go either way.  Stages 0 … p - 1 are the
first copy's, p … 2p - 1 the other's: both fold to the V that `dualpipe_v` cuts in half.

Its blocks of one forward and one backward are listed as the forward and then the backward, and
named by `blocks`; that a block may take less time than its two parts is not modelled.  With equal
stages, F = I and B = I + W, the bubble is that of the README's table, (p/2 - 1)(F&B + B - 3W) with
F&B = F + B, and p + 1 micro-batches are in flight on every rank.
"""

from __future__ import annotations

from typing import ClassVar

from dpsim.compile.schedules import Act
from dpsim.compile.schedules._both_ways import lay_out
from dpsim.compile.schedules._v_shape import VShaped, Writer
from dpsim.core.record import Refused, record


@record
class DualPipe(VShaped):
    """Two pipelines from either end, each with a copy of the model; forwards run beside backwards.

    It needs an even number of pipeline ranks, and an even number of micro-batches, at least two
    per rank.
    """

    pipes: ClassVar[int] = 2
    in_torch: ClassVar[bool] = False

    def refuse(self, ranks: int, micro_batches: int) -> None:
        if ranks % 2:
            near = f"{ranks - 1} and {ranks + 1} are" if ranks > 1 else "2 is"
            raise Refused(
                f"dualpipe takes an even number of pipeline ranks, not {ranks}; {near} accepted"
            )
        if micro_batches % 2 or micro_batches < 2 * ranks:
            raise Refused(
                f"{micro_batches} micro-batches over {ranks} ranks; dualpipe accepts even numbers "
                f"from {2 * ranks} on, two per rank"
            )

    def order(self, rank: int, ranks: int, micro_batches: int) -> list[Act]:
        return _laid_out(rank, ranks, micro_batches).acts

    def blocks(self, rank: int, ranks: int, micro_batches: int) -> frozenset[int]:
        return frozenset(_laid_out(rank, ranks, micro_batches).blocks)


def _laid_out(rank: int, ranks: int, micro_batches: int) -> Writer:
    """Chunk 0 is the stage of the pipeline that begins at the nearer end."""
    half, stages = micro_batches // 2, (rank, 2 * ranks - 1 - rank)
    far = rank >= ranks // 2
    near = ranks - 1 - rank if far else rank
    write = Writer(stages[::-1], (half, 0)) if far else Writer(stages, (0, half))
    return lay_out(write, near, ranks // 2 - near - 1, half - ranks + near + 1)
