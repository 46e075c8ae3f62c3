"""A stand-in for a model whose layers are not known: a known one, scaled."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from dpsim.core import units
from dpsim.core.record import Check, record
from dpsim.models import Layer, Model, Tensor
from dpsim.models.architectures import Architecture
from dpsim.models.architectures.resnet50 import ResNet50
from dpsim.models.architectures.vgg16 import VGG16

_BASES = {"resnet50": ResNet50, "vgg16": VGG16}


@record
class Scaled(Architecture):
    """A stand-in for a convolutional model of which only the size is known: every tensor of a
    known one is scaled to the wanted number of parameters.

    like          the known model, whose proportions it keeps: resnet50 or vgg16
    parameters    trainable parameters it is to have
    forward_flop  FLOP of one sample's forward pass; in proportion to the parameters without it
    sample        what one sample is: the host decodes images
    """

    parameters: Annotated[int, Check(1_000, 10**12)]
    like: Literal["resnet50", "vgg16"] = "resnet50"
    forward_flop: Annotated[float, units.Unit("1", low=1.0, high=1e18)] | None = None
    sample: Literal["image", "sequence"] = "image"

    def model(self) -> Model:
        """The scaled layers; the parameters come out exactly."""
        base = _BASES[self.like]().model()
        ratio = self.parameters / base.parameters
        flop = sum(layer.forward_flop for layer in base.layers)
        work = self.forward_flop / flop if self.forward_flop else ratio
        layers = [_scaled(layer, ratio, work) for layer in base.layers]
        self._settle(layers)
        name = f"like {self.like}, {self.parameters:,}"
        return replace(base, name=name, layers=tuple(layers), sample=self.sample)

    def _settle(self, layers: list[Layer]) -> None:
        """Put what rounding left over into the largest layer."""
        rest = self.parameters - sum(layer.parameters for layer in layers)
        at = max(range(len(layers)), key=lambda k: layers[k].parameters)
        name, shape = layers[at].tensors[0][:2]
        tensors = (Tensor(name, (max(shape[0] + rest, 1),)), *layers[at].tensors[1:])
        layers[at] = replace(layers[at], tensors=tensors)


def _scaled(layer: Layer, ratio: float, work: float) -> Layer:
    tensors = (Tensor(t.name, (max(round(t.elements * ratio), 1),)) for t in layer.tensors)
    return replace(
        layer,
        tensors=tuple(tensors),
        forward_flop=layer.forward_flop * work,
        backward_flop=layer.backward_flop * work,
        forward_bytes=layer.forward_bytes * work,
        backward_bytes=layer.backward_bytes * work,
        activations=layer.activations * work,
        activations_full=layer.activations_full * work,
        activations_selective=layer.activations_selective * work,
        cast_saves=layer.cast_saves * work,
        again_flop=layer.again_flop * work,
        again_bytes=layer.again_bytes * work,
        replicated=layer.replicated * work,
        forward_sum=layer.forward_sum * work,
        backward_sum=layer.backward_sum * work,
        output=layer.output * work,
        eager_kernels=layer.eager_kernels and layer.eager_kernels.scaled(work, ratio),
        compiled_kernels=layer.compiled_kernels and layer.compiled_kernels.scaled(work, ratio),
    )
