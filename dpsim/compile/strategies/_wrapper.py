"""Systems that wrap another one: the step is the other's, what they add comes beside it."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, cast

from dpsim.compile.compression import Compression
from dpsim.compile.exchange import Exchange
from dpsim.compile.groups import Partition
from dpsim.compile.held import Held
from dpsim.compile.job import Job
from dpsim.compile.program import Program
from dpsim.compile.step import StepWalk
from dpsim.compile.strategies import Beside, Folded, Rhythm, Strategy
from dpsim.compile.strategies._inside import Around
from dpsim.core import plugins
from dpsim.core.record import Refused, build
from dpsim.models import Model

#: the kind of a strategy, and settings of it
Preset = tuple[str, dict[str, Any]]


class Wrapper(Around):
    """A preset of another strategy.

    processes  the setting that says how many processes are launched
    options    further settings of the wrapped strategy, by its own names
    """

    recordable = True
    processes: ClassVar[str]
    options: dict[str, Any]

    @property
    def preset(self) -> Preset:
        """The wrapped strategy, and the settings that this system gives it."""
        raise NotImplementedError

    @property
    def launched(self) -> int | None:
        """How many processes are launched; None: not said."""
        return cast("int | None", getattr(self, self.processes))

    @property
    def added(self) -> tuple[Beside, ...]:
        """What it costs beside the step."""
        raise NotImplementedError

    @cached_property
    def inner(self) -> Strategy:
        """The wrapped strategy; what is wrong with its settings is reported under `options`."""
        kind, settings = self.preset
        record = plugins.find("strategies", kind)
        return cast("Strategy", build(record, {**settings, **self.options}, path=("options",)))

    @property
    def within(self) -> Strategy:
        return self.inner

    def __post_init__(self) -> None:
        _ = self.inner

    def program(self, job: Job, iteration: int | None) -> Program:
        return self.inner.program(job, iteration)

    def groups(self, ranks: int) -> dict[str, Partition]:
        return self.inner.groups(ranks)

    def expert_groups(self, job: Job) -> dict[str, Partition]:
        return self.inner.expert_groups(job)

    def folded(self, job: Job) -> Folded:
        return self.inner.folded(job)

    def rounds(self, job: Job) -> Rhythm | None:
        return self.inner.rounds(job)

    def on_stage(self, job: Job) -> Exchange:
        return self.inner.on_stage(job)

    def stage_walk(self, job: Job) -> StepWalk | None:
        return self.inner.stage_walk(job)

    @property
    def compression(self) -> Compression | None:
        return self.inner.compression

    @property
    def bare(self) -> Strategy:
        return self if self.compression is None else self.inner.bare

    def accept_compression(self, compression: Compression) -> None:
        self.inner.accept_compression(compression)

    def on_device(self) -> Strategy:
        inner = self.inner.on_device()
        return self if inner is self.inner else inner

    def memory(self, job: Job) -> dict[str, float]:
        return self.inner.memory(job)

    def held(self, job: Job) -> Held:
        return self.inner.held(job)

    def idle(self, model: Model) -> tuple[str, ...]:
        return tuple(f"options.{text}" for text in self.inner.idle(model))

    def notes(self, job: Job) -> tuple[str, ...]:
        return self.inner.notes(job)

    def first_messages(self, job: Job) -> tuple[int, ...]:
        return self.inner.first_messages(job)

    @property
    def sharded(self) -> bool:
        return self.inner.sharded

    @property
    def caveat(self) -> str:
        return self.inner.caveat

    @property
    def own_launches(self) -> bool:
        return self.inner.own_launches

    @property
    def takes_uneven_inputs(self) -> bool:
        return self.inner.takes_uneven_inputs

    def beside(self, job: Job) -> tuple[Beside, ...]:
        """What the wrapper adds; Refused where it launches another number of processes."""
        if self.launched not in (None, job.ranks):
            raise Refused(
                f"{self.launched} processes are launched, and the cluster has {job.ranks} ranks",
                ("strategy", self.processes),
            )
        return (*self.inner.beside(job), *self.added)
