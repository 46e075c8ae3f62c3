"""Image networks kernel by kernel: convolutions at a rate of their own, and all else as it streams.

A convolution reads its input and writes its output; what follows it runs behind it.  Of the
elements that it writes, kernels read and write, forward | backward:

* One by one: batch normalisation 3 | 5 (its input for the statistics, and again to normalise;
  backward input and gradient, twice), an activation 2 | 3, an addition 3 | 3 (backward: the
  gradients of both ways are added up).
* Fused, as XLA, torch.compile and MXNet's and OneFlow's BatchNormAddRelu leave them: what follows a
  batch normalisation is done as that writes, and backward as that reads; only the other operand of
  an addition and its gradient are moved beside its 3 | 5, 1 | 1.

Backward a convolution is two kernels, all others are one (without counters of batches).

Source: pytorch/pytorch aten/src/ATen/native/cuda/Normalization.cuh; NVIDIA/DeepLearningExamples
MxNet/Classification/RN50v1.5 (`fuse_bn_relu`, `fuse_bn_add_relu`), Oneflow-Inc/DLPerf.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from dpsim.core.dtypes import rest_of
from dpsim.machines.devices import Device
from dpsim.models import Layer, Model
from dpsim.models.streams import Kernels, Streamed

#: shares of the peak that convolutions reach in training: on tensor cores, on those of Volta and
#: Turing, whose operands pass registers, for nothing copies them beside, and without, where some of
#: 3 x 3 multiply less (F(2 x 2, 3 x 3), Lavin and Gray, CVPR 2016).  Chosen with published steps in
#: view (docs/assumptions.md, A100)
TENSOR_CORES, BEFORE_AMPERE, PLAIN = 0.5, 0.4, 0.75
#: the same of GeForce's tensor cores, which add up in fp32 at half the rate of others of their
#: generation (NVIDIA's whitepapers of Turing, GA102 and Ada), and so wait less for operands; chosen
#: with published rates of an RTX 3090 in view
HALVED = 0.8
#: what networks of which convolutions are a part (U-Nets of diffusion, which attend between them)
#: reach of that, all their products together; chosen with published steps in view
#: (docs/assumptions.md, A100)
IN_PART = 0.76
#: the least part of a network's FLOP that is convolutions' where it is such a one
_LEAST_PART = 0.2
#: the first compute capability with tensor cores, times ten
_WITH_CORES = 70
#: the first one with TF32
_AMPERE = 80
#: how many times fp32's peak convolutions in tf32 with channels first do not gain by: what they
#: copy is half of their traffic; peaks that are meant to be twice as high are up to 2.1 (GB10)
_NOT_GAINED = 2.2
#: what tensor cores multiply of image networks
_ON_CORES = ("bf16", "fp16", "tf32")
#: elements of 16 bits that autocast moves per weight in either pass: fp32 on one side, 16 bits on
#: the other
_CAST = 3.0


class FusedAway(NamedTuple):
    """Elements per sample, forward and backward, and kernels that fusing saves."""

    forward: float = 0.0
    backward: float = 0.0
    kernels: int = 0

    def with_kernel(self, forward: float, backward: float) -> FusedAway:
        """This and one kernel more."""
        return FusedAway(self.forward + forward, self.backward + backward, self.kernels + 1)


NONE_SAVED = FusedAway()


def with_kernels(
    layer: Layer,
    behind: float,
    back: float,
    saved: FusedAway,
    multiplying: int,
    gradients: int,
    turned: float = 0.0,
) -> Layer:
    """`layer` with lists of its kernels: of what it moves, kernels behind convolutions move
    `behind` forward and `back` backward; so many of its kernels are `multiplying`, which have so
    many for their `gradients` (two, one for the network's first), all others one.  Convolutions
    read and write `turned` elements."""
    weights = [tensor.elements for tensor in layer.tensors if len(tensor.shape) > 1]

    def counted(less: FusedAway, casts: int) -> Kernels:
        return Kernels(
            layer.kernels - less.kernels + casts,
            layer.kernels - less.kernels - multiplying + gradients + casts,
            behind - less.forward,
            back - less.backward,
            products=layer.forward_bytes - behind,
            weights=_CAST * sum(weights) if casts else 0.0,
            turned=turned,
        )

    eager, compiled = (
        counted(less, 0)._replace(autocast=counted(less, len(weights)))
        for less in (NONE_SAVED, saved)
    )
    return replace(layer, convolves=True, eager_kernels=eager, compiled_kernels=compiled)


def is_network(model: Model) -> bool:
    """Whether all that multiplies in `model` is of an image network."""
    multiplying = [layer.convolves for layer in model.layers if layer.forward_flop]
    return bool(multiplying) and all(multiplying)


def in_part(model: Model) -> bool:
    """Whether convolutions of more than one element, and not of each channel alone, are a part of
    what `model` multiplies, which is no image network."""

    def convolved(layer: Layer) -> bool:
        shapes = [tensor.shape for tensor in layer.tensors if len(tensor.shape) == 4]
        return any(rows * columns > 1 < inputs for _, inputs, rows, columns in shapes)

    part = sum(layer.forward_flop for layer in model.layers if convolved(layer))
    whole = sum(layer.forward_flop for layer in model.layers)
    return not is_network(model) and part >= _LEAST_PART * whole > 0


def has_shares(device: Device | None) -> bool:
    """Whether `device` is one of NVIDIA's, of which published steps tell what they reach."""
    return device is not None and device.compute_capability > 0


def turns(device: Device | None, dtype: str) -> bool:
    """Whether convolutions on `device` want channels last, and turn what has them first."""
    cores = device is not None and device.compute_capability >= _WITH_CORES
    return cores and rest_of(dtype) in _ON_CORES


def has_tensor_float(device: Device) -> bool:
    """Whether frameworks on `device` may multiply fp32 in TF32 unasked."""
    return device.compute_capability >= _AMPERE and "tf32" in device.peak


def gains_by_tensor_float(device: Device) -> bool:
    """Whether cuDNN, which runs what is fastest, then does so with convolutions on `device`."""
    peak = device.peak
    return has_tensor_float(device) and peak["tf32"] > _NOT_GAINED * peak.get("fp32", math.inf)


class ImageRun(NamedTuple):
    """How an image network's kernels run: `fused` or one by one; `turned`: channels come first; not
    `launched`: its launches are those of before, of which `host.kernels` may say a share."""

    fused: bool = False
    autocast: bool = False
    turned: bool = False
    launched: bool = True


def listed(model: Model, run: ImageRun) -> Model:
    """`model` with the kernels of `run`."""

    def own(layer: Layer) -> Layer:
        eager = layer.eager_kernels
        chosen = layer.compiled_kernels if run.fused else eager
        if eager is None or chosen is None:
            return layer
        chosen = chosen.autocast if run.autocast and chosen.autocast else chosen
        extra = 2 * chosen.turned * run.turned
        passes = 2 if layer.backward_flop > 1.5 * layer.forward_flop else 1
        made = replace(
            layer,
            forward_bytes=eager.products,
            backward_bytes=layer.backward_bytes - eager.moved_back,
            streamed=Streamed(chosen.moved + extra, chosen.moved_back + passes * extra),
            cast_weights=chosen.weights,
        )
        if not run.launched:
            return made
        copies = 2 * _turning(layer) * run.turned
        ahead, back = chosen.forward + copies, chosen.backward + passes * copies
        return replace(made, kernels=ahead, backward_kernels=back)

    return replace(model, layers=tuple(map(own, model.layers)))


def _turning(layer: Layer) -> int:
    """Convolutions of `layer`, but for those of each channel alone."""
    return sum(len(tensor.shape) == 4 and tensor.shape[1] > 1 for tensor in layer.tensors)


def is_listed(model: Model) -> bool:
    """Whether kernels of `model` are an image network's, one after the other."""
    return any(layer.convolves and layer.streamed is not None for layer in model.layers)


def share(device: Device, dtype: str) -> float:
    """Share of the peak of `device` in `dtype` that convolutions reach."""
    if rest_of(dtype) not in _ON_CORES or device.compute_capability < _WITH_CORES:
        return PLAIN
    if device.name.startswith("GeForce"):
        return HALVED
    return BEFORE_AMPERE if device.generation in ("volta", "turing") else TENSOR_CORES
