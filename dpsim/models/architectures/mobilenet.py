"""MobileNet v2 and v3 as torchvision has them.

Sources: Sandler et al., arXiv:1801.04381, table 2; Howard et al., arXiv:1905.02244, tables 1 and 2;
names and registration order as in pytorch/vision `torchvision/models/mobilenetv2.py` and
`mobilenetv3.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from dpsim.core.record import Check, record
from dpsim.models import Model
from dpsim.models.architectures import Architecture
from dpsim.models.image_layers import Plane
from dpsim.models.image_network import ImageNetwork

#: of version 2: expansion, channels, how often, first stride
_SECOND = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip
#: of version 3: kernel, expanded channels, channels, squeeze, stride
_LARGE = (
    (3, 16, 16, 0, 1), (3, 64, 24, 0, 2), (3, 72, 24, 0, 1), (5, 72, 40, 1, 2), (5, 120, 40, 1, 1),
    (5, 120, 40, 1, 1), (3, 240, 80, 0, 2), (3, 200, 80, 0, 1), (3, 184, 80, 0, 1),
    (3, 184, 80, 0, 1), (3, 480, 112, 1, 1), (3, 672, 112, 1, 1), (5, 672, 160, 1, 2),
    (5, 960, 160, 1, 1), (5, 960, 160, 1, 1),
)  # fmt: skip
_SMALL = (
    (3, 16, 16, 1, 2), (3, 72, 24, 0, 2), (3, 88, 24, 0, 1), (5, 96, 40, 1, 2), (5, 240, 40, 1, 1),
    (5, 240, 40, 1, 1), (5, 120, 48, 1, 1), (5, 144, 48, 1, 1), (5, 288, 96, 1, 2),
    (5, 576, 96, 1, 1), (5, 576, 96, 1, 1),
)  # fmt: skip


@record
class MobileNet(Architecture):
    """MobileNet: v2 has 3,504,872 parameters and 0.60 GFLOP forward per image of 224 x 224.

    variant       v2, v3_large or v3_small
    image_size    pixels along one side (3 channels)
    classes       outputs of the last layer
    """

    variant: Literal["v2", "v3_large", "v3_small"] = "v2"
    image_size: Annotated[int, Check(32, 8192)] = 224
    classes: Annotated[int, Check(1, 10**7)] = 1000

    def model(self) -> Model:
        """Inverted bottlenecks between two convolutions, in registration order."""
        net = ImageNetwork(Plane(3, self.image_size))
        if self.variant == "v2":
            self._second(net)
        else:
            self._third(net, _LARGE if self.variant == "v3_large" else _SMALL)
        return net.model(f"mobilenet_{self.variant}")

    def _second(self, net: ImageNetwork) -> None:
        _normed(net, "features.0", 32, 3, stride=2)
        place = 1
        for expansion, channels, count, stride in _SECOND:
            for number in range(count):
                inner, step = net.plane.channels * expansion, 1 if number else stride
                _inverted(net, f"features.{place}", "conv", (3, inner, channels, 0, step))
                place += 1
        net.unit = ""
        _normed(net, f"features.{place}", 1280, 1)
        net.average("avgpool")
        net.linear("classifier.1", self.classes)

    def _third(self, net: ImageNetwork, rows: tuple[tuple[int, ...], ...]) -> None:
        _normed(net, "features.0", 16, 3, stride=2)
        for place, row in enumerate(rows, start=1):
            _inverted(net, f"features.{place}", "block", row)
        net.unit = ""
        _normed(net, f"features.{len(rows) + 1}", 6 * rows[-1][2], 1)
        net.average("avgpool")
        net.linear("classifier.0", 1280 if rows is _LARGE else 1024, active=True, dropout=True)
        net.linear("classifier.3", self.classes)


def _normed(net: ImageNetwork, name: str, channels: int, kernel: int, *, stride: int = 1,
            groups: int = 1, active: bool = True, add: bool = False) -> None:  # fmt: skip
    net.convolution(
        f"{name}.0", channels, kernel, stride=stride, groups=groups, norm=f"{name}.1",
        active=active, add=add,
    )  # fmt: skip


def _inverted(net: ImageNetwork, name: str, inside: str, row: tuple[int, ...]) -> None:
    """Wider by 1 x 1, one filter per channel, squeezed, narrower by 1 x 1, and added.  Version 2
    has the last convolution and its norm among the others, version 3 in a part of its own."""
    kernel, inner, channels, squeeze, stride = row
    source, place = net.plane, 0
    net.unit = name
    if inner != source.channels:
        _normed(net, f"{name}.{inside}.{place}", inner, 1)
        place += 1
    _normed(net, f"{name}.{inside}.{place}", inner, kernel, stride=stride, groups=inner)
    place += 1
    if squeeze:
        net.squeeze(f"{name}.{inside}.{place}", _divisible(inner / 4))
        place += 1
    same = stride == 1 and source.channels == channels
    last = f"{name}.{inside}.{place}"
    ends = (
        (last, f"{name}.{inside}.{place + 1}") if inside == "conv" else (f"{last}.0", f"{last}.1")
    )
    net.convolution(ends[0], channels, 1, norm=ends[1], active=False, add=same)


def _divisible(channels: float) -> int:
    """The multiple of 8 nearest to `channels`, not more than a tenth below it."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near
