"""VGG networks as torchvision has them, with and without batch normalisation.

Source: Simonyan and Zisserman, arXiv:1409.1556, table 1 (configurations A, B, D and E); names and
registration order as in pytorch/vision `torchvision/models/vgg.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from dpsim.core.record import Check, Flag, record
from dpsim.models import Model
from dpsim.models.architectures import Architecture
from dpsim.models.image_layers import Plane
from dpsim.models.image_network import ImageNetwork

_CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_WIDTHS = (64, 128, 256, 512, 512)


@record
class VGG(Architecture):
    """A VGG of any depth: of 19, 143,667,240 parameters and 39.3 GFLOP forward at 224 x 224.

    depth         weighted layers
    batch_norm    whether a batch normalisation follows every convolution
    image_size    pixels along one side (3 channels)
    classes       outputs of the last layer
    """

    depth: Literal[11, 13, 16, 19] = 19
    batch_norm: Flag = False
    image_size: Annotated[int, Check(32, 8192)] = 224
    classes: Annotated[int, Check(1, 10**7)] = 1000

    def model(self) -> Model:
        """Convolutions, six poolings and three matrices, in registration order."""
        net, place = ImageNetwork(Plane(3, self.image_size)), 0
        for width, count in zip(_WIDTHS, _CONVOLUTIONS[self.depth], strict=True):
            for _ in range(count):
                norm = f"features.{place + 1}" if self.batch_norm else ""
                net.convolution(f"features.{place}", width, 3, norm=norm, bias=True)
                place += 3 if self.batch_norm else 2
            net.pool(f"features.{place}", 2, 2)
            place += 1
        net.average("avgpool", 7)
        net.linear("classifier.0", 4096, active=True, dropout=True)
        net.linear("classifier.3", 4096, active=True, dropout=True)
        net.linear("classifier.6", self.classes)
        return net.model(f"vgg{self.depth}{'_bn' * self.batch_norm}")
