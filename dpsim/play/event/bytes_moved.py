"""Bytes that have moved when a scene ends: of what is under way then, what has left by then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dpsim.compile.behaviour import Occurrence
from dpsim.play.clock import Act
from dpsim.play.scene import Chronicle

#: a place that sends, and the one that its bytes come to; None: those of a collective
Way = tuple[int, int | None]


class _UnderWay(NamedTuple):
    """What began at `began` [s], takes `alone` [s] on idle links, and moves `size` bytes on every
    way; `to_go` is the share of them that has not moved, None where no link tells."""

    to_go: Callable[[Mapping[Act, float]], float | None]
    began: float
    alone: float
    size: float
    ways: Sequence[Way]


class BytesMoved:
    """The account of what has moved, in a chronicle.

    A message that is not over when playing ends counts with the bytes that its links have carried:
    counted whole, more would cross a link than it can carry.
    """

    def __init__(self, story: Chronicle, now: Callable[[], float]) -> None:
        self._story, self._now = story, now
        self._under_way: dict[Occurrence, _UnderWay] = {}

    def add(
        self, over: Occurrence, to_go: Callable[[Mapping[Act, float]], float | None],
        alone: float, size: float, ways: Sequence[Way],
    ) -> None:  # fmt: skip
        """Something begins that `over` is the end of."""
        self._under_way[over] = _UnderWay(to_go, self._now(), alone, size, ways)
        over.then(self._over)

    def _over(self, over: Occurrence) -> None:
        one = self._under_way.pop(over)
        self._count(one, one.size)

    def close(self, left: Mapping[Act, float]) -> None:
        """Playing ends, and of flows in progress so many bytes are `left`."""
        for one in self._under_way.values():
            to_go = one.to_go(left)
            if to_go is None:  # no link says: as its time passes
                past = self._story.end - one.began
                to_go = 1.0 - past / one.alone if past < one.alone else 0.0
            self._count(one, one.size * (1.0 - to_go))
        self._under_way.clear()

    def _count(self, one: _UnderWay, size: float) -> None:
        story = self._story
        for source, target in one.ways:
            story.sent[source] += size
            if target is not None:
                story.came[target] += size
                story.moved[source, target] = story.moved.get((source, target), 0.0) + size
