"""The U-Net of latent diffusion: `UNet2DConditionModel` of diffusers (Stable Diffusion 1, 2, XL).

Names and order of registration follow huggingface/diffusers `unet_2d_condition.py` and
`unet_2d_blocks.py`, in which the blocks on the way up come before the one in the middle, and a
block's attentions before its residual blocks.  One sample is an image of `image_size` pixels, which
is a latent of an eighth of that (`sample_size` if left out), with a prompt of `sequence_length`
tokens (77).  What is trained is the U-Net: encoders of images and prompts are frozen, and mostly
run before; where they run in the step, that is host or device time of its own.

Sources: Rombach et al., arXiv:2112.10752; Podell et al., arXiv:2307.01952 (XL).  Parameters follow
from the tensors; of Stable Diffusion 1.5 they are 859,520,964, of XL 2,567,463,684.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dpsim.core.record import Refused
from dpsim.models import Layer
from dpsim.models.huggingface.config import Config
from dpsim.models.huggingface.tensors import Parts
from dpsim.models.image_layers import Plane
from dpsim.models.layer_sum import LayerSum

#: pixels along one side of an image for each element of its latent
LATENT = 8
#: tokens of a prompt for CLIP's encoder
_PROMPT = 77


@dataclass
class LatentNet:
    """What all blocks know: the width of the time's embedding and the prompt, and the layers so
    far, each with its place in the order of registration."""

    time: int
    prompt: int
    context: int
    heads: tuple[int, ...]
    depths: tuple[int, ...]
    matrix: bool
    stored: bool
    found: list[tuple[tuple[int, ...], Layer]] = field(default_factory=list)

    def put(self, place: tuple[int, ...], layer: Layer) -> None:
        self.found.append((place, layer))

    def parts(self) -> Parts:
        """The layers as they are registered, and the order in which forward visits them."""
        ranked = sorted(range(len(self.found)), key=lambda i: self.found[i][0])
        order = [0] * len(ranked)
        for registered, run in enumerate(ranked):
            order[run] = registered
        return tuple(self.found[i][1] for i in ranked), tuple(order)


def unet(config: Config) -> Parts:
    """A U-Net with cross-attention to a prompt."""
    for key in (
        "class_embed_type",
        "time_cond_proj_dim",
        "encoder_hid_dim",
        "dual_cross_attention",
    ):
        if config.data.get(key):
            raise Refused(f"{str(config.data[key])[:60]!r} is not modelled", (key,))
    widths = _numbers(config, "block_out_channels")
    net = _net(config, widths)
    size = latent(config, config.size("sample_size", default=64))
    if size % 2 ** (len(widths) - 1):
        halves = f"latents of {size} cannot be halved {len(widths) - 1} times"
        raise Refused(halves, ("image_size" if config.image else "sample_size",))
    plane = Plane(config.size("in_channels", default=4), size)
    first = LayerSum("conv_in", first=True)
    out = Plane(widths[0], size)
    first.convolution("conv_in", plane, out, (3, 3), bias=True)
    net.put((0,), first.layer(read=plane.elements, wrote=out.elements))
    _embedding(config, net, widths[0])
    skips, plane = _down(config, net, widths, out)
    plane = _middle(net, plane)
    plane = _up(config, net, widths[::-1], plane, skips)
    last = LayerSum("conv_out").norm("conv_norm_out", plane.elements, plane.channels)
    last.activation(plane.elements)
    out = Plane(config.size("out_channels", default=4), plane.size)
    last.convolution("conv_out", plane, out, (3, 3), bias=True)
    net.put((5,), last.layer(read=plane.elements, wrote=out.elements))
    return net.parts()


def latent(config: Config, default: int) -> int:
    """Elements along one side of the latent of an image."""
    if config.image is None:
        return default
    if config.image % LATENT:
        raise Refused(f"{config.image} is no multiple of {LATENT} pixels", ("image_size",))
    return config.image // LATENT


def _net(config: Config, widths: Sequence[int]) -> LatentNet:
    given = config.data.get("transformer_layers_per_block")
    depths = _numbers(config, "transformer_layers_per_block") if given else (1,)
    # a historical slip of diffusers: `attention_head_dim` holds the number of heads
    key = "num_attention_heads" if config.data.get("num_attention_heads") else "attention_head_dim"
    heads = _numbers(config, key) if config.data.get(key) else (8,)
    count = len(widths)
    for found, name in ((depths, "transformer_layers_per_block"), (heads, key)):
        if len(found) not in (1, count):
            raise Refused(f"has {len(found)} numbers for {count} blocks", (name,))
    return LatentNet(
        time=4 * widths[0],
        prompt=config.length or _PROMPT,
        context=config.size("cross_attention_dim"),
        heads=heads * (count // len(heads)),
        depths=depths * (count // len(depths)),
        matrix=config.flag("use_linear_projection", False),
        stored=config.stored,
    )


def _numbers(config: Config, key: str) -> tuple[int, ...]:
    """A whole number, or a list of them."""
    value = config.data.get(key)
    if not isinstance(value, list):
        return (config.size(key),)
    if not 1 <= len(value) <= 16:
        raise Refused(f"has {len(value)} numbers", (key,))
    inner = [Config({key: one}, config.length).size(key) for one in value]
    return tuple(inner)


def _embedding(config: Config, net: LatentNet, width: int) -> None:
    """The step of diffusion, and for XL the pooled prompt and sizes, as a vector."""
    made = LayerSum("time_embedding")
    made.matrix("time_embedding.linear_1", 1, net.time, width).activation(net.time)
    made.matrix("time_embedding.linear_2", 1, net.time, net.time)
    kind = config.data.get("addition_embed_type")
    if kind == "text_time":
        read = config.size("projection_class_embeddings_input_dim")
        made.matrix("add_embedding.linear_1", 1, net.time, read).activation(net.time)
        made.matrix("add_embedding.linear_2", 1, net.time, net.time).add(net.time)
    elif kind is not None:
        raise Refused(f"{str(kind)[:60]!r} is not modelled", ("addition_embed_type",))
    net.put((1,), made.layer(read=width, wrote=net.time))


def _types(config: Config, key: str, count: int, plain: str, crossed: str) -> list[bool]:
    """Whether each block has attention."""
    kinds = config.data.get(key)
    if not isinstance(kinds, list) or len(kinds) != count:
        raise Refused(f"needs one of {plain}, {crossed} for each of {count} blocks", (key,))
    for kind in kinds:
        if kind not in (plain, crossed):
            raise Refused(f"{str(kind)[:60]!r} is not modelled; {plain}, {crossed} are", (key,))
    return [kind == crossed for kind in kinds]


def _down(
    config: Config, net: LatentNet, widths: Sequence[int], plane: Plane
) -> tuple[list[int], Plane]:
    """The way down, and the channels of what the way up will read again."""
    crossed = _types(config, "down_block_types", len(widths), "DownBlock2D", "CrossAttnDownBlock2D")
    count, skips = config.size("layers_per_block", default=2), [plane.channels]
    for block, width in enumerate(widths):
        for layer in range(count):
            path = f"down_blocks.{block}"
            plane = _residual(net, (2, block, 1, layer), f"{path}.resnets.{layer}", plane, width)
            if crossed[block]:
                place = (2, block, 0, layer)
                _transformer(net, place, f"{path}.attentions.{layer}", plane, block)
            skips.append(width)
        if block < len(widths) - 1:
            name = f"{path}.downsamplers.0.conv"
            smaller = plane.after(width, 3, 2, 1)
            _resized(net, (2, block, 2), name, plane, smaller)
            plane = smaller
            skips.append(width)
    return skips, plane


def _middle(net: LatentNet, plane: Plane) -> Plane:
    block, width = len(net.heads) - 1, plane.channels
    plane = _residual(net, (4, 1, 0), "mid_block.resnets.0", plane, width)
    _transformer(net, (4, 0, 0), "mid_block.attentions.0", plane, block)
    return _residual(net, (4, 1, 1), "mid_block.resnets.1", plane, width)


def _up(
    config: Config, net: LatentNet, widths: Sequence[int], plane: Plane, skips: list[int]
) -> Plane:
    crossed = _types(config, "up_block_types", len(widths), "UpBlock2D", "CrossAttnUpBlock2D")
    count = config.size("layers_per_block", default=2) + 1
    for block, width in enumerate(widths):
        path = f"up_blocks.{block}"
        for layer in range(count):
            joined = Plane(plane.channels + skips.pop(), plane.size)
            plane = _residual(net, (3, block, 1, layer), f"{path}.resnets.{layer}", joined, width)
            if crossed[block]:
                place, mirrored = (3, block, 0, layer), len(widths) - 1 - block
                _transformer(net, place, f"{path}.attentions.{layer}", plane, mirrored)
        if block < len(widths) - 1:
            larger = Plane(width, 2 * plane.size)
            name = f"{path}.upsamplers.0.conv"
            _resized(net, (3, block, 2), name, larger, larger, copied=plane.elements)
            plane = larger
    return plane


def _resized(
    net: LatentNet, place: tuple[int, ...], name: str, read: Plane, out: Plane, copied: int = 0
) -> None:
    """A convolution that changes the size; `copied` elements are repeated before it."""
    made = LayerSum(name)
    if copied:
        made.pooled(copied, read.elements)
    made.convolution(name, read, out, (3, 3), bias=True)
    net.put(place, made.layer(read=copied or read.elements, wrote=out.elements))


def _residual(net: LatentNet, place: tuple[int, ...], name: str, read: Plane, width: int) -> Plane:
    """Two convolutions with norms before them, the time in between, and a shortcut."""
    out = Plane(width, read.size)
    made = LayerSum(name, name)
    made.norm(f"{name}.norm1", read.elements, read.channels).activation(read.elements)
    made.convolution(f"{name}.conv1", read, out, (3, 3), bias=True)
    made.activation(net.time).matrix(f"{name}.time_emb_proj", 1, width, net.time).add(out.elements)
    made.norm(f"{name}.norm2", out.elements, width).activation(out.elements)
    made.convolution(f"{name}.conv2", out, out, (3, 3), bias=True)
    if read.channels != width:
        made.convolution(f"{name}.conv_shortcut", read, out, (1, 1), bias=True)
    made.add(out.elements)
    net.put(place, made.layer(read=read.elements, wrote=out.elements))
    return out


def _transformer(
    net: LatentNet, place: tuple[int, ...], name: str, plane: Plane, block: int
) -> None:
    """A norm, a projection, blocks of self-attention, cross-attention and a gated feed-forward
    part, and a projection back, added."""
    c, rows, n = plane.channels, plane.size**2, plane.elements
    kernel = () if net.matrix else (1, 1)
    first = LayerSum(f"{name}.proj_in", name).norm(f"{name}.norm", n, c)
    first.own(f"{name}.proj_in.weight", c, c, *kernel).own(f"{name}.proj_in.bias", c)
    first.product(2.0 * rows * c * c, n, n)
    net.put((*place, 0), first.layer(read=n, wrote=n))
    for depth in range(net.depths[block]):
        path = f"{name}.transformer_blocks.{depth}"
        net.put((*place, 1, depth), _attended(net, path, name, rows, c, net.heads[block]))
    last = LayerSum(f"{name}.proj_out", name)
    last.own(f"{name}.proj_out.weight", c, c, *kernel).own(f"{name}.proj_out.bias", c)
    last.product(2.0 * rows * c * c, n, n).add(n)
    net.put((*place, 2), last.layer(read=n, wrote=n))


def _attended(net: LatentNet, path: str, unit: str, rows: int, c: int, heads: int) -> Layer:
    n, made = rows * c, LayerSum(path, unit)
    for number, (keys, width) in enumerate(((rows, c), (net.prompt, net.context)), start=1):
        at = f"{path}.attn{number}"
        made.norm(f"{path}.norm{number}", n, c)
        made.matrix(f"{at}.to_q", rows, c, c, bias=False)
        made.matrix(f"{at}.to_k", keys, c, width, bias=False)
        made.matrix(f"{at}.to_v", keys, c, width, bias=False)
        made.attention(rows, keys, c, stored=heads * net.stored)
        made.matrix(f"{at}.to_out.0", rows, c, c).add(n)
    made.norm(f"{path}.norm3", n, c).matrix(f"{path}.ff.net.0.proj", rows, 8 * c, c)
    made.gate(4 * n).matrix(f"{path}.ff.net.2", rows, c, 4 * c).add(n)
    return made.layer(read=n, wrote=n)
