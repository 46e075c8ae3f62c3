"""Programs: what every rank issues, and who plays which of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property

from dpsim.cases.frameworks import own_launches
from dpsim.cases.stages import Stages
from dpsim.compile import host, pipeline
from dpsim.compile.program import Cast, Program
from dpsim.core.record import Refused
from dpsim.describe.scenario import Scenario
from dpsim.models import Model


@dataclass(frozen=True)
class Programs:
    """The casts of a case's steps."""

    scenario: Scenario
    stages: Stages

    @cached_property
    def cast(self) -> Callable[[int | None], Cast]:
        """Iteration (1, 2, …; None in the steady state) -> who plays what; compiled once."""
        return cache(self._cast)

    def _cast(self, iteration: int | None) -> Cast:
        s, batches = self.scenario, self.stages.jobs.batches
        if not batches.mesh.plain:
            return pipeline.cast(self.stages.layout, s.strategy, batches.shares, self.stages.job)
        parts = {part: number for number, part in enumerate(batches.parts)}
        programs = tuple(self._program(*part, iteration) for part in parts)
        roles = tuple(parts[part] for part in batches.of_rank)
        world = (tuple(range(batches.site.ranks)),)
        return Cast(programs, roles, {"world": world, **s.strategy.groups(batches.site.ranks)})

    @property
    def asked(self) -> Cast:
        """The cast of the step that the scenario asks for, rank by rank."""
        iteration = self.scenario.iteration
        return self.cast(None if iteration == "steady" else iteration)

    def players(self) -> Cast:
        """The steady cast with one player for all ranks that hold the same stages."""
        return pipeline.players(self.cast(None), self.stages.jobs.batches.mesh)

    def _program(self, samples: int, kind: int, iteration: int | None) -> Program:
        """What ranks with so many samples on this kind of device issue, and what that costs their
        host."""
        s, jobs = self.scenario, self.stages.jobs
        job = jobs.of(samples, kind=kind)
        program = s.strategy.program(job, iteration)
        if s.host.launch is None:
            return program
        model = jobs.batches.pace.hardware.work.model
        self._check_launches(model)
        if s.host.captured:
            program = host.captured(program, s.host.launch)
        else:
            times = host.issue_times(model, s.host.launch, s.host.kernels, s.recompute)
            issuing = s.strategy.program(replace(job, times=times, slowest=None), iteration)
            program = host.issued(program, issuing, s.host.launch)
        return host.waiting(program) if s.host.waits else program

    def _check_launches(self, model: Model) -> None:
        """Refuse where launches are not modelled, or are in the durations already."""
        where, recorded = ("host", "launch"), model.recorded
        if recorded is not None and recorded.timed:
            raise Refused("recorded durations hold what the host cost; leave it out", where)
        kind = own_launches(self.scenario.strategy)
        if kind is not None:
            raise Refused(f"the host's launches are not modelled for {kind}; leave it out", where)
