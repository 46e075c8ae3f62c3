"""Many: one number at many points at once, so that what is worked out alike is worked out once.

A Many goes through code that was written for a float: what is added, multiplied or compared is so
for all points of its Party.  Where the code asks whether a number is larger than another, and the
points would not answer alike, the Party goes the way of most, and the others leave it; they are
asked again, among themselves.  So every point of the Party at the end has been through exactly the
operations of a float of its own, which NumPy carries out in the same double precision (IEEE 754):
its result is the same to the last bit.

Code that needs the number itself (text, whole numbers, arrays, functions of `math`) gets none:
Leaked is raised.  Where Python and NumPy read a float behind its back, they read "not a number".

>>> party = Party(3)
>>> time = Many(np.array([1.0, 2.0, 3.0]), party)
>>> later = 2.0 * time if time > 1.5 else time
>>> party.there, later.values[party.there]
(array([1, 2]), array([4., 6.]))
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dpsim.core.arrays import Array, IntArray

Truths = npt.NDArray[np.bool_]
#: whole numbers below this are exact in double precision
_EXACT = 2.0**53


class Leaked(Exception):
    """Something needs a number that differs from point to point; or too few points agree."""


class Party:
    """Points that go through the same operations: `size` at first, at least `least` to the end."""

    def __init__(self, size: int, least: int = 1) -> None:
        self.size = size
        self._here: Truths = np.ones(size, dtype=np.bool_)
        self._count, self._least = size, least

    @property
    def there(self) -> IntArray:
        """The numbers of the points that are in it still."""
        return np.flatnonzero(self._here)

    def vote(self, truth: Truths) -> bool:
        """What most of its points answer; the others leave."""
        here = truth & self._here
        yes = int(np.count_nonzero(here))
        if yes in (0, self._count):
            return yes > 0
        won = 2 * yes >= self._count
        self._here = here if won else self._here & ~truth
        self._count = yes if won else self._count - yes
        if self._count < self._least:
            raise Leaked(f"{self._count} points agree")
        return won

    def keep(self, truth: Truths) -> None:
        """Those of whom something is not true leave."""
        self._here = self._here & truth
        self._count = int(np.count_nonzero(self._here))
        if self._count < self._least:
            raise Leaked(f"{self._count} points agree")


_Made = Callable[[Any, Any], Any]


class Many(float):
    """A number at every point of a `party`; `whole`: they are whole numbers."""

    __slots__ = ("party", "values", "whole")
    __array_ufunc__ = None  # no ufunc takes it, not even beside an array
    values: Array
    party: Party
    whole: bool

    def __new__(cls, values: Array, party: Party, *, whole: bool = False) -> Many:
        made = float.__new__(cls, math.nan)
        made.values, made.party, made.whole = values, party, whole
        return made

    # -- arithmetic ---------------------------------------------------------------------------

    def _operand(self, other: Any) -> tuple[Any, bool]:
        """The values of `other`, and whether a result of whole numbers is whole."""
        kind = type(other)
        if kind is float:
            return other, False
        if kind is Many:
            return other.values, self.whole and other.whole
        if kind is int:
            if not -_EXACT < other < _EXACT:
                raise Leaked("a whole number that is not exact")
            return other, self.whole
        if isinstance(other, float | bool):
            return float(other), False
        raise Leaked(f"a number of many points beside a {kind.__name__}")

    def _made(self, values: Array, whole: bool) -> Many:
        if whole and not (np.abs(values[self.party.there]) < _EXACT).all():
            raise Leaked("a whole number that is not exact")
        return Many(values, self.party, whole=whole)

    def __add__(self, other: Any) -> Many:
        values, whole = self._operand(other)
        return self._made(self.values + values, whole)

    def __radd__(self, other: Any) -> Many:
        if type(other) is int and other == 0:
            # sum() begins so, and since Python 3.12 adds floats in another way than `+`
            raise Leaked("sum() of numbers of many points; `added` adds them")
        values, whole = self._operand(other)
        return self._made(values + self.values, whole)

    def __sub__(self, other: Any) -> Many:
        values, whole = self._operand(other)
        return self._made(self.values - values, whole)

    def __rsub__(self, other: Any) -> Many:
        values, whole = self._operand(other)
        return self._made(values - self.values, whole)

    def __mul__(self, other: Any) -> Many:
        values, whole = self._operand(other)
        return self._made(self.values * values, whole)

    def __rmul__(self, other: Any) -> Many:
        values, whole = self._operand(other)
        return self._made(values * self.values, whole)

    def __truediv__(self, other: Any) -> Many:
        values, _ = self._operand(other)
        self._refuse_zero(values)
        return self._made(self.values / values, False)

    def __rtruediv__(self, other: Any) -> Many:
        values, _ = self._operand(other)
        self._refuse_zero(self.values)
        return self._made(values / self.values, False)

    def _refuse_zero(self, values: Any) -> None:
        if self.party.vote(np.broadcast_to(np.equal(values, 0.0), self.values.shape)):
            raise ZeroDivisionError("float division by zero")

    def _whole(self, other: Any, make: _Made) -> Any:
        """`make` of two whole numbers, the second of which is not 0."""
        values, whole = self._operand(other)
        if not whole:
            raise Leaked("whole numbers are needed")
        self._refuse_zero(values)
        return self._made(make(self.values, values), True)

    def __floordiv__(self, other: Any) -> Any:
        return self._whole(other, np.floor_divide)

    def __mod__(self, other: Any) -> Any:
        return self._whole(other, np.remainder)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __neg__(self) -> Many:
        return Many(-self.values, self.party, whole=self.whole)

    def __pos__(self) -> Many:
        return self

    def __abs__(self) -> Many:
        return Many(np.abs(self.values), self.party, whole=self.whole)

    def root(self) -> Many:
        """The square root, which IEEE 754 rounds as it does the four operations."""
        if self.party.vote(self.values < 0.0):
            raise ValueError("math domain error")
        return Many(np.sqrt(self.values), self.party)

    def chosen(self, other: float, choose: Callable[[Any, Any], Array]) -> Many:
        """What `choose` chooses of this and `other`, at each point."""
        values, _ = self._operand(other)
        return Many(choose(self.values, values), self.party)

    # -- comparisons --------------------------------------------------------------------------

    def _compared(self, other: Any, compare: _Made) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented
        truth: Truths = compare(self.values, self._operand(other)[0])
        return self.party.vote(truth)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, operator.ge)

    def __eq__(self, other: Any) -> Any:
        return self._compared(other, operator.eq)

    def __ne__(self, other: Any) -> Any:
        return self._compared(other, operator.ne)

    def __bool__(self) -> bool:
        return self.party.vote(self.values != 0.0)

    __hash__ = object.__hash__  # who looks it up finds this one only

    # -- what there is not --------------------------------------------------------------------

    def __copy__(self) -> Many:
        return self

    def __deepcopy__(self, _: Any) -> Many:
        return self

    def _leak(self, *_: Any) -> NoReturn:
        raise Leaked("a number that differs from point to point")

    __float__ = __int__ = __trunc__ = __floor__ = __ceil__ = __round__ = _leak
    __pow__ = __rpow__ = __rfloordiv__ = __rmod__ = __rdivmod__ = _leak
    __format__ = __repr__ = __str__ = __reduce_ex__ = _leak
    is_integer = hex = as_integer_ratio = conjugate = _leak
    real = imag = property(_leak)


class Unsaid(str):
    """A word that differs from point to point: nobody may read it."""

    __slots__ = ()

    def _leak(self, *_: Any) -> NoReturn:
        raise Leaked("a word that differs from point to point")

    __eq__ = __ne__ = __hash__ = __str__ = __repr__ = __format__ = __len__ = _leak
    __reduce_ex__ = _leak


def longest(times: Mapping[str, float]) -> tuple[float, str]:
    """The largest of `times` and its name: the first of equal ones."""
    return reduce(longer, ((time, name) for name, time in times.items()))


def longer(one: tuple[float, str], other: tuple[float, str]) -> tuple[float, str]:
    """The longer of two times with their names; the first of equal ones."""
    if isinstance(one[0], Many) or isinstance(other[0], Many):
        return larger(one[0], other[0]), Unsaid()
    return one if one[0] >= other[0] else other


def root(value: float) -> float:
    """The square root of a number, or of many."""
    return value.root() if isinstance(value, Many) else math.sqrt(value)


def each(function: Callable[[float], float], value: float) -> float:
    """`function` of a number, or of each of many."""
    if not isinstance(value, Many):
        return function(value)
    found, there = np.zeros(value.party.size), value.party.there
    found[there] = [function(one) for one in value.values[there].tolist()]
    return Many(found, value.party)


def settled(value: float) -> float:
    """The plain number that `value` is at most points; the others leave."""
    if not isinstance(value, Many):
        return value
    found, counts = np.unique(value.values[value.party.there], return_counts=True)
    most = float(found[counts.argmax()])
    value.party.keep(value.values == most)
    return most


def mean(values: Sequence[float]) -> float:
    """The mean of numbers as NumPy has it, or of many."""
    many = next((value for value in values if isinstance(value, Many)), None)
    if many is None:
        return float(np.mean(values))
    size = len(many.values)
    rows = [v.values if isinstance(v, Many) else np.full(size, v) for v in values]
    return Many(np.mean(np.ascontiguousarray(np.stack(rows, axis=1)), axis=1), many.party)


def larger(one: float, other: float) -> float:
    """The larger of two numbers, or of many at each point."""
    if isinstance(one, Many):
        return one.chosen(other, np.maximum)
    if isinstance(other, Many):
        return other.chosen(one, np.maximum)
    return one if one >= other else other


def smaller(one: float, other: float) -> float:
    """The smaller of two numbers, or of many at each point."""
    if isinstance(one, Many):
        return one.chosen(other, np.minimum)
    if isinstance(other, Many):
        return other.chosen(one, np.minimum)
    return one if one <= other else other


def all_above(one: float, other: float) -> bool | None:
    """Whether a number is above another; of many: None where some are and some are not, who go on
    together."""
    if not (isinstance(one, Many) or isinstance(other, Many)):
        return one > other
    party = one.party if isinstance(one, Many) else other.party  # type: ignore[attr-defined]
    here = np.broadcast_to(_above(one, other), party.size)[party.there]
    return True if here.all() else None if here.any() else False


def where_above(one: float, other: float, then: float, otherwise: float) -> float:
    """`then` where a number is above another, else `otherwise`; of many at each point."""
    numbers = (one, other, then, otherwise)
    party = next((x.party for x in numbers if isinstance(x, Many)), None)
    if party is None:
        return then if one > other else otherwise
    return Many(np.where(_above(one, other), _plain(then), _plain(otherwise)), party)


def _above(one: float, other: float) -> Any:
    return np.greater(_plain(one), _plain(other))


def _plain(value: float) -> Any:
    return value.values if isinstance(value, Many) else value


def added(values: Iterable[float]) -> float:
    """The sum of numbers, one after the other, whatever the version of Python; 0.0 of none."""
    total = 0.0
    for value in values:
        total = total + value
    return total


def finite(value: float) -> bool:
    """Whether a number, or each of many, is neither infinite nor "not a number"."""
    return -math.inf < value < math.inf
