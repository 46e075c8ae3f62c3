"""ZB2P: a split backward with twice the warm-up of ZB1P, so that no bubble is left inside a step.

Qi et al. 2023, arXiv:2401.10241, ZB-H2 (section 2.2; "ZB-2p" with its memory limit of section 4):
rank r of p runs min(2(p - r) - 1, m) forwards first, then one backward for the input (I) and one
forward in turn; W follows 2r backwards behind its I, and what is left of it ends the list.  With
equal stages a rank idles for (p - 1)(F + I - 2W) between its first and its last operation (the
paper's table 1; nothing where F = I = W), and up to 2p - 1 micro-batches are in flight, twice as
many as with 1F1B.  The ranks start F after each other, and end so; a step in which all wait for
each other before the optimizer is longer by (p - 1) F.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from dpsim.compile.schedules import Act, Schedule
from dpsim.compile.schedules._rounds import alternate
from dpsim.core.record import record


@record
class ZB2P(Schedule):
    """`zb1p` with twice as many forwards first, for twice the activations: from 2p - 2
    micro-batches on p ranks on, a step as long as its, or shorter where backward for the weights
    takes longer than forward; with fewer often a longer one."""

    in_torch: ClassVar[bool] = False

    def filling(self, ranks: int) -> int:
        return 2 * ranks

    def order(self, rank: int, ranks: int, micro_batches: int) -> Iterator[Act]:
        each = range(micro_batches)
        forwards, inputs, weights = ([Act(rank, kind, m) for m in each] for kind in "FIW")
        done = 0
        for act in alternate(forwards, inputs, min(2 * (ranks - 1 - rank), micro_batches)):
            yield act
            if act.kind == "I":
                done += 1
                if done > 2 * rank:
                    yield weights[done - 1 - 2 * rank]
        yield from weights[max(0, micro_batches - 2 * rank) :]
