"""Image networks kernel by kernel: convolutions at a rate of their own, and all else as it streams.

A convolution reads its input and writes its output; what follows it runs behind it.  Of the
elements that it writes, kernels read and write, forward | backward:

* One by one: batch normalisation 3 | 5 (its input for the statistics, and again to normalise;
  backward input and gradient, twice), an activation 2 | 3, an addition 3 | 3 (backward: the
  gradients of both ways are added up).
* Fused, as XLA, torch.compile and MXNet's and OneFlow's BatchNormAddRelu leave them: what follows a
  batch normalisation is done as that writes, and backward as that reads; only the other operand of
  an addition and its gradient are moved beside its 3 | 5, 1 | 1.

Source: pytorch/pytorch aten/src/ATen/native/cuda/Normalization.cuh; NVIDIA/DeepLearningExamples
MxNet/Classification/RN50v1.5 (`fuse_bn_relu`, `fuse_bn_add_relu`), Oneflow-Inc/DLPerf.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from dpsim.core.dtypes import rest_of
from dpsim.machines.devices import Device
from dpsim.models import Layer, Model
from dpsim.models.streams import Kernels, Streamed

#: shares of the peak that convolutions reach in training: on tensor cores, on those whose operands
#: pass registers, for nothing copies them beside (before Ampere), and in fp32, where some of 3 x 3
#: multiply less (F(2 x 2, 3 x 3), Lavin and Gray, CVPR 2016).  Chosen with published steps in view
#: (docs/assumptions.md, A100)
TENSOR_CORES, EARLY, PLAIN = 0.5, 0.4, 0.75
#: the same of GeForce's tensor cores, which add up in fp32 at half the rate of others of their
#: generation (NVIDIA's whitepapers of Turing, GA102 and Ada), and so wait less for operands
HALVED = 0.8
#: elements of 16 bits that autocast moves per weight in either pass: fp32 on one side, 16 bits on
#: the other
_CAST = 3.0


class Fused(NamedTuple):
    """Elements per sample, forward and backward, and kernels that fusing saves."""

    forward: float = 0.0
    backward: float = 0.0
    kernels: int = 0

    def with_kernel(self, forward: float, backward: float) -> Fused:
        """This and one kernel more."""
        return Fused(self.forward + forward, self.backward + backward, self.kernels + 1)


NOTHING = Fused()


def with_kernels(layer: Layer, behind: float, back: float, fused: Fused) -> Layer:
    """`layer` with lists of its kernels: of what it moves, kernels behind convolutions move
    `behind` forward and `back` backward."""
    eager = Kernels(
        layer.kernels,
        layer.launched_backward,
        behind,
        back,
        products=layer.forward_bytes - behind,
        weights=_CAST * sum(t.elements for t in layer.tensors if len(t.shape) > 1),
    )
    compiled = eager._replace(
        forward=eager.forward - fused.kernels,
        backward=eager.backward - 2 * fused.kernels,
        moved=behind - fused.forward,
        moved_back=back - fused.backward,
    )
    return replace(layer, convolves=True, eager_kernels=eager, compiled_kernels=compiled)


def counted(model: Model) -> bool:
    """Whether all that multiplies in `model` is of an image network."""
    multiplying = [layer.convolves for layer in model.layers if layer.forward_flop]
    return bool(multiplying) and all(multiplying)


def knows(device: Device | None) -> bool:
    """Whether `device` is one of NVIDIA's, of which published steps tell what they reach."""
    return device is not None and device.compute_capability > 0


def listed(model: Model, *, fused: bool, autocast: bool) -> Model:
    """`model` with its kernels run one by one, or `fused`."""

    def own(layer: Layer) -> Layer:
        eager, chosen = (
            layer.eager_kernels,
            layer.compiled_kernels if fused else layer.eager_kernels,
        )
        if eager is None or chosen is None:
            return layer
        return replace(
            layer,
            kernels=chosen.forward,
            backward_kernels=chosen.backward,
            forward_bytes=eager.products,
            backward_bytes=layer.backward_bytes - eager.moved_back,
            streamed=Streamed(chosen.moved, chosen.moved_back),
            cast_weights=chosen.weights * autocast,
        )

    return replace(model, layers=tuple(map(own, model.layers)))


def run(model: Model) -> bool:
    """Whether kernels of `model` are an image network's, one after the other."""
    return any(layer.convolves and layer.streamed is not None for layer in model.layers)


def share(device: Device, dtype: str) -> float:
    """Share of the peak of `device` in `dtype` that convolutions reach."""
    if rest_of(dtype) == "fp32":
        return PLAIN
    if device.name.startswith("GeForce"):
        return HALVED
    return EARLY if device.generation in ("volta", "turing") else TENSOR_CORES
