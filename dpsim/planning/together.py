"""Together: what comes within a moment is stored at once, and waits no longer than that moment.

On a disk, to store a point may take longer than to play it; and the next point may take hours.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

_T = TypeVar("_T")
#: so long something waits for more before it is stored [s]
TOGETHER = 0.05


@contextmanager
def together(keep: Callable[[Sequence[_T]], None]) -> Iterator[Callable[[Sequence[_T]], None]]:
    """Takes answers and gives them to `keep`: those that come within TOGETHER of the last time at
    once, by the end of it, whatever the caller does meanwhile; all of them where the block ends,
    however it does.  What `keep` raises is raised by the next call, or at the end."""
    waiting = _Waiting(keep)
    try:
        yield waiting.take
    finally:
        waiting.end()


class _Waiting(Generic[_T]):
    def __init__(self, keep: Callable[[Sequence[_T]], None]) -> None:
        self._keep = keep
        self._answers: list[_T] = []
        self._last = -TOGETHER
        self._timer: threading.Timer | None = None
        self._error: BaseException | None = None
        self._lock = threading.RLock()

    def take(self, answers: Sequence[_T]) -> None:
        with self._lock:
            self._raise()
            self._answers += answers
            rest = self._last + TOGETHER - time.monotonic()
            if rest <= 0:
                self._store()
            elif self._timer is None:
                self._timer = threading.Timer(rest, self._late)
                self._timer.daemon = True
                self._timer.start()

    def end(self) -> None:
        with self._lock:
            self._store()
            self._raise()

    def _store(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        answers, self._answers = self._answers, []
        try:
            if answers:
                self._keep(answers)
        finally:
            self._last = time.monotonic()

    def _late(self) -> None:
        """Called by the timer, in a thread of its own."""
        with self._lock:
            try:
                self._store()
            except BaseException as error:  # for the thread that plays
                self._error = error

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
