"""Whether a row of a table of training runs is one that its devices could have run, and what may be
wrong with one that is not."""

from __future__ import annotations

from dpsim.accuracy.training.batches import assumed_batch
from dpsim.accuracy.training.measured import counts_one_gpu
from dpsim.accuracy.training.scenarios import MeasuredCase, padded
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused
from dpsim.predict.peak import FASTER, check_possible

_NO_BATCH = (
    "the batch is not stated, and {} is assumed (column batch_per_gpu or global_batch would tell)"
)


def require_below_peak(here: MeasuredCase) -> None:
    """Raise Refused where `here` is faster than its device multiplies: a stand-in's work is not
    known, and of padded texts a part may be left out."""
    if here.stand_in:
        return
    left = vocabulary().models.tokens_left if padded(here.row) else 1.0
    try:
        check_possible(here.case, here.step_time, share=left)
    except Refused as error:
        raise Refused(explained(error.message, here, left), error.path) from None


def explained(failure: str, here: MeasuredCase, left: float = 1.0) -> str:
    """`failure`, that `here` is faster than its device, with what may be wrong with the row: in the
    place of the dtype a batch that is not stated; and a rate that is of all GPUs, if a step that
    lasts as much longer is possible with the part `left` of its tokens."""
    if batch := assumed_batch(here.told):
        said = _NO_BATCH.format(batch)
        failure = failure.replace(FASTER, said) if FASTER in failure else f"{failure}; {said}"
    if here.row.gpus > 1 and counts_one_gpu(here.row) and is_possible(here, here.row.gpus, left):
        failure += "; or is this the rate of all GPUs?"
    return failure


def is_possible(here: MeasuredCase, longer: float = 1.0, left: float = 1.0) -> bool:
    """Whether the devices of `here` can multiply the part `left` of a step in `longer` times what
    it was measured to take."""
    try:
        check_possible(here.case, here.step_time * longer, share=left)
    except Refused:
        return False
    return True
