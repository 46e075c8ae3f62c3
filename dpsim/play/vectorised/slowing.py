"""Work beside collectives: how time passes for ranks whose work is slowed while bytes move.

While a collective moves bytes of a rank, its work goes on 1 + c times as slowly.  So work is
counted on a clock of its own: `work(t)` is how much a rank that never pauses has done by time t,

    work(t) = t - c / (1 + c) x (time until t in which bytes moved).

On that clock what a rank computes only adds up, whatever runs beside it, and the latest of many
ranks is still the latest, for `work` never falls.  Only what ranks have in common is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

import numpy as np
import numpy.typing as npt

from dpsim.core.arrays import Array
from dpsim.core.many import Many, all_above, larger, smaller, where_above

#: one number for all ranks of a role, or one for each
Value = float | Array
Indices = npt.NDArray[np.intp]
#: whether a rank is beyond something: all of a role, or each
Reached = bool | np.bool_ | npt.NDArray[np.bool_]
#: one rank of a role, several, or all
Column = int | Indices | None
EVERYONE = None


def later(a: Value, b: Value) -> Value:
    """The later of two times, rank by rank where they are arrays."""
    if a.__class__ is float and b.__class__ is float:
        return a if a >= b else b
    if isinstance(a, float) and isinstance(b, float):
        return larger(a, b)
    return np.maximum(a, b)


def latest(value: Value) -> float:
    """The latest over all ranks."""
    return value if isinstance(value, float) else float(np.maximum.reduce(value))


def earliest(value: Value) -> float:
    """The earliest over all ranks."""
    return value if isinstance(value, float) else float(np.minimum.reduce(value))


class Slowing:
    """The clock of work of one role, under a contention of `contention`.

    Stretches in which bytes move are kept as (begin, end, work done by the begin), disjoint and in
    order on every rank, until all ranks are past them; `_past` is what earlier ones took.
    """

    def __init__(self, contention: float) -> None:
        self.contention = contention
        self._lost = contention / (1.0 + contention)
        self._past: Value = 0.0
        self._live: list[tuple[Value, Value, Value]] = []
        #: whether the clock is the same for all ranks
        self.alike = True
        self._bends: tuple[Array, Array, Array] | None = None

    def copied(self) -> Slowing:
        """The same, to go on with separately."""
        other = Slowing(self.contention)
        other._past, other._live, other.alike = self._past, list(self._live), self.alike
        return other

    def of_rank(self, column: Column) -> Slowing:
        """That of one rank of the role, or of several."""
        other = Slowing(self.contention)
        other._past = at(self._past, column)
        other._live = [(at(a, column), at(b, column), at(c, column)) for a, b, c in self._live]
        other.alike = self.alike or isinstance(column, int)
        return other

    @staticmethod
    def stacked(clocks: Sequence[Slowing], join: Callable[[list[Value]], Value]) -> Slowing:
        """The clocks of single ranks as that of the ranks of one role; `join` makes one value of
        several."""
        other = Slowing(clocks[0].contention)
        other._past = join([clock._past for clock in clocks])
        most = max(len(clock._live) for clock in clocks)
        rows = zip(*(clock._padded(most) for clock in clocks), strict=True)
        other._live = [(join(list(a)), join(list(b)), join(list(c)))
                       for a, b, c in (zip(*row, strict=True) for row in rows)]  # fmt: skip
        numbers = (other._past, *(value for stretch in other._live for value in stretch))
        other.alike = all(isinstance(value, float) for value in numbers)
        return other

    def since(self, zero: Value, work: Value) -> tuple[Value, Slowing]:
        """`work`, which is done at `zero`, and this clock, both counted from then on."""
        other, shift = Slowing(self.contention), zero - self._past
        other._live = [(a - zero, b - zero, c - shift) for a, b, c in self._live]
        other.alike = self.alike
        return work - shift, other

    def _padded(self, size: int) -> list[tuple[Value, Value, Value]]:
        """The stretches, behind as many empty ones as make `size` of them."""
        begin, _, before = self._live[0] if self._live else (0.0, 0.0, 0.0 - self._past)
        return [(begin, begin, before)] * (size - len(self._live)) + self._live

    @property
    def ceased(self) -> float:
        """The work that ranks with one clock have done when nothing moves any more."""
        if not self._live:
            return -inf
        begin, end, before = self._live[-1]
        length = end - begin  # the same sum as in `_work_of`: who waits for the end is there
        return before + length - self._lost * length  # type: ignore[return-value]

    @property
    def idle(self) -> bool:
        """Whether nothing moves any more, after `forget`, for ranks with clocks of their own."""
        return not (self.alike or self._live)

    def work(self, time: Value) -> Value:
        """What a rank has done by `time`."""
        if self.alike and isinstance(time, float):
            return self._work_of(time)
        if self.alike and self._live:
            times, _, lags = self._corners()
            return time - np.interp(time, times, lags)
        return _by_rank(
            (
                (
                    (since := time - begin) >= 0.0,
                    before + since - self._lost * _within(since, end - begin),
                )
                for begin, end, before in reversed(self._live)
            ),
            time - self._past,
        )

    def time(self, work: Value) -> Value:
        """When a rank has done `work`."""
        if self.alike and isinstance(work, float):
            return self._time_of(work)
        if self.alike and self._live:
            _, works, lags = self._corners()
            return work + np.interp(work, works, lags)
        return _by_rank(
            (
                (
                    (done := work - before) >= 0.0,
                    begin + done + _within(self.contention * done, self._lost * (end - begin)),
                )
                for begin, end, before in reversed(self._live)
            ),
            work + self._past,
        )

    def _work_of(self, time: float, count: int | None = None) -> float:
        """`work` where one clock serves all ranks: only the last stretch begun by then counts, of
        the first `count`."""
        if time.__class__ is float:
            for begin, end, before in reversed(self._live):
                if begin <= time:
                    since, length = time - begin, end - begin
                    found = before + since - self._lost * smaller(since, length)  # type: ignore[arg-type, operator]
                    return found
            return time - self._past  # type: ignore[return-value]
        many = isinstance(time, Many)
        for place in reversed(range(len(self._live) if count is None else count)):
            begin, end, before = self._live[place]
            beyond = all_above(begin, time) if many else begin > time  # type: ignore[arg-type]
            if beyond is True:
                continue
            moved = smaller(time - begin, end - begin)  # type: ignore[arg-type]
            found = before + (time - begin) - self._lost * moved
            if beyond is None:  # at some points of many the stretch before it counts
                earlier = self._work_of(time, place)
                return where_above(begin, time, earlier, found)  # type: ignore[arg-type]
            return found  # type: ignore[return-value]
        return time - self._past  # type: ignore[return-value]

    def _time_of(self, work: float, count: int | None = None) -> float:
        """`time` where one clock serves all ranks, as `_work_of`."""
        if work.__class__ is float:
            for begin, end, before in reversed(self._live):
                if before <= work:
                    beside, most = work - before, self._lost * (end - begin)
                    found = begin + beside + smaller(self.contention * beside, most)  # type: ignore[arg-type, operator]
                    return found
            return work + self._past  # type: ignore[return-value]
        many = isinstance(work, Many)
        for place in reversed(range(len(self._live) if count is None else count)):
            begin, end, before = self._live[place]
            beyond = all_above(before, work) if many else before > work  # type: ignore[arg-type]
            if beyond is True:
                continue
            beside = work - before
            lost = smaller(self.contention * beside, self._lost * (end - begin))  # type: ignore[arg-type]
            found = begin + beside + lost
            if beyond is None:
                earlier = self._time_of(work, place)
                return where_above(before, work, earlier, found)  # type: ignore[arg-type]
            return found  # type: ignore[return-value]
        return work + self._past  # type: ignore[return-value]

    def _corners(self) -> tuple[Array, Array, Array]:
        """Where work falls behind time or ceases to, where one clock serves all ranks: times, the
        work done by then, and how far it is behind."""
        if self._bends is None:
            times: list[Value] = []
            works: list[Value] = []
            for begin, end, before in self._live:
                length = end - begin
                times += begin, end
                works += before, before + length - self._lost * length
            corners = np.array(times), np.array(works)
            self._bends = *corners, corners[0] - corners[1]
        return self._bends

    def breaks(self, low: float, high: float) -> bool:
        """Whether bytes begin or cease to move on some rank between two times."""
        for stretch in self._live:
            for edge in stretch[:2]:
                if isinstance(edge, np.ndarray):
                    if np.any((low < edge) & (edge < high)):
                        return True
                elif low < edge < high:
                    return True
        return False

    def talk(self, begin: Value, end: Value) -> None:
        """Bytes move from `begin` to `end`; nobody has worked beyond `begin` yet."""
        self._bends = None
        self.alike = self.alike and isinstance(begin, float) and isinstance(end, float)
        if self._live:
            last = self._live[-1]
            if not _all(last[0] <= begin):
                self._inserted(begin, end)
                return
            if _all(begin <= last[1]):  # one stretch, as most are where the network is behind
                self._live[-1] = (last[0], later(last[1], end), last[2])
                return
            begin = later(begin, last[1])
            end = later(begin, end)
        self._live.append((begin, end, self.work(begin)))

    def _inserted(self, begin: Value, end: Value) -> None:
        """The same where, on some rank, another collective began later."""
        spans = [(a, b) for a, b, _ in self._live] + [(begin, end)]
        alike = np.broadcast_arrays(*(time for span in spans for time in span))
        begins, ends = np.stack(alike[0::2]), np.stack(alike[1::2])
        order = np.argsort(begins, axis=0, kind="stable")
        begins, ends = (np.take_along_axis(times, order, axis=0) for times in (begins, ends))
        self._live = []
        for one, other in zip(begins, ends, strict=True):
            self.talk(_plain(one), _plain(other))

    def beyond(self, time: float) -> Iterator[Value]:
        """Begins and ends of the stretches in which bytes move after `time` on some rank [s]."""
        for begin, end, _ in self._live:
            if latest(end) > time:
                yield begin
                yield end

    def forget(self, low: float) -> None:
        """All ranks have done at least `low` of work.

        Of one clock the stretch that was last is kept, so that what is worked out with it is the
        same whether or not somebody has forgotten.
        """
        while self._live:
            begin, end, before = self._live[0]
            if self.alike:
                if len(self._live) == 1:
                    break
                following = self._live[1][2]
                if following.__class__ is float and low.__class__ is float:
                    if following > low:
                        break
                elif all_above(following, low) is not False:  # type: ignore[arg-type]
                    break
            elif not _all(before + (end - begin) / (1.0 + self.contention) <= low):
                break
            self._past = self._past + self._lost * (end - begin)
            del self._live[0]
            self._bends = None


def _by_rank(stretches: Iterable[tuple[Reached, Value]], before: Value) -> Value:
    """Of each rank what the last stretch that it has reached says, or what held before all;
    `stretches` are from the last one on, and no earlier one is looked at than any rank needs."""
    found, left = before, None
    for reached, value in stretches:
        if left is None and not np.any(reached):
            continue
        found = value if left is None else np.where(left, value, found)
        passed = np.logical_not(reached)
        left = passed if left is None else left & passed
        if not np.any(left):
            return found
    return found if left is None else np.where(left, before, found)


def at(value: Value, column: Column) -> Value:
    """The value of one rank, or of several, where each has its own."""
    if isinstance(value, float) or column is EVERYONE:
        return value
    return float(value[column]) if isinstance(column, int) else value[column]


def one_or_all(values: Array) -> Value:
    """The values of several ranks; a plain number of one."""
    return float(values[0]) if len(values) == 1 else values


def _within(value: Value, most: Value) -> Value:
    """`value`, at least 0 and at most `most`."""
    if isinstance(value, float) and isinstance(most, float):
        return 0.0 if value <= 0.0 else min(value, most)
    return np.minimum(np.maximum(value, 0.0), most)


def _all(truth: Reached) -> bool:
    return bool(np.all(truth)) if isinstance(truth, np.ndarray) else bool(truth)


def _plain(value: Array) -> Value:
    return float(value) if value.ndim == 0 else value
