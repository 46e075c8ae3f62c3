"""Refusals: what is wrong with input, in one sentence at one place."""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_type_hints

import pydantic

from dpsim.core.fields import keys_of

#: names of records, which pydantic puts into the location of what is wrong inside a union
RECORDS: set[str] = set()


class Refused(ValueError):
    """Input that dpsim refuses: what, where, and what would be accepted (exit code 2).

    unknown_key  whether it is that nothing has the key at `path`
    """

    def __init__(
        self, message: str, path: tuple[str | int, ...] = (), *, unknown_key: bool = False
    ) -> None:
        super().__init__(message, path)  # what copies and other processes rebuild it from
        self.message = message
        self.path = path
        self.unknown_key = unknown_key

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}" if self.path else self.message


def dotted(path: tuple[str | int, ...]) -> str:
    """("model", "layers", 0, "name") as "model.layers[0].name"."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def refusal(
    cls: type,
    error: pydantic.ValidationError,
    path: tuple[str | int, ...],
    inside: tuple[str, ...] = (),
) -> Refused:
    """The first complaint of `error`, about what is `inside` record `cls` at `path`, as one
    sentence at one place."""
    found = error.errors(include_url=False, include_context=True)
    first = _choose([{**one, "loc": (*inside, *one["loc"])} for one in found])
    where = path + _user(first)
    cause = (first.get("ctx") or {}).get("error")
    if isinstance(cause, Refused):
        return Refused(cause.message, where + cause.path, unknown_key=cause.unknown_key)
    said = str(cause) if isinstance(cause, ValueError) else _sentence(cls, first)
    return Refused(said, where, unknown_key=first["type"] in _STRANGE)


def _sentence(cls: type, complaint: Any) -> str:
    """A complaint of pydantic's own about a field below `cls`, in dpsim's words."""
    from dpsim.core import unknown  # which is made of records

    kind, value, place = complaint["type"], complaint.get("input"), complaint["loc"]
    if kind in _STRANGE:
        names = _user(complaint)
        said = unknown.sentence(str(names[-1]), _fields_at(cls, place[:-1]))
        return said if len(names) == 1 else unknown.not_modelled(dotted(names)) or said
    if kind in _MISSING:
        return "is missing"
    if kind == "literal_error":
        said = _none_of(value, str(complaint["ctx"].get("expected", "")))
        return said + _default_at(cls, _user(complaint)) if value is None else said
    if kind == "too_long":  # of a tuple, whose length is fixed
        return f"{len(value)} entries where {complaint['ctx']['max_length']} are needed"
    if kind in _NEEDED:
        keys = sorted(_fields_at(cls, place)) if kind in _RECORDS and place else []
        hint = f"{_written(cls, place, value)}; its keys: {', '.join(keys)}" if keys else ""
        return f"{brief(value)} where {_NEEDED[kind]} is needed{hint}"
    return str(complaint["msg"]).removeprefix("Value error, ")


_RECORDS = ("dataclass_type", "dataclass_exact_type")
_NEEDED = {
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "dataclass_type": "a mapping",
    "dataclass_exact_type": "a mapping",
}


def _choose(errors: list[Any]) -> Any:
    """The complaint that helps most: an unknown key rather than what is missing beside it, and
    of the branches of a union the one that went furthest."""
    first = errors[0]
    near = [e for e in errors if _user(e)[: len(_user(first))] == _user(first)]
    if first["type"] in _MISSING:
        above = _user(first)[:-1]
        strange = [e for e in errors if e["type"] in _STRANGE and _user(e)[:-1] == above]
        return strange[0] if strange else first
    if first["type"] == "literal_error" and not isinstance(first.get("input"), str):
        near = near[1:] or near
    return max(near, key=lambda e: len(_user(e)))  # the first of equals


_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")
_STRANGE = ("unexpected_keyword_argument", "extra_forbidden", "invalid_key")


def _user(error: Any) -> tuple[str | int, ...]:
    return tuple(part for part in error["loc"] if not _internal(part))


def _written(cls: Any, place: tuple[str | int, ...], value: Any) -> str:
    """How to write the section at `place` below `cls`: with `value` under its usual key where that
    is right, else an example; "" where none is known."""
    from dpsim.core import unknown
    from dpsim.core.record import build

    example = unknown.example(str(place[-1]))
    if not example:
        return ""
    key = example.strip("{").partition(":")[0]
    if isinstance(value, str):
        try:
            build(_record_at(cls, place), {key: value}, file=True)
        except Refused:
            pass
        else:
            return f"; write {{{key}: {value}}}"
    return f"; write for example {example}"


def _default_at(cls: Any, place: tuple[str | int, ...]) -> str:
    """Which value the key at `place` below `cls` has where it is left out; "" where it has none."""
    above = _record_at(cls, place[:-1])
    fields = dataclasses.fields(above) if dataclasses.is_dataclass(above) else ()
    found = next((one.default for one in fields if one.name == place[-1]), None)
    return f"; left out it is {found!r}" if isinstance(found, str) else ""


def _none_of(value: Any, expected: str) -> str:
    from dpsim.core import unknown

    known = [name.strip("'") for name in re.split(r", | or ", expected)]
    if value is None:  # which is no name that could be meant
        return f"is empty (null); one of {', '.join(known)} is needed"
    if missing := unknown.not_modelled(str(value)):
        return f"{missing} (here: {', '.join(known)})"
    if len(known) == 1:
        return f"{brief(value)} is not accepted; write {known[0]!r}, or leave it out"
    near = unknown.did_you_mean(str(value), known)
    return f"{brief(value)} is none of {', '.join(known)}{near and f'; {near}'}"


def _internal(part: str | int) -> bool:
    """Parts of pydantic's location that are its own and no key of the user's."""
    scalars = ("str", "int", "float", "bool")
    return isinstance(part, str) and ("[" in part or part in scalars or part in RECORDS)


def _fields_at(cls: Any, loc: tuple[str | int, ...]) -> list[str]:
    """Field names of the record reached from `cls` along `loc` (best effort, for a hint)."""
    found = _record_at(cls, loc)
    return list(keys_of(found)) if dataclasses.is_dataclass(found) else []


def _record_at(cls: Any, loc: tuple[str | int, ...]) -> Any:
    """The record reached from `cls` along `loc`, as far as that goes."""
    for part in loc:
        if isinstance(part, str) and dataclasses.is_dataclass(cls):
            cls = next(_records(get_type_hints(cls, include_extras=False).get(part)), cls)
    return cls


def _records(hint: Any) -> Iterator[Any]:
    """The records in an annotation: it is one, an option, or what a list or a mapping holds."""
    if dataclasses.is_dataclass(hint):
        yield hint
    for inner in get_args(hint):
        yield from _records(inner)


def texts(what: str, given: Any) -> None:
    """Refuse `given` where it is no list of texts: one text would be taken letter by letter."""
    if isinstance(given, str):
        said = f"{brief(given)} is one text; a list of texts is accepted, [{given!r}]"
        raise Refused(f"{what}: {said}")
    if not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
        raise Refused(f"{what}: {brief(given)} is no list of texts such as ['cluster.nodes=4']")


def whole(what: str, given: Any, low: int, high: float = math.inf) -> int:
    """`given` as an int; numpy's are ints too; refused where it is none in `low` … `high`."""
    number = isinstance(given, numbers.Integral) and not isinstance(given, bool)
    if not number or not low <= given <= high:
        limits = f"of at least {low:,}" if math.isinf(high) else f"in {low:,} … {high:,}"
        raise Refused(f"{what}: {brief(given)} is not a whole number {limits}")
    return int(given)


def text(what: str, given: Any) -> None:
    """Refuse `given` where it is neither a text nor nothing."""
    if given is not None and not isinstance(given, str):
        raise Refused(f"{what}: {brief(given)} where a text is needed")


def changes_by_key(given: Any) -> None:
    """Refuse `given` where it is no mapping from keys to values."""
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise Refused(f"changes: {brief(given)} where a dict as {{'cluster.nodes': 4}} is needed")


def brief(value: Any) -> str:
    if value is None:
        return "nothing"
    text = str(value).lower() if isinstance(value, bool) else f"{value!r}"
    return text if len(text) <= 60 else text[:57] + "…"
