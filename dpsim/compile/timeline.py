"""Timelines: what happened when on which rank, and where a step's time went."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dpsim.compile.intervals import length, minus, union
from dpsim.compile.program import BARRIER, COMPUTE, RECEIVE, SEND, Cast, Op, Program
from dpsim.core.arrays import Array, IntArray
from dpsim.core.lean import dataclass
from dpsim.core.many import mean

#: the operation of a rank that waits for its batch
FED = "input"
#: durations that differ by less, as a share, are equal
SAME = 1e-9
#: ends that differ by less, as a share of the time, are the same
LATE = 1e-12
_BUSY, _STALLED, _TALKING = 1, 2, 3


class Split(NamedTuple):
    """Where one step's time went on its critical rank [s]; the four parts sum to the step."""

    compute: float
    exposed_communication: float
    bubble: float
    stall: float

    @property
    def total(self) -> float:
        return sum(self)


class Span(NamedTuple):
    """One operation of one rank: when it was ready, started and ended, from the step's start."""

    rank: int
    stream: str
    name: str
    op: str
    group: str
    bytes: float
    ready: float
    start: float
    end: float

    @property
    def on_device(self) -> bool:
        """Whether it ran on the compute stream."""
        return self.stream == COMPUTE

    @property
    def transfers(self) -> bool:
        """Whether something was sent or received."""
        return self.op in (SEND, RECEIVE)

    def later(self, seconds: float) -> Span:
        """The same, that much later [s]."""
        return self._replace(
            ready=self.ready + seconds, start=self.start + seconds, end=self.end + seconds
        )


def after_input(spans: Sequence[Span], wait: float) -> list[Span]:
    """`spans` of a step that begins with `wait` seconds without a batch: an operation FED of every
    rank, and all else that much later."""
    if wait <= 0.0:
        return list(spans)
    ranks = dict.fromkeys(span.rank for span in spans)
    first = [Span(rank, COMPUTE, "input", FED, "", 0.0, 0.0, 0.0, wait) for rank in ranks]
    return [*first, *(span.later(wait) for span in spans)]


class Column(NamedTuple):
    """The operations of one rank in issue order [s]; `ready` is when the rank reached one: its
    stream was free and what it waits for had ended."""

    ready: Sequence[float]
    start: Sequence[float]
    end: Sequence[float]


class Step:
    """One played step.

    origin    when the previous step had ended on the slowest rank [s]
    previous  the step before (without its own), or None
    """

    def __init__(self, cast: Cast, origin: float, previous: Step | None) -> None:
        self.cast, self.origin, self.previous = cast, origin, previous

    # -- what an engine knows ---------------------------------------------------------------------

    @property
    def finish(self) -> float:
        """When this step had ended on the slowest rank [s]."""
        raise NotImplementedError

    @property
    def talks_until(self) -> float:
        """When its last collective or transfer ends [s]."""
        raise NotImplementedError

    def column(self, rank: int) -> Column:
        """When the operations of `rank` ran."""
        raise NotImplementedError

    def talk(self, rank: int) -> list[tuple[float, float]]:
        """When collectives and transfers of `rank` ran [s]."""
        raise NotImplementedError

    def last_ranks(self) -> list[tuple[int, float]]:
        """The ranks whose compute stream ends last, each with how long it computed [s], which
        tells them apart: 0 where there is but one."""
        raise NotImplementedError

    def last_to_come(self, group: Sequence[int], place: tuple[str, str, int]) -> int:
        """The rank of `group` that reached a collective last: that with so many of the same stream
        and group name before it."""
        raise NotImplementedError

    # -- what follows -----------------------------------------------------------------------------

    @property
    def duration(self) -> float:
        return self.finish - self.origin

    def place(self, rank: int) -> tuple[int, int]:
        """Role of `rank`, and its place among the ranks of its role."""
        return self.cast.roles[rank], self.cast.columns[rank]

    def critical_rank(self) -> int:
        """The rank whose compute stream ends last; of several, the one that computed longest."""
        last = self.last_ranks()
        most = max(busy for _, busy in last)
        return min(rank for rank, busy in last if busy >= most * (1 - SAME))

    def spans(self, ranks: Iterable[int]) -> list[Span]:
        """The operations of `ranks` in issue order, times from the step's start.

        A collective is ready when what it waits for has ended, though its communicator may still
        be busy; compute follows the operation before it.
        """
        return [span for rank in ranks for span in self._spans(rank)]

    def _spans(self, rank: int) -> Iterator[Span]:
        program, column, real = self.cast.program(rank), self.column(rank), self.cast.rank_of(rank)
        for i, op in enumerate(program.ops):
            ready, end = column.ready[i], column.end
            if op.stream != COMPUTE and not program.host_matters:
                ready = max((end[k] + op.delay for k in op.after), default=self.origin)
            times = (max(ready, self.origin), column.start[i], end[i])
            yield Span(
                real,
                op.stream,
                op.name,
                op.operation or op.kind,
                op.group,
                op.bytes,
                *(time - self.origin for time in times),
            )

    def split(self) -> Split:
        """The step's time on the critical rank, by cause (see `split_of`)."""
        rank = self.critical_rank()
        return split_of(
            self.cast.program(rank), self.column(rank), self.origin, self.talk_before(rank)
        )

    def talk_before(self, rank: int) -> list[tuple[float, float]]:
        """When collectives of the previous step ran on `rank`, if any still did in this one."""
        if self.previous is None or self.previous.talks_until <= self.origin:
            return []
        return self.previous.talk(rank)


