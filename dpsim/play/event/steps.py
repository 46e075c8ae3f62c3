"""When operations ran: steps that are still open, and what is kept of those that have closed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsim.compile.program import Cast
from dpsim.compile.timeline import Kept, Split, Timeline


class OpenStep:
    """Times of one step, per role (operations, ranks), and how many operations remain."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        shapes = [(len(p.ops), len(cast.members(role))) for role, p in enumerate(cast.programs)]
        self.start, self.end, self.ready = (
            tuple(np.zeros(shape) for shape in shapes) for _ in range(3)
        )
        self.remaining = sum(operations * ranks for operations, ranks in shapes)


class Steps:
    """All steps of a play; the first `warmup` are not measured."""

    def __init__(self, casts: Sequence[Cast], warmup: int) -> None:
        self.steps = [OpenStep(cast) for cast in casts]
        self.warmup = warmup
        self.closed = 0
        self.last: Kept | None = None
        self.durations: list[float] = []
        self.splits: list[Split] = []

    def note(
        self, step: int, rank: int, index: int, ready: float, start: float, end: float
    ) -> None:
        """Operation `index` of `rank` was ready and ran at these times [s]."""
        times = self.steps[step]
        role, column = times.cast.roles[rank], times.cast.columns[rank]
        times.ready[role][index, column] = ready
        times.start[role][index, column] = start
        times.end[role][index, column] = end
        times.remaining -= 1
        while self.closed < len(self.steps) and self.steps[self.closed].remaining == 0:
            self._close(self.steps[self.closed])
            self.closed += 1

    def ended(self, step: int, rank: int, operations: Sequence[int]) -> float:
        """When the last of these operations of `rank` has ended [s]."""
        times = self.steps[step]
        role, column = times.cast.roles[rank], times.cast.columns[rank]
        return float(times.end[role][list(operations), column].max())

    def _close(self, times: OpenStep) -> None:
        origin = self.last.finish if self.last else 0.0
        before = self.last
        if before is not None:
            before.previous = None
        self.last = Kept(times.cast, origin, times.start, times.end, times.ready, before)
        if self.closed >= self.warmup:
            self.durations.append(self.last.duration)
            self.splits.append(self.last.split())

    def timeline(self, events: int) -> Timeline:
        """What happened, in so many events."""
        assert self.last is not None
        return Timeline(tuple(self.durations), tuple(self.splits), self.last, events)
