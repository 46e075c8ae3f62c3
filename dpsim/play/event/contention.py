"""Contention: while collectives move bytes of a rank, what it computes goes on more slowly."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dpsim.play.event.workers import Worker
from dpsim.play.network import Alarm, Clock


class Labour:
    """Work of one rank under way: `left` seconds of it alone at time `began`, going on `pace` times
    as slowly since."""

    __slots__ = ("alarm", "began", "contention", "left", "pace", "talking", "worker")

    def __init__(self, contention: Contention) -> None:
        self.contention = contention
        self.talking = 0
        self.alarm: Alarm | None = None
        self.left, self.began, self.pace = 0.0, 0.0, 1.0
        self.worker: Worker

    def start(self, _: object = None) -> None:
        """Work off what is left, from now on."""
        contention = self.contention
        self.began = now = contention.clock.now
        self.pace = contention.slow if self.talking else 1.0
        self.alarm = contention.clock.at(now + self.left * self.pace, self.over)

    def advance(self) -> bool:
        """Whether the work is done by now; what is left to rounding would not move the clock."""
        now = self.contention.clock.now
        self.left -= (now - self.began) / self.pace
        self.began = now
        return self.left <= 1e-14 * now

    def over(self, _: object) -> None:
        if self.advance():
            self.alarm = None
            self.contention.done(self.worker)
        else:
            self.start()

    def change(self) -> None:
        """Go on at another pace, if it is another."""
        if self.alarm is not None and self.pace != (self.contention.slow if self.talking else 1.0):
            self.alarm.call_off()
            if self.advance():
                self.left = 0.0
            self.start()


class Contention:
    """How computing goes on while collectives move bytes of its rank: 1 + `contention` times as
    slowly.  `done` is called with the worker whose work has ended."""

    def __init__(
        self, clock: Clock, contention: float, ranks: int, done: Callable[[Worker], None]
    ) -> None:
        self.clock, self.slow, self.done = clock, 1.0 + contention, done
        self.labours = [Labour(self) for _ in range(ranks)] if contention else []
        self._changed: dict[Labour, None] = {}

    def talk(self, group: Iterable[int], change: int) -> None:
        """One collective more or less (`change`) moves bytes of the ranks of `group`."""
        labours = self.labours
        if not labours:
            return
        before, edge = len(self._changed), change > 0
        for rank in group:
            labour = labours[rank]
            labour.talking += change
            if labour.talking == edge and labour.alarm is not None:
                self._changed[labour] = None
        if self._changed and not before:  # once, after everything that happens at this instant
            self.clock.at(self.clock.now, self._change_pace)

    def _change_pace(self, _: object) -> None:
        changed, self._changed = self._changed, {}
        for labour in changed:
            labour.change()

    def work(self, worker: Worker, seconds: float) -> None:
        """What takes `seconds` [s] alone, from when the worker is ready."""
        labour = self.labours[worker.player.rank]
        labour.worker, labour.left = worker, seconds
        if worker.ready > self.clock.now:
            self.clock.at(worker.ready, labour.start)
        else:
            labour.start()
