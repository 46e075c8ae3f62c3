"""Models that tables call by the very name that dpsim has for them, however it is written."""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import Any

from dpsim.core.record import Refused
from dpsim.models import Model
from dpsim.models.configurations import bundled_models
from dpsim.models.named import load_named, model_names

#: how many times its parameters a row may state of a model of that name (buffers, heads, tables)
_APART = 1.3
#: what a name may begin with, its publisher, and end with, how its weights are stored and the usual
#: pixels
_AROUND = (
    re.compile(r"^(?:[\w.-]+/|meta[- ]|facebook[- ]|google[- ]|openai[- ])"),
    re.compile(r"(?:[-_ ](?:hf|base|chat|instruct|it|deduped))+$|[-_]224$"),
)

#: what tells a size in a name
_SIZED = re.compile(r"\d|-large$|^(?:convnext|swin)_|^whisper-")
#: how alike in spelling names are that are proposed, and how many of them
_ALIKE, _MOST = 0.6, 3


def bundled(
    name: str, parameters: float | None, tokens: int | None
) -> tuple[dict[str, Any], Model] | None:
    """The keys of the model that is called `name`, and it; None where dpsim has none of that name,
    or of so many `parameters`, or for sequences of `tokens`."""
    found = _own(name)
    if found is None:
        return None
    try:
        model = load_named(found, tokens)
    except Refused:
        return None
    if parameters and not 1 / _APART <= parameters / model.parameters <= _APART:
        return None
    kind = "huggingface" if found in bundled_models() else "name"
    return {kind: found}, model


def size(name: str) -> float | None:
    """The parameters of the model that is called `name`, for sequences of its own length; None
    where dpsim has none."""
    found = _own(name)
    return None if found is None else float(load_named(found, None).parameters)


def _own(name: str) -> str | None:
    """dpsim's name of the model that is called `name`."""
    found = _names().get(_letters(name))
    for around in _AROUND:
        name = around.sub("", name)
        found = found or _names().get(_letters(name))
    return found


@cache
def _names() -> dict[str, str]:
    """Names by their letters and figures.  Those without a size, in figures or in the words that
    ConvNeXt, Swin and Whisper have for theirs, are of families;
    detectors are left to stand-ins, which are nearer (MLPerf's runs of 8 to 128 GPUs): images
    differ from rank to rank, which their models leave out."""
    sized = (name for name in model_names() if _SIZED.search(name))
    own = [name for name in sized if "rcnn" not in name]
    return {_letters(name): name for name in own}


def neighbours(name: str) -> list[str]:
    """Names of models that are spelt like `name`, the likeliest first."""
    found = difflib.get_close_matches(_letters(name), _names(), _MOST, _ALIKE)
    return [_names()[one] for one in found]


def _letters(name: str) -> str:
    """Letters and figures of `name`, and points between figures: 1.3 is not 13."""
    return re.sub(r"(?<!\d)\.|\.(?!\d)|[^a-z0-9.]", "", name.lower())
