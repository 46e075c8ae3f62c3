"""DenseNets as torchvision has them.

Source: Huang et al., arXiv:1608.06993, table 1; names and registration order as in pytorch/vision
`torchvision/models/densenet.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from dpsim.core.record import Check, record
from dpsim.models import Model
from dpsim.models.architectures import Architecture
from dpsim.models.image_layers import Plane
from dpsim.models.image_network import ImageNetwork

#: depth -> growth, blocks, first channels
_SHAPES = {
    121: (32, (6, 12, 24, 16), 64), 161: (48, (6, 12, 36, 24), 96),
    169: (32, (6, 12, 32, 32), 64), 201: (32, (6, 12, 48, 32), 64),
}  # fmt: skip
#: channels of the 1 x 1 convolution, as a multiple of the growth
_NARROW = 4


@record
class DenseNet(Architecture):
    """A DenseNet: of 121, 7,978,856 parameters and 5.67 GFLOP forward per image of 224 x 224.

    depth         weighted layers
    image_size    pixels along one side (3 channels)
    classes       outputs of the last layer

    Every layer reads all that was made before it in its block, which is copied together first.
    """

    depth: Literal[121, 161, 169, 201] = 121
    image_size: Annotated[int, Check(32, 8192)] = 224
    classes: Annotated[int, Check(1, 10**7)] = 1000

    def model(self) -> Model:
        """Four blocks with three transitions between them, in registration order."""
        growth, blocks, first = _SHAPES[self.depth]
        net = ImageNetwork(Plane(3, self.image_size))
        net.convolution("features.conv0", first, 7, stride=2, padding=3, norm="features.norm0")
        net.pool("features.pool0", 3, 2, 1)
        for block, count in enumerate(blocks, start=1):
            for layer in range(1, count + 1):
                _dense(net, f"features.denseblock{block}.denselayer{layer}", growth)
            net.unit = ""
            if block < len(blocks):
                name = f"features.transition{block}"
                net.normed(f"{name}.norm")
                net.convolution(
                    f"{name}.conv", net.plane.channels // 2, 1, active=False, bias=False
                )
                net.pool(f"{name}.pool", 2, 2, maximum=False)
        net.normed("features.norm5")
        net.average("avgpool")
        net.linear("classifier", self.classes)
        return net.model(f"densenet{self.depth}")


def _dense(net: ImageNetwork, name: str, growth: int) -> None:
    """Norm, 1 x 1, norm, 3 x 3, whose output stands beside what the layer read."""
    source, net.unit = net.plane, name
    net.normed(f"{name}.norm1")
    net.convolution(f"{name}.conv1", _NARROW * growth, 1, norm=f"{name}.norm2")
    net.convolution(f"{name}.conv2", growth, 3, active=False, bias=False)
    net.joined(source.channels + growth)
