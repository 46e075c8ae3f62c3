"""Dealt: the deals of a batch that follows the speed of ranks, and what steps took with each."""

from __future__ import annotations

from dpsim.cases.case import Case
from dpsim.cases.rebalancing import Deal
from dpsim.cases.variant import Variant
from dpsim.describe.sections import Batch
from dpsim.predict.player import step_time
from dpsim.predict.point import DealtBatch

#: deals whose steps are played; ranks whose samples are listed
PLAYED, LISTED = 16, 64


def dealt_batches(case: Case, settled: float) -> tuple[DealtBatch, ...] | None:
    """The deals of `case`, whose steps take `settled` after the last; None where samples stay."""
    if case.batch.rebalance is None:
        return None
    *before, last = case.batches.deals
    found = [_dealt(one, _time(case, one) if k < PLAYED else None) for k, one in enumerate(before)]
    return (*found, _dealt(last, settled))


def _dealt(deal: Deal, time: float | None) -> DealtBatch:
    listed = deal.shares if len(deal.shares) <= LISTED else None
    return DealtBatch(deal.step, time, min(deal.shares), max(deal.shares), listed)


def _time(case: Case, deal: Deal) -> float:
    """A step of `case` with the samples of `deal` [s]."""
    least = min(deal.shares)
    others = {rank: share for rank, share in enumerate(deal.shares) if share > least}
    accumulation = case.batch.accumulation
    batch = Batch(per_device=least, per_rank=others or None, accumulation=accumulation)
    return step_time(Variant("as dealt", {"batch": batch}).of(case))