class Kept(Step):
    """A step of which every time of every rank is kept.

    start, end, ready  per role, arrays (operations, ranks of the role) [s]
    """

    def __init__(
        self,
        cast: Cast,
        origin: float,
        start: tuple[Array, ...],
        end: tuple[Array, ...],
        ready: tuple[Array, ...],
        previous: Step | None = None,
    ) -> None:
        super().__init__(cast, origin, previous)
        self.start, self.end, self.ready = start, end, ready

    @cached_property
    def finish(self) -> float:
        programs = zip(self.cast.programs, self.end, strict=True)
        return max(float(end[program.end].max()) for program, end in programs)

    @cached_property
    def talks_until(self) -> float:
        programs = zip(self.cast.programs, self.end, strict=True)
        talks = ((end, _talks(program)) for program, end in programs)
        return max((float(end[where].max()) for end, where in talks if where), default=0.0)

    def column(self, rank: int) -> Column:
        role, column = self.place(rank)
        times = (self.ready[role], self.start[role], self.end[role])
        return Column(*(time[:, column].tolist() for time in times))

    def talk(self, rank: int) -> list[tuple[float, float]]:
        column = self.column(rank)
        return [(column.start[k], column.end[k]) for k in _talks(self.cast.program(rank))]

    def critical_rank(self) -> int:
        last = list(self._last())
        most = max(float(busy.max()) for _, _, busy in last)
        longest = ((members, columns[busy >= most * (1 - SAME)]) for members, columns, busy in last)
        return min(members[int(columns[0])] for members, columns in longest if len(columns))

    def last_ranks(self) -> list[tuple[int, float]]:
        return [
            (members[k], time)
            for members, columns, busy in self._last()
            for k, time in zip(columns.tolist(), busy.tolist(), strict=True)
        ]

    def _last(self) -> Iterator[tuple[Sequence[int], IntArray, Array]]:
        """Of each role that has ranks that end last: its ranks, which of them do, and how long each
        of those computed [s]."""
        latest = self.finish
        for role, program in enumerate(self.cast.programs):
            last = self.end[role][program.end] >= latest - LATE * abs(latest)
            if last.any():
                scaled = [i for i, op in enumerate(program.ops) if op.scales]
                busy = (self.end[role][scaled] - self.start[role][scaled]).sum(axis=0)
                yield self.cast.members(role), np.flatnonzero(last), busy[last]

    def last_to_come(self, group: Sequence[int], place: tuple[str, str, int]) -> int:
        def ready(rank: int) -> float:
            role, column = self.place(rank)
            return float(self.ready[role][self.cast.programs[role].places[place], column])

        return max(group, key=ready)


