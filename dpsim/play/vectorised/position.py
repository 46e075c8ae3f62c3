"""Where the ranks of a role are in their work: lines whose slopes are the ranks' factors.

What a rank computes takes it its factor times as long as a quiet one.  So all its operations up to
the next wait lie on a line: after `seconds` of them, and `fixed` seconds of what no factor
stretches, rank r has come to base[r] + factor[r] x seconds + fixed.  Nothing is worked out for each
rank until ranks have to be told apart.  When the last of them comes is a maximum of lines, and few
ranks are ever on top.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsim.core.arrays import Array
from dpsim.play.vectorised.slowing import Indices, Value, later, latest


class Factors:
    """How many times as long as a quiet one each rank of a role computes; a plain number where all
    ranks are alike."""

    def __init__(self, values: Array) -> None:
        self.low, self.high = float(values.min()), float(values.max())
        self.each: Value = self.low if self.low == self.high else values

    def of_rank(self, column: int | Indices) -> Factors:
        """Those of one rank, or of several."""
        if isinstance(self.each, float):
            return self
        return Factors(np.atleast_1d(self.each[column]))


class Base:
    """What the ranks of a role have done where lines begin."""

    def __init__(self, value: Value, factors: Factors) -> None:
        self.value, self.factors = value, factors
        self._upper: tuple[Array, Array] | None = None

    def after(self, seconds: float, fixed: float) -> Value:
        """What each has done after so much more."""
        if not seconds:
            return self.value + fixed
        return self.value + self.factors.each * seconds + fixed

    def peak(self, seconds: float, fixed: float) -> float:
        """The most that any has done after so much more."""
        if isinstance(self.value, float):
            return self.value + self.factors.high * seconds + fixed
        if isinstance(self.factors.each, float):
            return latest(self.value) + self.factors.each * seconds + fixed
        if self._upper is None:
            self._upper = self._on_top(self.value, self.factors.each)
        value, factors = self._upper
        return float((value + factors * seconds).max()) + fixed

    @staticmethod
    def _on_top(value: Array, factors: Array) -> tuple[Array, Array]:
        """The lines that may be the highest somewhere.

        One is highest at the start, one is the steepest.  Any other that is above both anywhere is
        so where they cross: below both at the start, and no steeper than the second, it could not
        come up later.
        """
        first, steepest = int(value.argmax()), int(factors.argmax())
        gap = float(value[first] - value[steepest])
        slope = float(factors[steepest] - factors[first])
        crossing = gap / slope if slope > 0.0 else 0.0
        heights = value + factors * crossing
        kept = heights >= max(heights[first], heights[steepest])
        kept[first] = kept[steepest] = True
        return value[kept], factors[kept]


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

    def _set(self, value: Value) -> None:
        self.base, self.seconds, self.fixed = Base(value, self.factors), 0.0, 0.0
        if isinstance(value, float):
            self.low = self.high = value
        else:
            self.low, self.high = float(value.min()), float(value.max())

    @property
    def now(self) -> Moment:
        """The present moment, which stays what it is."""
        return Moment(self.base, self.seconds, self.fixed)

    @property
    def alike(self) -> bool:
        """Whether all ranks are at the same point."""
        if not isinstance(self.base.value, float):
            return False
        return isinstance(self.factors.each, float) or not self.seconds

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

    def wait(self, until: Value) -> None:
        """No rank goes on before `until`."""
        if isinstance(until, float):
            if until <= self.low:
                return
            self._set(until if until >= self.high else later(self.now.each, until))
        elif not bool((until <= self.low).all()):
            self._set(np.maximum(self.now.each, until))

    def turn(self, factors: Factors) -> None:
        """From here on ranks have other factors."""
        value = self.now.each
        self.factors = factors
        self._set(value)

    def move(self, value: Value) -> None:
        """Ranks are at `value` now."""
        self._set(value)
