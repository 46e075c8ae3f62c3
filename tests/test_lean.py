"""Lean dataclasses are what the standard library makes of the same class, declared for less."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar

import pytest

from dpsim.core.lean import dataclass, lean


class Base:
    a: int
    b: float = 2.0
    made: list[int] = field(default_factory=list, compare=False)
    unhashed: tuple[int, ...] = field(default=(), hash=False, repr=False)
    kind: ClassVar[str] = "kind"

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("below zero")

    @cached_property
    def twice(self) -> int:
        return 2 * self.a


class Named:
    a: int
    c: str = field(default="c", kw_only=True)
    late: tuple[int, ...] = field(init=False, default_factory=tuple)


def declared(plain: type, make: Any, name: str) -> Any:
    """A class with the body of `plain`, made a dataclass by `make`."""
    body = {k: copy.copy(v) for k, v in vars(plain).items() if k not in ("__dict__", "__weakref__")}
    return make(type(name, (), body))


@dataclass(frozen=True)
class Kept:
    a: int
    b: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Derived(Kept):
    c: int = 3


@dataclass(frozen=True)
class Again(Derived):
    d: int = 4


class Loose(Kept):
    """No dataclass itself."""


@pytest.mark.parametrize("plain", [Base, Named])
def test_it_is_what_the_standard_library_makes(plain: type) -> None:
    ours = declared(plain, lean, "Made")
    theirs = declared(plain, dataclasses.dataclass(frozen=True), "Made")
    for given in ({"a": 1}, {"a": 3, "b": 1.0, "made": [1]}, {"a": 1, "c": "x"}, {}, {"a": -1}):
        try:
            other = theirs(**given)
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error)) as refused:
                ours(**given)
            assert str(refused.value) == str(error)
            continue
        made = ours(**given)
        assert repr(made) == repr(other)
        assert dataclasses.asdict(made) == dataclasses.asdict(other)
        assert made == ours(**given) == copy.deepcopy(made) == dataclasses.replace(made)
        assert made != other
        assert hash(made) == hash(dataclasses.replace(made))
        assert dataclasses.replace(made, a=2) != made
    parameters = [list(inspect.signature(one).parameters.values()) for one in (ours, theirs)]
    assert [(p.name, p.kind) for p in parameters[0]] == [(p.name, p.kind) for p in parameters[1]]


def test_what_is_compared_and_what_is_hashed() -> None:
    made = declared(Base, lean, "Made")
    assert made(1, made=[1]) == made(1, made=[2])
    assert made(1, unhashed=(1,)) != made(1, unhashed=(2,))
    assert hash(made(1, unhashed=(1,))) == hash(made(1, unhashed=(2,)))
    assert made(4).twice == 8


def test_nothing_of_it_can_be_set() -> None:
    for one in (Kept(1), Derived(1), Again(1), Loose(1)):
        for name in ("a", "b"):
            with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field"):
                setattr(one, name, 2)
            with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field"):
                delattr(one, name)
    loose: Any = Loose(1)
    loose.other = 2
    assert loose.other == 2


def test_classes_of_both_kinds_derive_from_each_other() -> None:
    assert repr(Again(1, d=5)) == "Again(a=1, b=(), c=3, d=5)"
    assert Again(1) != Derived(1)
    assert [one.name for one in dataclasses.fields(Again)] == ["a", "b", "c", "d"]
    assert pickle.loads(pickle.dumps(Again(1, (2,)))) == Again(1, (2,))


class Behind:
    a: int = 1
    b: int


class Sown:
    a: dataclasses.InitVar[int]


class Open:
    a: int = 1


OPEN = dataclasses.dataclass(Open)


@pytest.mark.parametrize(
    ("plain", "bases", "theirs"), [(Behind, (), True), (Kept, (OPEN,), True), (Sown, (), False)]
)
def test_what_could_not_be_called_is_refused_where_it_is_declared(
    plain: type, bases: tuple[type, ...], theirs: bool
) -> None:
    body = {"__annotations__": vars(plain)["__annotations__"], "a": vars(plain).get("a", 0)}
    with pytest.raises(TypeError) as ours:
        lean(type("Made", bases, dict(body)))
    if theirs:
        with pytest.raises(TypeError) as other:
            dataclasses.dataclass(frozen=True)(type("Made", bases, dict(body)))
        assert str(other.value).startswith(str(ours.value))


def test_a_class_that_says_so_has_no_hash() -> None:
    @dataclass(frozen=True)
    class Unhashed:
        a: int
        __hash__ = None  # type: ignore[assignment]

    with pytest.raises(TypeError, match="unhashable"):
        hash(Unhashed(1))


def test_methods_of_its_own_stay() -> None:
    @dataclass(frozen=True)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.a % 2 == other.a % 2

        def __hash__(self) -> int:
            return self.a % 2

        def __repr__(self) -> str:
            return "own"

    assert (Own(1), hash(Own(3)), repr(Own(1))) == (Own(3), 1, "own")


def test_what_is_not_frozen_or_has_an_order_is_the_standard_library_s() -> None:
    @dataclass(frozen=True, order=True)
    class Ordered:
        a: int

    @dataclass
    class Open:
        a: int

    one = Open(1)
    one.a = 2
    assert (Ordered(1) < Ordered(2), one) == (True, Open(2))
