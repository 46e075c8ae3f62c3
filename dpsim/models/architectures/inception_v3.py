"""Inception v3, with the auxiliary classifier that it is trained with.

Source: Szegedy et al., arXiv:1512.00567; names and registration order as in pytorch/vision
`torchvision/models/inception.py`.
"""

from __future__ import annotations

from typing import Annotated

from dpsim.core.record import Check, Flag, record
from dpsim.models import Model
from dpsim.models.architectures import Architecture
from dpsim.models.image_layers import Plane
from dpsim.models.image_network import ImageNetwork

#: a convolution of a branch: its name, channels, kernel, and whether it halves the size
_Step = tuple[str, int, int | tuple[int, int], bool]
_ROW, _COLUMN, _LONG, _HIGH = (1, 7), (7, 1), (1, 3), (3, 1)


@record
class InceptionV3(Architecture):
    """Inception v3: 27,161,264 parameters (23,834,568 without the auxiliary classifier); 11.4 GFLOP
    forward per image of 299 x 299 without it.

    image_size  pixels along one side (3 channels)
    classes     outputs of either classifier
    auxiliary   whether the auxiliary classifier is there, as it is in training
    """

    image_size: Annotated[int, Check(75, 8192)] = 299
    classes: Annotated[int, Check(1, 10**7)] = 1000
    auxiliary: Flag = True

    def model(self) -> Model:
        """Five convolutions, eleven mixed blocks, and the classifiers."""
        net = ImageNetwork(Plane(3, self.image_size))
        _stem(net)
        for name, pool in (("5b", 32), ("5c", 64), ("5d", 64)):
            _block_a(net, f"Mixed_{name}", pool)
        _block_b(net, "Mixed_6a")
        for name, inner in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
            _block_c(net, f"Mixed_{name}", inner)
        if self.auxiliary:
            self._classify_early(net)
        _block_d(net, "Mixed_7a")
        for name in ("7b", "7c"):
            _block_e(net, f"Mixed_{name}")
        net.unit = ""
        net.average("avgpool")
        net.linear("fc", self.classes)
        return net.model("inception_v3")

    def _classify_early(self, net: ImageNetwork) -> None:
        source, net.unit = net.plane, "AuxLogits"
        net.pool("AuxLogits.pool", 5, 3, maximum=False)
        _convolution(net, "AuxLogits.conv0", 128, 1)
        _convolution(net, "AuxLogits.conv1", 768, 5, padding=0)
        net.average("AuxLogits.avgpool")
        net.linear("AuxLogits.fc", self.classes)
        net.plane = source


def _convolution(
    net: ImageNetwork,
    name: str,
    channels: int,
    kernel: int | tuple[int, int],
    *,
    stride: int = 1,
    padding: int | None = None,
    source: Plane | None = None,
) -> Plane:
    """A convolution with its batch normalisation and ReLU, as torchvision's BasicConv2d."""
    made = net.convolution(
        f"{name}.conv", channels, kernel, stride=stride, padding=padding, norm=f"{name}.bn",
        source=source,
    )  # fmt: skip
    return made


def _stem(net: ImageNetwork) -> None:
    _convolution(net, "Conv2d_1a_3x3", 32, 3, stride=2, padding=0)
    _convolution(net, "Conv2d_2a_3x3", 32, 3, padding=0)
    _convolution(net, "Conv2d_2b_3x3", 64, 3)
    net.pool("maxpool1", 3, 2)
    _convolution(net, "Conv2d_3b_1x1", 80, 1)
    _convolution(net, "Conv2d_4a_3x3", 192, 3, padding=0)
    net.pool("maxpool2", 3, 2)


