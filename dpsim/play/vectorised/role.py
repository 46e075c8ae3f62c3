"""The ranks of one role on their way through a step: when they are ready, and what they have done.

All times are arrays shaped (lanes, ranks of the role).
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np

from dpsim.compile.program import COMPUTE, Op
from dpsim.core.arrays import Array
from dpsim.core.errors import SimulationError
from dpsim.play import NotApplicable, check_time


class Role:
    """The state of all ranks of one role.

    width    how many collectives of one stream run at once
    next     the operation that comes next
    arrival  when the ranks have come to a collective that is not carried out yet
    """

    def __init__(self, members: tuple[int, ...], lanes: int, width: int) -> None:
        self.members = np.array(members)
        self.width = width
        self.host = self.step_end = np.zeros((lanes, len(members)))
        self.arrival: Array | None = None
        self._streams: dict[str, Array] = {}
        #: when collectives moved bytes of these ranks, by stream: begin and end
        self._talk: dict[str, deque[tuple[Array, Array]]] = {}
        self.begin()

    def begin(self) -> None:
        """A step begins."""
        self.next = 0
        self.readies: list[Array] = []
        self.starts: list[Array] = []
        self.ends: list[Array] = []

    def ready(self, op: Op) -> Array:
        """When `op` can start; it is noted."""
        if op.issue:
            self.host = self.host + check_time(op.issue, f"issuing {op.name}")
        ready = np.maximum(self.host, self._free(op))
        delay = check_time(op.delay, f"the delay of {op.name}") if op.delay else 0.0
        for other in op.after:
            ready = np.maximum(ready, self.ends[other] + delay)
        if op.after_step:
            ready = np.maximum(ready, self.step_end)
        self.readies.append(ready)
        return ready

    def record(self, op: Op, start: Array, end: Array) -> None:
        """`op` runs from `start` to `end`; the next operation is the one after it."""
        if not np.isfinite(end).all():
            raise SimulationError(f"{op.name} ends at no finite time")
        self.starts.append(start)
        self.ends.append(end)
        self._occupy(op, end)
        if op.blocks_host:
            self.host = np.maximum(self.host, end)
        self.next += 1

    def _free(self, op: Op) -> Array | float:
        """When the first worker of the operation's stream is free."""
        if self.width == 1 or op.stream == COMPUTE:
            return self._streams.get(op.stream, 0.0)
        return self._streams[op.stream][0] if op.stream in self._streams else 0.0

    def _occupy(self, op: Op, end: Array) -> None:
        """That worker is busy until `end`.  Where a stream has several, their times are kept
        sorted in front of the axes of lanes and ranks."""
        if self.width == 1 or op.stream == COMPUTE:
            self._streams[op.stream] = end
            return
        old = self._streams.get(op.stream, np.zeros((self.width, 1, 1)))
        times = [*old[1:], end]
        self._streams[op.stream] = np.sort(np.stack(np.broadcast_arrays(*times)), axis=0)

    def talk(self, op: Op, begin: Array, end: Array) -> None:
        """Remember when a collective may slow down what these ranks compute beside it."""
        if (begin < self._streams.get(COMPUTE, np.zeros(1)) * (1 - 1e-12)).any():
            raise NotApplicable(f"{op.name} begins beside a computation that was issued before it")
        self._talk.setdefault(op.stream, deque()).append((begin, end))

    def contended(self, start: Array, end: Array, contention: float) -> Array:
        """When work that would take from `start` to `end` alone ends beside collectives.

        While one of them moves bytes, work goes on 1 + contention times as slowly.
        """
        beside = self._beside(start, start + (end - start) * (1.0 + contention))
        if not beside:
            return end
        now, left = start, end - start
        for begin, finish in _in_order(beside):
            alone = np.minimum(left, np.maximum(begin - now, 0.0))
            now, left = now + alone, left - alone
            slowed = np.minimum(left, np.maximum(finish - now, 0.0) / (1.0 + contention))
            now, left = now + slowed * (1.0 + contention), left - slowed
        result: Array = now + left
        return result

    def _beside(self, start: Array, latest: Array) -> list[tuple[Array, Array]]:
        """The collectives that may run between `start` and `latest`; on a stream they begin in
        order.  Those that ended before are forgotten, for work begins in order too."""
        found = []
        for queue in self._talk.values():
            while queue and (queue[0][1] <= start).all():
                queue.popleft()
            for begin, end in queue:
                if (begin >= latest).all():
                    break
                found.append((begin, end))
        return found


def _in_order(spans: list[tuple[Array, Array]]) -> list[tuple[Array, Array]]:
    """`spans`, (begin, end), such that they begin in order in every lane and on every rank."""
    spans = sorted(spans, key=lambda span: float(span[0].flat[0]))
    if all((one[0] <= other[0]).all() for one, other in pairwise(spans)):
        return spans
    begins, ends = (np.stack(np.broadcast_arrays(*times)) for times in zip(*spans, strict=True))
    order = np.argsort(begins, axis=0, kind="stable")
    begins, ends = (np.take_along_axis(times, order, axis=0) for times in (begins, ends))
    return list(zip(begins, ends, strict=True))
