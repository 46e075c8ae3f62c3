"""Stages: how the model is spread over ranks, where they split it between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property

from dpsim.cases.jobs import Jobs
from dpsim.compile.pipeline import Layout, assign
from dpsim.compile.schedules.one_f_one_b import OneFOneB
from dpsim.compile.strategies import Job
from dpsim.core.record import Refused
from dpsim.models.split import shared_tables, stage_of, tensor_part


@dataclass(frozen=True)
class Stages:
    """The stages of a pipeline, each split over tensor ranks."""

    jobs: Jobs

    @cached_property
    def layout(self) -> Layout:
        """How the model is spread over the mesh.  Raises Refused where it cannot be."""
        batches = self.jobs.batches
        s, mesh, model = batches.scenario, batches.mesh, batches.pace.hardware.work.model
        if s.host.launch is not None:
            message = "is not modelled with tensor or pipeline parallelism; leave it out"
            raise Refused(message, ("host", "launch"))
        if s.iteration != "steady":
            message = "first iterations are not modelled with tensor or pipeline parallelism"
            raise Refused(message, ("iteration",))
        if mesh.tensor > 1 and model.tokens == 1 and model.layers[0].forward is None:
            message = f"{model.name} is not split: tensor parallelism is modelled for transformers"
            raise Refused(message, ("parallel", "tensor"))
        schedule = s.schedule or OneFOneB()
        times = batches.pace.times(max(batches.shares))
        costs = [time.forward + time.backward for time in times]
        stages = assign(model, costs, mesh.pipeline * schedule.chunks, s.stages)
        tables = shared_tables(model, stages)
        return Layout(
            mesh,
            schedule,
            stages,
            sequence=s.parallel.sequence_parallel,
            blocking_sends=s.parallel.blocking_sends,
            recompute=s.recompute == "full",
            tables=tuple((a, b, -(-t.elements // mesh.tensor)) for a, b, t in tables),
        )

    @cached_property
    def job(self) -> Callable[[int, int], Job]:
        """(stage, samples) -> the work of one rank on it; made once."""
        return cache(self._job)

    def _job(self, stage: int, samples: int) -> Job:
        batches = self.jobs.batches
        mesh, sequence = batches.mesh, batches.scenario.parallel.sequence_parallel
        part = stage_of(batches.pace.hardware.work.model, self.layout.stages[stage])
        if mesh.tensor > 1:
            part = tensor_part(part, mesh.tensor, sequence=sequence)
        return replace(self.jobs.of(samples, part), stage=stage)
