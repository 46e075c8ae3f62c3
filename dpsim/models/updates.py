"""Optimizers as kernels: what an update launches, and what it reads and writes.

Per parameter in fp32, kernel by kernel (pytorch/pytorch `torch/optim/adamw.py`, `sgd.py`; what they
dispatch is `tests/test_kernels.py`):

* fused: one kernel reads parameter, gradient and states and writes parameter and states: 12 bytes
  of SGD, 20 with momentum, 28 of AdamW.
* foreach, torch's own choice on GPUs, and for_loop make an operation of every step of the formula.
  AdamW's are eight, 84 bytes: decay (8), lerp of the first moment (12), scaling and addcmul of the
  second (8, 16), square root (8), division (8), epsilon (8), addcdiv (16).  SGD with momentum takes
  three, 32 bytes, without one, 12.  A foreach operation launches a kernel for every 48 tensors, and
  for every 320 pieces of 65,536 elements (`aten/src/ATen/native/cuda/MultiTensorApply.cuh`, whose
  tables have 110 to 30 tensors by how many lists there are), a loop one for every tensor.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from dpsim.machines.devices import Device
from dpsim.models import Model
from dpsim.models.compute import STREAMED, optimizer_seconds
from dpsim.models.precision import Optimizer

#: bytes per parameter, and operations, of an update that is not fused
_STEPWISE = {"none": (0, 0), "sgd": (12, 1), "momentum": (32, 3), "adam": (84, 8)}
_TENSORS, _ELEMENTS = 48, 320 * 65_536


class UpdateCost(NamedTuple):
    """One update of all parameters: seconds per parameter, the least seconds that its kernels take,
    and how many there are."""

    each: float
    least: float
    launches: int


def update_of(optimizer: Optimizer, model: Model, device: Device | None) -> UpdateCost:
    """The update of `model`'s trained parameters on `device`; without one it takes no time."""
    beside = optimizer.extra_bytes / device.memory_bandwidth / STREAMED if device else 0.0
    if optimizer.fused is None:
        return UpdateCost(optimizer_seconds(optimizer.kind, 1.0, device) + beside, 0.0, 1)
    tensors = sum(t.trained for layer in model.layers for t in layer.tensors)
    chunks = max(ceil(tensors / _TENSORS), ceil(model.trained / _ELEMENTS))
    each, operations = _STEPWISE[optimizer.kind]
    if optimizer.fused is True:
        launches = chunks * (operations > 0)
        seconds = optimizer_seconds(optimizer.kind, 1.0, device)
    else:
        launches = operations * (chunks if optimizer.fused == "foreach" else tensors)
        seconds = each / device.memory_bandwidth if device else 0.0
    overhead = device.launch_overhead if device else 0.0
    return UpdateCost(seconds / STREAMED + beside, launches * overhead, launches)