def _branches(net: ImageNetwork, name: str, branches: list[list[_Step]], pool: int = 0) -> int:
    """Branches that all read what the block reads, and a pooled one with `pool` channels; returns
    the channels of all together."""
    source, total = net.plane, 0
    net.unit = name
    for steps in branches:
        plane = source
        for step, channels, kernel, halves in steps:
            plane = _convolution(
                net, f"{name}.{step}", channels, kernel, stride=2 if halves else 1,
                padding=0 if halves else None, source=plane,
            )  # fmt: skip
        total += plane.channels
    if pool:
        net.pool(f"{name}.pool", 3, 1, 1, maximum=False, source=source)
        _convolution(net, f"{name}.branch_pool", pool, 1)
        total += pool
    return total


def _block_a(net: ImageNetwork, name: str, pool: int) -> None:
    long: list[_Step] = [("branch3x3dbl_1", 64, 1, False)]
    long += [("branch3x3dbl_2", 96, 3, False), ("branch3x3dbl_3", 96, 3, False)]
    branches: list[list[_Step]] = [
        [("branch1x1", 64, 1, False)],
        [("branch5x5_1", 48, 1, False), ("branch5x5_2", 64, 5, False)],
        long,
    ]
    net.joined(_branches(net, name, branches, pool))


def _block_b(net: ImageNetwork, name: str) -> None:
    source = net.plane
    branches: list[list[_Step]] = [
        [("branch3x3", 384, 3, True)],
        [
            ("branch3x3dbl_1", 64, 1, False), ("branch3x3dbl_2", 96, 3, False),
            ("branch3x3dbl_3", 96, 3, True),
        ],
    ]  # fmt: skip
    total = _branches(net, name, branches)
    net.pool(f"{name}.pool", 3, 2, source=source)
    net.joined(total + source.channels)


def _block_c(net: ImageNetwork, name: str, inner: int) -> None:
    twice: list[_Step] = [("branch7x7dbl_1", inner, 1, False)]
    for number, kernel in ((2, _COLUMN), (3, _ROW), (4, _COLUMN), (5, _ROW)):
        twice.append((f"branch7x7dbl_{number}", 192 if number == 5 else inner, kernel, False))
    branches: list[list[_Step]] = [
        [("branch1x1", 192, 1, False)],
        [
            ("branch7x7_1", inner, 1, False), ("branch7x7_2", inner, _ROW, False),
            ("branch7x7_3", 192, _COLUMN, False),
        ],
        twice,
    ]  # fmt: skip
    net.joined(_branches(net, name, branches, 192))


def _block_d(net: ImageNetwork, name: str) -> None:
    source = net.plane
    branches: list[list[_Step]] = [
        [("branch3x3_1", 192, 1, False), ("branch3x3_2", 320, 3, True)],
        [
            ("branch7x7x3_1", 192, 1, False), ("branch7x7x3_2", 192, _ROW, False),
            ("branch7x7x3_3", 192, _COLUMN, False), ("branch7x7x3_4", 192, 3, True),
        ],
    ]  # fmt: skip
    total = _branches(net, name, branches)
    net.pool(f"{name}.pool", 3, 2, source=source)
    net.joined(total + source.channels)


def _block_e(net: ImageNetwork, name: str) -> None:
    """Two branches split in two at their end."""
    source, total = net.plane, 320
    net.unit = name
    _convolution(net, f"{name}.branch1x1", 320, 1, source=source)
    for path, steps in (("branch3x3", ((384, 1),)), ("branch3x3dbl", ((448, 1), (384, 3)))):
        plane = source
        for number, (channels, kernel) in enumerate(steps, start=1):
            plane = _convolution(net, f"{name}.{path}_{number}", channels, kernel, source=plane)
        last = len(steps) + 1
        for end, uneven in (("a", _LONG), ("b", _HIGH)):
            _convolution(net, f"{name}.{path}_{last}{end}", 384, uneven, source=plane)
            total += 384
    net.pool(f"{name}.pool", 3, 1, 1, maximum=False, source=source)
    _convolution(net, f"{name}.branch_pool", 192, 1)
    net.joined(total + 192)
