"""What pydantic and files know of the fields of records."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, get_type_hints

from pydantic import ConfigDict
from pydantic.fields import FieldInfo

#: how every record is checked
CONFIG = ConfigDict(
    extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False, populate_by_name=True
)


@functools.cache
def field_infos(cls: Any) -> dict[str, FieldInfo]:
    """What pydantic knows of every field of record `cls`: its default, its names in files."""
    hints = get_type_hints(cls, include_extras=True)
    found = {}
    for one in dataclasses.fields(cls):
        made: Any = one.default_factory
        default = (
            FieldInfo(default_factory=made) if made is not dataclasses.MISSING else one.default
        )
        if default is dataclasses.MISSING:
            found[one.name] = FieldInfo.from_annotation(hints[one.name])
        else:
            found[one.name] = FieldInfo.from_annotated_attribute(hints[one.name], default)
    return found


def is_record(cls: Any) -> bool:
    """Whether `cls` is a record."""
    return getattr(cls, "__pydantic_config__", None) is CONFIG


def alias_of(cls: Any, name: str) -> str:
    """The key under which files know the field `name` of `cls` (`global` is no Python name)."""
    return (field_infos(cls)[name].alias if is_record(cls) else None) or name


def keys_of(cls: Any) -> Iterator[str]:
    """The keys that files use for the fields of record `cls`."""
    for field in dataclasses.fields(cls):
        yield alias_of(cls, field.name)
