"""Systems that wrap another one: the step is the backend's, what they add comes beside it."""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

from dpsim.compile.program import Program
from dpsim.compile.strategies import Beside, Job, Strategy, Synchronisation
from dpsim.core.plugins import find
from dpsim.core.record import Refused, build


class Wrapper(Strategy):
    """A strategy that plays another one with defaults of its own.

    A subclass says which (`backend`), how many processes it launches (`processes`, None: not
    said), and under which key the backend's own settings are (`options`).
    """

    options: dict[str, Any]

    def backend(self) -> tuple[str, dict[str, Any]]:
        """The kind of the wrapped strategy, and the settings that this system gives it."""
        raise NotImplementedError

    @property
    def processes(self) -> tuple[str, int] | None:
        """The setting that says how many processes there are, and their number."""
        return None

    @cached_property
    def inner(self) -> Strategy:
        """The wrapped strategy; what is wrong with its settings is reported under `options`."""
        kind, settings = self.backend()
        record = find("strategies", kind)
        return cast("Strategy", build(record, {**settings, **self.options}, path=("options",)))

    def __post_init__(self) -> None:
        _ = self.inner

    def program(self, job: Job, iteration: int | None) -> Program:
        return self.inner.program(job, iteration)

    def groups(self, ranks: int) -> dict[str, tuple[tuple[int, ...], ...]]:
        return self.inner.groups(ranks)

    def synchronisation(self, job: Job) -> Synchronisation:
        return self.inner.synchronisation(job)

    def memory(self, job: Job) -> dict[str, float]:
        return self.inner.memory(job)

    def notes(self, job: Job) -> tuple[str, ...]:
        return self.inner.notes(job)

    def beside(self, job: Job) -> tuple[Beside, ...]:
        """What the wrapper adds; Refused where it launches another number of processes."""
        if self.processes is not None and self.processes[1] != job.ranks:
            name, count = self.processes
            raise Refused(
                f"{count} processes are launched, and the cluster has {job.ranks} ranks",
                ("strategy", name),
            )
        return (*self.inner.beside(job), *self.added(job))

    def added(self, job: Job) -> tuple[Beside, ...]:
        """The costs beside the step."""
        raise NotImplementedError
