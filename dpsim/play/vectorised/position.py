"""Where the ranks of a role are in their work: lines whose slopes are the ranks' factors.

What a rank computes takes it its factor times as long as a quiet one.  So all its operations up to
the next wait lie on a line: after `seconds` of them, and `fixed` seconds of what no factor
stretches, rank r has come to base[r] + factor[r] x seconds + fixed.  Nothing is worked out for each
rank until ranks have to be told apart; and of many ranks few can ever be the last (`front`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsim.core.arrays import Array
from dpsim.play.vectorised.slowing import EVERYONE, Column, Indices, Value, earliest, later, latest


class Factors:
    """How many times as long as a quiet one each rank of a role computes; a plain number where all
    ranks are alike."""

    def __init__(self, values: Value) -> None:
        self.each: Value
        if isinstance(values, float):
            self.low = self.high = self.each = values
            return
        self.low, self.high = float(values.min()), float(values.max())
        self.each = self.low if self.low == self.high else values

    def of_rank(self, column: Column) -> Factors:
        """Those of one rank, or of several."""
        if isinstance(self.each, float) or column is EVERYONE:
            return self
        return Factors(np.atleast_1d(self.each[column]))


def front(work: Value, factors: Value) -> Indices:
    """The ranks of which one is the last, whatever they all do: beside each no other is both later
    and slower.

    All do the same operations and wait for the same, so who is both stays behind.
    """
    if isinstance(work, float):
        return np.array([np.argmax(factors)])
    if isinstance(factors, float):
        return np.array([work.argmax()])
    best = int((_shares(work) + _shares(factors)).argmax())
    kept = np.flatnonzero((work > work[best]) | (factors > factors[best]))
    kept = np.append(kept, best)
    kept = kept[np.lexsort((-factors[kept], -work[kept]))]
    slowest = np.maximum.accumulate(factors[kept])
    found: Indices = kept[np.append(True, slowest[1:] > slowest[:-1])]
    return found


def _shares(values: Array) -> Array:
    """Where each value lies between the lowest and the highest."""
    low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low if high > low else 1.0)


class Base:
    """What the ranks of a role have done where lines begin."""

    def __init__(self, value: Value, factors: Factors) -> None:
        self.value, self.factors = value, factors

    def after(self, seconds: float, fixed: float) -> Value:
        """What each has done after so much more."""
        if not seconds:
            return self.value + fixed
        return self.value + self.factors.each * seconds + fixed

    def peak(self, seconds: float, fixed: float) -> float:
        """The most that any has done after so much more."""
        if isinstance(self.value, float):
            return self.value + self.factors.high * seconds + fixed
        return latest(self.after(seconds, fixed))


class Moment(NamedTuple):
    """A point on the way: so much work after a base."""

    base: Base
    seconds: float
    fixed: float

    @property
    def each(self) -> Value:
        """What each rank has done."""
        return self.base.after(self.seconds, self.fixed)

    @property
    def peak(self) -> float:
        """The most that any rank has done."""
        return self.base.peak(self.seconds, self.fixed)


class Position:
    """The present moment of a role's ranks; `low` and `high` bound what they have done."""

    def __init__(self, value: Value, factors: Factors) -> None:
        self.factors = factors
        self._set(value)

    def _set(self, value: Value, low: float | None = None, high: float | None = None) -> None:
        self.base, self.seconds, self.fixed = Base(value, self.factors), 0.0, 0.0
        self.low = earliest(value) if low is None else low
        self.high = latest(value) if high is None else high

    @property
    def now(self) -> Moment:
        """The present moment, which stays what it is."""
        return Moment(self.base, self.seconds, self.fixed)

    def work(self, seconds: float) -> None:
        """All ranks do `seconds` of what factors stretch."""
        self.seconds += seconds
        self.low += self.factors.low * seconds
        self.high += self.factors.high * seconds

    def spend(self, seconds: float) -> None:
        """All ranks do `seconds` of what they don't."""
        self.fixed += seconds
        self.low += seconds
        self.high += seconds

    def wait(self, until: Value) -> bool:
        """No rank goes on before `until`; whether that brings all of them to one point."""
        if isinstance(until, float) and until <= self.low:
            return False
        each = self.base.after(self.seconds, self.fixed)
        if not isinstance(until, float):
            self._set(later(each, until))
            return False
        high = latest(each)
        if until >= high:
            self._set(until, until, until)
            return True
        self._set(later(each, until), max(self.low, until), high)
        return False

    def move(self, value: Value, low: float | None = None, high: float | None = None) -> None:
        """Ranks are at `value` now, none before `low` or behind `high`."""
        self._set(value, low, high)
