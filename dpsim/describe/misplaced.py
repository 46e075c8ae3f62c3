"""Keys that stand in another section than the one that has them."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Any, get_args, get_type_hints

from dpsim.core.fields import alias_of, is_record, keys_of

#: places that are proposed at most
_MOST = 3
#: keys that name which kind a section is
_TAGS = ("kind", "backend", "name")


def elsewhere(cls: type, path: tuple[str | int, ...], said: str) -> str:
    """Where in a file of records `cls` the unknown key at `path` is one, beside what was `said` of
    it; "" where it is nowhere, names which kind a section is, or is one of the section's own but
    for its plural."""
    key = str(path[-1]) if path else ""
    if key in ("", *_TAGS) or not said.startswith("unknown key"):
        return ""
    if f"'{key}s'" in said or f"'{key.removesuffix('s')}'" in said:
        return ""
    here = ".".join(map(str, path[:-1]))
    own = f"{here}.{key}".lstrip(".")
    places = [place for place in places_of(cls, key) if place != own and place not in said]
    shown = " or ".join(repr(place) for place in places[:_MOST])
    return f"{'' if said.endswith('?') else ';'} there is {shown}" if shown else ""


def places_of(cls: type, key: str) -> list[str]:
    """Paths of the keys called `key` in a file of records `cls`: its own, and those of its
    sections.

    >>> from dpsim.describe.scenario import Scenario
    >>> places_of(Scenario, "stages"), places_of(Scenario, "gpus_per_node")
    (['stages'], ['cluster.gpus_per_node'])
    """
    hints = get_type_hints(cls, include_extras=True)
    sections = {alias_of(cls, name): set(_keys(hint)) for name, hint in hints.items()}
    own = [key] if key in sections else []
    return own + [f"{name}.{key}" for name, keys in sections.items() if key in keys]


def _keys(hint: Any) -> Iterator[str]:
    """The keys of a section that has no kinds: of others not every one has all."""
    if is_record(hint):
        yield from keys_of(hint)
    elif isinstance(hint, UnionType):
        for option in get_args(hint):
            yield from _keys(option)
