"""ConvNeXt as torchvision has it.

Source: Liu et al., arXiv:2201.03545; names and registration order as in pytorch/vision
`torchvision/models/convnext.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from dpsim.core.record import Check, record
from dpsim.models import Layer, Model
from dpsim.models.architectures import Architecture
from dpsim.models.image_layers import Plane
from dpsim.models.layer_sum import LayerSum

#: channels and blocks of the four stages
_SHAPES = {
    "tiny": ((96, 192, 384, 768), (3, 3, 9, 3)),
    "small": ((96, 192, 384, 768), (3, 3, 27, 3)),
    "base": ((128, 256, 512, 1024), (3, 3, 27, 3)),
    "large": ((192, 384, 768, 1536), (3, 3, 27, 3)),
}


@record
class ConvNeXt(Architecture):
    """A ConvNeXt: tiny has 28,589,128 parameters and 8.9 GFLOP forward at 224 x 224.

    variant       tiny, small, base or large
    image_size    pixels along one side (3 channels)
    classes       outputs of the last layer
    """

    variant: Literal["tiny", "small", "base", "large"] = "tiny"
    image_size: Annotated[int, Check(32, 8192)] = 224
    classes: Annotated[int, Check(1, 10**7)] = 1000

    def model(self) -> Model:
        """Four stages, of blocks that are a layer each, in registration order."""
        widths, depths = _SHAPES[self.variant]
        image = Plane(3, self.image_size)
        plane = image.after(widths[0], 4, 4, 0)
        first = LayerSum("features.0", first=True)
        first.convolution("features.0.0", image, plane, (4, 4), bias=True)
        first.norm("features.0.1", plane.elements, widths[0])
        layers = [first.layer(read=image.elements, wrote=plane.elements)]
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            if stage:
                wide, plane = plane, plane.after(width, 2, 2, 0)
                layers.append(_smaller(f"features.{2 * stage}", wide, plane))
            layers += [_block(f"features.{2 * stage + 1}.{k}", plane) for k in range(depth)]
        last = LayerSum("classifier").pooled(plane.elements, plane.channels)
        last.norm("classifier.0", plane.channels, plane.channels)
        last.matrix("classifier.2", 1, self.classes, plane.channels)
        layers.append(last.layer(read=plane.elements, wrote=self.classes))
        return Model(name=f"convnext_{self.variant}", layers=tuple(layers), sample="image")


def _smaller(name: str, wide: Plane, out: Plane) -> Layer:
    """A norm and a convolution that halves the size."""
    found = LayerSum(name).norm(f"{name}.0", wide.elements, wide.channels)
    found.convolution(f"{name}.1", wide, out, (2, 2), bias=True)
    return found.layer(read=wide.elements, wrote=out.elements)


def _block(name: str, plane: Plane) -> Layer:
    """7 x 7 with one filter per channel, norm, wider by four, narrower, scaled, and added."""
    c, rows, n = plane.channels, plane.size**2, plane.elements
    found = LayerSum(name, name).own(f"{name}.layer_scale", c, 1, 1)
    found.convolution(f"{name}.block.0", plane, plane, (7, 7), groups=c, bias=True)
    found.norm(f"{name}.block.2", n, c).matrix(f"{name}.block.3", rows, 4 * c, c)
    found.activation(4 * n).matrix(f"{name}.block.5", rows, c, 4 * c).scaled(n).add(n)
    return found.layer(read=n, wrote=n)
