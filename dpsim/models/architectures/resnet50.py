"""ResNet-50, the variant "v1.5" that torchvision and MLPerf train.

Source: He et al., "Deep Residual Learning for Image Recognition" (arXiv:1512.03385), table 1;
version 1.5 puts the stride on the 3 x 3 convolution (pytorch/vision
`torchvision/models/resnet.py`, which also gives the names and the registration order).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from dpsim.core.record import Check, record
from dpsim.models import Layer, Model
from dpsim.models.architectures import Architecture
from dpsim.models.image_layers import Convolution, Plane, linear, pool

_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
_EXPANSION = 4


@record
class ResNet50(Architecture):
    """ResNet-50 v1.5: 25,557,032 parameters; 8.18 GFLOP forward per image of 224 x 224.

    image_size  pixels along one side (3 channels)
    classes     outputs of the last layer

    Each convolution is one layer together with its batch normalisation, ReLU and, at the end of a
    block, the addition.  A bottleneck block is one FSDP unit.  Traffic, memory and kernels follow
    the rules in `dpsim/models/image_layers.py`.
    """

    image_size: Annotated[int, Check(32, 8192)] = 224
    classes: Annotated[int, Check(1, 10**7)] = 1000

    def model(self) -> Model:
        """The 53 convolutions, two poolings and the classifier, in registration order.

        Forward runs in the same order: a block computes its main branch first and its shortcut
        (`downsample`) after that, so backward reaches the shortcut before the main branch.
        """
        layers = tuple(self._layers())
        channels = [layer.tensors[1].elements for layer in layers if len(layer.tensors) == 3]
        return Model(
            name="resnet50",
            layers=layers,
            sample="image",
            buffers=(("fp32", 2 * sum(channels)), ("int64", len(channels))),
        )

    def _layers(self) -> Iterator[Layer]:
        image = Plane(3, self.image_size)
        stem = Convolution("conv1", 64, 7, stride=2, padding=3, norm="bn1", first=True)
        yield stem.layer(image)
        wide = stem.output(image)
        plane = wide.after(64, kernel=3, stride=2, padding=1)
        yield pool("maxpool", wide, plane, maximum=True)
        for stage, (blocks, width) in enumerate(_STAGES, start=1):
            for block in range(blocks):
                stride = 2 if block == 0 and stage > 1 else 1
                steps = _bottleneck(f"layer{stage}.{block}", width, stride, shortcut=block == 0)
                source = plane
                for step in steps:
                    read = source if step.name.endswith("downsample.0") else plane
                    yield step.layer(read)
                    plane = step.output(read)
        features = Plane(plane.channels, 1)
        yield pool("avgpool", plane, features, maximum=False)
        yield linear("fc", features.channels, self.classes)


def _bottleneck(name: str, width: int, stride: int, *, shortcut: bool) -> tuple[Convolution, ...]:
    """1 x 1, 3 x 3 and 1 x 1 convolutions, then the projection of the shortcut if there is one.

    The addition and the last ReLU belong to whichever of them runs last.
    """
    wide, last = width * _EXPANSION, not shortcut

    def step(number: int, channels: int, kernel: int, stride: int, end: bool) -> Convolution:
        return Convolution(
            f"{name}.conv{number}", channels, kernel, stride, kernel // 2, f"{name}.bn{number}",
            relu=end or number < 3, add=end, kept=end or number < 3, unit=name,
        )  # fmt: skip

    main = (
        step(1, width, 1, 1, False),
        step(2, width, 3, stride, False),
        step(3, wide, 1, 1, last),
    )
    if not shortcut:
        return main
    projection = f"{name}.downsample"
    return (
        *main,
        Convolution(
            f"{projection}.0", wide, 1, stride, norm=f"{projection}.1", add=True, unit=name
        ),
    )
