"""How large the images of a network are, in the words of its row."""

from __future__ import annotations

from typing import Any

from dpsim.accuracy.training.compared import clauses
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused


def in_pixels(keys: dict[str, Any], plain: str, task: str, notes: str) -> dict[str, Any]:
    """`keys` of a network that is called `plain`, with images of as many pixels as name, task or
    notes say, these where a clause tells nothing else; crops are smaller than what they are of.

    Raises Refused where images are not square, or a number of the name may be their size.
    """
    words = vocabulary().models
    said = f"{plain} | {task.lower()}".replace("×", "x")
    found, told = _sizes(said), said
    if not found:
        noted = clauses(notes.lower().replace("×", "x"))
        told = " | ".join((said, *(one for one in noted if words.pixels_alone.search(one))))
        found = _sizes(told)
    if found:
        return {**keys, "image_size": min(found) if "crop" in told else found[0]}
    if oblong := words.pixels_oblong.search(told):
        raise Refused(f"images of {oblong[0]} pixels are not read; square ones are, as 512x512")
    if "image_size" not in keys and (unclear := words.pixels_unclear.search(plain)):
        size = unclear[1]
        raise Refused(
            f"model: {size} in {plain[:60]!r} may be the size of images, which is not said; "
            f"'{size} px' or '{size}x{size}' is read"
        )
    return keys


def _sizes(said: str) -> list[int]:
    words = vocabulary().models
    found = [*words.pixels.finditer(said), *words.pixels_behind.finditer(said)]
    return [int(next(filter(None, one.groups()))) for one in found]
