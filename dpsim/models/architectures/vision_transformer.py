"""Vision transformers as torchvision has them: ViT-B/16 to ViT-H/14.

Source: Dosovitskiy et al., arXiv:2010.11929, table 1; names and registration order as in
pytorch/vision `torchvision/models/vision_transformer.py`.
"""

from __future__ import annotations

from typing import Annotated

from dpsim.core.record import Check, Refused, record
from dpsim.models import Layer, Model, Tensor
from dpsim.models.architectures import Architecture
from dpsim.models.huggingface.tensors import linear, norm
from dpsim.models.layer_sum import LayerSum
from dpsim.models.transformer_layers import Block, attention, final_norm, mlp

Size = Annotated[int, Check(1, 10**6)]


@record
class VisionTransformer(Architecture):
    """A vision transformer: ViT-B/16 has 86,567,656 parameters; 35.1 GFLOP forward at 224 x 224.

    hidden, blocks, heads   width, blocks and attention heads
    feed_forward  width of the feed-forward part; 4 x hidden without it
    patch         pixels along one side of a patch
    image_size    pixels along one side (3 channels)
    classes       outputs of the last layer
    """

    hidden: Size = 768
    blocks: Annotated[int, Check(1, 1000)] = 12
    heads: Size = 12
    feed_forward: Size | None = None
    patch: Annotated[int, Check(1, 1024)] = 16
    image_size: Annotated[int, Check(1, 8192)] = 224
    classes: Annotated[int, Check(1, 10**7)] = 1000

    def __post_init__(self) -> None:
        for value, parts, key in (
            (self.hidden, self.heads, "heads"), (self.image_size, self.patch, "patch"),
        ):  # fmt: skip
            if value % parts:
                raise Refused(f"{parts} does not divide {value}", (key,))

    def model(self) -> Model:
        """Patches and a token for the class, encoder blocks, and the classifier."""
        h, tokens = self.hidden, (self.image_size // self.patch) ** 2 + 1
        block = Block(
            h, self.heads, self.heads, h // self.heads, self.feed_forward or 4 * h, causal=False,
            products=1,
        )  # fmt: skip
        layers = [*self._patches(tokens)]
        for i in range(self.blocks):
            layers += _block(block, f"encoder.layers.encoder_layer_{i}", tokens)
        layers.append(final_norm("encoder.ln", h, norm("encoder.ln", h), tokens))
        last = LayerSum("heads").matrix("heads.head", 1, self.classes, h)
        layers.append(last.layer(read=h, wrote=self.classes))
        return Model(name=f"vit h{h} p{self.patch}", layers=tuple(layers), sample="image")

    def _patches(self, tokens: int) -> list[Layer]:
        """The convolution that cuts the image up, and the positions."""
        h, p, pixels = self.hidden, self.patch, 3 * self.image_size**2
        cut = LayerSum("conv_proj", first=True).own("class_token", 1, 1, h)
        cut.own("conv_proj.weight", h, 3, p, p).own("conv_proj.bias", h)
        cut.product(2.0 * pixels * h, pixels, tokens * h)
        placed = LayerSum("encoder.pos_embedding").own("encoder.pos_embedding", 1, tokens, h)
        placed.add(tokens * h)
        return [
            cut.layer(read=pixels, wrote=tokens * h),
            placed.layer(read=tokens * h, wrote=tokens * h),
        ]


def _block(block: Block, unit: str, tokens: int) -> list[Layer]:
    h, f = block.hidden, block.ffn
    path = f"{unit}.self_attention"
    first = norm(f"{unit}.ln_1", h)
    first += (
        Tensor(f"{path}.in_proj_weight", (3 * h, h)),
        Tensor(f"{path}.in_proj_bias", (3 * h,)),
    )
    first += linear(f"{path}.out_proj", h, h)
    second = norm(f"{unit}.ln_2", h) + linear(f"{unit}.mlp.0", f, h) + linear(f"{unit}.mlp.3", h, f)
    return [attention(block, unit, first, tokens), mlp(block, unit, second, tokens)]
