"""GradientSums of gradients over micro-batches: what adding one micro-batch's moves in memory.

A gradient in `own` dtype is read, the sum so far is read and written: own + 2 sum bytes a
parameter, by a kernel of its own for every tensor:

* torch adds to `.grad` as wide as the parameter (torch/csrc/autograd/functions/accumulate_grad.h,
  2.13): 12 bytes in fp32, 6 in 16 bit.  A step's first gradient becomes `.grad` itself.
* FSDP2 keeps whole gradients in what it reduces (torch 2.13 torch/distributed/fsdp/_fully_shard/
  _fsdp_param.py): the first one is converted to that (to_accumulated_grad_if_needed: 6 bytes from
  16 bit to fp32), the next ones are added (accumulate_unsharded_grad_if_needed: 10).
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

from dpsim.core.dtypes import DTYPE_BYTES, rest_of
from dpsim.core.record import altered
from dpsim.models import Model
from dpsim.models.precision import Precision


class GradientSums(NamedTuple):
    """How gradients of micro-batches are added up.

    total     what sums are kept in; "" as the gradients
    gathered  gradients are as wide as the parameters are gathered to compute with; else as these
    reduced   sums are kept in what is reduced
    zeroed    a step's first gradient is added too, to zeros
    times     micro-batches of a step
    of        the dtype of parameters that `total` holds for, others' are as wide as gradients; "":
              all
    """

    total: str = ""
    gathered: bool = False
    reduced: bool = False
    zeroed: bool = False
    times: int = 1
    of: str = ""

    def moved(self, own: str, precision: Precision) -> float:
        """Bytes per parameter, which is in the dtype `own`, and micro-batch, in the mean of a
        step's: the first gradient is what the sum starts as, converted where that is kept in
        another dtype and there are more to come."""
        told = self.total if self.of in ("", own) else ""
        kept = precision.reduce if self.reduced else told
        each = DTYPE_BYTES[(self.gathered and gathered(precision)) or own]
        total = DTYPE_BYTES[kept] if kept else each
        add = float(each + 2 * total)
        if self.zeroed or self.times == 1:
            return add if self.zeroed else 0.0
        converted = 0.0 if total == each else each + total
        return (converted + (self.times - 1) * add) / self.times


def gathered(precision: Precision) -> str:
    """The dtype of gradients of parameters that are gathered to compute with; "": their own."""
    compute = rest_of(precision.compute)
    return compute if compute in ("bf16", "fp16") else ""


def added(model: Model, sums: GradientSums | None, precision: Precision) -> Model:
    """`model` in that precision, whose gradients are added up as `sums` says (None: nothing is
    moved for it), where kernels run one after the other; a share of the peak that is fitted to
    whole steps has it in it."""
    if sums is None or all(layer.streamed is None for layer in model.layers):
        return model
    own = precision.parameters
    layers = tuple(
        altered(layer, {"adding": sums.moved(layer.dtype or own, precision)})
        for layer in model.layers
    )
    return replace(model, layers=layers)
