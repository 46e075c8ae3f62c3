"""Where the points of a sweep are played: in this process, or in several.

A player takes a sweep and the numbers of points, and yields answers in batches, in any order.  A
process has several points at a time where those that are alike may be played at once, else one.
Where one dies, each of the points that it left is played by itself, so that there is no doubt whose
point it was.  Processes are started afresh (spawn), never forked, and end when the
process that started them is gone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
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

#: points that are handed out together where they may be alike; a batch of so many costs little more
#: than one of half as many, and what of it is played at once is stored within a second
TOGETHER = 4096
#: batches for every process, so that none is done long before the others
BATCHES = 4

#: plays points: their records, in batches, in any order
Task = Callable[["Sweep", Sequence[int]], Iterable[list[Record]]]


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
    """Play in this process."""
    for some in handed_out(asked, list(numbers), 1):
        for records in task(asked, some):
            yield [*records]


def handed_out(asked: Sweep, numbers: Sequence[int], jobs: int) -> Iterator[Sequence[int]]:
    """`numbers` as they are handed out to `jobs` processes."""
    size = 1
    if asked.columns:
        size = max(1, min(TOGETHER, len(numbers) // (BATCHES * jobs) if jobs > 1 else TOGETHER))
    for first in range(0, len(numbers), size):
        yield numbers[first : first + size]


def in_processes(asked: Sweep, numbers: Iterable[int], task: Task, jobs: int) -> Outcomes:
    """Play in `jobs` processes."""
    waiting = deque(handed_out(asked, list(numbers), jobs))
    tries: Counter[int] = Counter()
    workers: list[_Worker] = []
    try:
        with _deaf():
            width = min(jobs, len(waiting))
            workers.extend(_Worker(asked, task, width) for _ in range(width))
        for worker in workers:
            worker.give(waiting)
        while busy := [worker for worker in workers if worker.left]:
            ready = wait([worker.connection for worker in busy])
            answers = [w.take(waiting, tries) for w in busy if w.connection in ready]
            for worker in workers:  # a point of a dead process waits for one that idles
                if not worker.left:
                    worker.give(waiting)
            yield from _sound(answers)
    finally:
        for worker in workers:
            worker.connection.close()  # an idle process ends by itself
        patience = time.monotonic() + PATIENCE
        for worker in workers:
            worker.stop(patience)


def _sound(answers: list[list[Outcome] | Exception]) -> Iterator[list[Outcome]]:
    """The answers that are there, in a batch; then what else came is raised."""
    batch = [one for some in answers if not isinstance(some, Exception) for one in some]
    if batch:
        yield batch
    for one in answers:
        if isinstance(one, Exception):
            raise one


@dataclass
class _Worker:
    """A process, one `of` so many, our end of its pipe, and the points that it has not answered."""

    asked: Sweep
    task: Task
    of: int
    left: set[int] = field(default_factory=set)
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

    def give(self, waiting: deque[Sequence[int]]) -> None:
        """Hand out the next points, if there are any."""
        if waiting:
            some = waiting.popleft()
            self.left = set(some)
            with contextlib.suppress(OSError):  # the process is gone; `take` will see it
                self.connection.send(some)

    def take(self, waiting: deque[Sequence[int]], tries: Counter[int]) -> list[Outcome] | Exception:
        """Answers, or what ends the sweep; nothing where the process has died, and points are to
        be tried again."""
        try:
            answer: list[Outcome] | Exception = self.connection.recv()
        except (EOFError, OSError):
            how = self._ended()
            with _deaf():
                self._start()
            left, self.left = sorted(self.left), set()
            if len(left) == 1:
                tries[left[0]] += 1
                if tries[left[0]] == TRIES:
                    reason = f"its process ended {TRIES} times without an answer ({how})"
                    return [Lost(left[0], reason)]
            waiting.extend((number,) for number in left)
            return []
        if not isinstance(answer, Exception):
            self.left -= {record["n"] for record in answer}  # type: ignore[index]
        return answer

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
            for answer in _answers(task, asked, connection.recv()):
                connection.send(answer)


def _answers(task: Task, asked: Sweep, some: Sequence[int]) -> Iterator[Any]:
    """The records of points, in batches; an error that is no property of a point ends the sweep."""
    try:
        yield from task(asked, some)
    except Exception as error:
        yield error


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
