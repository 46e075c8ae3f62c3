"""Pipeline schedules: which stage and micro-batch every rank of a pipeline works on, in order.

Contract.  A plug-in module of this folder holds one `Schedule`: a record whose fields are its
knobs under ``schedule:`` and whose `order` says what one rank runs, in list order.

A model is cut into ``ranks * chunks`` stages.  Stage c*p + r is chunk c of rank r, unless the
schedule folds the pipeline to a V (`rank_of`).  Rules that hold for every schedule
(torch/distributed/pipelining/schedules.py, torch 2.13, `_simulate_comms_compute`):

* F of a stage needs F of the stage before it for the same micro-batch.
* B or I needs F of the same stage and, but on the last stage, B or I of the stage after it.
* Where several pipelines run through the ranks (`pipes`), each has its own copy of the model's
  stages, one after the other in number, and its own part of the micro-batches.
* W needs I of the same stage.
* A rank runs its list strictly in order and waits at the first operation that lacks something.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

from dpsim.core.record import Refused

#: the longest lists of all ranks together; beyond it a step is no longer played operation by
#: operation in reasonable memory (each takes about 100 bytes)
MAX_ACTS = 4_000_000


class Act(NamedTuple):
    """One operation of a schedule.

    stage        its global number
    kind         "F" forward, "B" full backward, "I" backward for the input, "W" for the weights
    micro_batch  its number, from 0
    """

    stage: int
    kind: str
    micro_batch: int


class Schedule:
    """Contract of this folder."""

    tag = "kind"

    #: pipelines that run through the ranks at once, each with the whole model
    pipes: ClassVar[int] = 1
    #: whether torch plays it on the runtime that gathers whole stages ahead
    gathers_ahead: ClassVar[bool] = True
    #: whether torch's pipelining has it
    in_torch: ClassVar[bool] = True

    @property
    def chunks(self) -> int:
        """Stages that each rank holds."""
        return 1

    def rank_of(self, stage: int, ranks: int) -> int:
        """The pipeline rank that holds `stage`."""
        return stage % ranks

    def stages(self, ranks: int) -> int:
        """Stages that the model is cut into."""
        return ranks * (self.chunks // self.pipes)

    def filling(self, ranks: int) -> int:
        """Micro-batches from which on a step grows alike with every further one, where they are
        more than `ranks`."""
        return ranks

    def round(self, ranks: int) -> int:
        """Micro-batches by which long steps are alike: of how many one is a multiple."""
        return 1

    def refuse(self, ranks: int, micro_batches: int) -> None:
        """Raises Refused, saying what would be accepted, where the schedule cannot take them."""

    def order(self, rank: int, ranks: int, micro_batches: int) -> Iterable[Act]:
        """What pipeline rank `rank` of `ranks` runs, in order."""
        raise NotImplementedError

    def blocks(self, rank: int, ranks: int, micro_batches: int) -> frozenset[int]:
        """Places in a rank's list of forwards that run side by side with the backward after them:
        neither starts before both can, and the result of neither is sent before both have ended."""
        return frozenset()

    def lists(self, ranks: int, micro_batches: int) -> tuple[tuple[Act, ...], ...]:
        """What every pipeline rank runs, in order.

        Raises Refused where the schedule does not exist for so many ranks and micro-batches.
        """
        for number, what in ((ranks, "pipeline ranks"), (micro_batches, "micro-batches")):
            if number < 1:
                raise Refused(f"{number} {what}; a schedule needs at least one")
        acts = 3 * ranks * self.chunks * micro_batches
        if acts > MAX_ACTS:
            most = max(1, MAX_ACTS // (3 * ranks * self.chunks))
            raise Refused(
                f"{micro_batches:,} micro-batches over {ranks:,} ranks of {self.chunks} chunks "
                f"are too many operations; at most {most:,} micro-batches are accepted"
            )
        self.refuse(ranks, micro_batches)
        return tuple(tuple(self.order(r, ranks, micro_batches)) for r in range(ranks))


def peak_in_flight(acts: Sequence[Act]) -> int:
    """The most (stage, micro-batch) pairs whose activations a rank keeps at once: F has run, and
    B (or W, where the backward is split) has not ended."""
    now = peak = 0
    for act in acts:
        if act.kind == "F":
            now += 1
            peak = max(peak, now)
        elif act.kind in ("B", "W"):
            now -= 1
    return peak


def spell(acts: Iterable[Act], chunks: int) -> str:
    """ "F0 F1 B0 …" where a rank holds one stage, "0F0 0F1 2F0 …" (stage, kind, micro-batch)
    where it holds several."""
    return " ".join(f"{a.stage if chunks > 1 else ''}{a.kind}{a.micro_batch}" for a in acts)


CONTRACT = Schedule
