"""Names that people use for models, and the sections of a scenario that they stand for.

``zoo.yaml`` beside this module holds them: `resnet18` is `{name: resnet, depth: 18}`.

>>> expanded({"name": "ResNet-18", "classes": 10})
{'name': 'resnet', 'depth': 18, 'classes': 10}
>>> expanded({"name": "unheard-of"})
{'name': 'unheard-of'}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpsim.core import unknown, yamlfile
from dpsim.core.record import Refused


def zoo_names() -> tuple[str, ...]:
    """The names, sorted."""
    return tuple(sorted(_zoo()))


def expanded(section: Mapping[str, Any]) -> dict[str, Any]:
    """`section` with its `name` replaced by what it stands for; its other keys come on top."""
    name = section.get("name")
    meant = _plain_zoo().get(_plain(name)) if isinstance(name, str) else None
    if meant is None:
        return dict(section)
    return {**meant, **{key: value for key, value in section.items() if key != "name"}}


def check_name(name: str, architectures: Sequence[str], bundled: Sequence[str]) -> None:
    """Refused, with what is near, for a `name` that is none of the `architectures`, and nearly one
    of them, of the bundled configurations or of these."""
    last = name.rpartition("/")[2]
    if name in architectures or unknown.not_modelled(last):
        return
    if near := unknown.did_you_mean(last, [*bundled, *zoo_names(), *architectures]):
        said = f"no model {name[:60]!r}; {near} dpsim show models lists them"
        raise Refused(said, ("name",))


@lru_cache(maxsize=1)
def _zoo() -> Mapping[str, Mapping[str, Any]]:
    path = Path(__file__).with_suffix(".yaml")
    data: Mapping[str, Mapping[str, Any]] = yamlfile.load(path, path.name)[0]
    return data


@lru_cache(maxsize=1)
def _plain_zoo() -> Mapping[str, Mapping[str, Any]]:
    return {_plain(name): section for name, section in _zoo().items()}


def _plain(name: str) -> str:
    """`name` without what does not count."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
