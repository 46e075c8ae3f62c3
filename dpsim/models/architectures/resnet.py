"""ResNets as torchvision has them: ResNet-18 to 152, ResNeXt and wide ResNets.

Sources: He et al., arXiv:1512.03385, table 1; Xie et al., arXiv:1611.05431 (groups); Zagoruyko and
Komodakis, arXiv:1605.07146 (width); names and registration order as in pytorch/vision
`torchvision/models/resnet.py`, whose version 1.5 puts the stride on the 3 x 3 convolution.
"""

from __future__ import annotations

from typing import Annotated, Literal

from dpsim.core.record import Check, record
from dpsim.models import Model
from dpsim.models.architectures import Architecture
from dpsim.models.image_layers import Plane
from dpsim.models.image_network import ImageNetwork

_BLOCKS = {
    18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3),
}  # fmt: skip
#: depth from which on blocks are bottlenecks of three convolutions
_BOTTLENECKS = 50


@record
class ResNet(Architecture):
    """A ResNet of any depth: of 18, 11,689,512 parameters and 3.63 GFLOP forward at 224 x 224.

    depth         weighted layers
    groups        groups of the 3 x 3 convolutions (ResNeXt: 32)
    group_width   channels of a group in the first stage (64; ResNeXt-50: 4, wide ResNets: 128)
    image_size    pixels along one side (3 channels)
    classes       outputs of the last layer
    """

    depth: Literal[18, 34, 50, 101, 152] = 50
    groups: Annotated[int, Check(1, 1024)] = 1
    group_width: Annotated[int, Check(1, 4096)] = 64
    image_size: Annotated[int, Check(32, 8192)] = 224
    classes: Annotated[int, Check(1, 10**7)] = 1000

    def __post_init__(self) -> None:
        if self.depth < _BOTTLENECKS and (self.groups, self.group_width) != (1, 64):
            raise ValueError(f"groups and group_width are of depths from {_BOTTLENECKS} on")

    def model(self) -> Model:
        """The convolutions, two poolings and the classifier, in registration order."""
        net = ImageNetwork(Plane(3, self.image_size))
        net.convolution("conv1", 64, 7, stride=2, padding=3, norm="bn1")
        net.pool("maxpool", 3, 2, 1)
        for stage, blocks in enumerate(_BLOCKS[self.depth]):
            for block in range(blocks):
                net.unit = f"layer{stage + 1}.{block}"
                self._block(net, 64 * 2**stage, 2 if stage and not block else 1)
        net.unit = ""
        net.average("avgpool")
        net.linear("fc", self.classes)
        return net.model(f"resnet{self.depth}")

    def _block(self, net: ImageNetwork, width: int, stride: int) -> None:
        """The main branch, and then the projection of the shortcut where the shape changes."""
        name, source, deep = net.unit, net.plane, self.depth >= _BOTTLENECKS
        wide = width * (4 if deep else 1)
        if deep:
            inner = width * self.group_width // 64 * self.groups
            steps = [(inner, 1, 1, 1), (inner, 3, stride, self.groups), (wide, 1, 1, 1)]
        else:
            steps = [(width, 3, stride, 1), (width, 3, 1, 1)]
        projected = stride > 1 or source.channels != wide
        for number, (channels, kernel, step, groups) in enumerate(steps, start=1):
            last = number == len(steps)
            net.convolution(
                f"{name}.conv{number}", channels, kernel, stride=step, groups=groups,
                norm=f"{name}.bn{number}", active=not (last and projected),
                add=last and not projected,
            )  # fmt: skip
        if projected:
            net.convolution(
                f"{name}.downsample.0", wide, 1, stride=stride, norm=f"{name}.downsample.1",
                add=True, source=source,
            )  # fmt: skip
