"""From the name of a model in a table to a `model:` section of a scenario.

A model that dpsim knows is taken as it is.  Of any other the table must state the parameters; a
stand-in of its family (a transformer of the usual proportions, or a scaled ResNet-50) is taken
then, and the row says so.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from dpsim.core.record import Refused

#: bundled configurations by what their names must contain
_BUNDLED = (
    (r"bert[- ]?large", "bert-large"),
    (r"bert[- ]?base", "bert-base-uncased"),
    (r"llama[- ]?2[- ]?7b", "llama-2-7b"),
    (r"llama[- ]?2[- ]?70b", "llama-2-70b"),
    (r"llama[- ]?3\.1[- ]?405b", "llama-3.1-405b"),
    (r"llama[- ]?3\.1[- ]?70b", "llama-3.1-70b"),
    (r"llama[- ]?3\.1[- ]?8b", "llama-3.1-8b"),
    (r"llama[- ]?3[- ]?70b", "llama-3-70b"),
    (r"llama[- ]?3[- ]?8b", "llama-3-8b"),
    (r"mistral[- ]?7b", "mistral-7b-v0.1"),
    (r"qwen2[- ]?7b", "qwen2-7b"),
    (r"qwen3[- ]?8b", "qwen3-8b"),
    (r"gpt-?2[- ]?large", "gpt2-large"),
    (r"gpt-?2[- ]?xl", "gpt2-xl"),
)
#: usual proportions of decoders: parameters without embeddings, width, blocks (Brown et al.,
#: arXiv:2005.14165, table 2.1; the last two: Smith et al., arXiv:2201.11990, and Megatron's 1T)
_SHAPES = (
    (85e6, 768, 12), (302e6, 1024, 24), (680e6, 1536, 24), (1.21e9, 2048, 24),
    (2.52e9, 2560, 32), (6.44e9, 4096, 32), (12.6e9, 5120, 40), (29.6e9, 7168, 48),
    (65e9, 9216, 64), (174e9, 12288, 96), (528e9, 20480, 105), (1007e9, 25600, 128),
)  # fmt: skip
#: tokens that a stand-in knows (GPT-2's), and how far its blocks may be from the usual number
_VOCABULARY, _NEAR = 50257, 0.1
#: words that tell a language model, and with it sequences as samples
_LANGUAGE = re.compile(
    r"\b(llm|bert|gpt\d?|llama\d?|mpt|opt|bloom|electra|bart|roberta|t5|language|internlm|nemotron|"
    r"mistral|qwen\d?|falcon|squad|wikitext|wmt\d*|palm|baichuan|megatron|transformer)\b"
)
#: words that tell a model whose samples are no images
_NO_IMAGES = re.compile(
    r"speech|jasper|quartz|rnn-?t|conformer|wav|tacotron|fastpitch|audio|recommend|dlrm|ncf|"
    r"electricity|traffic|molecul|qm9|zinc"
)
#: parameters in millions of models whose count no table needs to state (torchvision 0.19.1,
#: weights' meta data, num_params)
_KNOWN_SIZES = {
    "resnet18": 11.69, "resnet34": 21.80, "resnet101": 44.55, "resnet152": 60.19, "vgg19": 143.67,
    "alexnet": 61.10, "inceptionv3": 27.16, "googlenet": 6.62, "densenet121": 7.98,
    "mobilenetv2": 3.50, "efficientnetb0": 5.29, "efficientnetb4": 19.34,
}  # fmt: skip


@dataclass(frozen=True)
class ModelChoice:
    """A `model:` section, what a sample of it is, and whether it is a stand-in (then `note`)."""

    data: dict[str, Any]
    language: bool
    note: str = ""


def choose_model(
    name: str,
    task: str,
    parameters: float | None,
    sequence_length: int | None,
    stages: int = 1,
) -> ModelChoice:
    """The model that a table calls `name`, with `parameters` parameters if it says so.

    A stand-in has as many blocks as make `stages` equal stages.

    Raises Refused where neither the name nor a parameter count tells what the model is.
    """
    plain = name.lower().strip()
    if re.search(r"(^|[^a-z0-9-])resnet-?50\b", plain) and "se-" not in plain:
        return ModelChoice({"name": "resnet50"}, False)
    if re.search(r"\bvgg-?16\b", plain):
        return ModelChoice({"name": "vgg16"}, False)
    language = _is_language(plain, task)
    if language:
        parameters = parameters or _stated_size(plain)
        tokens = sequence_length or (2048 if parameters and parameters > 1e9 else 512)
        return _language(plain, name, parameters, tokens, stages)
    millions = _KNOWN_SIZES.get(re.sub(r"[^a-z0-9]", "", plain))
    count = parameters or (millions and millions * 1e6)
    if not count:
        raise Refused(f"model {name!r} is not known and its parameters are not stated")
    sample = "sequence" if _NO_IMAGES.search(f"{plain} {task.lower()}") else "image"
    return ModelChoice(
        {"name": "scaled", "like": "resnet50", "parameters": int(count), "sample": sample},
        False,
        f"{name} is played as a ResNet-50 scaled to {count / 1e6:,.1f} million parameters",
    )


def _is_language(plain: str, task: str) -> bool:
    return bool(
        _LANGUAGE.search(f"{plain} {task.lower()}".replace("-", " ").replace("_", " "))
    ) or (re.search(r"\bh\d+ l\d+", plain) is not None)


def _stated_size(plain: str) -> float | None:
    """The parameters that a name such as "mpt-7b" tells."""
    sized = re.search(r"(\d+(?:\.\d+)?) ?(b|m)\b", plain)
    return float(sized[1]) * (1e9 if sized[2] == "b" else 1e6) if sized else None


def _language(
    plain: str, name: str, parameters: float | None, tokens: int, stages: int
) -> ModelChoice:
    for pattern, config in _BUNDLED:
        if re.search(pattern, plain):
            return ModelChoice({"huggingface": config, "sequence_length": tokens}, True)
    stated = re.search(r"\bh(\d+)[ ,]+l(\d+)(?:[ ,]+a(\d+))?", plain)
    if stated:
        width, blocks = int(stated[1]), int(stated[2])
        heads = int(stated[3]) if stated[3] else _heads(width)
        return ModelChoice(_transformer(width, blocks, heads, tokens), True)
    if not parameters:
        raise Refused(f"model {name!r} is not known and its parameters are not stated")
    width, blocks = _shape(parameters) if stages == 1 else _staged(parameters, stages)
    return ModelChoice(
        _transformer(width, blocks, _heads(width), tokens),
        True,
        f"{name} is played as a decoder of {blocks} blocks of width {width:,}, about "
        f"{parameters / 1e9:,.3g} billion parameters",
    )


def _transformer(width: int, blocks: int, heads: int, tokens: int) -> dict[str, Any]:
    return {
        "name": "transformer", "family": "gpt2", "hidden": width, "blocks": blocks,
        "heads": heads, "sequence_length": tokens,
    }  # fmt: skip


def _heads(width: int) -> int:
    return width // 128 if width >= 4096 and width % 128 == 0 else max(width // 64, 1)


def _shape(parameters: float) -> tuple[int, int]:
    """Width and blocks of a decoder with about so many parameters: 12 L h^2 + V h.

    The usual shape nearest in size gives the width; the blocks follow from the parameters.
    """
    _, width, _ = min(_SHAPES, key=lambda shape: abs(shape[0] / parameters - 1.0))
    blocks = round((parameters - _VOCABULARY * width) / (12 * width**2))
    return width, max(blocks, 1)


def _staged(parameters: float, stages: int) -> tuple[int, int]:
    """The same, with blocks that make `stages` equal stages: of the multiples near the usual
    number that which, with a width in steps of 128, comes nearest to the parameters."""
    usual = _shape(parameters)[1]
    nearest = max(round(usual / stages), 1) * stages
    found = {(_width(parameters, nearest), nearest)}
    for blocks in range(stages, 2 * usual + stages, stages):
        if abs(blocks / usual - 1.0) <= _NEAR:
            found.add((_width(parameters, blocks), blocks))
    return min(found, key=lambda shape: (abs(_parameters(*shape) / parameters - 1.0), shape))


def _width(parameters: float, blocks: int) -> int:
    """The width of so many blocks, in steps of 128: the root of 12 L h^2 + V h."""
    half = _VOCABULARY / (24 * blocks)
    exact = math.sqrt(half**2 + parameters / (12 * blocks)) - half
    return max(round(exact / 128), 1) * 128


def _parameters(width: int, blocks: int) -> float:
    return 12.0 * blocks * width**2 + _VOCABULARY * width
