"""Playing the points of a sweep as tasks of a Ray cluster (the extra ``dpsim[ray]``)."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dpsim.planning.log import Record
from dpsim.planning.workers import TRIES, Lost, Outcome, Outcomes, Task, handed_out

if TYPE_CHECKING:
    from dpsim.planning.sweep import Sweep

#: tasks that wait on the cluster for every one that runs
AHEAD = 2


def on_ray(asked: Sweep, numbers: Iterable[int], task: Task, address: str, jobs: int) -> Outcomes:
    """Play on the Ray cluster at `address`; `local` starts one of `jobs` workers here, `auto`
    finds the one that is running.  Ray plays points again whose worker has died; those of a task
    that it gives up are played each by itself."""
    ray = _ray()
    here = {"num_cpus": jobs, "include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **here)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise OSError(f"--ray {address}: no cluster answers there: {reason}") from None
    try:
        yield from _played(ray, asked, list(numbers), task)
    finally:
        ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise OSError("--ray: Ray is not installed; pip install 'dpsim[ray]'") from None
    return ray


def _played(ray: Any, asked: Sweep, numbers: Sequence[int], task: Task) -> Outcomes:
    """The answers, with a bounded number of tasks under way; first in turn are the points of tasks
    that were given up."""
    remote = ray.remote(max_retries=TRIES - 1)(_call)
    shared = ray.put(asked)
    width = max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting = handed_out(asked, numbers, AHEAD * width)
    singly: deque[Sequence[int]] = deque()
    running: dict[Any, Sequence[int]] = {}
    while True:
        free = AHEAD * width - len(running)
        again = [singly.popleft() for _ in range(min(free, len(singly)))]
        for some in [*again, *itertools.islice(waiting, free - len(again))]:
            running[remote.remote(task, shared, some)] = some
        if not running:
            return
        done, _ = ray.wait(list(running), num_returns=1)
        more, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
        finished = dict.fromkeys([*done, *more])
        batch: list[Outcome] = []
        for reference in finished:
            some = running.pop(reference)
            answer = _answer(ray, reference, some)
            if answer is None:
                singly.extend((number,) for number in some)
            else:
                batch += answer
        if batch:
            yield batch


def _call(task: Task, asked: Sweep, some: Sequence[int]) -> list[Record]:
    return list(itertools.chain.from_iterable(task(asked, some)))


def _answer(ray: Any, reference: Any, some: Sequence[int]) -> list[Outcome] | None:
    """The records behind `reference`, or why there are none; None where nobody knows which of
    several points has ended its worker."""
    try:
        found: list[Outcome] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, (ray.exceptions.RayError, ImportError)):
            reason = str(error.cause).splitlines()[0]
            raise OSError(
                f"--ray: its workers cannot play a point: {reason}; is the same dpsim installed "
                "there?"
            ) from None
        raise error.cause from None
    except ray.exceptions.RayError as error:
        if len(some) > 1:
            return None
        kind = type(error).__name__
        reason = f"its worker ended {TRIES} times without an answer ({kind})"
        return [Lost(number, reason) for number in some]
    return found
