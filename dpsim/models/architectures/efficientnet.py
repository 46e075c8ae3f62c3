"""EfficientNet B0 to B7 as torchvision has them.

Source: Tan and Le, arXiv:1905.11946, table 1 and section 4; names and registration order as in
pytorch/vision `torchvision/models/efficientnet.py`.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from dpsim.core.record import Check, record
from dpsim.models import Model
from dpsim.models.architectures import Architecture
from dpsim.models.image_layers import Plane
from dpsim.models.image_network import ImageNetwork

#: of B0: expansion, kernel, stride, channels read and written, how often
_STAGES = (
    (1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3), (6, 5, 2, 112, 192, 4), (6, 3, 1, 192, 320, 1),
)  # fmt: skip
#: width, depth and image size of B0 to B7
_SCALES = (
    (1.0, 1.0, 224), (1.0, 1.1, 240), (1.1, 1.2, 288), (1.2, 1.4, 300), (1.4, 1.8, 380),
    (1.6, 2.2, 456), (1.8, 2.6, 528), (2.0, 3.1, 600),
)  # fmt: skip


@record
class EfficientNet(Architecture):
    """An EfficientNet: B0 has 5,288,548 parameters and 0.77 GFLOP forward at 224 x 224.

    scale         0 to 7, of B0 to B7
    image_size    pixels along one side (3 channels); what its scale was made for if left out
    classes       outputs of the last layer
    """

    scale: Literal[0, 1, 2, 3, 4, 5, 6, 7] = 0
    image_size: Annotated[int, Check(32, 8192)] | None = None
    classes: Annotated[int, Check(1, 10**7)] = 1000

    def model(self) -> Model:
        """Squeezed inverted bottlenecks between two convolutions, in registration order."""
        wide, deep, size = _SCALES[self.scale]
        net = ImageNetwork(Plane(3, self.image_size or size))
        net.convolution("features.0.0", _channels(32 * wide), 3, stride=2, norm="features.0.1")
        for stage, (ratio, kernel, stride, _, written, count) in enumerate(_STAGES, start=1):
            for number in range(math.ceil(count * deep)):
                net.unit = f"features.{stage}.{number}"
                step, channels = 1 if number else stride, _channels(written * wide)
                _bottleneck(net, ratio, kernel, step, channels)
        net.unit, last = "", f"features.{len(_STAGES) + 1}"
        net.convolution(f"{last}.0", 4 * net.plane.channels, 1, norm=f"{last}.1")
        net.average("avgpool")
        net.linear("classifier.1", self.classes)
        return net.model(f"efficientnet_b{self.scale}")


def _bottleneck(net: ImageNetwork, ratio: int, kernel: int, stride: int, channels: int) -> None:
    source, path, place = net.plane, f"{net.unit}.block", 0
    inner = _channels(source.channels * ratio)
    if ratio > 1:
        net.convolution(f"{path}.0.0", inner, 1, norm=f"{path}.0.1")
        place = 1
    net.convolution(
        f"{path}.{place}.0", inner, kernel, stride=stride, groups=inner, norm=f"{path}.{place}.1"
    )
    net.squeeze(f"{path}.{place + 1}", max(1, source.channels // 4))
    same, last = stride == 1 and source.channels == channels, f"{path}.{place + 2}"
    net.convolution(f"{last}.0", channels, 1, norm=f"{last}.1", active=False, add=same)


def _channels(wanted: float) -> int:
    """The multiple of 8 nearest to `wanted`, not more than a tenth below it."""
    near = max(8, int(wanted + 4) // 8 * 8)
    return near + 8 if near < 0.9 * wanted else near
