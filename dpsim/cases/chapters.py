"""Chapters: what cases work out, each kept once for all cases that it holds for.

A chapter is a frozen record of what it depends on; what follows from that it works out when asked.
Two cases that differ in the network's latency alone have equal programs, and so share them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_Chapter = TypeVar("_Chapter")
#: chapters of all kinds that are kept, the latest
KEPT = 32
#: of these, chapters of a kind that are compared with a new one
COMPARED = 8
#: what is small and kept beside chapters, the latest
NOTED = 256
#: what is looked up by its value; all else by its identity
_PLAIN = (int, float, str, bool, type(None), type(Path()))


class Chapters:
    """What cases have worked out: machine and routes, the model, programs, plans of collectives.

    `beyond` is asked for what is not here: the chapters of cases that have less in common;
    `compared` is how many of the `kept` ones of a kind are compared with a new one.
    """

    def __init__(
        self, kept: int = KEPT, beyond: Chapters | None = None, compared: int = COMPARED
    ) -> None:
        self._most, self._beyond, self._compared = kept, beyond, min(compared, kept)
        # by what they depend on, which an entry keeps alive, so that no identity is used again
        self._known: OrderedDict[tuple[Any, ...], tuple[Any, Any]] = OrderedDict()
        self._latest: dict[Callable[..., Any], deque[tuple[Any, Any]]] = {}
        self._noted: deque[tuple[tuple[Any, ...], float]] = deque(maxlen=NOTED)

    def known(self, make: Callable[..., _Chapter], *depends: Any) -> _Chapter:
        """`make(*depends)`, or what that was where it has been asked of something equal."""
        key = (make, *(one if type(one) in _PLAIN else id(one) for one in depends))
        if key not in self._known:
            self._known[key] = depends, self._equal(make, depends)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        found: _Chapter = self._known[key][1]
        return found

    def noted(self, depends: tuple[Any, ...], find: Callable[[], float]) -> float:
        """The number that `find` finds, or found where all that it `depends` on was equal: kept
        when the chapters that it was found in are not."""
        for known, number in self._noted:
            if known == depends:
                return number
        found = find()
        self._noted.appendleft((depends, found))
        return found

    def there(self, make: Callable[..., _Chapter], *depends: Any) -> _Chapter | None:
        """What `known` has given for these very things; None where it was not asked."""
        key = (make, *(one if type(one) in _PLAIN else id(one) for one in depends))
        return self._known[key][1] if key in self._known else None

    def _equal(self, make: Callable[..., Any], depends: tuple[Any, ...]) -> Any:
        latest = self._latest.setdefault(make, deque(maxlen=self._compared))
        for known, chapter in latest:
            if known == depends:
                return chapter
        beyond = self._beyond
        chapter = make(*depends) if beyond is None else beyond.known(make, *depends)
        latest.appendleft((depends, chapter))
        return chapter
