"""Halts: what steps stand still for at every multiple of so many productive seconds (a level of
checkpoints, an evaluation), several kinds of them beside each other, in closed form.

Where steps are is said from the run's beginning [productive seconds], and all stops lie at
multiples of their intervals there, so what a stretch takes is a sum over kinds.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass

#: what is this near to a stop is at it: of the finest interval, and of where it is
_TIE, _ROUNDING = 1e-9, 1e-14
#: halvings of what is not known of where a stretch ends; what is left is a straight line
_HALVINGS = 48


@dataclass(frozen=True)
class Halt:
    """What happens at every multiple of `interval`.

    interval  productive seconds between two of them
    pause     for which steps stand still [s]
    write     time after the pause until a checkpoint is of use [s]
    slowdown  how much longer steps take while that goes on
    restore   until such a checkpoint is read [s]
    copies    nodes that have to be lost at once for it to be lost; infinite: it outlives all of
              them.  None: it is no checkpoint but an evaluation
    """

    interval: float
    pause: float
    write: float = 0.0
    slowdown: float = 0.0
    restore: float = 0.0
    copies: float | None = math.inf


@dataclass(frozen=True)
class Elapsed:
    """What a stretch of so many seconds is made of; all of one shape, the runs.

    steps    productive seconds
    saving   held up by checkpoints [s]
    evaluating  by evaluations [s]
    held     the newest checkpoint of each level, in productive seconds from the run's beginning, of
             those that are of use at the end; 0: none.  Shape (levels, runs)
    """

    steps: Array
    saving: Array
    evaluating: Array
    held: Array


@dataclass(frozen=True)
class Halts:
    """All kinds of stops of a run; those at one place come one after another, in this order."""

    kinds: tuple[Halt, ...]

    @cached_property
    def levels(self) -> tuple[Halt, ...]:
        """Those that are checkpoints."""
        return tuple(one for one in self.kinds if one.copies is not None)

    @cached_property
    def finest(self) -> float:
        """The smallest interval."""
        return min((one.interval for one in self.kinds), default=1.0)

    def near(self, place: Any) -> Any:
        """How far from `place` what lies there may seem to lie: the same for all kinds."""
        return _TIE * self.finest + _ROUNDING * place

    def passed(self, begin: Array, place: Array, speed: Array, there: bool) -> Array:
        """Seconds from `begin` to `place`, with what is passed between them; with the pauses at
        `place` itself where `there`.  What lies at `begin` has passed."""
        return self._passed(self._behind(begin), begin, place, speed, there)

    def _passed(
        self, behind: Array, begin: Array, place: Array, speed: Array, there: bool
    ) -> Array:  # fmt: skip
        """`passed`, where it is known how many stops lie `behind` the beginning."""
        return self._lasting(behind, self._counts(behind, place, there), begin, place, speed)

    def _lasting(
        self, behind: Array, counts: Array, begin: Array, place: Array, speed: Array
    ) -> Array:  # fmt: skip
        """Seconds from `begin` to `place`, with so many stops of each kind between them."""
        found: Array = (place - begin) / speed
        for many, count, one in zip(behind, counts, self.kinds, strict=True):
            found = found + count * one.pause
            if one.write > 0 and one.slowdown > 0:
                found = found + _slowed(one, many, count, place, speed)
        return found

    def reached(self, begin: Array, seconds: Array, speed: Array) -> Array:
        """Where steps are after so many `seconds`: the last place that is reached by then."""
        return self._reached(self._behind(begin), begin, seconds, speed)

    def _reached(self, behind: Array, begin: Array, seconds: Array, speed: Array) -> Array:
        low, high = begin, begin + seconds * speed
        if not self.kinds:
            return high
        if self._even:
            low, high = self._between(behind, begin, seconds, speed, high)
        else:
            for _ in range(_HALVINGS):
                low, high = self._halved(behind, begin, seconds, speed, low, high)
        rest = seconds - self._passed(behind, begin, low, speed, True)
        place: Array = np.clip(low + np.maximum(rest, 0.0) * speed, low, high)
        return place

    def _halved(
        self, behind: Array, begin: Array, seconds: Array, speed: Array, low: Array, high: Array
    ) -> tuple[Array, Array]:  # fmt: skip
        middle = 0.5 * (low + high)
        early = self._passed(behind, begin, middle, speed, False) <= seconds
        return np.where(early, middle, low), np.where(early, high, middle)

    def _between(
        self, behind: Array, begin: Array, seconds: Array, speed: Array, high: Array
    ) -> tuple[Array, Array]:
        """Places with nothing but steps between them, one of them passed after `seconds` and the
        other not.  Of each kind there are as many stops as intervals, but for one: so it is known
        within the time of one stop of each where that is."""
        pauses = sum(one.pause for one in self.kinds)
        each = 1.0 / speed + sum(one.pause / one.interval for one in self.kinds)
        low = np.maximum(begin + (seconds - pauses) / each * (1.0 - 1e-12), begin)
        high = np.minimum(begin + (seconds + pauses) / each * (1.0 + 1e-12), high)
        while (high - low > 0.5 * self.finest).any():
            low, high = self._halved(behind, begin, seconds, speed, low, high)
        for _ in range(len(self.kinds) + 1):  # at most one stop of each is left
            stop = ((self._behind(low) + 1.0) * self._intervals).min(axis=0)
            within = stop <= high
            if not within.any():
                break
            before = self._passed(behind, begin, stop, speed, False) <= seconds
            over = self._passed(behind, begin, stop, speed, True) <= seconds
            low = np.where(within & before, stop, low)
            high = np.where(within & ~over, stop, high)
        return low, high

    @cached_property
    def _even(self) -> bool:
        """Whether steps go on at one pace between stops."""
        return not any(one.write > 0 and one.slowdown > 0 for one in self.kinds)

    def stretch(self, begin: Array, seconds: Array, speed: Array, end: Array) -> Elapsed:
        """What so many `seconds` from `begin` on are made of; where `end` is finite they end there,
        without the stops that lie there."""
        known, behind = np.isfinite(end), self._behind(begin)
        place = np.where(known, end, self._reached(behind, begin, seconds, speed))
        between, there = (self._counts(behind, place, way) for way in (False, True))
        until = self._lasting(behind, between, begin, place, speed)
        rest = np.maximum(seconds - until, 0.0)
        evaluating, worked = np.zeros(len(begin)), (place - begin) / speed
        held = []
        for number, one in enumerate(self.kinds):
            spent = np.minimum(rest, one.pause) * np.where(known, 0.0, there - between)[number]
            rest = rest - spent
            if one.copies is None:
                evaluating += between[number] * one.pause + spent
            else:
                newest = (behind[number] + there[number]) * one.interval
                held.append(self._held(number, behind, begin, newest, speed, seconds))
        saving = np.maximum(seconds - worked - evaluating, 0.0)
        return Elapsed(place - begin, saving, evaluating, np.array(held))

    def _held(
        self, number: int, behind: Array, begin: Array, newest: Array, speed: Array, seconds: Array
    ) -> Array:  # fmt: skip
        """The newest checkpoint of a level that is of use after so many `seconds`, where `newest`
        was begun last."""
        one = self.kinds[number]
        ready = self._passed(behind, begin, newest, speed, False) + one.write
        for other in self.kinds[: number + 1]:
            ready = ready + other.pause * self._at(other, newest)
        done = ready <= seconds + 1e-9 * np.maximum(seconds, 1.0)
        usable = np.where(done, newest, newest - one.interval)
        made: Array = np.where(usable > begin + self.near(begin), usable, 0.0)
        return made

    def _behind(self, begin: Array) -> Array:
        """How many stops of each kind lie up to `begin`, or there.  Shape (kinds, runs)."""
        made: Array = np.floor((begin + self.near(begin)) / self._intervals)
        return made

    def _counts(self, behind: Array, place: Array, there: bool) -> Array:
        """How many stops of each kind lie after the beginning, up to which `behind` lie, and before
        `place`, or there too.  Shape (kinds, runs)."""
        each, ahead = self._intervals, self.near(place)
        reached = np.floor((place + ahead) / each) if there else np.ceil((place - ahead) / each) - 1
        made: Array = np.maximum(reached - behind, 0.0)
        return made

    @cached_property
    def _intervals(self) -> Array:
        return np.array([[one.interval] for one in self.kinds]).reshape(-1, 1)

    def _at(self, one: Halt, place: Array) -> Array:
        """1 where a stop lies at `place`."""
        away = np.abs(place - np.round(place / one.interval) * one.interval)
        made: Array = (away <= self.near(place)).astype(float)
        return made


def _slowed(one: Halt, behind: Array, count: Array, place: Array, speed: Array) -> Array:
    """Seconds that steps take longer up to `place` while checkpoints are written: the first
    write / (1 + slowdown) seconds of steps after each of `count`."""
    zone = one.write / (1.0 + one.slowdown)
    tail = np.minimum(np.maximum((place - (behind + count) * one.interval) / speed, 0.0), zone)
    made: Array = np.where(count > 0, np.maximum(count - 1.0, 0.0) * zone + tail, 0.0)
    return made * one.slowdown
