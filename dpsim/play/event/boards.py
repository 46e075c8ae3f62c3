"""When operations ran: the boards of steps that are still open, and the steps that have closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpsim.compile.program import Cast
from dpsim.compile.timeline import Split, Step, Timeline


class Board:
    """Times of one step, per role (operations, ranks), and how many operations are still open."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        shapes = [(len(p.ops), len(cast.members(role))) for role, p in enumerate(cast.programs)]
        self.start, self.end, self.ready = (
            tuple(np.zeros(shape) for shape in shapes) for _ in range(3)
        )
        self.open = sum(operations * ranks for operations, ranks in shapes)


class Boards:
    """The boards of all steps; the first `warmup` steps are not measured."""

    def __init__(self, casts: Sequence[Cast], warmup: int) -> None:
        self.boards = [Board(cast) for cast in casts]
        self.warmup = warmup
        self.closed = 0
        self.last: Step | None = None
        self.durations: list[float] = []
        self.splits: list[Split] = []

    def note(
        self, step: int, rank: int, index: int, ready: float, start: float, end: float
    ) -> None:
        """Operation `index` of `rank` was ready and ran at these times [s]."""
        board = self.boards[step]
        role, column = board.cast.roles[rank], board.cast.columns[rank]
        board.ready[role][index, column] = ready
        board.start[role][index, column] = start
        board.end[role][index, column] = end
        board.open -= 1
        while self.closed < len(self.boards) and self.boards[self.closed].open == 0:
            self._close(self.boards[self.closed])
            self.closed += 1

    def ended(self, step: int, rank: int, operations: Sequence[int]) -> float:
        """When the last of these operations of `rank` has ended [s]."""
        board = self.boards[step]
        role, column = board.cast.roles[rank], board.cast.columns[rank]
        return float(board.end[role][list(operations), column].max())

    def _close(self, board: Board) -> None:
        origin = self.last.finish if self.last else 0.0
        before = replace(self.last, previous=None) if self.last else None
        self.last = Step(board.cast, origin, board.start, board.end, board.ready, before)
        if self.closed >= self.warmup:
            self.durations.append(self.last.duration)
            self.splits.append(self.last.split())

    def timeline(self, events: int) -> Timeline:
        """What happened, in so many events."""
        assert self.last is not None
        return Timeline(tuple(self.durations), tuple(self.splits), self.last, events)
