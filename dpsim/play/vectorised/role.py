"""The ranks of one role on their way through a step: when they are ready, and what they have done.

Compute lives on the role's clock of work (`slowing`), as lines (`position`); communicators and the
host live in time.  A number stands for all ranks wherever they are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from dpsim.compile.program import COPY_IN, Op
from dpsim.core.arrays import Array
from dpsim.core.errors import SimulationError
from dpsim.core.many import all_above, larger, where_above
from dpsim.play import NotApplicable, check_time
from dpsim.play.vectorised.compiled import Compiled, Playable
from dpsim.play.vectorised.position import Factors, Moment, Position, front
from dpsim.play.vectorised.slowing import (
    EVERYONE,
    Column,
    Slowing,
    Value,
    at,
    earliest,
    later,
    latest,
    one_or_all,
)
from dpsim.play.vectorised.streams import Streams

Span = tuple[Value, Value]
#: is told of an operation: its task, and when it was ready, started and ended
Watch = Callable[[Playable, Value, Value, Value], None]


class Start(NamedTuple):
    """Where the ranks of a role are when a step begins, and what is peculiar to it: the work done,
    on its clock; when host and streams are free; and what is added to single operations, by index
    [s]."""

    work: Value
    factors: Factors
    slowing: Slowing
    host: Value
    streams: Streams
    late: Mapping[int, Value]

    @property
    def alike(self) -> bool:
        """Whether host, streams and clock are the same for all ranks, and no operation is late."""
        alike = isinstance(self.host, float) and self.streams.alike
        return alike and self.slowing.alike and not self.late

    def of_rank(self, column: Column) -> Start:
        """That of one rank, or of several."""
        return Start(
            at(self.work, column),
            self.factors.of_rank(column),
            self.slowing.of_rank(column),
            at(self.host, column),
            self.streams.of_rank(column),
            {index: at(seconds, column) for index, seconds in self.late.items()},
        )


class Since(NamedTuple):
    """Where all ranks of a role were when a few of them went ahead: at which place, and how."""

    place: int
    start: Start


class Role:
    """The state of all ranks of one role, or of some of them that are played again.

    width     how many collectives of one stream run at once
    next      the place of the operation that comes next, `task`
    arrived   whether the ranks have come to a collective that is not carried out yet
    spans     begin and end of this step's operations on communicators, by their place
    watch     of ranks that are played again, what is told of every operation: ready, start, end
    """

    def __init__(self, members: Sequence[int], width: int, slowing: Slowing) -> None:
        self.members, self.width, self.slowing = members, width, slowing
        self.position = Position(0.0, Factors(np.ones(1)))
        self.host: Value = 0.0
        self.streams = Streams(width)
        self.watch: Watch | None = None
        self._since: Since | None = None

    def begin(
        self, program: Compiled, factors: Factors, late: Mapping[int, Array], together: bool
    ) -> Start:
        """A step begins, in which all ranks of the role are `together` in every collective or not;
        returns where they are."""
        work, clock, streams = self.position.now.each, self.slowing.copied(), self.streams.copied()
        plain = {index: one_or_all(seconds) for index, seconds in late.items()}
        self.start = Start(work, factors, clock, self.host, streams, plain)
        self._slowest = Factors(factors.high)
        few = together and self.start.alike
        if few and not (isinstance(work, float) and isinstance(factors.each, float)):
            kept = front(work, factors.each)
            self._begin(program, at(work, kept), factors.of_rank(kept), plain)
            self._since = Since(0, self.start)
        else:
            self._begin(program, work, factors, plain)
        return self.start

    def _begin(
        self, program: Compiled, work: Value, factors: Factors, late: Mapping[int, Value]
    ) -> None:
        self.program, self.next, self.arrived = program, 0, False
        self.task, self.late = program.tasks[0], late
        self._since = None
        self.position = Position(work, factors)
        self.origin = self._remembered(program.begun)
        self.spans: dict[int, Span] = {}
        self._kept: dict[int, Moment | Value] = {}

    @classmethod
    def again(
        cls, start: Start, program: Compiled, width: int, column: Column, watch: Watch | None = None
    ) -> Role:
        """The ranks at `column` alone at the begin of a step, to be played again."""
        role = cls((), width, start.slowing)
        role.watch = watch
        own = start.of_rank(column)
        role.slowing, role.host, role.streams = own.slowing, own.host, own.streams
        role._begin(program, own.work, own.factors, own.late)
        return role

    def replay(self, spans: Mapping[int, Span], column: Column, until: int) -> None:
        """Do the operations before place `until`, with what happened on communicators."""
        while self.next < until:
            if self.task.computes:
                self.compute(until)
            else:
                begin, end = spans[self.next]
                self.come()
                self.carry_out(at(begin, column), at(end, column))

    def finish(self) -> None:
        """The step is over; where a few ranks went ahead for all, the others follow."""
        since = self._since
        if since is None:
            return
        everyone = Role.again(since.start, self.program, self.width, EVERYONE)
        if since.place:
            everyone.next, everyone.task = since.place, self.program.tasks[since.place]
            everyone.spans, everyone._kept, everyone.origin = self.spans, self._kept, self.origin
        everyone.replay(self.spans, EVERYONE, self.next)
        self.position, self.slowing = everyone.position, everyone.slowing
        self.host, self.streams, self._since = everyone.host, everyone.streams, None

    def _go_on(self) -> None:
        """What comes next is the operation after this one."""
        self.next += 1
        if self.next < len(self.program.tasks):
            self.task = self.program.tasks[self.next]

    def come(self) -> None:
        """The ranks come to an operation on a communicator: `arrival` says when."""
        op, done = self.task.op, self.task.done
        if op.issue:
            self._issue(op)
        found = later(self.host, self.streams.free(op.stream))
        self._fixed: Value = self._awaited(self.task, found)
        self._moments: list[tuple[Moment, float]] = []
        if done >= 0:
            self._look_back(self._kept[done], op.delay)
        if op.after_step:
            self._look_back(self.origin, 0.0)

    def _look_back(self, when: Moment | Value, delay: float) -> None:
        """The ranks come no sooner than `delay` after that."""
        if isinstance(when, Moment):
            self._moments.append((when, delay))
        else:
            self._fixed = later(self._fixed, when + delay)

    def _remembered(self, past: bool) -> Moment | Value:
        """Where the ranks are now; in time, where that is looked back at when ranks are `past` it:
        the clock of work forgets."""
        return self._time() if past and self.slowing.contention else self.position.now

    @property
    def arrival(self) -> Value:
        """When each rank has come."""
        found = self._fixed
        for moment, delay in self._moments:
            found = later(found, self.slowing.time(moment.each) + delay)
        return found

    @property
    def last_arrival(self) -> float:
        """When the last rank has come."""
        if not self.slowing.alike:
            return latest(self.arrival)
        found = latest(self._fixed)
        for moment, delay in self._moments:
            found = larger(found, latest(self.slowing.time(moment.peak)) + delay)
        return found

    def _issue(self, op: Op) -> None:
        self._unissued = self.host
        self.host = self.host + check_time(op.issue, f"issuing {op.name}")

    def _awaited(self, task: Playable, found: Value) -> Value:
        """`found`, or when the last operation on a communicator that it awaits has ended."""
        delay = check_time(task.op.delay, f"the delay of {task.op.name}") if task.op.delay else 0.0
        for other in task.waits:
            found = later(found, self.spans[other][1] + delay)
        return found

    def compute(self, until: int) -> None:
        """The next operations, all that follow each other on the compute stream before place
        `until`."""
        told = self.late or self.watch
        while self.next < until and self.task.computes:
            hosted = not isinstance(self.host, float) or self.host > 0.0
            if self.task.alone and not (hosted or told):
                self.position.work(self.task.seconds)
            else:
                self._perform(self.task)
            self._go_on()

    def _perform(self, task: Playable) -> None:
        """That, with all that may be about it."""
        op = task.op
        if op.issue:
            self._issue(op)
        if not isinstance(self.host, float) or self.host > 0.0:
            self._wait(self.host)
        if task.waits or task.done >= 0:
            self._wait(self._ready(task))
        ready = self._time() if self.watch is not None else 0.0
        if task.scales:
            self.position.work(task.seconds)
        elif task.seconds:
            _spend(self.slowing, self.position, task.seconds)
        if task.number in self.late:
            self._be_late(op, self.late[task.number])
        if task.kept:
            self._kept[task.number] = self._remembered(task.past)
        if op.blocks_host:
            self.host = later(self.host, self._time())
        if self.watch is not None:
            self.watch(task, ready, ready, self._time())

    def _wait(self, until: Value) -> None:
        """Do nothing before `until`.  Where a few ranks go ahead, all wait for the same: if nobody
        is there before it, all are at one point again, and from there on the slowest goes ahead."""
        work = self.slowing.work(until)
        if self.position.wait(work) and self._since is not None:
            factors, slowest = self.start.factors, self._slowest
            if self.position.factors is not slowest:
                # of what was, the last of the few is all that counts from here on
                self.origin = _last(self.origin)
                self._kept = {number: _last(when) for number, when in self._kept.items()}
            clock, streams = self.slowing.copied(), self.streams.copied()
            host = self._unissued if self.task.op.issue else self.host  # it will be issued again
            start = Start(latest(work), factors, clock, host, streams, {})
            self._since = Since(self.next, start)
            self.position = Position(start.work, slowest)

    def _be_late(self, op: Op, seconds: Value) -> None:
        """Take so much longer for an operation."""
        work = None if op.scales else self.slowing.work(self._time() + seconds)
        self.position.move(self.position.now.each + seconds if work is None else work)

    def _ready(self, task: Playable) -> Value:
        found = self._awaited(task, 0.0)
        if task.done < 0:
            return found
        kept = self._kept[task.done]
        ended = self.slowing.time(kept.each) if isinstance(kept, Moment) else kept
        return later(found, ended + task.op.delay)

    def _time(self) -> Value:
        """Where ranks are, in time."""
        return self.slowing.time(self.position.now.each)

    def carry_out(self, begin: Value, end: Value) -> None:
        """The operation on a communicator that comes next runs from `begin` to `end`."""
        op = self.task.op
        if not latest(end) < inf:
            raise SimulationError(f"{op.name} ends at no finite time")
        self.arrived = False
        if self.slowing.contention and op.kind == "collective" and op.operation != COPY_IN:
            self._talk(op, begin, end)
        if self.watch is not None:
            self.watch(self.task, self.arrival, begin, end)
        self.spans[self.next] = begin, end
        self.streams.occupy(op.stream, end)
        if op.blocks_host:
            self.host = later(self.host, end)
        self._go_on()

    def _talk(self, op: Op, begin: Value, end: Value) -> None:
        """What these ranks compute beside a collective is slowed."""
        position, slowing = self.position, self.slowing
        slowing.forget(position.low)
        kept = self._kept[self.task.done] if self.task.done >= 0 else None
        awaited = isinstance(kept, Moment) and kept == position.now
        first = self.watch is None  # who is played again was found in order, but for rounding
        if first and not awaited and earliest(slowing.work(begin)) < position.high:
            done = self._time()
            if np.any(begin < done * (1 - 1e-12)):
                raise _beside(op)
        slowing.talk(begin, end)

    @property
    def end(self) -> float:
        """When the last rank's step ends: with its last operation on the compute stream."""
        if self.slowing.alike:
            return latest(self.slowing.time(self.position.now.peak))
        return latest(self._time())


def _spend(slowing: Slowing, position: Position, seconds: float) -> None:
    """Pass time that nothing beside it makes longer."""
    slowing.forget(position.low)
    moving = all_above(slowing.ceased, position.low) if slowing.alike else not slowing.idle
    if moving is False:
        position.spend(seconds)
        return
    if not slowing.alike:
        position.move(slowing.work(slowing.time(position.now.each) + seconds))
        return
    low, high = latest(slowing.time(position.low)), latest(slowing.time(position.high))
    first = latest(slowing.work(low + seconds))
    if low == high or not slowing.breaks(low, high + seconds):
        beside = first - position.low
        position.spend(where_above(slowing.ceased, position.low, beside, seconds))
        return
    last = latest(slowing.work(high + seconds))
    position.move(slowing.work(slowing.time(position.now.each) + seconds), first, last)


def _beside(op: Op) -> NotApplicable:
    return NotApplicable(f"{op.name} begins beside a computation that was issued before it")


def _last(when: Moment | Value) -> Moment | float:
    """That of the last rank; a moment tells of it by itself."""
    return when if isinstance(when, Moment) else latest(when)
