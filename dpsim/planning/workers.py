"""Where the points of a sweep are played: in this process, or in several.

A player takes a sweep and the numbers of points, and yields answers in batches, in any order.  Each
process has one point at a time, so that one that dies takes no other point with it and leaves no
doubt whose point it was.  Processes are started afresh (spawn), never forked, and end when the
process that started them is gone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from dpsim.core.processes import serve
from dpsim.planning.log import Record

if TYPE_CHECKING:
    from dpsim.planning.sweep import Sweep

#: a point is given up when this many processes have ended over it
TRIES = 3
#: how long a process may take to end by itself [s]
PATIENCE = 0.3

#: plays one point: its record
Task = Callable[["Sweep", int], Record]


@dataclass(frozen=True)
class Lost:
    """A point without an answer, for a reason that lies in the machine and not in the point; it
    is tried again whenever the sweep goes on."""

    number: int
    reason: str


Outcome = Record | Lost
Outcomes = Generator[list[Outcome], None, None]
Playing = Callable[["Sweep", Iterable[int]], Outcomes]


def here(asked: Sweep, numbers: Iterable[int], task: Task) -> Outcomes:
    """Play in this process, one point after the other."""
    for number in numbers:
        yield [task(asked, number)]


def in_processes(asked: Sweep, numbers: Iterable[int], task: Task, jobs: int) -> Outcomes:
    """Play in `jobs` processes."""
    waiting = deque(numbers)
    tries: Counter[int] = Counter()
    workers: list[_Worker] = []
    try:
        with _deaf():
            width = min(jobs, len(waiting))
            workers.extend(_Worker(asked, task, width) for _ in range(width))
        for worker in workers:
            worker.give(waiting)
        while busy := [worker for worker in workers if worker.number is not None]:
            ready = wait([worker.connection for worker in busy])
            answers = []
            for worker in (w for w in busy if w.connection in ready):
                answers.append(worker.take(waiting, tries))
                worker.give(waiting)
            for worker in workers:  # a point of a dead process waits for one that idles
                if waiting and worker.number is None:
                    worker.give(waiting)
            yield from _sound(answers)
    finally:
        for worker in workers:
            worker.connection.close()  # an idle process ends by itself
        patience = time.monotonic() + PATIENCE
        for worker in workers:
            worker.stop(patience)


def _sound(answers: list[Outcome | Exception | None]) -> Iterator[list[Outcome]]:
    """The answers that are there, in a batch; then what else came is raised."""
    batch = [one for one in answers if one is not None and not isinstance(one, Exception)]
    if batch:
        yield batch
    for one in answers:
        if isinstance(one, Exception):
            raise one


@dataclass
class _Worker:
    """A process, one `of` so many, our end of its pipe, and the number of the point it has."""

    asked: Sweep
    task: Task
    of: int
    number: int | None = None
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, self.asked, self.task, self.of), daemon=True
        )
        self.process.start()
        theirs.close()  # so that the pipe ends with the process

    def give(self, waiting: deque[int]) -> None:
        """Hand out the next point, if there is one."""
        self.number = waiting.popleft() if waiting else None
        if self.number is not None:
            with contextlib.suppress(OSError):  # the process is gone; `take` will see it
                self.connection.send(self.number)

    def take(self, waiting: deque[int], tries: Counter[int]) -> Outcome | Exception | None:
        """The answer, or what ends the sweep; None where the process has died, and the point is to
        be tried again."""
        number = self.number
        assert number is not None
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            how = self._ended()
            with _deaf():
                self._start()
            tries[number] += 1
            if tries[number] < TRIES:
                waiting.append(number)
                return None
            return Lost(number, f"its process ended {TRIES} times without an answer ({how})")
        found: Record | Exception = answer
        return found

    def _ended(self) -> str:
        """How the process ended, in words."""
        self.stop(time.monotonic() + PATIENCE)
        code = self.process.exitcode or 0
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def stop(self, patience: float) -> None:
        """End the process, which has nothing to lose; it may end by itself until `patience`."""
        self.connection.close()
        self.process.join(max(0.0, patience - time.monotonic()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(connection: Connection, asked: Sweep, task: Task, of: int) -> None:
    """The life of a process, one `of` so many: points in, records out, until the pipe or the other
    process ends."""
    serve(of)
    with contextlib.suppress(EOFError, OSError):
        while True:
            number = connection.recv()
            try:
                answer: Any = task(asked, number)
            except Exception as error:  # what is no property of the point ends the sweep
                answer = error
            connection.send(answer)


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Processes started inside ignore Ctrl-C: it is the one that started them who stops them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
