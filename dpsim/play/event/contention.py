"""Contention: while collectives move bytes of a rank, what it computes goes on more slowly."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dpsim.play.clock import Alarm, Clock
from dpsim.play.event.workers import Worker

#: is called with a worker whose work has ended, and when [s]
Worked = Callable[[Worker, float], None]


class Labour:
    """Work of a player under way: `left` seconds of it alone at time `began`, going on `pace` times
    as slowly since."""

    __slots__ = ("alarm", "began", "clock", "left", "pace", "slow", "talking", "worked", "worker")

    def __init__(self, clock: Clock, slow: float, worked: Worked) -> None:
        self.clock, self.slow, self.worked = clock, slow, worked
        self.talking = 0
        self.alarm: Alarm | None = None
        self.left, self.began, self.pace = 0.0, 0.0, 1.0
        self.worker: Worker

    def start(self, _: object = None) -> None:
        """Work off what is left, from now on."""
        self.began = now = self.clock.now
        self.pace = self.slow if self.talking else 1.0
        self.alarm = self.clock.at(now + self.left * self.pace, self.over)

    def over(self, _: object) -> None:
        """Whether rounding has left anything; not what would not move the clock."""
        now = self.clock.now
        self.left -= (now - self.began) / self.pace
        if self.left > 1e-14 * now:
            self.start()
        else:
            self.alarm = None
            self.worked(self.worker, now)

    def change(self) -> None:
        """Go on at another pace, if it is another."""
        if self.alarm is not None and self.pace != (self.slow if self.talking else 1.0):
            self.alarm.call_off()
            now = self.clock.now
            left = self.left - (now - self.began) / self.pace
            self.left = left if left > 1e-14 * now else 0.0
            self.start()


class Contention:
    """How computing goes on while collectives move bytes of its rank: 1 + `contention` times as
    slowly.  `worked` is told whose work has ended."""

    def __init__(self, clock: Clock, contention: float, players: int, worked: Worked) -> None:
        self.clock = clock
        players = players if contention else 0
        self.labours = [Labour(clock, 1.0 + contention, worked) for _ in range(players)]
        self._changed: dict[Labour, None] = {}

    def talk(self, group: Iterable[Worker], change: int) -> None:
        """One collective more or less (`change`) moves bytes of the players of `group`."""
        labours = self.labours
        if not labours:
            return
        before, edge = len(self._changed), change > 0
        for worker in group:
            labour = labours[worker.player.number]
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
        labour = self.labours[worker.player.number]
        labour.worker, labour.left = worker, seconds
        if worker.ready > self.clock.now:
            self.clock.at(worker.ready, labour.start)
        else:
            labour.start()
