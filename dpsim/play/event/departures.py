"""Departures: messages that leave a host in turn, a window of each at a time.

What a host sends to several others waits in one queue before its network card.  A sender of TCP
puts a window of each message there at once, so a message that fits into it leaves before those that
were handed over later, and long ones share the card window by window.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

from dpsim.backends import Plan
from dpsim.play.clock import Clock
from dpsim.play.network import FlowShape, SharedLinks

#: windows of a message that leave one by one; those of longer ones are larger
PIECES = 8
#: kinds of vertices that are outside the nodes
OUTSIDE = "leaf", "spine"


class Departures:
    """The queue of one host.

    A piece keeps the host's links busy for as long as its bytes take there, and the next one leaves
    then, though the first is under way for longer where its own pace is lower: so replies neither
    leave a link idle nor share it in pairs that stay together for ever.
    """

    def __init__(self, clock: Clock, links: SharedLinks) -> None:
        self._clock, self._links = clock, links
        self._queue: deque[tuple[list[FlowShape], float, Callable[[], None]]] = deque()
        self._leaving, self._free = 0, 0.0

    def add(self, plan: Plan, width: float, window: float, over: Callable[[], None]) -> None:
        """A message, which joins the queue when its latencies have passed; `width` such messages
        fill the host's links."""
        waits = [p.latency if p.loads else p.latency + p.seconds for p in plan.phases]
        shapes: list[FlowShape] = []
        for phase in plan.phases:
            pieces = min(max(math.ceil(phase.size / window), 1), PIECES)
            each = phase.seconds / pieces, phase.size / pieces
            shape = self._links.shape(phase.loads, *each) if phase.loads else None
            shapes += [shape] * pieces if shape else []

        def join(_: object) -> None:
            self._queue.append((shapes, width, over))
            self._next()

        self._clock.at(self._clock.now + plan.launch + max(sum(waits), 0.0), join)

    def _next(self, _: object = None) -> None:
        while self._queue:
            shapes, width, over = self._queue[0]
            if self._leaving >= math.ceil(width) or self._clock.now < self._free:
                return
            self._queue.popleft()
            if not shapes:
                over()
                continue
            self._leaving += 1
            if width > 1.0:
                self._free = self._clock.now + shapes[0].size / shapes[0].pace / width
                self._clock.at(self._free, self._next)
            self._links.start(shapes[0], self._left(shapes[1:], width, over))

    def _left(
        self, rest: Sequence[FlowShape], width: float, over: Callable[[], None]
    ) -> Callable[[object], None]:
        """A piece is through: the rest of its message goes behind all others."""

        def through(_: object) -> None:
            self._leaving -= 1
            if rest:
                self._queue.append((list(rest), width, over))
            else:
                over()
            self._next()

        return through


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
