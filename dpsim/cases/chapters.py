"""Chapters: what cases work out, each kept once for all cases that it holds for.

A chapter is a frozen record of what it depends on; what follows from that it works out when asked.
Two cases that differ in the network's latency alone have equal programs, and so share them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, TypeVar

_Chapter = TypeVar("_Chapter")
#: chapters of a kind that are kept, the latest
KEPT = 8


class Chapters:
    """What cases have worked out: machine and routes, the model, programs, plans of collectives."""

    def __init__(self, kept: int = KEPT) -> None:
        self._most = kept
        self._kept: dict[Callable[..., Any], deque[tuple[Any, Any]]] = {}
        # the same by the identities of what they depend on, which each entry keeps alive
        self._same: OrderedDict[tuple[Any, ...], tuple[Any, Any]] = OrderedDict()

    def known(self, make: Callable[..., _Chapter], *depends: Any) -> _Chapter:
        """`make(*depends)`, or what that was where it has been asked of something equal."""
        key = (make, *map(id, depends))
        if key not in self._same:
            self._same[key] = depends, self._equal(make, depends)
            if len(self._same) > 4 * self._most:
                self._same.popitem(last=False)
        found: _Chapter = self._same[key][1]
        return found

    def _equal(self, make: Callable[..., Any], depends: tuple[Any, ...]) -> Any:
        kept = self._kept.setdefault(make, deque(maxlen=self._most))
        for number, (known, chapter) in enumerate(kept):
            if known == depends:
                if number:
                    del kept[number]
                    kept.appendleft((known, chapter))
                return chapter
        chapter = make(*depends)
        kept.appendleft((depends, chapter))
        return chapter
