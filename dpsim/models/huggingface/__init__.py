"""Models from Hugging Face `config.json` files: sizes in, layers out.

`read_config` knows the families of the table at the end of this module; every other one is refused
by name.  Tensor names, shapes and their registration order follow huggingface/transformers
`src/transformers/models/FAMILY/modeling_FAMILY.py`, those of diffusion models
huggingface/diffusers. FLOP, traffic and memory follow the rules in
`dpsim/models/transformer_layers.py`, `dpsim/models/expert_layers.py` and
`dpsim/models/layer_sum.py`.

A block is two layers, ``….attention`` and ``….mlp``, of one unit.  The norm of each half belongs
to that half and comes after its matrices, as the rotary families register them (GPT-2 registers it
before them, and so it is here).  The rotary families register both norms after both halves; here
the first stands at the end of the attention half, a shift of one vector of h elements.

Parameter counts, with P positions, T token types, L blocks, and h, f, a, k, d, V as in
`transformer_layers`:

* GPT-2: V h + P h + L (12 h^2 + 13 h) + 2 h at f = 4 h (Radford et al., 2019)
* BERT, encoder and pooler: (V + P + T) h + 2 h + L (4 (h^2 + h) + 2 h f + f + h + 4 h) + h^2 + h
  (Devlin et al., arXiv:1810.04805)
* OPT: V w + (P + 2) h + L (4 (h^2 + h) + 2 h f + f + h + 4 h) + 2 h, and 2 w h if the embedding
  width w is not h (Zhang et al., arXiv:2205.01068)
* rotary families: V h (twice unless tied) + L (2 h a d + 2 h k d + 3 h f + 2 h) + h
  (Touvron et al., arXiv:2302.13971); Qwen2 adds (a + 2 k) d per block, Qwen3 2 d, Gemma 2 2 h
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from dpsim.core import unknown
from dpsim.core.record import Refused
from dpsim.models import Model
from dpsim.models.huggingface import (
    decoders,
    deepseek,
    encoder_decoder,
    encoders,
    gemma4,
    glm,
    joint,
    rotary,
    sparse,
    state_space,
    unet,
    vision,
)
from dpsim.models.huggingface.config import SIZE_LIMIT, Config, whole
from dpsim.models.huggingface.learned import gpt2, opt
from dpsim.models.huggingface.tensors import Parts

#: what there is for all other models
_RECORD = "`dpsim measure -- python train.py` records any torch model (model: {record: FILE})"

Attention = Literal["flash", "math", "eager", "sdpa", "efficient", "flash3"]
Head = Literal[
    "encoder", "mlm", "pretraining", "pretraining_masked", "replaced_tokens", "classification"
]  # fmt: skip
#: kinds that store the scores of every pair of tokens
STORED = ("math", "eager")
#: tokens of a sequence where nobody says
_LENGTH = 2048


def read_config(
    data: Mapping[str, Any],
    *,
    sequence_length: int | None,
    name: str,
    attention: Attention = "flash",
    target_length: int | None = None,
    image_size: int | None = None,
    head: str | None = None,
    multi_token: bool = False,
) -> Model:
    """The model that `data` (a parsed `config.json`) describes, for sequences of that many tokens,
    or images of so many pixels along one side; `target_length` tokens for a decoder beside an
    encoder, `head` behind an encoder; `multi_token`: with the configuration's modules that predict
    further tokens; `attention` is the kernel that attention runs in (those of
    STORED store the scores of every pair of tokens).

    One sample is one sequence, or one image.  Parameters are fp32 unless the trainer says
    otherwise: the file's `torch_dtype` states how weights were stored and is ignored.  Raises
    Refused naming the key.
    """
    if not isinstance(data, Mapping):
        raise Refused("a model configuration must be a mapping (a JSON object)")
    sizes = (sequence_length, "sequence_length"), (target_length, "target_length")
    tokens, target, pixels = (
        None if size is None else whole(size, key, SIZE_LIMIT)
        for size, key in (*sizes, (image_size, "image_size"))
    )
    family = _family(data)
    given = dict(zip(_GIVEN, (tokens, target, pixels, head, multi_token or None), strict=True))
    _check_use(family, [key for key, value in given.items() if value is not None])
    wide = attention == "eager"
    config = Config(data, tokens, attention in STORED, target, pixels, head, wide, multi_token)
    layers, order = _FAMILIES[family](config)
    if wide and any(layer.again_kernels and layer.eager_kernels is None for layer in layers):
        raise Refused(f"eager attention is not counted for {family}; math is", ("attention",))
    image = family in _IMAGES
    kind, count = ("image", 1) if image else ("sequence", _tokens(family, config))
    return Model(name=name, layers=layers, forward_order=order, sample=kind, tokens=count)


def _tokens(family: str, config: Config) -> int:
    """Tokens that a sequence counts as."""
    return encoder_decoder.heard(config) if family == "whisper" else config.tokens


def takes_length(data: Mapping[str, Any]) -> bool:
    """Whether the model that `data` describes needs a `sequence_length` to be known."""
    return _family(data) not in (*_IMAGES, "whisper")


def usual_length(data: Mapping[str, Any]) -> int:
    """Tokens of a sequence where nobody says: 2,048, or as many, halved as often as it takes, as
    the model that `data` describes has positions for."""
    places, length = positions_of(data), _LENGTH
    while places and length > places:
        length //= 2
    return length


def positions_of(data: Mapping[str, Any]) -> int | None:
    """Tokens that a sequence of the model that `data` describes may have; None where it does not
    say."""
    places = data.get("max_position_embeddings", data.get("n_positions"))
    known = isinstance(places, int) and not isinstance(places, bool) and places >= 1
    return places if known else None


def kind_of(data: Mapping[str, Any]) -> str:
    """What kind of model `data` describes, as far as one may stand for another: "image", "encoder
    and decoder", "encoder" or "decoder"."""
    family = _family(data)
    if family in _IMAGES:
        return "image"
    if family in _USES["target_length"]:
        return "encoder and decoder"
    return "encoder" if family in _USES["head"] else "decoder"


