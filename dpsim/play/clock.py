"""The clock of what is played event by event: SimPy's, with alarms in its queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any

import simpy

from dpsim.core.errors import SimulationError

Act = Callable[[Any], None]
_NORMAL = simpy.events.NORMAL


class Alarm:
    """Calls `act` when it goes off: an entry in SimPy's queue, where a process takes three, and of
    an event no more than what SimPy looks at when it goes off."""

    __slots__ = ("callbacks",)
    _ok = True

    def __init__(self, act: Act) -> None:
        self.callbacks: tuple[Act, ...] = (act,)

    def call_off(self) -> None:
        """Nothing happens when it goes off."""
        self.callbacks = ()


def alarm(env: simpy.Environment, act: Act, delay: float = 0.0) -> Alarm:
    """Call `act` after `delay` [s]."""
    found = Alarm(act)
    env.schedule(found, delay=delay)  # type: ignore[arg-type]
    return found


class Clock(simpy.Environment):
    """An environment whose alarms can be set to a time, to the bit.

    `busy` is SimPy's queue: true while anything is left to happen.
    """

    #: SimPy's own is a Python function; much asks for the time
    now = property(attrgetter("_now"))

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[Any] = self._queue

    @property
    def busy(self) -> Sequence[object]:
        return self._queue

    def at(self, time: float, act: Act) -> Alarm:
        """Call `act` at `time` [s], which must not be past."""
        alarm = Alarm(act)
        heappush(self._entries, (time, _NORMAL, next(self._eid), alarm))
        return alarm

    def drain(self, most: int, at_once: int) -> int:
        """Let everything happen, as `run` does where there are alarms alone; returns how many went
        off, `most` and one if there are more.

        Raises SimulationError where more than `at_once` go off while time stands still."""
        queue, at, events, same = self._entries, -1.0, 0, 0
        while queue and events <= most:
            time, _, _, alarm = heappop(queue)
            self._now, events, same = time, events + 1, same + 1
            if time != at:
                at, same = time, 0
            elif same > at_once:
                stuck = f"time stands still at {at} s: {same:,} events at one instant"
                raise SimulationError(stuck)
            for act in alarm.callbacks or ():
                act(alarm)
        return events
