"""Timelines: what happened when on which rank, and where a step's time went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dpsim.compile.program import BARRIER, COMPUTE, RECEIVE, SEND, Cast, Op
from dpsim.core.arrays import Array

#: durations that differ by less, as a share, are equal
_SAME = 1e-9


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


@dataclass(frozen=True)
class Step:
    """One played step.

    origin      when the previous step had ended on the slowest rank [s]
    finish      when this one had [s]
    start, end  per role, arrays (operations, ranks of the role) [s]
    ready       per role; when a rank reached the operation: its stream was free and what it
                waits for had ended [s]
    previous    the step before (without its own), or None
    """

    cast: Cast
    origin: float
    start: tuple[Array, ...]
    end: tuple[Array, ...]
    ready: tuple[Array, ...]
    previous: Step | None = None

    @property
    def finish(self) -> float:
        return max(
            float(end[p.end].max()) for p, end in zip(self.cast.programs, self.end, strict=True)
        )

    @property
    def duration(self) -> float:
        return self.finish - self.origin

    def place(self, rank: int) -> tuple[int, int]:
        """(role, column) of `rank` in the arrays."""
        return self.cast.roles[rank], self.cast.columns[rank]

    def critical_rank(self) -> int:
        """The rank whose compute stream ends last; of several, the one that computed longest."""
        worst: list[tuple[float, int]] = []
        latest = self.finish
        for role, program in enumerate(self.cast.programs):
            scaled = [i for i, op in enumerate(program.ops) if op.scales]
            busy = (self.end[role][scaled] - self.start[role][scaled]).sum(axis=0)
            last = self.end[role][program.end] >= latest - 1e-12 * abs(latest)
            if last.any():
                most = float(busy[last].max())
                column = int(np.flatnonzero(last & (busy >= most * (1 - _SAME)))[0])
                worst.append((most, self.cast.members(role)[column]))
        most = max(busy for busy, _ in worst)
        return min(rank for busy, rank in worst if busy >= most * (1 - _SAME))

    def spans(self, ranks: tuple[int, ...]) -> list[Span]:
        """The operations of `ranks` in issue order, times from the step's start.

        A collective is ready when what it waits for has ended, though its communicator may still
        be busy; compute follows the operation before it.
        """
        result = []
        for rank in ranks:
            role, column = self.place(rank)
            program = self.cast.programs[role]
            start, end = self.start[role][:, column], self.end[role][:, column]
            for i, op in enumerate(program.ops):
                ready = float(self.ready[role][i, column])
                if op.stream != COMPUTE and not program.host_matters:
                    ready = max((float(end[k]) + op.delay for k in op.after), default=self.origin)
                times = (max(ready, self.origin), float(start[i]), float(end[i]))
                result.append(
                    Span(
                        self.cast.rank_of(rank),
                        op.stream,
                        op.name,
                        op.operation or op.kind,
                        op.group,
                        op.bytes,
                        *(time - self.origin for time in times),
                    )
                )
        return result

    def split(self) -> Split:
        """The step's time on the critical rank, by cause.

        Time in which the compute stream works is compute (host-serial work is a stall); idle
        time is exposed communication while one of the rank's collectives is running or something
        is sent to it.  What is left is a bubble where it ends with something received or with the
        stages of a pipeline waiting for each other, and a stall otherwise (the rank waits for a
        slower one or for the host).
        """
        rank = self.critical_rank()
        role, column = self.place(rank)
        ops = self.cast.programs[role].ops
        start, end = self.start[role][:, column], self.end[role][:, column]
        low, high = self.origin, float(end[self.cast.programs[role].end])
        busy: list[tuple[float, float]] = []
        stalled: list[tuple[float, float]] = []
        talking: list[tuple[float, float]] = []
        for i, op in enumerate(ops):
            a, b = max(float(start[i]), low), min(float(end[i]), high)
            if b > a and op.operation != SEND:
                kind = talking if op.stream != COMPUTE else stalled if op.kind == "serial" else busy
                kind.append((a, b))
        talking += self._lagging(rank, low, high)
        compute = sum(b - a for a, b in busy)
        exposed = _length(_minus(_union(talking), _union(busy + stalled)))
        idle = (high - low) - compute - exposed
        bubble = 0.0
        if self.cast.programs[role].transfers:
            empty = _minus(self._bubbles(role, column), _union(busy + stalled + talking))
            bubble = min(_length(empty), idle)
        return Split(compute, exposed, bubble, idle - bubble)

    def _bubbles(self, role: int, column: int) -> list[tuple[float, float]]:
        """When the compute stream waits for another stage of a pipeline, on one rank."""
        ops = self.cast.programs[role].ops
        start, end = self.start[role][:, column], self.end[role][:, column]
        before, found = self.origin, []
        for i, op in enumerate(ops):
            if op.stream != COMPUTE:
                continue
            if float(start[i]) > before and _awaits_stage(ops, end, i, before):
                found.append((before, float(start[i])))
            before = max(before, float(end[i]))
        return found

    def _lagging(self, rank: int, low: float, high: float) -> list[tuple[float, float]]:
        """When collectives of the previous step were still running on `rank` in this one."""
        if self.previous is None:
            return []
        role, column = self.previous.place(rank)
        found = []
        for i, op in enumerate(self.previous.cast.programs[role].ops):
            a = max(float(self.previous.start[role][i, column]), low)
            b = min(float(self.previous.end[role][i, column]), high)
            if op.stream != COMPUTE and b > a:
                found.append((a, b))
        return found


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
        return float(np.mean(self.durations))

    def mean_split(self) -> Split:
        return Split(*(float(x) for x in np.mean(np.array(self.splits), axis=0)))


def _awaits_stage(ops: tuple[Op, ...], end: Array, index: int, since: float) -> bool:
    """Whether what an operation waits for after `since` goes back to another pipeline stage."""
    while True:
        gate = max(ops[index].after, key=lambda k: float(end[k]), default=None)
        if gate is None or float(end[gate]) <= since:
            return False
        # all ranks of a mesh wait for each other in a barrier, or to agree on the gradients' norm
        if ops[gate].operation in (RECEIVE, BARRIER) or ops[gate].control:
            return True
        index = gate


def _union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for a, b in sorted(spans):
        if merged and a <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], b))
        else:
            merged.append((a, b))
    return merged


def _minus(
    spans: list[tuple[float, float]], holes: list[tuple[float, float]]
) -> list[tuple[float, float]]:
    """`spans` without `holes`; both sorted and disjoint."""
    left = []
    for a, b in spans:
        for c, d in holes:
            if d <= a or c >= b:
                continue
            if c > a:
                left.append((a, c))
            a = max(a, d)
        if b > a:
            left.append((a, b))
    return left


def _length(spans: list[tuple[float, float]]) -> float:
    return sum(b - a for a, b in spans)
