"""DiT: a transformer that takes noise from latents of images of a class.

Source: Peebles and Xie, arXiv:2212.09748, table 1 and section 3; names and registration order as in
facebookresearch/DiT `models.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from dpsim.core.record import Check, Refused, record
from dpsim.models import Layer, Model
from dpsim.models.architectures import Architecture
from dpsim.models.layer_sum import LayerSum

#: blocks, width and heads
_SHAPES = {"S": (12, 384, 6), "B": (12, 768, 12), "L": (24, 1024, 16), "XL": (28, 1152, 16)}
#: channels of a latent, pixels per element of it, and width of the sinusoids that tell the step
_CHANNELS, _LATENT, _SINUSOIDS = 4, 8, 256


@record
class DiT(Architecture):
    """DiT: XL/2 has 674,834,720 trained parameters; 237 GFLOP forward at 256 x 256.

    variant       S, B, L or XL
    patch         elements of the latent along one side of a patch
    image_size    pixels along one side; the latent has an eighth of them
    classes       classes of images, beside which there is one for none

    The encoder that makes latents of images is frozen and not part of it; positions are not
    trained.
    """

    variant: Literal["S", "B", "L", "XL"] = "XL"
    patch: Literal[2, 4, 8] = 2
    image_size: Annotated[int, Check(64, 8192)] = 256
    classes: Annotated[int, Check(1, 10**7)] = 1000

    def __post_init__(self) -> None:
        if self.image_size % (_LATENT * self.patch):
            raise Refused(f"is no multiple of {_LATENT * self.patch} pixels", ("image_size",))

    def model(self) -> Model:
        """Patches, the embeddings of step and class, blocks, and the last layer."""
        blocks, h, _ = _SHAPES[self.variant]
        rows, pixels = (self.image_size // _LATENT // self.patch) ** 2, _CHANNELS * self.patch**2
        cut = LayerSum("x_embedder", first=True)
        cut.own("x_embedder.proj.weight", h, _CHANNELS, self.patch, self.patch)
        cut.own("x_embedder.proj.bias", h)
        cut.product(2.0 * rows * pixels * h, rows * pixels, rows * h).add(rows * h)
        told = LayerSum("t_embedder").matrix("t_embedder.mlp.0", 1, h, _SINUSOIDS).activation(h)
        told.matrix("t_embedder.mlp.2", 1, h, h)
        named = LayerSum("y_embedder").own("y_embedder.embedding_table.weight", self.classes + 1, h)
        last = LayerSum("final_layer").norm("", rows * h, h).scaled(rows * h)
        last.matrix("final_layer.linear", rows, 2 * pixels, h).activation(h)
        last.matrix("final_layer.adaLN_modulation.1", 1, 2 * h, h)
        layers = (
            cut.layer(read=rows * pixels, wrote=rows * h),
            told.layer(read=_SINUSOIDS, wrote=h),
            named.add(h).layer(read=1, wrote=h),
            *(_block(f"blocks.{i}", rows, h) for i in range(blocks)),
            last.layer(read=rows * h, wrote=2 * rows * pixels),
        )
        name = f"DiT-{self.variant}/{self.patch}"
        return Model(name=name, layers=layers, sample="image")


def _block(name: str, rows: int, h: int) -> Layer:
    """Attention and feed-forward part, each with shift, scale and gate from the step and class."""
    n, made = rows * h, LayerSum(name, name)
    made.norm("", n, h).scaled(n).matrix(f"{name}.attn.qkv", rows, 3 * h, h)
    made.attention(rows, rows, h).matrix(f"{name}.attn.proj", rows, h, h).scaled(n).add(n)
    made.norm("", n, h).scaled(n).matrix(f"{name}.mlp.fc1", rows, 4 * h, h).activation(4 * n)
    made.matrix(f"{name}.mlp.fc2", rows, h, 4 * h).scaled(n).add(n)
    made.activation(h).matrix(f"{name}.adaLN_modulation.1", 1, 6 * h, h)
    return made.layer(read=n, wrote=n)
