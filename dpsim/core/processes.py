"""Processes that work for this one: they end when it ends, however it ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

#: how many processes, this one among them, share this machine's memory
_sharing = 1


def sharing() -> int:
    """How many processes work for the same command here, this one among them."""
    return _sharing


def serve(of: int = 1) -> None:
    """Called in a process that works for another, as one `of` so many: signals that interrupt are
    for the other one, and when that is gone, killed or not, this process ends at once."""
    import multiprocessing

    global _sharing
    _sharing = of
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()


def _watch(sentinel: int) -> None:
    from multiprocessing.connection import wait

    wait([sentinel])
    os._exit(1)


@contextmanager
def pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """`jobs` processes, started afresh, for a fork beside threads may hang; where this one is
    interrupted, what has not begun is dropped.

    OSError where one of them is killed, as a system does that is short of memory.
    """
    # what most commands need no process for takes a hundredth of a second to import
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    others = multiprocessing.active_children()
    processes = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), serve, (jobs,))
    try:
        yield processes
    except KeyboardInterrupt:
        for process in multiprocessing.active_children():
            if process not in others:
                process.kill()
        raise
    except BrokenProcessPool:
        raise OSError(
            "a process was killed before it had an answer (is there enough memory?); fewer --jobs "
            "need less"
        ) from None
    finally:
        processes.shutdown(cancel_futures=True)
