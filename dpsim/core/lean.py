"""Frozen dataclasses that cost little to declare.

``dataclasses.dataclass`` compiles six methods for every class: half a millisecond each time dpsim
starts, of hundreds of classes of which a command uses few.  Here classes share all of them but
``__init__``, which is compiled when a class is first called; until then `inspect.signature` shows
``(*args, **given)``.  Everything else is the standard library's: fields, `replace`, `asdict`, what
is equal, what a hash depends on, and what is refused of fields and bases where a class is declared.
`InitVar`s alone are refused here and not there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import reprlib
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from operator import attrgetter
from typing import TYPE_CHECKING, Any

#: where a class keeps what gives the values that are compared, and those that its hash depends on
_COMPARED, _HASHED = "__lean_compared__", "__lean_hashed__"
_INITVAR = "_FIELD_INITVAR"
Values = Callable[[Any], tuple[Any, ...]]


def _values(cls: Any, kept: str) -> Values:
    """What gives the values of an instance of `cls` that count, in their order."""
    known: Values | None = cls.__dict__.get(kept)
    if known is None:
        fields = [one for one in dataclasses.fields(cls) if one.compare]
        if kept == _HASHED:
            fields = [one for one in dataclasses.fields(cls) if _hashed(one)]
        names = [one.name for one in fields]
        known = attrgetter(*names) if len(names) > 1 else _few(names)
        setattr(cls, kept, known)
    return known


def _hashed(one: dataclasses.Field[Any]) -> bool:
    return one.compare if one.hash is None else one.hash


def _few(names: list[str]) -> Values:
    """The values of one name or none, which attrgetter does not put into a tuple."""
    return lambda one: tuple(getattr(one, name) for name in names)


def _eq(self: Any, other: object) -> Any:
    cls = self.__class__
    if other.__class__ is not cls:
        return NotImplemented
    values = cls.__dict__.get(_COMPARED) or _values(cls, _COMPARED)
    return values(self) == values(other)


def _hash(self: Any) -> int:
    cls = self.__class__
    return hash((cls.__dict__.get(_HASHED) or _values(cls, _HASHED))(self))


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _frozen(self: Any, name: str, doing: str) -> None:
    cls = type(self)
    if "__dataclass_fields__" in cls.__dict__ or name in cls.__dataclass_fields__:
        raise FrozenInstanceError(f"cannot {doing} field {name!r}")


def _setattr(self: Any, name: str, value: object) -> None:
    _frozen(self, name, "assign to")
    object.__setattr__(self, name, value)


def _delattr(self: Any, name: str) -> None:
    _frozen(self, name, "delete")
    object.__delattr__(self, name)


def _init(cls: Any) -> Callable[..., None]:
    """An ``__init__`` that becomes the standard library's when it is first called."""

    def init(self: Any, /, *args: Any, **given: Any) -> None:
        cls.__init__ = _compiled(cls)
        cls.__init__(self, *args, **given)

    return init


def _compiled(cls: Any) -> Any:
    """The ``__init__`` of frozen dataclass `cls`, as the standard library writes it."""
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"_put": object.__setattr__, "_unset": dataclasses.MISSING}
    taken, body = ["self"], ["pass"]
    named: list[str] = []
    for one in fields:
        value = one.name
        if one.default_factory is not dataclasses.MISSING:
            names[f"_made_{one.name}"] = one.default_factory
            value = f"_made_{one.name}()"
            if one.init:
                value += f" if {one.name} is _unset else {one.name}"
        elif not one.init:
            continue  # the class has its default, if there is one
        if one.init:
            (named if one.kw_only else taken).append(_parameter(one, names))
        body.append(f"_put(self, {one.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    shown = ", ".join(taken + ["*"] * bool(named) + named)
    exec(f"def __init__({shown}):\n " + "\n ".join(body), names)
    made = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _parameter(one: dataclasses.Field[Any], names: dict[str, Any]) -> str:
    """How ``__init__`` takes field `one`; its default becomes one of `names`."""
    if one.default_factory is not dataclasses.MISSING:
        return f"{one.name}=_unset"
    if one.default is dataclasses.MISSING:
        return one.name
    names[f"_default_{one.name}"] = one.default
    return f"{one.name}=_default_{one.name}"


def _check_fields(cls: Any) -> None:
    """Raises TypeError for fields that ``__init__`` could not take, when `cls` is declared."""
    own: dict[str, dataclasses.Field[Any]] = cls.__dataclass_fields__
    kept = {one.name for one in dataclasses.fields(cls)}
    defaulted = ""
    for one in own.values():
        if one.name not in kept:
            if getattr(one._field_type, "name", "") == _INITVAR:  # type: ignore[attr-defined]
                raise TypeError(f"field {one.name!r} is an InitVar: use dataclasses.dataclass")
        elif one.init and not one.kw_only:
            if (one.default, one.default_factory) != (dataclasses.MISSING, dataclasses.MISSING):
                defaulted = one.name
            elif defaulted:
                raise TypeError(f"non-default argument {one.name!r} follows default argument")


@contextlib.contextmanager
def _bases_thawed(cls: type) -> Iterator[None]:
    """While bases of `cls` count as not frozen: else only frozen classes may derive from them."""
    known: list[Any] = [
        base.__dict__["__dataclass_params__"]
        for base in cls.__mro__[1:]
        if "__dataclass_params__" in base.__dict__
    ]
    frozen = [params for params in known if params.frozen]
    if len(frozen) < len(known):
        raise TypeError("cannot inherit frozen dataclass from a non-frozen one")
    for params in frozen:
        params.frozen = False
    try:
        yield
    finally:
        for params in frozen:
            params.frozen = True


def lean(cls: Any, *, init: bool = True, repr: bool = True, eq: bool = True,
         kw_only: bool = False) -> Any:  # fmt: skip
    """Make `cls` a frozen dataclass; the options are those of ``dataclasses.dataclass``."""
    own = dict(cls.__dict__)
    cls.__doc__ = cls.__doc__ or f"{cls.__name__}."  # or its signature would be worked out for it
    with _bases_thawed(cls):
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    _check_fields(cls)
    params: Any = cls.__dataclass_params__
    params.init, params.repr, params.eq, params.frozen = init, repr, eq, True
    shared = {"__setattr__": _setattr, "__delattr__": _delattr}
    if init:
        shared["__init__"] = _init(cls)
    if repr:
        shared["__repr__"] = _repr
    if eq:
        shared["__eq__"] = _eq
        none = "__eq__" in own and own.get("__hash__") is None  # Python says None beside an __eq__
        if none or "__hash__" not in own:
            cls.__hash__ = _hash
    for name, method in shared.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, order=False, slots=False, **options):
        """``dataclasses.dataclass``; frozen ones, without an order or slots, are `lean`."""

        def make(one):
            if frozen and not (order or slots or options.keys() - {"eq", "repr", "kw_only"}):
                return lean(one, **options)
            options.update(frozen=frozen, order=order, slots=slots)
            return dataclasses.dataclass(**options)(one)

        return make if cls is None else make(cls)


__all__ = ["dataclass", "lean"]
