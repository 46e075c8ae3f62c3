"""Transformers of latent diffusion in which prompt and image attend to each other:
`SD3Transformer2DModel` (Stable Diffusion 3) and `FluxTransformer2DModel` (FLUX.1) of diffusers.

Names and order of registration follow huggingface/diffusers `transformer_sd3.py` and
`transformer_flux.py`.  One sample is an image of `image_size` pixels, a latent of an eighth of that
cut into patches of 2 x 2, with a prompt of `sequence_length` tokens (333 of SD3: 77 of CLIP and 256
of T5; 512 of FLUX).  Encoders of images and prompts are frozen and not part of it.

Sources: Esser et al., arXiv:2403.03206; black-forest-labs/flux `src/flux/model.py`.  Parameters
follow from the tensors; of FLUX.1-dev they are 11,901,408,320.
"""

from __future__ import annotations

from dpsim.core.record import Refused
from dpsim.models import Layer
from dpsim.models.huggingface.config import Config
from dpsim.models.huggingface.tensors import Parts
from dpsim.models.huggingface.unet import LATENT, latent
from dpsim.models.layer_sum import LayerSum

#: width of the sinusoids that tell the step of diffusion
_SINUSOIDS = 256
_SD3_PROMPT, _FLUX_PROMPT, _FLUX_PIXELS = 333, 512, 1024


class JointSum(LayerSum):
    """A layer of `h` wide tokens of an image and of a prompt."""

    def vector(self, name: str, read: int, h: int) -> JointSum:
        """Two matrices that make a vector of h elements of one of `read`."""
        self.matrix(f"{name}.linear_1", 1, h, read).activation(h)
        self.matrix(f"{name}.linear_2", 1, h, h).add(h)
        return self

    def modulation(self, name: str, h: int, times: int) -> JointSum:
        """The shifts, scales and gates that the step of diffusion gives."""
        self.activation(h).matrix(f"{name}.linear", 1, times * h, h)
        return self

    def modulated(self, rows: int, h: int) -> JointSum:
        """A norm without parameters, scaled and shifted."""
        self.norm("", rows * h, h).scaled(rows * h)
        return self

    def feed_forward(self, name: str, rows: int, h: int) -> JointSum:
        """Wider by four and back, gated by the step and added."""
        self.modulated(rows, h).matrix(f"{name}.net.0.proj", rows, 4 * h, h)
        self.activation(4 * rows * h).matrix(f"{name}.net.2", rows, h, 4 * h)
        self.scaled(rows * h).add(rows * h)
        return self


