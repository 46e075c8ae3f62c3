"""GradientSums of gradients over micro-batches: what adding one micro-batch's moves in memory.

A gradient in `own` dtype is read, the sum so far is read and written: own + 2 sum bytes a
parameter, by a kernel of its own for every tensor:

* torch adds to `.grad` as wide as the parameter (torch/csrc/autograd/functions/accumulate_grad.h,
  2.13): 12 bytes in fp32, 6 in 16 bit.  A step's first gradient becomes `.grad` itself.
* Buffers that are zeroed in every step are added to by the first one too.  In fp32, of gradients in
  16 bit, that is 10 bytes.  NVIDIA/Megatron-LM d98e8a64 megatron/core/distributed/
  distributed_data_parallel.py (`param.main_grad.add_(param.grad.data)`); huggingface/nanotron
  2411b022 src/nanotron/optim/gradient_accumulator.py (`fp32_grad.add_(half_param.grad)`, and the
  same in the hook of its all-reduces); deepspeedai/DeepSpeed edaa7221
  deepspeed/runtime/bf16_optimizer.py (`_update_hp_grad`, which writes an fp32 copy first: 8 bytes
  more, which are left out).
* Products that add to the sum themselves (Megatron-LM's `gradient_accumulation_fusion`) have it
  among what they move beside their arithmetic, which hides it from about 300 tokens on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.models import Model
from dpsim.models.precision import PrecisionSpec


class GradientSums(NamedTuple):
    """How gradients of micro-batches are added up.

    each      what a micro-batch's are in; "" as the parameters
    total     what sums are kept in; "" as `each`
    zeroed    a step's first gradient is added too, to zeros
    repeated  whether a step has several micro-batches
    of        the dtype of parameters that `total` holds for, others' are as `each`; "": all
    """

    each: str = ""
    total: str = ""
    zeroed: bool = False
    repeated: bool = True
    of: str = ""

    def moved(self, own: str) -> float:
        """Bytes per parameter, which is in the dtype `own`, and micro-batch; of several the first
        is taken to be added as the others are."""
        each = DTYPE_BYTES[self.each or own]
        told = self.total and self.of in ("", own)
        total = DTYPE_BYTES[self.total] if told else each
        return float(each + 2 * total) if self.repeated or self.zeroed else 0.0


def gathered(precision: PrecisionSpec) -> str:
    """The dtype of gradients of parameters that are gathered to compute with; "": their own."""
    compute = "bf16" if precision.compute == "fp8" else precision.compute
    return compute if compute in ("bf16", "fp16") else ""


def of_gathered(precision: PrecisionSpec) -> GradientSums:
    """FSDP2's, of parameters that stay gathered: in what is reduced (torch 2.13
    torch/distributed/fsdp/_fully_shard/_fsdp_param.py, accumulate_unsharded_grad_if_needed)."""
    return GradientSums(gathered(precision), precision.reduce or "")


def added(model: Model, sums: GradientSums | None, own: str) -> Model:
    """`model` with parameters in the dtype `own`, whose gradients are added up as `sums` says
    (None: nothing is moved for it), where kernels run one after the other; a share of the peak that
    is fitted to whole steps has it in it."""
    if sums is None or all(layer.streamed is None for layer in model.layers):
        return model
    layers = (replace(layer, adding=sums.moved(layer.dtype or own)) for layer in model.layers)
    return replace(model, layers=tuple(layers))
