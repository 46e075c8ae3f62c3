"""The one way to declare an immutable, validated noun.

A ``@record`` class is a frozen, keyword-only pydantic dataclass: its fields are its constructor
arguments, each is checked against its annotation (units and ranges included), unknown names are
refused, and ``dataclasses.replace`` checks again.  Rules that link fields go into
``__post_init__`` and raise ValueError with one sentence.

>>> @record
... class Probe:
...     latency: Annotated[float, Unit("s")]
>>> Probe(latency="5 us").latency
5e-06
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import (
    Annotated,
    Any,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import pydantic
from pydantic import ConfigDict, Strict, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import ArgsKwargs, core_schema

from dpsim.core.fields import CONFIG, alias_of
from dpsim.core.lean import dataclass, lean
from dpsim.core.marks import Mark
from dpsim.core.refusals import RECORDS, brief, refusal
from dpsim.core.refusals import Refused as Refused
from dpsim.core.refusals import dotted as dotted
from dpsim.core.units import Unit, decimal, exact

T = TypeVar("T")
#: the record whose schema is being made; None: where records in fields are to be told whole
_MADE: ContextVar[type | None] = ContextVar("made", default=None)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make `cls` an immutable, validated noun (see the module's docstring).

    What checks it is made when it is first used, and so are those of the records in its fields:
    of a hundred records that say what a scenario may hold, one scenario needs thirty.
    """
    RECORDS.add(cls.__name__)
    made: Any = lean(cls, init=False, kw_only=True)

    def init(self: T, /, **given: Any) -> None:
        if not given and _by_default(made, self):
            return
        checks = _adapter_of(made).validator
        try:
            checks.validate_python(ArgsKwargs((), given), self_instance=self)
        except pydantic.ValidationError as error:
            raise refusal(made, error, ()) from None

    made.__init__ = init
    made.__pydantic_config__ = CONFIG
    made.__get_pydantic_core_schema__ = classmethod(_schema_of)
    return cast("type[T]", made)


def _by_default(cls: Any, new: Any) -> bool:
    """Make `new` a `cls` of nothing but defaults, which are not checked; False where it has none
    for some field, or rules that link fields refuse them."""
    values = {}
    for one in dataclasses.fields(cls):
        if one.default_factory is not dataclasses.MISSING:
            values[one.name] = one.default_factory()
        elif one.default is dataclasses.MISSING or isinstance(one.default, FieldInfo):
            return False
        else:
            values[one.name] = one.default
    for name, value in values.items():
        object.__setattr__(new, name, value)
    try:
        if hasattr(new, "__post_init__"):
            new.__post_init__()
    except ValueError:  # it is told as of any other
        return False
    return True


def _schema_of(cls: type, source: Any, handler: Any) -> Any:
    """What checks a value of record `cls`: its fields where it is being made, and else what calls
    for that when there is a value."""
    if _MADE.get() in (None, cls):
        return handler(source)

    def validate(value: Any, info: Any) -> Any:
        if type(value) is cls:
            return value
        return _adapter_of(cls).validator.validate_python(value, context=info.context)

    return core_schema.with_info_plain_validator_function(validate)


@dataclass(frozen=True)
class Check(Mark):
    """Marks an integer field with its inclusive range; the message states the range."""

    low: int
    high: int

    def take(self, value: Any, file: bool) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            said = "is empty;" if value is None else f"{str(value)[:60]!r} is not a whole number;"
            raise ValueError(f"{said} one in {self.low:,} … {self.high:,} is needed")
        if not self.low <= value <= self.high:
            shown = value if abs(value) < 10**30 else "a huge number"
            raise ValueError(f"{shown} is not in {self.low:,} … {self.high:,}")
        return value

    def bare(self, text: str) -> int:
        """The checked whole number of `text` in a data file; tables write 8 as 8.0 and 8E+0 too."""
        number = decimal(text)
        if number != number.to_integral_value():
            raise ValueError(f"{text[:40]!r} is not a whole number")
        return self.take(int(number), file=True)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


Count = Annotated[int, Check(1, 1_048_576)]
Natural = Annotated[int, Check(0, 10**15)]
Flag = Annotated[bool, Strict()]
Text = Annotated[str, Strict()]


def build(cls: type[T], data: Any, *, file: bool = False, path: tuple[str | int, ...] = ()) -> T:
    """An instance of record `cls` from plain `data` (mappings, lists, text, numbers).

    With `file` quantities must be text with a unit.  Raises Refused naming the field.
    """
    if not isinstance(data, Mapping):
        raise Refused(f"{brief(data)} where a mapping is needed", path)
    try:
        known: Any = cls
        made: T = _adapter_of(known).validate_python(dict(data), context={"file": file})
        return made
    except pydantic.ValidationError as error:
        raise refusal(cls, error, path) from None


