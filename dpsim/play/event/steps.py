"""When operations ran: steps that are still open, and what is kept of those that have closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

import numpy as np

from dpsim.compile.program import Cast
from dpsim.compile.timeline import Split, Step, Timeline
from dpsim.core.arrays import Array


class RankTimes(NamedTuple):
    """When the operations of one rank in one step were ready, started and ended [s]; what has not
    ended yet ends at infinity."""

    ready: list[float]
    start: list[float]
    end: list[float]


class OpenStep:
    """Times of one step, per role and rank, and how many streams are not through with it."""

    def __init__(self, cast: Cast, streams: int) -> None:
        self.cast, self.remaining = cast, streams
        self.times: list[list[RankTimes]] = [
            [self._blank(len(program.ops)) for _ in cast.members(role)]
            for role, program in enumerate(cast.programs)
        ]

    @staticmethod
    def _blank(operations: int) -> RankTimes:
        return RankTimes([0.0] * operations, [0.0] * operations, [inf] * operations)

    def array(self, which: int) -> tuple[Array, ...]:
        """One of the three times, per role (operations, ranks)."""
        return tuple(
            np.array([times[which] for times in ranks]).T.copy()
            if ranks
            else np.zeros((len(program.ops), 0))
            for ranks, program in zip(self.times, self.cast.programs, strict=True)
        )


class Steps:
    """All steps of a play, which as many `streams` go through; the first `warmup` are not
    measured."""

    def __init__(self, casts: Sequence[Cast], warmup: int, streams: int) -> None:
        self.casts, self.warmup, self.streams = casts, warmup, streams
        self.open: dict[int, OpenStep] = {}
        self.closed = 0
        self.last: Step | None = None
        self.durations: list[float] = []
        self.splits: list[Split] = []

    def times(self, step: int, rank: int) -> RankTimes:
        """Where to note the times of `rank` in a step that is open."""
        return self._of(step).times[self.casts[step].roles[rank]][self.casts[step].columns[rank]]

    def leave(self, step: int) -> None:
        """A stream is through with `step`."""
        self._of(step).remaining -= 1
        while self.closed in self.open and self.open[self.closed].remaining == 0:
            self._close(self.open.pop(self.closed))
            self.closed += 1

    def _of(self, step: int) -> OpenStep:
        if step not in self.open:
            self.open[step] = OpenStep(self.casts[step], self.streams)
        return self.open[step]

    def _close(self, times: OpenStep) -> None:
        origin = self.last.finish if self.last else 0.0
        before = replace(self.last, previous=None) if self.last else None
        ready, start, end = (times.array(which) for which in range(3))
        self.last = Step(times.cast, origin, start, end, ready, before)
        if self.closed >= self.warmup:
            self.durations.append(self.last.duration)
            self.splits.append(self.last.split())

    def timeline(self, events: int) -> Timeline:
        """What happened, in so many events."""
        assert self.last is not None
        return Timeline(tuple(self.durations), tuple(self.splits), self.last, events)
