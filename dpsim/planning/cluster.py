"""Playing the points of a sweep as tasks of a Ray cluster (the extra ``dpsim[ray]``)."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from dpsim.planning.log import Record
from dpsim.planning.workers import TRIES, Lost, Outcome, Outcomes, Task

if TYPE_CHECKING:
    from dpsim.planning.sweep import Sweep

#: tasks that wait on the cluster for every one that runs
AHEAD = 2


def on_ray(asked: Sweep, numbers: Iterable[int], task: Task, address: str, jobs: int) -> Outcomes:
    """Play on the Ray cluster at `address`; `local` starts one of `jobs` workers here, `auto`
    finds the one that is running.  Ray plays a point again whose worker has died."""
    ray = _ray()
    here = {"num_cpus": jobs, "include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **here)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise OSError(f"--ray {address}: no cluster answers there: {reason}") from None
    try:
        yield from _played(ray, asked, iter(numbers), task)
    finally:
        ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise OSError("--ray: Ray is not installed; pip install 'dpsim[ray]'") from None
    return ray


def _played(ray: Any, asked: Sweep, numbers: Iterator[int], task: Task) -> Outcomes:
    """The answers, with a bounded number of tasks under way."""
    remote = ray.remote(max_retries=TRIES - 1)(_call)
    shared = ray.put(asked)
    width = max(1, int(ray.cluster_resources().get("CPU", 1)))
    running: dict[Any, int] = {}
    while True:
        for number in itertools.islice(numbers, AHEAD * width - len(running)):
            running[remote.remote(task, shared, number)] = number
        if not running:
            return
        done, _ = ray.wait(list(running), num_returns=1)
        more, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
        finished = dict.fromkeys([*done, *more])
        yield [_answer(ray, reference, running.pop(reference)) for reference in finished]


def _call(task: Task, asked: Sweep, number: int) -> Record:
    return task(asked, number)


def _answer(ray: Any, reference: Any, number: int) -> Outcome:
    """The record behind `reference`, or why there is none."""
    try:
        found: Record = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, (ray.exceptions.RayError, ImportError)):
            reason = str(error.cause).splitlines()[0]
            raise OSError(
                f"--ray: its workers cannot play a point: {reason}; is the same dpsim installed "
                "there?"
            ) from None
        raise error.cause from None
    except ray.exceptions.RayError as error:
        kind = type(error).__name__
        return Lost(number, f"its worker ended {TRIES} times without an answer ({kind})")
    return found