def altered(instance: T, values: Mapping[str, Any], *, file: bool = False) -> T:
    """`instance`, of a record, with other `values` of some fields; only these are checked, and the
    rules that link fields.

    What `dataclasses.replace` gives (with `file`: what `build` gives), without checking anew what
    is as it was.  Raises Refused naming the field.
    """
    cls: Any = type(instance)
    made: Any = object.__new__(cls)
    known: dict[str, Any] = made.__dict__  # a field at a time takes ten times as long
    known.update(instance.__dict__)
    for name in known.keys() - cls.__dataclass_fields__.keys():
        del known[name]  # what was worked out from the other values
    fields, context = _checked_fields(cls), {"file": file}
    try:
        for name, value in values.items():
            if name not in fields:
                raise TypeError(f"{cls.__name__} has no field {name!r}")
            known[name] = fields[name].validate_python(value, context=context)
    except pydantic.ValidationError as error:
        raise refusal(cls, error, (), (name,)) from None
    if hasattr(made, "__post_init__"):
        made.__post_init__()
    return cast("T", made)


@functools.cache
def _checked_fields(cls: type) -> dict[str, TypeAdapter[Any]]:
    """What checks each field of record `cls` alone."""
    hints = get_type_hints(cls, include_extras=True)
    fields: Any = cls.__dict__["__dataclass_fields__"]
    config = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
    return {name: _adapter(hints[name], config) for name in fields}


def _adapter(hint: Any, config: ConfigDict) -> TypeAdapter[Any]:
    with _making(Mark):
        try:
            return TypeAdapter(hint, config=config)
        except pydantic.PydanticUserError:  # a record has its own
            return TypeAdapter(hint)


@functools.cache
def _adapter_of(cls: type) -> TypeAdapter[Any]:
    with _making(cls):
        return TypeAdapter(cls)


@contextlib.contextmanager
def _making(cls: type) -> Iterator[None]:
    """While what checks `cls` is being made."""
    token = _MADE.set(cls)
    try:
        yield
    finally:
        _MADE.reset(token)


def json_schema(cls: type) -> dict[str, Any]:
    """JSON Schema of record `cls` in one piece, without references."""
    from dpsim.core.jsonschema import Written  # which few commands need

    schema: dict[str, Any] = TypeAdapter(cls).json_schema(by_alias=True, schema_generator=Written)
    parts = schema.pop("$defs", {})

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            name = value.get("$ref", "").removeprefix("#/$defs/")
            rest = {key: whole(item) for key, item in value.items() if key != "$ref"}
            return {**whole(parts[name]), **rest} if name else rest
        return [whole(item) for item in value] if isinstance(value, list) else value

    result: dict[str, Any] = whole(schema)
    return result


def dump(value: Any) -> Any:
    """`value` as plain data that `build` reads back to an equal record (defaults left out)."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = get_type_hints(type(value), include_extras=True)
        result = {name: value.__class__.__dict__[name] for name in _tags(type(value))}
        for field, current in _changed(value):
            result[alias_of(type(value), field.name)] = _dump_field(hints[field.name], current)
        return result
    if isinstance(value, Mapping):
        return {key: dump(item) for key, item in value.items()}
    if isinstance(value, tuple) and type(value).__str__ is not object.__str__:
        return str(value)  # a version
    if isinstance(value, (tuple, list)):
        return [dump(item) for item in value]
    return value


def _tags(cls: Any) -> list[str]:
    return [cls.tag] if isinstance(getattr(cls, "tag", None), str) and hasattr(cls, cls.tag) else []


def _changed(value: Any) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    for field in dataclasses.fields(value):
        current = getattr(value, field.name)
        default: Any = field.default
        factory: Any = field.default_factory
        if default is dataclasses.MISSING and factory is not dataclasses.MISSING:
            default = factory()
        if default is dataclasses.MISSING or current != default:
            yield field, current


def _dump_field(hint: Any, current: Any) -> Any:
    unit = unit_of(hint)
    return dump(current) if unit is None else _with_unit(unit, current)


def _with_unit(unit: Unit, value: Any) -> Any:
    if isinstance(value, float):
        return exact(value, unit.dimension)
    if isinstance(value, Mapping):
        return {key: _with_unit(unit, item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_with_unit(unit, item) for item in value]
    return dump(value)


def unit_of(hint: Any) -> Unit | None:
    """The Unit inside an annotation such as ``Seconds | None`` or ``dict[str, FlopPerSecond]``."""
    if get_origin(hint) is Annotated:
        for mark in get_args(hint)[1:]:
            if isinstance(mark, Unit):
                return mark
    for inner in get_args(hint):
        found = unit_of(inner)
        if found is not None:
            return found
    return None
