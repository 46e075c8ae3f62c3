"""Whether a row of a table of training runs is one that its devices could have run, and what may be
wrong with one that is not."""

from __future__ import annotations

from dpsim.accuracy.training.batches import assumed_batch
from dpsim.accuracy.training.measured import counts_one_gpu
from dpsim.accuracy.training.scenarios import MeasuredCase, padded
from dpsim.accuracy.training.table import AGREE
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused
from dpsim.machines.devices import Device
from dpsim.predict.peak import FASTER, check_possible

_NO_BATCH = (
    "the batch is not stated, and {} is assumed (column batch_per_gpu or global_batch would tell)"
)


def require_possible(here: MeasuredCase, base: MeasuredCase | None) -> None:
    """Raise Refused where a row was measured on another device than the row `base` that its series
    is calibrated on, where both are said to have one global batch and do not, and where it is
    faster than its device multiplies."""
    _require_one_device(here, base)
    _require_one_batch(here, base)
    _require_below_peak(here)


def _require_one_device(here: MeasuredCase, base: MeasuredCase | None) -> None:
    """Refuse a level of compute that another device was measured for."""
    if base is None or _alike(here.case.device, base.case.device):
        return
    own, other = (device.name if device else "" for device in (here.case.device, base.case.device))
    raise Refused(
        f"its calibration row ran on {other}, which says nothing of the compute of {own}; a "
        "series is of one accelerator",
        ("accelerator",),
    )


def _alike(one: Device | None, other: Device | None) -> bool:
    """Whether two boards have one chip: the same generation and peaks (A100 of 40 and 80 GB)."""
    if one is None or other is None or one.name == other.name:
        return one is other or bool(one and other)
    return one.generation == other.generation and one.peak == other.peak


def _require_one_batch(here: MeasuredCase, base: MeasuredCase | None) -> None:
    """Refuse micro-batches of strong scaling of which nobody says how many there are: a rank's
    samples are then another number at every count."""
    strong = vocabulary().tables.strong.search(here.row.text("scaling").lower())
    if base is None or not strong or here.row.get("global_batch"):
        return
    own, other = (one.case.global_batch for one in (here, base))
    if abs(own / other - 1.0) > AGREE:
        raise Refused(
            f"scaling is strong, and {own:,.0f} samples a step follow from batch_per_gpu where "
            f"{other:,.0f} do in its calibration row: global_batch would tell",
            ("batch_per_gpu",),
        )


def _require_below_peak(here: MeasuredCase) -> None:
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
