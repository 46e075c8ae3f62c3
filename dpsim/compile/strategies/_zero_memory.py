"""What ZeRO keeps on a device (see `zero`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsim.compile.job import Job, state_bytes, summed
from dpsim.compile.strategies._zero_step import traced
from dpsim.core.dtypes import DTYPE_BYTES, stored_bytes

if TYPE_CHECKING:
    from dpsim.compile.strategies.zero import Zero


def kept(knobs: Zero, job: Job) -> dict[str, float]:
    """States by stage; DeepSpeed's fp32 copy of the gradients' shard and its buffers."""
    if len(job.parts) > 1:
        return _with_experts(knobs, job)
    whole, shard = state_bytes(job, 1.0), state_bytes(job, 1.0 / knobs.shards(job.ranks))
    parts = {
        "parameters": (shard if knobs.stage == 3 else whole)["parameters"],
        "gradients": (shard if knobs.stage >= 2 else whole)["gradients"],
        "optimizer states": shard["optimizer states"],
    }
    if knobs.as_shipped:
        parts |= _shipped(knobs, job, parts)
    if knobs.stage == 3:
        peak = traced(knobs.limits, job, recorded=True).peak
        parts["gathered parameters"] = float(_widest(job) * peak)
    if knobs.zero_hpz_partition_size > 1:
        parts["secondary parameters"] = whole["parameters"] / knobs.copies(job.ranks)
    if knobs.offloads:  # the shard's gradients and states are on the host
        gone = ["optimizer states", "fp32 gradients", *["gradients"] * (knobs.stage >= 2)]
        parts = {name: value for name, value in parts.items() if name not in gone}
    return parts


def _with_experts(knobs: Zero, job: Job) -> dict[str, float]:
    """The same of what is outside experts and of experts together: they share buffers, and
    what limits gathering."""
    found = [kept(knobs, part) for part in job.parts]
    parts = summed(found)
    if "gradient buffers" in parts:
        parts["gradient buffers"] = max(one.get("gradient buffers", 0.0) for one in found)
    if knobs.stage == 3:
        peak = traced(knobs.limits, job, recorded=True).peak
        parts["gathered parameters"] = float(_widest(job) * peak)
    return parts


def _shipped(knobs: Zero, job: Job, parts: dict[str, float]) -> dict[str, float]:
    """The step needs the shard's gradients in fp32 where parameters are narrower (stage 3
    keeps them so); the contiguous buffer exists twice where stages 1 and 2 overlap.

    stage_1_and_2.py and stage3.py, the estimators of their memory: 2 and 0 + 18/N bytes a
    parameter with fp16 and Adam.
    """
    trained = [one for i in range(len(job.model.layers)) for one in job.trained(i)]
    sizes = [(DTYPE_BYTES[dtype], elements) for dtype, elements in trained]
    found = {}
    summed_whole = knobs.grad_accum_dtype is not None
    shards = 1 if summed_whole else knobs.shards(job.ranks)  # BF16_Optimizer's sums are whole
    fp32 = sum(4.0 * count / shards for width, count in sizes if width < 4)
    if knobs.stage == 3:
        narrow = sum(width * count / job.ranks for width, count in sizes if width < 4)
        found["gradients"] = parts["gradients"] - narrow + fp32
    elif fp32:
        found["fp32 gradients"] = fp32
    if knobs.contiguous_gradients:
        buffers = 2 if knobs.overlaps and knobs.stage < 3 else 1
        width = max((width for width, _ in sizes), default=0)
        found["gradient buffers"] = buffers * knobs.reduce_bucket_size * width
    return found


def _widest(job: Job) -> float:
    """Bytes of an element of the parameters that take most."""
    return max(
        stored_bytes(dtype or job.parameter_dtype(i))
        for i, layer in enumerate(job.model.layers)
        for dtype, _, _ in layer.kinds
    )
