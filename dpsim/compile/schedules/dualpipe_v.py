"""DualPipeV: forwards and backwards of two chunks run side by side on a pipeline folded to a V.

DeepSeek-V3 (arXiv:2412.19437, section 3.2.1) and deepseek-ai/DualPipe at commit 3da1bbea
(dualpipe/dualpipev.py).  The order is that of torch 2.13
(torch/distributed/pipelining/schedules.py, `ScheduleDualPipeV`).  Its blocks of one forward and
one backward are listed as the forward and then the backward, and named by `blocks`; that a block
may take less time than its two parts is not modelled.  It needs at least as many micro-batches as
stages, 2p.
"""

from __future__ import annotations

from dpsim.compile.schedules import Act
from dpsim.compile.schedules._both_ways import lay_out
from dpsim.compile.schedules._v_shape import VShaped, Writer
from dpsim.core.record import Refused, record


@record
class DualPipeV(VShaped):
    """Two stages per rank, down the ranks and up again; forwards run beside backwards.

    It needs at least two micro-batches per rank of the pipeline.
    """

    def refuse(self, ranks: int, micro_batches: int) -> None:
        if micro_batches < 2 * ranks:
            raise Refused(
                f"{micro_batches} micro-batches over {ranks} ranks; dualpipe_v accepts at least "
                f"{2 * ranks}, one per stage"
            )

    def order(self, rank: int, ranks: int, micro_batches: int) -> list[Act]:
        return _laid_out(rank, ranks, micro_batches).acts

    def blocks(self, rank: int, ranks: int, micro_batches: int) -> frozenset[int]:
        return frozenset(_laid_out(rank, ranks, micro_batches).blocks)


def _laid_out(rank: int, ranks: int, micro_batches: int) -> Writer:
    write, turns = Writer((rank, 2 * ranks - 1 - rank)), micro_batches - 2 * ranks + rank + 1
    return lay_out(write, rank, ranks - rank - 1, turns)
