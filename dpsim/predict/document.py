"""Records as JSON: their keys in order, what is left out, reading them back, and their schema.

A record is a frozen dataclass whose fields are its keys.  A field that has its default is left
out; one that is `Spread` has the keys of its own record stand in its place.

>>> from dpsim.predict.point import Sent
>>> to_json(Sent(payload=8.0, padding=0.0, control=1.0))
{'bytes_sent_per_rank': 8.0, 'padding_bytes_per_rank': 0.0, 'control_bytes_per_rank': 1.0}
>>> from_json(Sent, to_json(Sent(8.0, 0.0, 1.0)))
Sent(payload=8.0, padding=0.0, control=1.0)
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import operator
from collections import abc
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter

from dpsim.core.lean import dataclass

#: what plain data are made of
_PLAIN = (float, str, int, bool, NoneType)


@dataclass(frozen=True)
class JsonKey:
    """Marks a field that JSON knows under another name."""

    name: str


@dataclass(frozen=True)
class Spread:
    """Marks a field that is a record, or a mapping, whose keys stand among those of its owner."""


class Keyed(Mapping[str, Any]):
    """A record that can also be read by the keys of its JSON."""

    def __getitem__(self, key: str) -> Any:
        return _value(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(to_json(self))

    def __len__(self) -> int:
        return len(to_json(self))


@dataclass(frozen=True)
class _Field:
    """A field of a record as JSON has it; `default` is what is left out."""

    name: str
    key: str
    hint: Any
    spread: bool
    default: Any

    @property
    def needed(self) -> bool:
        return self.default is MISSING

    @property
    def record(self) -> Any:
        """The record that is spread; None where it is a mapping."""
        parts = (part for part in _options(self.hint) if dataclasses.is_dataclass(part))
        return next(parts, None)


@cache
def _fields(record: Any) -> tuple[_Field, ...]:
    if record is None:
        return ()
    hints = get_type_hints(record, include_extras=True)
    return tuple(_field(one, hints[one.name]) for one in dataclasses.fields(record))


@cache
def keys_of(record: Any) -> Mapping[str, str]:
    """The keys of a record's JSON, and the field that each is of."""
    found: dict[str, str] = {}
    for one in _fields(record):
        found |= dict.fromkeys(keys_of(one.record) if one.spread else (one.key,), one.name)
    return found


def _field(one: dataclasses.Field[Any], hint: Any) -> _Field:
    hint, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    own = one.name.rstrip("_")  # of a field that is called like a keyword
    key = next((mark.name for mark in marks if isinstance(mark, JsonKey)), own)
    return _Field(one.name, key, hint, Spread() in marks, one.default)


@cache
def _options(hint: Any) -> tuple[Any, ...]:
    """The members of a union without None; of all else the hint itself."""
    if get_origin(hint) in (Union, UnionType):
        return tuple(part for part in get_args(hint) if part is not NoneType)
    return (hint,)


@cache
def _needed(record: Any) -> frozenset[str]:
    """The keys without which there is no such record."""
    needed: set[str] = set()
    for one in _fields(record):
        if one.needed:
            needed |= _needed(one.record) if one.spread else {one.key}
    return frozenset(needed)


# -- writing and reading --------------------------------------------------------------------------


def to_json(value: Any) -> Any:
    """`value` as plain data: mappings, lists, text and numbers."""
    if type(value) in _PLAIN:
        return value
    if dataclasses.is_dataclass(value):
        made: dict[str, Any] = {}
        for one, found in _written(value):
            made |= to_json(found) if one.spread else {one.key: to_json(found)}
        return made
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    return [to_json(item) for item in value] if isinstance(value, tuple | list) else value


def _written(record: Any) -> list[tuple[_Field, Any]]:
    """The fields of a record that are not left out, with what they hold."""
    pairs = ((one, getattr(record, one.name)) for one in _fields(record.__class__))
    return [(one, found) for one, found in pairs if one.needed or found != one.default]


def _value(record: Any, key: str) -> Any:
    """What `to_json` has under `key`: of fields with the same key the last counts."""
    for one, found in reversed(_written(record)):
        if one.spread and isinstance(found, Mapping) and not dataclasses.is_dataclass(found):
            if key in found:
                return to_json(found[key])
        elif one.spread:
            with contextlib.suppress(KeyError):
                return _value(found, key)
        elif one.key == key:
            return to_json(found)
    raise KeyError(key)


