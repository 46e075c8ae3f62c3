"""Feeding: loaders that make batches, and ranks that train on them in step.

The times of a loader's batches are known; when each is ready follows from when it was asked for,
and that from when an earlier one was taken.  With batches in order that is a max-plus system:

    asked(k) = taken(k - ahead), or the epoch's start
    done(k)  = max(asked(k), done(k - lines)) + seconds(k)
    taken(k) = max(wanted(k), done(k)) + take

where a batch is wanted when the one before it has been trained on, and `take` is what taking one
takes who trains: PyTorch's loader asks for another batch after that (torch 2.13, `_next_data` of
torch/utils/data/dataloader.py: `_get_data`, then `_process_data`, which asks).  A step starts
when all ranks have their batch.  All loaders go along in one pass, as arrays.  Out of order each
loader is followed event by event.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from dpsim.compile.loaders import Supply
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass

#: batch of an epoch, and of the run -> what it takes every loader [s]
Times = Callable[[int, int], Array]


@dataclass(frozen=True)
class Fed:
    """What happened.

    starts  of every batch that was trained on [s]
    ends    of its training
    """

    starts: tuple[float, ...]
    ends: tuple[float, ...]


@dataclass(frozen=True)
class Epochs:
    """How epochs begin.

    batches  of an epoch; None: it does not end
    first    until lines work at the very start [s]; again: at the start of every later epoch
    """

    batches: int | None = None
    first: float = 0.0
    again: float = 0.0


class _Lines:
    """The lines of all loaders in one epoch, in order; they work from `since` on, and taking a
    batch takes `take`."""

    def __init__(self, supply: Supply, since: float, take: float) -> None:
        self.supply, self.since, self.taking = supply, since, take
        self.done: deque[Array] = deque(maxlen=supply.lines)
        self.taken: deque[Array] = deque(maxlen=supply.ahead)

    def take(self, wanted: float, seconds: Array) -> Array:
        """When each loader has handed over its next batch."""
        full = len(self.taken) == self.supply.ahead
        free = len(self.done) == self.supply.lines
        asked = self.taken[0] if full else np.full_like(seconds, self.since)
        done = (np.maximum(asked, self.done[0]) if free else asked) + seconds
        self.done.append(done)
        taken = np.maximum(wanted, done) + self.taking
        self.taken.append(taken)
        return taken


class _Inline(_Lines):
    """Batches that who trains makes when they are wanted."""

    def take(self, wanted: float, seconds: Array) -> Array:
        return max(wanted, self.since) + seconds + self.taking


class _Loose:
    """The lines of one loader, of which whichever is ready first is taken.

    span  when they begin to work, and what taking a batch takes [s]
    """

    def __init__(
        self,
        supply: Supply,
        span: tuple[float, float],
        seconds: Callable[[int], float],
        last: int | None,
    ) -> None:
        (since, self.taking), self.last = span, last
        self.most = supply.ahead // supply.lines
        self.free, self.load = [since] * supply.lines, [0] * supply.lines
        self.seconds, self.next, self.turn = seconds, 0, 0
        self.ready: list[tuple[float, int, int]] = []
        for _ in range(supply.ahead):
            self._ask(since)

    def _ask(self, now: float) -> None:
        """The next line in turn that has room makes the next batch."""
        lines = len(self.free)
        order = [(self.turn + k) % lines for k in range(lines)]
        line = next((one for one in order if self.load[one] < self.most), None)
        if line is None or self.next == self.last:
            return
        self.turn = (line + 1) % lines
        self.load[line] += 1
        self.free[line] = max(now, self.free[line]) + self.seconds(self.next)
        heapq.heappush(self.ready, (self.free[line], self.next, line))
        self.next += 1

    def take(self, wanted: float) -> float:
        """When the batch that is ready first has been handed over."""
        done, _, line = heapq.heappop(self.ready)
        self.load[line] -= 1
        now = max(wanted, done) + self.taking
        self._ask(now)
        return now


class _LooseLines:
    """The loose lines of all loaders in one epoch."""

    def __init__(
        self,
        supply: Supply,
        span: tuple[float, float],
        times: Callable[[int], Array],
        last: int | None,
    ) -> None:
        known: list[Array] = []

        def seconds(loader: int, batch: int) -> float:
            while len(known) <= batch:
                known.append(times(len(known)))
            return float(known[batch][loader])

        count = len(times(0))
        self.each = [_Loose(supply, span, partial(seconds, one), last) for one in range(count)]

    def take(self, wanted: float, _: Array) -> Array:
        return np.array([one.take(wanted) for one in self.each])


def feed(
    supply: Supply, times: Times, training: Sequence[float], epochs: Epochs, take: float = 0.0
) -> Fed:
    """Train on as many batches as `training` has times of [s], one after the other.

    times  of the loaders' batches; take: the time of who trains for each batch, before its start
    """
    starts, ends, end = [], [], 0.0
    lines: _Lines | _LooseLines = _Lines(supply, 0.0, take)
    for number, seconds in enumerate(training):
        batch = number % epochs.batches if epochs.batches else number
        if batch == 0:
            since = end + (epochs.again if number else epochs.first)
            lines = _epoch(supply, (since, take), epochs, times, number)
        ready = lines.take(end, times(batch, number))
        start = float(ready.max())
        end = start + seconds
        starts.append(start)
        ends.append(end)
    return Fed(tuple(starts), tuple(ends))


def _epoch(
    supply: Supply, span: tuple[float, float], epochs: Epochs, times: Times, number: int
) -> _Lines | _LooseLines:
    """The lines of an epoch that begins with the run's batch `number`; `span` as of `_Loose`."""
    if supply.lines == 0:
        return _Inline(supply, *span)
    if supply.ordered:
        return _Lines(supply, *span)
    own = partial(_later, times, number)
    return _LooseLines(supply, span, own, epochs.batches)


def _later(times: Times, number: int, batch: int) -> Array:
    """What `batch` of the epoch that began with the run's batch `number` takes every loader."""
    return times(batch, number + batch)
