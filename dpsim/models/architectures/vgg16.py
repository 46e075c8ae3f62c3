"""VGG-16, the network whose gradients are large for its arithmetic.

Source: Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
Recognition" (arXiv:1409.1556), configuration D of table 1; names and registration order as in
pytorch/vision `torchvision/models/vgg.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from dpsim.core.record import Check, record
from dpsim.models import Layer, Model
from dpsim.models.architectures import Architecture
from dpsim.models.image_layers import Convolution, Plane, linear, pool

_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_WINDOW = 7


@record
class VGG16(Architecture):
    """VGG-16 without batch normalisation: 138,357,544 parameters; 30.9 GFLOP forward at 224 x 224.

    image_size  pixels along one side (3 channels)
    classes     outputs of the last layer

    Each convolution and each linear layer is one layer together with its ReLU and dropout.
    Traffic, memory and kernels follow the rules in `dpsim/models/image_layers.py`.
    """

    image_size: Annotated[int, Check(32, 8192)] = 224
    classes: Annotated[int, Check(1, 10**7)] = 1000

    def model(self) -> Model:
        """13 convolutions, five max poolings, one average pooling and three linear layers."""
        return Model(name="vgg16", layers=tuple(self._layers()), sample="image")

    def _layers(self) -> Iterator[Layer]:
        plane, place = Plane(3, self.image_size), 0
        for stage in _STAGES:
            for channels in stage:
                step = Convolution(f"features.{place}", channels, 3, padding=1, first=place == 0)
                yield step.layer(plane)
                plane = step.output(plane)
                place += 2  # the convolution and its ReLU
            smaller = plane.after(plane.channels, kernel=2, stride=2, padding=0)
            yield pool(f"features.{place}", plane, smaller, maximum=True)
            plane, place = smaller, place + 1
        window = Plane(plane.channels, _WINDOW)
        yield pool("avgpool", plane, window, maximum=False)
        yield linear("classifier.0", window.elements, 4096, relu=True, dropout=True)
        yield linear("classifier.3", 4096, 4096, relu=True, dropout=True)
        yield linear("classifier.6", 4096, self.classes)