def from_json(hint: Any, data: Any) -> Any:
    """The value of type `hint` that `to_json` made `data` from; numbers stay as they are.

    Raises ValueError where data are of no such record.
    """
    if type(data) in _PLAIN:
        return data
    options = _options(hint)
    if isinstance(data, Mapping):
        records = [part for part in options if dataclasses.is_dataclass(part)]
        if records:
            return _read(records, data)
        inner = get_args(options[0])[1:] or (Any,)
        return {key: from_json(inner[0], item) for key, item in data.items()}
    if isinstance(data, list) and get_origin(options[0]) is tuple:
        first, *rest = get_args(options[0])
        hints = [first] * len(data) if rest == [Ellipsis] else [first, *rest]
        return tuple(from_json(part, item) for part, item in zip(hints, data, strict=True))
    return data


def _read(records: list[Any], data: Mapping[str, Any]) -> Any:
    """The first of `records` that `data` has all needed keys of."""
    chosen = next((record for record in records if _needed(record) <= data.keys()), None)
    if chosen is None:
        raise ValueError(f"{', '.join(_needed(records[0]) - data.keys())} is missing")
    given = {}
    for one in _fields(chosen):
        if one.spread and one.record is None:
            own = keys_of(chosen)
            given[one.name] = {key: item for key, item in data.items() if key not in own}
        elif one.spread and (one.needed or _needed(one.record) <= data.keys()):
            given[one.name] = _read([one.record], data)
        elif not one.spread and one.key in data:
            given[one.name] = from_json(one.hint, data[one.key])
    return chosen(**given)


# -- the schema -----------------------------------------------------------------------------------


def schema_of(hint: Any) -> dict[str, Any]:
    """JSON Schema of what `to_json` makes of values of type `hint`, in one piece."""
    hint = _bare(hint)
    options = _options(hint)
    inside = [one for part in options for one in _options(_item(part) or _named(part) or part)]
    if not any(dataclasses.is_dataclass(one) for one in inside):
        schema: dict[str, Any] = TypeAdapter(hint).json_schema()
        return schema
    found = [_part(part) for part in options]
    if options != (hint,) and NoneType in get_args(hint):
        found.append({"type": "null"})
    return found[0] if len(found) == 1 else {"anyOf": found}


def _part(hint: Any) -> dict[str, Any]:
    """The schema of a record, of many, or of some by name."""
    if _item(hint):
        return {"type": "array", "items": schema_of(_item(hint))}
    named = _named(hint)
    return {"type": "object", "additionalProperties": schema_of(named)} if named else _schema(hint)


def _bare(hint: Any) -> Any:
    """`hint` without its marks: units are those of files, and JSON has numbers in SI units."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bare(inner[0])
    if not inner or origin is Literal:
        return hint
    bare = tuple(one if one is Ellipsis else _bare(one) for one in inner)
    return functools.reduce(operator.or_, bare) if origin in (Union, UnionType) else origin[bare]


def _named(hint: Any) -> Any:
    """What a mapping from names is to; None where `hint` is something else."""
    mapping = get_origin(hint) in (dict, abc.Mapping)
    return get_args(hint)[1] if mapping else None


def _item(hint: Any) -> Any:
    """What a tuple or sequence of any length is of; None where `hint` is something else."""
    inner = get_args(hint)
    if get_origin(hint) is abc.Sequence:
        return inner[0]
    return inner[0] if get_origin(hint) is tuple and inner[1:] == (Ellipsis,) else None


def _schema(record: Any) -> dict[str, Any]:
    """The schema of a record."""
    properties: dict[str, Any] = {}
    said = inspect.cleandoc(record.__doc__ or "").partition("\n\n")[0]
    for one in _fields(record):
        if one.spread and one.record is None:
            continue  # any keys
        own = _schema(one.record)["properties"] if one.spread else {one.key: schema_of(one.hint)}
        properties |= own
    return {
        "title": record.__name__,
        "description": " ".join(said.split()),
        "type": "object",
        "properties": properties,
        "required": [key for key in properties if key in _needed(record)],
        "additionalProperties": any(f.spread and f.record is None for f in _fields(record)),
    }
