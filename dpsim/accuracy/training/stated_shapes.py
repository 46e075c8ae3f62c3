"""Shapes that the name of a model states in words: "num_layers = 24 hidden_size = 1024", "32
layers, dim 4096, FF 11008".  A shape that is stated wins over a size beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsim.accuracy.rules import told
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused
from dpsim.models.section import load, make

#: how far a stated size may be off its shape's, with its table of tokens or without
_APART = 0.15
#: Llama's feed-forward part is a multiple of it
_STEP = 256
#: what the parts of a shape are called, and the least and the most that they are
_LIMITS = {
    "blocks": ("number of blocks", 1, 999), "width": ("width", 100, 999_999),
    "heads": ("number of heads", 1, 999), "kv_heads": ("number of heads of keys", 1, 999),
    "feed_forward": ("feed-forward width", 100, 999_999),
}  # fmt: skip
#: the same of a feed-forward part over the width (T5-11B's has 64 times)
_WIDE = (1 / 8, 64)


@dataclass(frozen=True)
class Shaped:
    """The `model:` section of a shape, and what was assumed for it."""

    data: dict[str, Any]
    notes: tuple[str, ...]


def told_parts(plain: str) -> dict[str, set[int]]:
    """The numbers that `plain` states of each part of a shape, of parts of which it states any."""
    words, found = vocabulary().models, dict[str, set[int]]()
    said = words.shape_denied.sub(" ", plain)
    for part, pattern in words.shape_parts.items():
        if numbers := set(_numbers(pattern, said)):
            found[part] = numbers
    if stated := words.shape.search(said):
        for part, number in zip(("width", "blocks", "heads"), stated.groups(), strict=True):
            if number:
                found.setdefault(part, set()).add(int(number))
    return found


def parts_of(plain: str) -> dict[str, int]:
    """The parts of a shape that `plain` states: blocks, width, and what else of it is told; empty
    where one of these two is not.

    Raises Refused where it states several of one.
    """
    found = told_parts(plain)
    if not {"blocks", "width"} <= found.keys():
        return {}
    if unclear := next((part for part, numbers in found.items() if len(numbers) > 1), None):
        raise Refused(
            f"model: {plain[:60]!r} states several numbers for its {unclear.replace('_', ' ')}; a "
            "shape of one, as in 'gpt h4096 l32 a32', is accepted"
        )
    return {part: min(numbers) for part, numbers in found.items()}


def require_possible(plain: str) -> None:
    """Raise Refused where `plain` states a part of a shape as a number that no part is."""
    words = vocabulary().models
    said = words.shape_denied.sub(" ", plain)
    for part, pattern in words.shape_settings.items():
        what, least, most = _LIMITS[part]
        for found in pattern.finditer(said):
            number = next(filter(None, found.groups())).replace(",", "")
            if not (number.isdecimal() and least <= int(number) <= most):
                raise _no_part(found[0][:60], what, least, most)


def _no_part(said: str, what: str, least: float, most: float) -> Refused:
    return Refused(
        f"model: {said!r} is no {what}; a whole number of {least:,.0f} to {most:,.0f} is accepted"
    )


def _numbers(pattern: re.Pattern[str], said: str) -> Iterator[int]:
    """The numbers that `pattern` finds in `said`, also where finds share a word, as the width in
    "ffn 4096 hidden 1024"."""
    found = pattern.search(said)
    while found:
        yield int(next(filter(None, found.groups())).replace(",", ""))
        found = pattern.search(said, found.start() + 1)


def shaped_as(
    plain: str,
    task: str,
    tokens: int,
    usual_heads: Callable[[int], int],
    sizes: list[float],
    more: dict[str, int],
) -> Shaped | None:
    """The model whose shape `plain` states, with sequences of `tokens`; `usual_heads` of a width,
    `sizes` that are stated, and `more` keys, the vocabulary.  None where it states none, and of
    what is no row of blocks like each other, as it or its `task` says."""
    if vocabulary().models.shape_none.search(f"{plain} {task}"):
        return None
    parts = parts_of(plain)
    keys = next(told(vocabulary().models.shape_families, plain), ({}, []))[0] if parts else {}
    if not keys:
        return None
    width, notes = parts["width"], list[str]()
    heads = parts.get("heads") or usual_heads(width)
    if "heads" not in parts:
        notes.append(heads_assumed(heads, width))
    wide = parts.get("feed_forward") or _usual_width(keys, width, notes)
    least, most = (share * width for share in _WIDE)
    if wide and not least <= wide <= most:
        raise _no_part(f"{wide}", f"feed-forward width beside width {width:,}", least, most)
    data = {
        "name": "transformer", **keys, "hidden": width, "blocks": parts["blocks"], "heads": heads,
        "sequence_length": tokens,
        **({"feed_forward": wide} if wide and wide != 4 * width else {}),
        **({"kv_heads": parts["kv_heads"]} if "kv_heads" in parts else {}), **more,
    }  # fmt: skip
    notes += _contradiction(data, sizes)
    return Shaped(_bundled(data) or data, tuple(notes))


def heads_assumed(heads: int, width: int) -> str:
    """What to tell of `heads` that nobody stated."""
    return f"{heads} heads are assumed for width {width:,}"


def _usual_width(keys: dict[str, Any], width: int, notes: list[str]) -> int | None:
    """The feed-forward part of a gated decoder where it is not stated: Llama's."""
    if keys["family"] != "llama":
        return None
    wide = -(-8 * width // (3 * _STEP)) * _STEP
    notes.append(f"feed-forward parts of width {wide:,} are assumed, as Llama has them")
    return wide


def _contradiction(data: dict[str, Any], sizes: list[float]) -> list[str]:
    """What to tell where none of the stated `sizes` is that of the shape, which is taken."""
    if not sizes:
        return []
    model = load(make(data, file=False), Path())
    table = data.get("vocabulary", 50257) * data["hidden"]
    own = [float(model.parameters - n * table) for n in (0, 1, 2)]
    if any(abs(size / count - 1.0) <= _APART for size in sizes for count in own if count > 0):
        return []
    return [
        f"the stated shape has {model.parameters / 1e6:,.4g} million parameters, not "
        f"{sizes[0] / 1e6:,.4g}; the shape is taken"
    ]


def _bundled(data: dict[str, Any]) -> dict[str, Any] | None:
    """The encoder of that very shape that comes with dpsim, which has its heads of words too."""
    if data["family"] != "bert" or data.keys() & {"feed_forward", "kv_heads"}:
        return None
    shape = (data["blocks"], data["hidden"], data["heads"])
    known = vocabulary().models.shape_bundled.items()
    found = next((name for name, own in known if own == shape), None)
    return {"huggingface": found, "sequence_length": data["sequence_length"]} if found else None
