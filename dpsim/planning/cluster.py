"""Playing the points of a sweep as tasks of a Ray cluster (the extra ``dpsim[ray]``)."""

from __future__ import annotations

import itertools
import logging
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
    finds the one that is running.  Ray plays a point again whose worker has died."""
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
    """The answers, with a bounded number of tasks under way."""
    remote = ray.remote(max_retries=TRIES - 1)(_call)
    shared = ray.put(asked)
    width = max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting = handed_out(asked, numbers, AHEAD * width)
    running: dict[Any, Sequence[int]] = {}
    while True:
        for some in itertools.islice(waiting, AHEAD * width - len(running)):
            running[remote.remote(task, shared, some)] = some
        if not running:
            return
        done, _ = ray.wait(list(running), num_returns=1)
        more, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
        finished = dict.fromkeys([*done, *more])
        answers = (_answer(ray, reference, running.pop(reference)) for reference in finished)
        yield list(itertools.chain.from_iterable(answers))


def _call(task: Task, asked: Sweep, some: Sequence[int]) -> list[Record]:
    return list(itertools.chain.from_iterable(task(asked, some)))


def _answer(ray: Any, reference: Any, some: Sequence[int]) -> Sequence[Outcome]:
    """The records behind `reference`, or why there are none."""
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
        kind = type(error).__name__
        reason = f"its worker ended {TRIES} times without an answer ({kind})"
        return [Lost(number, reason) for number in some]
    return found
