"""From the name of a model in a table to a `model:` section of a scenario.

A model that dpsim knows is taken as it is.  Of any other the table must state the parameters; a
stand-in of its family (a transformer of the usual proportions, or a scaled ResNet-50) is taken
then, and the row says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dpsim.accuracy.model_words import CountedModel
from dpsim.accuracy.rules import told
from dpsim.accuracy.training.bundled import bundled, neighbours, size
from dpsim.accuracy.training.experts import named_with_experts, sparse_model
from dpsim.accuracy.training.known_shapes import configuration_of, part_of, require_shape
from dpsim.accuracy.training.pixels import in_pixels
from dpsim.accuracy.training.shapes import SHAPES, SMALL
from dpsim.accuracy.training.stated_shapes import (
    heads_assumed,
    parts_of,
    require_possible,
    shaped_as,
    told_parts,
)
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused
from dpsim.models import Model
from dpsim.models.named import load_named

#: tokens that a stand-in knows (GPT-2's), and how far its blocks may be from the usual number
_VOCABULARY, _NEAR = 50257, 0.1
#: how many times the parameters that are told a stand-in may have
_TOO_LARGE = 1.25
#: tokens of a sequence of a large model where nobody says
_LONG = 2048
#: the least and the most parameters that a model has
_COUNTS = (1e3, 2e13)
#: tokens of the smallest vocabulary that a row may tell, of bytes, and of the largest
_ROWS = (256, 10_000_000)
#: decoders that have learned positions for so many tokens
_POSITIONED = ("gpt2", "opt-")


@dataclass(frozen=True)
class ModelChoice:
    """A `model:` section, what a sample of it is, whether it is a stand-in (then `note`), and what
    else was assumed for it."""

    data: dict[str, Any]
    language: bool
    note: str = ""
    assumed: tuple[str, ...] = ()


def choose_model(
    name: str,
    task: str,
    parameters: float | None,
    sequence_length: int | None,
    split: tuple[int, int] = (1, 1),
    column: Callable[[str], str] = lambda _: "",
) -> ModelChoice:
    """The model that a table calls `name`, with `parameters` parameters if it says so; `column` is
    the text of a column of its row.

    A stand-in has as many blocks and heads as the `split` into tensor ranks and stages takes.

    Raises Refused where neither the name nor a parameter count tells what the model is.
    """
    words = vocabulary().models
    plain = words.in_letters(name)
    _require_one(plain, parameters)
    if named_with_experts(plain):
        require_possible(plain)
        data, note = sparse_model(plain, name, parameters, sequence_length or _LONG)
        found = ModelChoice(data, True, note)
        if not note:
            require_whole(plain, found)
        return found
    for keys, more in told(words.images, plain, column):
        data = in_pixels(keys, plain, task, column("notes"))
        return ModelChoice(data, False, assumed=tuple(more))
    bare = words.pixels.sub("", plain).strip(" ,;()")
    if own := bundled(bare, parameters or stated_size(plain), sequence_length):
        return _by_name(*own, sequence_length, (plain, task, column("notes")))
    spaced = f"{plain} {task.lower()}".replace("-", " ").replace("_", " ")
    texts = _counts_tokens(column("unit").lower(), spaced) and _has_size(plain, parameters)
    named = words.sequences.search(words.other_transformers.sub("", spaced))
    if texts or named or words.shaped.search(plain):
        parameters = parameters or stated_size(plain) or _known(plain) or size(bare)
        found = _language(plain, name, parameters, sequence_length, split, column)
        return found if sequence_length else _of_usual_length(found, plain)
    return _network(plain, name, task, parameters)


def _require_one(plain: str, parameters: float | None) -> None:
    _require_count(parameters, "params_m")
    if several := vocabulary().models.several.search(plain):
        raise Refused(f"model: {several[0][:60]!r} names several, of which one is accepted")


def _require_count(parameters: float | None, column: str) -> None:
    least, most = (count / 1e6 for count in _COUNTS)
    if parameters is not None and not least <= parameters / 1e6 <= most:
        raise Refused(
            f"{column}: {parameters / 1e6:g} million parameters are not in the {least:g} to "
            f"{most:,.0f} million that models have; column params_m counts millions"
        )


def _counts_tokens(unit: str, spaced: str) -> bool:
    """Whether the unit tells a language model: it counts tokens of what nothing else is known of,
    no network of other kinds."""
    words = vocabulary().models
    return "tok" in unit and not (words.no_texts.search(spaced) or words.no_images.search(spaced))


def _has_size(plain: str, parameters: float | None) -> bool:
    """Whether the parameters of a model, or its shape, are stated."""
    sized = vocabulary().models.sized.search(plain)
    return bool(sized or parameters or stated_size(plain) or parts_of(plain))


def _by_name(
    keys: dict[str, Any], made: Model, tokens: int | None, said: tuple[str, str, str]
) -> ModelChoice:
    """The model `made` of `keys`, by what is `said` in name, task and notes."""
    if made.sample != "sequence":
        return ModelChoice(in_pixels(keys, *said), False)
    tokens = tokens or _fitting(
        next(iter(keys.values())), _length(made.parameters, f"{said[0]} {said[1].lower()}")
    )
    return ModelChoice({**keys, "sequence_length": tokens}, True)


def _fitting(name: str, length: int) -> int:
    """`length`, or as many tokens as the model of that name has positions for."""
    try:
        return load_named(name, length).tokens
    except Refused:
        return load_named(name, None).tokens


def _of_usual_length(found: ModelChoice, said: str) -> ModelChoice:
    """`found`, of whose sequences nobody says how long they are, with as many tokens as those of
    its size and family usually have, and no more than it has positions for."""
    if own := found.data.get("huggingface"):
        length = _fitting(own, _length(load_named(own, None).parameters, said))
    elif "hidden" in found.data:
        length = _length(_parameters(found.data["hidden"], found.data["blocks"]), said)
    else:
        return found
    return replace(found, data={**found.data, "sequence_length": length})


def _length(parameters: float | None, said: str) -> int:
    """Tokens of a sequence where nobody says, by the size of the model and, of large ones, by the
    family that is `said`."""
    if not parameters or parameters <= 1e9:
        return 512
    families = vocabulary().models.lengths.items()
    return next((int(tokens) for tokens, words in families if words.search(said)), _LONG)


def _network(plain: str, name: str, task: str, parameters: float | None) -> ModelChoice:
    """A ResNet-50 scaled to what is known of a network that is no language model."""
    words = vocabulary().models
    small = not words.larger.search(plain)  # what is around the network in it has few parameters
    part = next((r for r in words.images if small and r.words.search(plain)), None)
    known = _known(plain) or (_known(str(part.keys["name"])) if part else None)
    count = parameters or known
    if not count:
        raise _unknown(name)
    sample = "sequence" if words.no_images.search(f"{plain} {task.lower()}") else "image"
    return ModelChoice(
        {"name": "scaled", "like": "resnet50", "parameters": int(count), "sample": sample},
        False,
        f"{name or 'the model'} is played as a ResNet-50 scaled to {count / 1e6:,.1f} million "
        "parameters",
    )


def _known(name: str) -> float | None:
    """The parameters of a model of which no table needs to state them."""
    words = vocabulary().models
    millions = words.millions.get(re.sub(r"[^a-z0-9]", "", name))
    if millions is None:
        millions = next((one.millions for one in words.counted if _counts(one, name)), None)
    return millions * 1e6 if millions else None


def _counts(one: CountedModel, name: str) -> bool:
    """Whether `name` is that of the model `one`, and not of another that has it in it."""
    found, around = one.words.search(name), vocabulary().models.around
    if not found or (one.unless and one.unless.search(name)):
        return False
    return not around.search(name) or around.search(found[0]) is not None


def _unknown(name: str) -> Refused:
    near = neighbours(name)
    hint = f"; the nearest that are known: {', '.join(near)}" if near else ""
    return Refused(
        f"model {name!r} is not known and its parameters are not stated; column params_m would "
        f"tell{hint}"
    )


def stated_size(name: str) -> float | None:
    """The parameters that a name such as "mpt-7b" tells."""
    return next(iter(_stated_sizes(name.lower())), None)


def _stated_sizes(plain: str) -> list[float]:
    """All that it tells, as "7B (5.24B)" does."""
    found = vocabulary().models.size.finditer(plain)
    return [float(one[1]) * (1e9 if one[2] == "b" else 1e6) for one in found]


def _language(
    plain: str, name: str, parameters: float | None, sequence_length: int | None,
    split: tuple[int, int], column: Callable[[str], str],
) -> ModelChoice:  # fmt: skip
    """The model, on texts as long as is stated, or as those of its size are."""
    words, (tensor, stages) = vocabulary().models, split
    tokens = sequence_length or _length(parameters, plain)
    require_possible(plain)
    for keys, _ in told(words.language, plain, column):
        if not _holds(str(keys.get("huggingface", "")), sequence_length or 0):
            require_shape(plain, keys)
            parameters = parameters or size(str(keys["huggingface"]))
            continue
        found = ModelChoice({**keys, "sequence_length": tokens}, True)
        require_whole(plain, found)
        return found
    own = _stated_sizes(plain) or ([parameters] if parameters else [])
    task, heads_of = column("task").lower(), lambda width: _heads(width, tensor)
    stated = words.shape.search(plain)
    more = not stated or told_parts(plain).keys() & {"kv_heads", "feed_forward"}
    shaped = shaped_as(plain, task, tokens, heads_of, own, _rows(column)) if more else None
    if shaped:
        return ModelChoice(shaped.data, True, assumed=shaped.notes)
    if stated:
        width, blocks = int(stated[1]), int(stated[2])
        heads = int(stated[3]) if stated[3] else _heads(width, tensor)
        assumed = () if stated[3] else (heads_assumed(heads, width),)
        data = _transformer(width, blocks, heads, tokens) | _rows(column)
        require_shape(plain, data)
        return ModelChoice(data, True, assumed=assumed)
    if not parameters:
        raise _unknown(name)
    _require_count(parameters, "model")
    width, blocks = _shape(parameters) if stages == 1 else _staged(parameters, stages, tensor)
    return ModelChoice(
        _transformer(width, blocks, _heads(width, tensor), tokens),
        True,
        f"{name or 'the model'} is played as a decoder of {blocks} blocks of width {width:,}, "
        f"about {parameters / 1e9:,.3g} billion parameters",
    )


def _holds(name: str, tokens: int) -> bool:
    """Whether the decoder `name` has positions for so many `tokens`; for others than decoders
    nothing stands, so that they do."""
    if not name.startswith(_POSITIONED):
        return True
    return tokens <= load_named(name, None).tokens


def require_whole(plain: str, found: ModelChoice) -> None:
    """Refuse a name that says to mean another shape than `found` has, or several models."""
    words = vocabulary().models
    cut, several = words.cut_to.search(plain), words.not_whole.search(plain)
    blocks = int(cut[1] or cut[2]) if cut else 0
    if several or (cut and blocks != blocks_of(found)):
        raise Refused(
            f"model: {plain[:60]!r} is not the whole model that it names, or several; a shape, as "
            "in 'gpt h4096 l32 a32', is accepted"
        )
    require_shape(plain, found.data)


def _transformer(width: int, blocks: int, heads: int, tokens: int) -> dict[str, Any]:
    return {
        "name": "transformer", "family": "gpt2", "hidden": width, "blocks": blocks,
        "heads": heads, "sequence_length": tokens,
    }  # fmt: skip


def _rows(column: Callable[[str], str]) -> dict[str, int]:
    """The vocabulary of a decoder, where words of its row say it.

    Raises Refused where it is not as large as vocabularies are."""
    said = f"{column('strategy_detail')} {column('notes')}".lower()
    found = vocabulary().models.tokens_known.search(said)
    if not found:
        return {}
    rows = float(found[1].replace(",", "")) * (1000 if found[2] else 1)
    if not _ROWS[0] <= rows <= _ROWS[1]:
        raise Refused(
            f"notes: {found[0][:40]!r} is no vocabulary; {_ROWS[0]:,} to {_ROWS[1]:,} tokens are "
            "accepted, as in 'vocabulary 50257' or 'vocab of 32k'"
        )
    return {"vocabulary": round(rows)}


def _heads(width: int, tensor: int) -> int:
    """The usual number of heads of that width; where `tensor` ranks cannot share them out, of those
    that they can the nearest by ratio, of those as wide as models have them if there are any."""
    usual = width // 128 if width >= 4096 and width % 128 == 0 else max(width // 64, 1)
    fitting = [n for n in range(tensor, width + 1, tensor) if width % n == 0]
    if usual % tensor == 0 or not fitting:
        return usual
    common = [n for n in fitting if _common(width, n)]
    return min(common or fitting, key=lambda n: (abs(math.log(n / usual)), n))


def _shape(parameters: float) -> tuple[int, int]:
    """Width and blocks of a decoder with about so many parameters: 12 L h^2 + V h.

    The usual shape nearest in size gives the width; the blocks follow from the parameters.
    """
    _, width, _ = min((*SMALL, *SHAPES), key=lambda shape: abs(shape[0] / parameters - 1.0))
    blocks = round((parameters - _VOCABULARY * width) / (12 * width**2))
    if blocks < 1 and _parameters(width, 1) > _TOO_LARGE * parameters:
        raise Refused(
            f"model: one of {parameters / 1e6:,.4g} million parameters has no room for "
            f"{_VOCABULARY:,} tokens; a shape, as in 'gpt h256 l4 a4', and its vocabulary in "
            "column notes would tell what it is"
        )
    return width, max(blocks, 1)


def _staged(parameters: float, stages: int, tensor: int) -> tuple[int, int]:
    """The same, with blocks that make `stages` equal stages: of the multiples near the usual
    number that which, with a width in steps of 128, comes nearest to the parameters; of widths
    with heads of 64 to 256, in multiples of eight, for `tensor` ranks, if one is near."""
    usual = _shape(parameters)[1]
    nearest = max(round(usual / stages), 1) * stages
    numbers = {nearest} | {
        blocks
        for blocks in range(stages, 2 * usual + stages, stages)
        if abs(blocks / usual - 1.0) <= _NEAR
    }
    found = {(_width(parameters, blocks), blocks) for blocks in numbers}
    beside = {(w + 128 * step, blocks) for w, blocks in found for step in range(-4, 5)}
    common = {shape for shape in beside if _shared(shape[0], tensor)}
    return min(
        common or found, key=lambda shape: (abs(_parameters(*shape) / parameters - 1.0), shape)
    )


def _shared(width: int, tensor: int) -> bool:
    """Whether `tensor` ranks share heads of that width as models have them."""
    heads = _heads(width, tensor) if width > 0 else 0
    return heads > 0 and heads % tensor == 0 and _common(width, heads)


def _common(width: int, heads: int) -> bool:
    """Whether so many heads are 64 to 256 wide, in multiples of eight, as nearly all models' are:
    rows of others miss the tensor cores."""
    return width % heads == 0 and width // heads in range(64, 257, 8)


def _width(parameters: float, blocks: int) -> int:
    """The width of so many blocks, in steps of 128: the root of 12 L h^2 + V h."""
    half = _VOCABULARY / (24 * blocks)
    exact = math.sqrt(half**2 + parameters / (12 * blocks)) - half
    return max(round(exact / 128), 1) * 128


def _parameters(width: int, blocks: int) -> float:
    return 12.0 * blocks * width**2 + _VOCABULARY * width


def blocks_of(model: ModelChoice) -> int:
    """Blocks of a decoder, which a named one has in its configuration; 0 of all else.

    Raises Refused where that has no single row of blocks, as an encoder beside a decoder."""
    if "huggingface" not in model.data:
        return int(model.data.get("blocks", 0))
    blocks = part_of(model.data, "blocks")
    if blocks is None:
        raise Refused(
            f"model: the blocks of {model.data['huggingface']} are not one row, which stages and "
            "copies are counted by; a decoder, or an encoder alone, is accepted"
        )
    return blocks


def modules_of(model: ModelChoice) -> int:
    """Modules of multi-token prediction behind the blocks in the configuration of `model`."""
    if "huggingface" not in model.data:
        return 0
    return int(configuration_of(model.data).get("num_nextn_predict_layers") or 0)