def _patches(config: Config, patch: int, default: int) -> int:
    """Tokens of the image: patches of its latent."""
    size = latent(config, default)
    if size % patch:
        raise Refused(f"latents of {size} are no multiple of patches of {patch}", ("image_size",))
    return (size // patch) ** 2


# Stable Diffusion 3 ------------------------------------------------------------------------------


def sd3(config: Config) -> Parts:
    """Stable Diffusion 3: two streams that attend together, block after block."""
    config.require("dual_attention_layers", [])
    h = config.size("num_attention_heads") * config.size("attention_head_dim")
    patch, channels = config.size("patch_size", default=2), config.size("in_channels", default=16)
    rows = _patches(config, patch, config.size("sample_size", default=128))
    prompt, context = config.length or _SD3_PROMPT, config.size("joint_attention_dim")
    pixels, out = channels * patch**2, config.size("out_channels", default=channels)
    first = JointSum("pos_embed", first=True).own(
        "pos_embed.proj.weight", h, channels, patch, patch
    )
    first.own("pos_embed.proj.bias", h).product(2.0 * rows * pixels * h, rows * pixels, rows * h)
    first.add(rows * h)
    layers = [first.layer(read=rows * pixels, wrote=rows * h)]
    told = JointSum("time_text_embed").vector("time_text_embed.timestep_embedder", _SINUSOIDS, h)
    told.vector("time_text_embed.text_embedder", config.size("pooled_projection_dim"), h)
    layers.append(told.layer(read=_SINUSOIDS, wrote=h))
    read = JointSum("context_embedder").matrix("context_embedder", prompt, h, context)
    layers.append(read.layer(read=prompt * context, wrote=prompt * h))
    count, norms = config.layers("num_layers"), _norms(config)
    for i in range(count):
        layers.append(
            _sd3_block(config, f"transformer_blocks.{i}", rows, prompt, h, norms, i == count - 1)
        )
    last = JointSum("proj_out").modulation("norm_out", h, 2).modulated(rows, h)
    last.matrix("proj_out", rows, patch**2 * out, h)
    layers.append(last.layer(read=rows * h, wrote=rows * patch**2 * out))
    return tuple(layers), ()


def _norms(config: Config) -> int:
    """Width of the norms of queries and keys; 0: there are none."""
    kind = config.data.get("qk_norm")
    if kind not in (None, "rms_norm"):
        raise Refused(f"{str(kind)[:60]!r} is not modelled; 'rms_norm' is", ("qk_norm",))
    return config.size("attention_head_dim") if kind else 0


def _sd3_block(
    config: Config, name: str, rows: int, prompt: int, h: int, norms: int, last: bool
) -> Layer:
    """The last block writes the image's stream alone."""
    at, both, n = f"{name}.attn", rows + prompt, rows * h
    heads = config.size("num_attention_heads") * config.stored
    made = JointSum(name, name).modulation(f"{name}.norm1", h, 6)
    made.modulation(f"{name}.norm1_context", h, 2 if last else 6)
    made.modulated(rows, h).modulated(prompt, h)
    for kind in ("q", "k") if norms else ():
        made.norm(f"{at}.norm_{kind}", n, norms, bias=False)
    for kind in ("q", "k", "v"):
        made.matrix(f"{at}.to_{kind}", rows, h, h)
    for kind in ("k", "v", "q"):
        made.matrix(f"{at}.add_{kind}_proj", prompt, h, h)
    made.attention(both, both, h, stored=heads)
    made.matrix(f"{at}.to_out.0", rows, h, h).scaled(n).add(n)
    if not last:
        made.matrix(f"{at}.to_add_out", prompt, h, h).scaled(prompt * h).add(prompt * h)
    for kind in ("q", "k") if norms else ():
        made.norm(f"{at}.norm_added_{kind}", prompt * h, norms, bias=False)
    made.feed_forward(f"{name}.ff", rows, h)
    if not last:
        made.feed_forward(f"{name}.ff_context", prompt, h)
    return made.layer(read=both * h, wrote=both * h)


# FLUX --------------------------------------------------------------------------------------------


def flux(config: Config) -> Parts:
    """FLUX.1: blocks of two streams, then blocks of one, whose halves are side by side."""
    config.require("patch_size", 1)
    d = config.size("attention_head_dim")
    h, channels = config.size("num_attention_heads") * d, config.size("in_channels", default=64)
    rows, prompt = _patches(config, 2, _FLUX_PIXELS // LATENT), config.length or _FLUX_PROMPT
    context = config.size("joint_attention_dim")
    told = JointSum("time_text_embed").vector("time_text_embed.timestep_embedder", _SINUSOIDS, h)
    if config.flag("guidance_embeds", False):
        told.vector("time_text_embed.guidance_embedder", _SINUSOIDS, h)
    told.vector("time_text_embed.text_embedder", config.size("pooled_projection_dim"), h)
    read = JointSum("context_embedder").matrix("context_embedder", prompt, h, context)
    seen = JointSum("x_embedder", first=True).matrix("x_embedder", rows, h, channels)
    layers = [
        told.layer(read=_SINUSOIDS, wrote=h),
        read.layer(read=prompt * context, wrote=prompt * h),
        seen.layer(read=rows * channels, wrote=rows * h),
    ]
    heads = config.size("num_attention_heads") * config.stored
    for i in range(config.layers("num_layers")):
        layers.append(_flux_block(f"transformer_blocks.{i}", rows, prompt, h, d, heads))
    for i in range(config.count("num_single_layers")):
        layers.append(_single(f"single_transformer_blocks.{i}", rows + prompt, h, d, heads))
    last = JointSum("proj_out").modulation("norm_out", h, 2).modulated(rows, h)
    last.matrix("proj_out", rows, channels, h)
    return (*layers, last.layer(read=rows * h, wrote=rows * channels)), ()


def _flux_block(name: str, rows: int, prompt: int, h: int, d: int, heads: int) -> Layer:
    at, both = f"{name}.attn", rows + prompt
    made = JointSum(name, name)
    for end in ("norm1", "norm1_context"):
        made.modulation(f"{name}.{end}", h, 6)
    made.modulated(rows, h).modulated(prompt, h)
    _queries(made, at, rows, h, d)
    made.attention(both, both, h, stored=heads)
    made.matrix(f"{at}.to_out.0", rows, h, h).scaled(rows * h).add(rows * h)
    for end in ("q", "k"):
        made.norm(f"{at}.norm_added_{end}", prompt * h, d, bias=False)
    for end in ("q", "k", "v"):
        made.matrix(f"{at}.add_{end}_proj", prompt, h, h)
    made.matrix(f"{at}.to_add_out", prompt, h, h).scaled(prompt * h).add(prompt * h)
    made.feed_forward(f"{name}.ff", rows, h).feed_forward(f"{name}.ff_context", prompt, h)
    return made.layer(read=both * h, wrote=both * h)


def _queries(made: JointSum, at: str, rows: int, h: int, d: int) -> None:
    """Queries, keys and values, with norms and rotary positions of the first two."""
    for end in ("q", "k"):
        made.norm(f"{at}.norm_{end}", rows * h, d, bias=False).scaled(rows * h)
    for end in ("q", "k", "v"):
        made.matrix(f"{at}.to_{end}", rows, h, h)


def _single(name: str, rows: int, h: int, d: int, heads: int) -> Layer:
    n, made = rows * h, JointSum(name, name)
    made.modulation(f"{name}.norm", h, 3).modulated(rows, h)
    made.matrix(f"{name}.proj_mlp", rows, 4 * h, h).activation(4 * n)
    made.matrix(f"{name}.proj_out", rows, h, 5 * h).scaled(n).add(n)
    _queries(made, f"{name}.attn", rows, h, d)
    made.attention(rows, rows, h, stored=heads)
    return made.layer(read=n, wrote=n)
