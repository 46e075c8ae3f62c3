"""Chapters: what cases work out, each kept once for all cases that it holds for.

A chapter is a frozen record of what it depends on; what follows from that it works out when asked.
Two cases that differ in the network's latency alone have equal programs, and so share them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

_Chapter = TypeVar("_Chapter")
#: chapters of a kind that are kept, the latest
KEPT = 8


class Chapters:
    """What cases have worked out: machine and routes, the model, programs, plans of collectives."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept: dict[Callable[..., Any], deque[tuple[Any, Any]]] = {}
        self._most = kept

    def known(self, make: Callable[..., _Chapter], *depends: Any) -> _Chapter:
        """`make(*depends)`, or what that was where it has been asked of something equal."""
        kept = self._kept.setdefault(make, deque(maxlen=self._most))
        for number, (known, chapter) in enumerate(kept):
            if known == depends:
                if number:
                    del kept[number]
                    kept.appendleft((known, chapter))
                found: _Chapter = chapter
                return found
        made = make(*depends)
        kept.appendleft((depends, made))
        return made
