"""What strategies answer is checked where it enters: one that fails, or gives what is no answer, is
named."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from math import inf
from numbers import Real
from typing import Any

from dpsim.collectives import BARRIER, OPERATIONS, SHIFT
from dpsim.compile.exchange import Exchange
from dpsim.compile.program import Program
from dpsim.core import plugins

#: methods of a strategy -> what they give
GIVEN: Mapping[str, Any] = {
    "exchange": Exchange,
    "program": Program,
    "on_stage": Exchange,
    "groups": Mapping,
    "memory": Mapping,
    "notes": tuple | list,
    "beside": tuple | list,
    "first_messages": tuple | list,
}


#: what numbers usually are; to ask whether something is Real takes ten times as long
_PLAIN = (float, int)
_KNOWN = frozenset((*OPERATIONS, BARRIER, SHIFT))


def check_answers(cls: type[Any]) -> None:
    """From now on what `cls` itself defines of GIVEN is checked when it is asked."""
    for name in GIVEN.keys() & vars(cls).keys():
        setattr(cls, name, _checked(vars(cls)[name]))


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    what = method.__name__

    @functools.wraps(method)
    def answer(self: Any, *given: Any, **named: Any) -> Any:
        with plugins.asked(self, what):
            found = method(self, *given, **named)
            if not isinstance(found, GIVEN[what]):
                raise ValueError(f"{str(found)[:60]!r} is no answer")
            for part, *numbers in _numbers(what, found):
                for value in numbers:
                    plain = type(value) in _PLAIN or isinstance(value, Real)
                    if not (plain and 0 <= value < inf):  # nor is NaN
                        raise ValueError(f"{part}: {str(value)[:60]} is no finite number from 0 on")
        return found

    return answer


def _numbers(what: str, found: Any) -> Iterator[tuple[Any, ...]]:
    """The numbers of an answer, behind what they are of; ValueError for an unknown operation."""
    if isinstance(found, Program):
        for op in found.ops:
            yield op.name, op.seconds, op.bytes, op.padding, op.delay
            if op.kind == "collective":
                _check_operation(op.name, op.operation)
    elif isinstance(found, Exchange):
        yield from _of_exchange(found)
    elif what == "memory":
        yield from found.items()
    elif isinstance(found, tuple | list):
        for one in found:
            if isinstance(one, Real):
                yield "a message", one
            elif not isinstance(one, str):
                yield one.name, one.seconds or 0.0, one.bytes, one.at_most or 0.0


def _of_exchange(found: Exchange) -> Iterator[tuple[Any, ...]]:
    legs = [leg for message in found.messages for leg in message.legs]
    for leg in (*legs, *found.gathers):
        yield leg.name, leg.bytes, leg.padding, leg.delay or 0.0
        _check_operation(leg.name, leg.operation)
    for message in found.messages:
        encode, decode = message.encode, message.decode
        yield "device work", encode.bytes, encode.seconds, decode.bytes, decode.seconds
    yield "a copy", found.copy_back, *found.copies.values()


def _check_operation(name: str, operation: str) -> None:
    if operation not in _KNOWN:
        there = ", ".join(OPERATIONS)
        raise ValueError(f"{name}: no operation {str(operation)[:60]!r}; there are {there}")
