"""Swin transformers as torchvision has them.

Source: Liu et al., arXiv:2103.14030; names and registration order as in pytorch/vision
`torchvision/models/swin_transformer.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from dpsim.core.record import Check, record
from dpsim.models import Layer, Model
from dpsim.models.architectures import Architecture
from dpsim.models.image_layers import Plane
from dpsim.models.layer_sum import LayerSum

#: width, blocks and heads of the four stages
_SHAPES = {
    "tiny": (96, (2, 2, 6, 2), (3, 6, 12, 24)),
    "small": (96, (2, 2, 18, 2), (3, 6, 12, 24)),
    "base": (128, (2, 2, 18, 2), (4, 8, 16, 32)),
}
_WINDOW = 7


@record
class Swin(Architecture):
    """A Swin transformer: tiny has 28,288,354 parameters and 9.0 GFLOP forward at 224 x 224.

    variant       tiny, small or base
    image_size    pixels along one side (3 channels)
    classes       outputs of the last layer

    A token looks at those of its window of 7 x 7, whose scores are stored, for they get a bias.
    """

    variant: Literal["tiny", "small", "base"] = "tiny"
    image_size: Annotated[int, Check(32, 8192)] = 224
    classes: Annotated[int, Check(1, 10**7)] = 1000

    def model(self) -> Model:
        """Four stages, of blocks that are a layer each, in registration order."""
        width, depths, heads = _SHAPES[self.variant]
        image = Plane(3, self.image_size)
        plane = image.after(width, 4, 4, 0)
        first = LayerSum("features.0", first=True)
        first.convolution("features.0.0", image, plane, (4, 4), bias=True)
        first.norm("features.0.2", plane.elements, width)
        layers = [first.layer(read=image.elements, wrote=plane.elements)]
        for stage, (depth, count) in enumerate(zip(depths, heads, strict=True)):
            name = f"features.{2 * stage + 1}"
            layers += [_block(f"{name}.{k}", plane, count) for k in range(depth)]
            if stage < len(depths) - 1:
                layers.append(_merged(f"features.{2 * stage + 2}", plane))
                plane = Plane(2 * plane.channels, (plane.size + 1) // 2)
        last = LayerSum("head").norm("norm", plane.elements, plane.channels)
        last.pooled(plane.elements, plane.channels)
        last.matrix("head", 1, self.classes, plane.channels)
        layers.append(last.layer(read=plane.elements, wrote=self.classes))
        return Model(name=f"swin_{self.variant}", layers=tuple(layers), sample="image")


def _block(name: str, plane: Plane, heads: int) -> Layer:
    c, windows = plane.channels, -(-plane.size // _WINDOW)
    rows, seen = float((windows * _WINDOW) ** 2), _WINDOW**2
    n = rows * c
    found = LayerSum(name, name).norm(f"{name}.norm1", n, c)
    found.own(f"{name}.attn.relative_position_bias_table", (2 * _WINDOW - 1) ** 2, heads)
    found.matrix(f"{name}.attn.qkv", rows, 3 * c, c)
    found.attention(rows, rows, c, pairs=rows * seen)
    found.scaled(rows * seen * heads).activation(rows * seen * heads)
    found.matrix(f"{name}.attn.proj", rows, c, c).add(n).norm(f"{name}.norm2", n, c)
    found.matrix(f"{name}.mlp.0", rows, 4 * c, c).activation(4 * n)
    found.matrix(f"{name}.mlp.3", rows, c, 4 * c).add(n)
    return found.layer(read=plane.elements, wrote=plane.elements)


def _merged(name: str, plane: Plane) -> Layer:
    """Four neighbours side by side, and a matrix to half their width."""
    c, rows = plane.channels, ((plane.size + 1) // 2) ** 2
    found = LayerSum(name).matrix(f"{name}.reduction", rows, 2 * c, 4 * c, bias=False)
    found.norm(f"{name}.norm", rows * 4 * c, 4 * c)
    return found.layer(read=plane.elements, wrote=rows * 2 * c)