@dataclass(frozen=True)
class Timeline:
    """What an engine returns.

    durations   of the measured steps [s]; `splits` say where each went
    last        the last step in full
    events      discrete events that the engine needed (0 for the vectorised one)
    lanes       durations of the variants (see the vectorised engine), mean per lane [s]
    """

    durations: tuple[float, ...]
    splits: tuple[Split, ...]
    last: Step
    events: int = 0
    lanes: tuple[float, ...] = field(default=())

    @property
    def step_time(self) -> float:
        """Mean duration of the measured steps [s]."""
        return mean(self.durations)

    def mean_split(self) -> Split:
        return Split(*(float(x) for x in np.mean(np.array(self.splits), axis=0)))


def remainder(whole: float, parts: float, clock: float = 0.0) -> float:
    """What `parts` leave of `whole`; nothing where that is rounding, of times that a `clock` at
    most as large tells."""
    rest = whole - parts
    return 0.0 if abs(rest) <= LATE * max(whole, clock) else rest


def split_of(
    program: Program, column: Column, origin: float, before: Sequence[tuple[float, float]]
) -> Split:
    """A step's time on the rank of `column`, by cause.

    Time in which the compute stream works is compute (host-serial work is a stall); idle time is
    exposed communication while one of the rank's collectives is running, of the step `before`
    too, or something is sent to it.  What is left is a bubble where it ends with something
    received or with the stages of a pipeline waiting for each other, and a stall otherwise (the
    rank waits for a slower one or for the host).
    """
    low, high = origin, column.end[program.end]
    busy: list[tuple[float, float]] = []
    stalled: list[tuple[float, float]] = []
    talking: list[tuple[float, float]] = []
    into = {_BUSY: busy, _STALLED: stalled, _TALKING: talking}
    for kind, a, b in zip(_kinds(program), column.start, column.end, strict=True):
        a, b = max(a, low), min(b, high)
        if b > a and kind:
            into[kind].append((a, b))
    cut = ((max(a, low), min(b, high)) for a, b in before)
    talking += [(a, b) for a, b in cut if b > a]
    compute = sum(b - a for a, b in busy)
    working = union(busy + stalled)
    exposed = length(minus(union(talking), working))
    idle = remainder(high - low, compute + exposed, abs(high))
    bubble = 0.0
    if program.transfers:
        taken = union([*working, *talking])
        bubble = min(length(minus(_bubbles(program, column, origin), taken)), idle)
    return Split(compute, exposed, bubble, idle - bubble)


def _bubbles(program: Program, column: Column, origin: float) -> list[tuple[float, float]]:
    """When the compute stream waits for another stage of a pipeline, on one rank."""
    before, found = origin, []
    for i, op in enumerate(program.ops):
        if op.stream != COMPUTE:
            continue
        start = column.start[i]
        if start > before and _awaits_stage(program.ops, column.end, i, before):
            found.append((before, start))
        before = max(before, column.end[i])
    return found


def _kinds(program: Program) -> Iterator[int]:
    """What a rank does in each operation; what it sends costs it nothing."""
    for op in program.ops:
        if op.stream != COMPUTE:
            yield 0 if op.operation == SEND else _TALKING
        else:
            yield _STALLED if op.kind == "serial" else _BUSY


def _talks(program: Program) -> list[int]:
    return [index for index, op in enumerate(program.ops) if op.stream != COMPUTE]


def _awaits_stage(ops: tuple[Op, ...], end: Sequence[float], index: int, since: float) -> bool:
    """Whether what an operation waits for after `since` goes back to another pipeline stage."""
    while True:
        gate = max(ops[index].after, key=lambda k: end[k], default=None)
        if gate is None or end[gate] <= since:
            return False
        # all ranks of a mesh wait for each other in a barrier, or to agree on the gradients' norm
        if ops[gate].operation in (RECEIVE, BARRIER) or ops[gate].control:
            return True
        index = gate
