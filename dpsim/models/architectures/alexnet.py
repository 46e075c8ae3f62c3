"""AlexNet, the variant of one column that torchvision has.

Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks",
arXiv:1404.5997; names and registration order as in pytorch/vision `torchvision/models/alexnet.py`.
"""

from __future__ import annotations

from typing import Annotated

from dpsim.core.record import Check, record
from dpsim.models import Model
from dpsim.models.architectures import Architecture
from dpsim.models.image_layers import Plane
from dpsim.models.image_network import ImageNetwork


@record
class AlexNet(Architecture):
    """AlexNet: 61,100,840 parameters; 1.43 GFLOP forward per image of 224 x 224.

    image_size  pixels along one side (3 channels)
    classes     outputs of the last layer
    """

    image_size: Annotated[int, Check(63, 8192)] = 224
    classes: Annotated[int, Check(1, 10**7)] = 1000

    def model(self) -> Model:
        """Five convolutions, four poolings and three matrices."""
        net = ImageNetwork(Plane(3, self.image_size))
        net.convolution("features.0", 64, 11, stride=4, padding=2)
        net.pool("features.2", 3, 2)
        net.convolution("features.3", 192, 5)
        net.pool("features.5", 3, 2)
        for place, width in ((6, 384), (8, 256), (10, 256)):
            net.convolution(f"features.{place}", width, 3)
        net.pool("features.12", 3, 2)
        net.average("avgpool", 6)
        net.linear("classifier.1", 4096, active=True, dropout=True)
        net.linear("classifier.4", 4096, active=True)
        net.linear("classifier.6", self.classes)
        return net.model("alexnet")
