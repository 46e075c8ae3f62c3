"""When operations ran: steps that are still open, and what is kept of those that have closed."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from dpsim.compile.program import Cast
from dpsim.compile.timeline import Kept, Split, Timeline
from dpsim.core.arrays import Array
from dpsim.play.event.players import Player


class RankTimes(NamedTuple):
    """When the operations of one rank in one step were ready, started and ended [s]; what has not
    ended yet ends at infinity."""

    ready: list[float]
    start: list[float]
    end: list[float]


class OpenStep:
    """Times of one step, by player, and how many streams are not through with it."""

    def __init__(self, cast: Cast, players: Sequence[Player], streams: int) -> None:
        self.cast, self.players, self.remaining = cast, players, streams
        self.times = [self._blank(len(cast.program(player.rank).ops)) for player in players]

    @staticmethod
    def _blank(operations: int) -> RankTimes:
        return RankTimes([0.0] * operations, [0.0] * operations, [inf] * operations)

    def array(self, which: int) -> tuple[Array, ...]:
        """One of the three times, per role (operations, ranks)."""
        return tuple(self._array(which, role) for role in range(len(self.cast.programs)))

    def _array(self, which: int, role: int) -> Array:
        cast, ranks = self.cast, len(self.cast.members(role))
        own = [k for k, player in enumerate(self.players) if cast.roles[player.rank] == role]
        if not own:
            return np.zeros((len(cast.programs[role].ops), 0))
        each = np.array([self.times[k][which] for k in own]).T.copy()
        if len(own) == 1:
            return np.broadcast_to(each, (len(each), ranks))
        if len(own) == ranks:
            return each
        column = np.empty(ranks, dtype=int)
        for place, k in enumerate(own):
            column[[cast.columns[rank] for rank in self.players[k].ranks]] = place
        return each[:, column]


class Steps:
    """All steps of a play, which all streams of `players` go through; the first `warmup` are not
    measured."""

    def __init__(self, casts: Sequence[Cast], warmup: int, players: Sequence[Player]) -> None:
        self.casts, self.warmup, self.players = casts, warmup, players
        self.streams = sum(sum(player.widths.values()) for player in players)
        self.open: dict[int, OpenStep] = {}
        self.closed = 0
        self.last: Kept | None = None
        self.durations: list[float] = []
        self.splits: list[Split] = []

    def times(self, step: int, player: Player) -> RankTimes:
        """Where to note the times of a player in a step that is open."""
        return self._of(step).times[player.number]

    def leave(self, step: int) -> None:
        """A stream is through with `step`."""
        self._of(step).remaining -= 1
        while self.closed in self.open and self.open[self.closed].remaining == 0:
            self._close(self.open.pop(self.closed))
            self.closed += 1

    def _of(self, step: int) -> OpenStep:
        if step not in self.open:
            self.open[step] = OpenStep(self.casts[step], self.players, self.streams)
        return self.open[step]

    def _close(self, times: OpenStep) -> None:
        origin = self.last.finish if self.last else 0.0
        before = self.last
        if before is not None:
            before.previous = None
        ready, start, end = (times.array(which) for which in range(3))
        self.last = Kept(times.cast, origin, start, end, ready, before)
        if self.closed >= self.warmup:
            self.durations.append(self.last.duration)
            self.splits.append(self.last.split())

    def timeline(self, events: int) -> Timeline:
        """What happened, in so many events."""
        assert self.last is not None
        return Timeline(tuple(self.durations), tuple(self.splits), self.last, events)
