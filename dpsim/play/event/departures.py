"""Departures: messages that leave a host in turn, a window of each at a time.

What a host sends to several others waits in one queue before its network card.  A sender of TCP
puts a window of each message there at once, so a message that fits into it leaves before those that
were handed over later, and long ones share the card window by window.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping

from dpsim.backends import Plan
from dpsim.play.clock import Act, Clock
from dpsim.play.network import FlowShape, SharedLinks

#: windows of a message that leave one by one; those of longer ones are larger
PIECES = 8
#: kinds of vertices that are outside the nodes
OUTSIDE = "leaf", "spine"


class Departure:
    """A message on its way out: its pieces that wait, and one of them that may be leaving."""

    def __init__(self, queue: Departures, width: float, over: Callable[[], None]) -> None:
        self._queue, self.width, self.over = queue, width, over
        self.pieces: deque[FlowShape] = deque()
        self.size = 0.0

    def through(self, _: object) -> None:
        """A piece is through: the rest of its message goes behind all others."""
        self._queue.left(self)

    def to_go(self, left: Mapping[Act, float]) -> float | None:
        """The share of its bytes that has not moved, where so many are `left` of flows in progress;
        None where it loads no link."""
        if not self.size:
            return None
        return (sum(piece.size for piece in self.pieces) + left.get(self.through, 0.0)) / self.size


class Departures:
    """The queue of one host.

    A piece keeps the host's links busy for as long as its bytes take there, and the next one leaves
    then, though the first is under way for longer where its own pace is lower: so replies neither
    leave a link idle nor share it in pairs that stay together for ever.
    """

    def __init__(self, clock: Clock, links: SharedLinks) -> None:
        self._clock, self._links = clock, links
        self._queue: deque[Departure] = deque()
        self._leaving, self._free = 0, 0.0

    def add(self, plan: Plan, width: float, window: float, over: Callable[[], None]) -> Departure:
        """A message, which joins the queue when its latencies have passed; `width` such messages
        fill the host's links."""
        waits = [p.latency if p.loads else p.latency + p.seconds for p in plan.phases]
        found = Departure(self, width, over)
        for phase in plan.phases:
            pieces = min(max(math.ceil(phase.size / window), 1), PIECES)
            each = phase.seconds / pieces, phase.size / pieces
            shape = self._links.shape(phase.loads, *each) if phase.loads else None
            found.pieces += [shape] * pieces if shape else []
        found.size = sum(piece.size for piece in found.pieces)

        def join(_: object) -> None:
            self._queue.append(found)
            self._next()

        self._clock.at(self._clock.now + plan.launch + max(sum(waits), 0.0), join)
        return found

    def _next(self, _: object = None) -> None:
        while self._queue:
            one = self._queue[0]
            if self._leaving >= math.ceil(one.width) or self._clock.now < self._free:
                return
            self._queue.popleft()
            if not one.pieces:
                one.over()
                continue
            self._leaving += 1
            piece = one.pieces.popleft()
            if one.width > 1.0:
                self._free = self._clock.now + piece.size / piece.pace / one.width
                self._clock.at(self._free, self._next)
            self._links.start(piece, one.through)

    def left(self, one: Departure) -> None:
        """A piece of `one` is through."""
        self._leaving -= 1
        if one.pieces:
            self._queue.append(one)
        else:
            one.over()
        self._next()


def width_of(plan: Plan, links: SharedLinks) -> float:
    """How many messages like that of `plan` fill the narrowest link by which it leaves its host:
    1 where one does, or where it is known to cross none."""
    for phase in plan.phases:
        if phase.loads and phase.seconds > 0:
            most, pace = max(phase.loads.values()), phase.size / phase.seconds
            host = next((a[1:2] for a, b in phase.loads if a[0] == "nic" and b[0] in OUTSIDE), ())
            room = [
                links.capacity(edge) * most / load
                for edge, load in phase.loads.items()
                if load > 0 and edge[0][0] not in OUTSIDE and edge[0][1:2] == host
            ]
            width = min(room, default=pace) / pace
            return width if width > 1.0 + 1e-9 else 1.0
    return 1.0