def _check_use(family: str, given: Sequence[str]) -> None:
    """Refuse keys that `family` has no use for."""
    for key in given:
        users = _USES.get(key)
        if users is None and family in _WITHOUT_TEXT:
            raise Refused(f"{family} has samples without tokens", (key,))
        if users is not None and family not in users:
            raise Refused(f"{family} has no use for it; it is for {', '.join(users)}", (key,))


def _family(data: Mapping[str, Any]) -> str:
    """The model family; BERT files of Google's original key set carry no `model_type`."""
    family = data.get("model_type", data.get("_class_name"))  # diffusers names the class
    if family is None and "type_vocab_size" in data and "intermediate_size" in data:
        return "bert"
    known = f"{', '.join(_USUAL)} and {len(_FAMILIES) - len(_USUAL)} more"
    if family is None:
        raise Refused(f"is missing; known: {known}", ("model_type",))
    if not isinstance(family, str):
        raise Refused(f"{str(family)[:60]!r} is not a name; known: {known}", ("model_type",))
    if family not in _FAMILIES:
        near = unknown.did_you_mean(family, _FAMILIES)
        said = (
            unknown.not_modelled(family)
            or f"model family {family[:60]!r} is not modelled; {near}{near and ' '}{_RECORD}"
        )
        raise Refused(f"{said}; known: {known}", ("model_type",))
    return family


_FAMILIES: dict[str, Callable[[Config], Parts]] = {
    "gpt2": gpt2,
    "bert": encoders.bert,
    "opt": opt,
    "falcon": decoders.falcon,
    "bloom": decoders.bloom,
    "gptj": decoders.gptj,
    "gpt_neox": decoders.gpt_neox,
    "gpt_neo": decoders.gpt_neo,
    "mpt": decoders.mpt,
    "chatglm": decoders.chatglm,
    "t5": encoder_decoder.t5,
    "mt5": partial(encoder_decoder.t5, gated=True, tied=False),
    "umt5": partial(encoder_decoder.t5, gated=True, tied=False, every=True),
    "bart": encoder_decoder.bart,
    "mbart": partial(encoder_decoder.bart, final=True),
    "whisper": encoder_decoder.whisper,
    "roberta": encoders.roberta,
    "xlm-roberta": encoders.roberta,
    "camembert": encoders.roberta,
    "electra": encoders.electra,
    "distilbert": encoders.distilbert,
    "albert": encoders.albert,
    "deberta-v2": encoders.deberta_v2,
    "vit": vision.vit,
    "deit": vision.vit,
    "clip": vision.clip,
    "UNet2DConditionModel": unet.unet,
    "SD3Transformer2DModel": joint.sd3,
    "FluxTransformer2DModel": joint.flux,
    **{name: partial(rotary.rotary, family) for name, family in rotary.FAMILIES.items()},
    **{name: partial(sparse.sparse, family) for name, family in sparse.FAMILIES.items()},
    "dbrx": sparse.dbrx,
    **{name: partial(deepseek.deepseek, biased) for name, biased in deepseek.FAMILIES.items()},
    "gemma4_text": gemma4.gemma4_text,
    "glm4_moe": glm.glm4_moe,
    "mamba2": state_space.mamba2,
    "nemotron_h": state_space.nemotron_h,
}

#: those that are named where another is refused
_USUAL = ("bert", "gpt2", "llama", "mixtral", "t5", "vit")
#: those whose samples are images, and those whose samples have no tokens that a scenario states
_DIFFUSION = ("UNet2DConditionModel", "SD3Transformer2DModel", "FluxTransformer2DModel")
_IMAGES = ("vit", "deit", "clip", *_DIFFUSION)
_WITHOUT_TEXT = ("vit", "deit")
#: keys of a scenario beside the file, and which of them only some have a use for
_GIVEN = ("sequence_length", "target_length", "image_size", "head", "multi_token")
_USES = {
    "target_length": ("t5", "mt5", "umt5", "bart", "mbart", "whisper"),
    "image_size": _IMAGES,
    "multi_token": tuple(deepseek.FAMILIES),
    "head": (
        "bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "albert",
        "deberta-v2", "vit", "deit",
    ),
}  # fmt: skip
