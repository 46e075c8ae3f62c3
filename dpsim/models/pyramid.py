"""A ResNet whose norms are frozen, and the pyramid of features on it: what detectors begin with.

Sources: He et al., arXiv:1512.03385; Lin et al., arXiv:1612.03144 (the pyramid); names and
registration order as in pytorch/vision `torchvision/models/detection/backbone_utils.py` and
`torchvision/ops/feature_pyramid_network.py`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from dpsim.models import Layer
from dpsim.models.architectures.resnet import ResNet
from dpsim.models.image_layers import Plane
from dpsim.models.layer_sum import LayerSum

#: channels of every level of the pyramid (arXiv:1612.03144, section 3)
WIDTH = 256
#: where backbones are frozen: the first convolution and the first stage (torchvision's
#: `trainable_backbone_layers` of 3; `FREEZE_AT` of 2 in detectron)
_FROZEN = re.compile(r"conv1|layer1\.")
_BODY = "backbone.body"


class Backbone(NamedTuple):
    """Layers, the planes that the four stages leave, and elements that its norms keep as buffers
    (weight, bias, mean and variance of every channel)."""

    layers: list[Layer]
    stages: tuple[Plane, ...]
    buffers: int


def backbone(body: ResNet) -> Backbone:
    """`body` up to its last stage.

    Its norms are scales and shifts that are not trained (torchvision's `FrozenBatchNorm2d`): no
    parameters, no statistics, and nothing kept for a gradient of their own.
    """
    layers: list[Layer] = []
    planes: dict[str, Plane] = {}
    channels_normed = 0
    for layer in body.model().layers[:-2]:  # without the mean over all places and the classifier
        layers.append(_frozen_norm(layer))
        channels_normed += layer.batch_norm
        stage, channels = re.match(r"layer\d", layer.name), _channels(layer)
        if stage and channels:
            planes[stage[0]] = Plane(channels, round((layer.output / channels) ** 0.5))
    return Backbone(layers, tuple(planes.values()), 4 * channels_normed)


def pyramid(stages: tuple[Plane, ...]) -> tuple[list[Layer], list[Plane]]:
    """The pyramid's layers on the planes `stages`, finest first, and its levels.

    A level is its stage at `WIDTH` channels and the coarser level at twice its size, added, and a
    3 x 3 convolution of that.
    """
    levels = [Plane(WIDTH, stage.size) for stage in stages]
    layers = []
    for k, (stage, level) in enumerate(zip(stages, levels, strict=True)):
        name = f"backbone.fpn.inner_blocks.{k}.0"
        one = LayerSum(name).convolution(name, stage, level, (1, 1), bias=True)
        if k + 1 < len(levels):
            one.pooled(levels[k + 1].elements, level.elements).add(level.elements)
        layers.append(one.layer(read=stage.elements, wrote=level.elements))
    for k, level in enumerate(levels):
        name = f"backbone.fpn.layer_blocks.{k}.0"
        one = LayerSum(name).convolution(name, level, level, (3, 3), bias=True)
        layers.append(one.layer(read=level.elements, wrote=level.elements))
    return layers, levels


def shared(name: str, levels: list[Plane], channels: int, kernel: int, *, active: bool) -> Layer:
    """One convolution over all `levels`, with the same weights."""
    one, wrote = LayerSum(name), 0
    for k, level in enumerate(levels):
        out = Plane(channels, level.size)
        each = LayerSum(name).convolution(name, level, out, (kernel, kernel), bias=True)
        if k == 0:
            one.tensors = each.tensors
        one.product(each.flop, level.elements, out.elements)
        if active:
            one.activation(out.elements, kept=False)
        wrote += out.elements
    return one.layer(read=sum(level.elements for level in levels), wrote=wrote)


def _channels(layer: Layer) -> int:
    return layer.tensors[0].shape[0] if layer.tensors else 0


def _frozen_norm(layer: Layer) -> Layer:
    """`layer` of a ResNet with a frozen norm, itself frozen where the backbone is."""
    trained = not _FROZEN.match(layer.name)
    weight = tuple(t._replace(name=f"{_BODY}.{t.name}", trained=trained) for t in layer.tensors[:1])
    named = replace(
        layer, name=f"{_BODY}.{layer.name}", tensors=weight, convolves=False, eager_kernels=None,
        compiled_kernels=None,
    )  # fmt: skip
    if layer.unit:
        named = replace(named, unit=f"{_BODY}.{layer.unit}")
    if not layer.batch_norm:
        return named
    out = layer.output
    return replace(
        named,
        # 2 out instead of 3, backward 2 instead of 5, and its input is not kept
        forward_bytes=layer.forward_bytes - out,
        backward_bytes=layer.backward_bytes - 3 * out,
        activations=layer.activations - out,
        activations_selective=layer.activations_selective - out,
        activations_op=layer.activations_op - out,
        batch_norm=0,
    )
