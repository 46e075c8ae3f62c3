"""Programs: the job of every rank, what it issues, and who plays what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cache, cached_property
from typing import Literal

from dpsim.cases.batches import Batches
from dpsim.cases.issuing import accept_launches, accept_shared_launches
from dpsim.compile import copies, host, pipeline
from dpsim.compile.compression import Compression
from dpsim.compile.context import Context, Splitting, splitting
from dpsim.compile.copies import HostCopy
from dpsim.compile.groups import Partition, everyone
from dpsim.compile.job import Coder, Job
from dpsim.compile.layout import Layout, assign, mirrored
from dpsim.compile.program import Cast, Program
from dpsim.compile.routing import Carrier, Moe, ways
from dpsim.compile.schedules import Schedule
from dpsim.compile.schedules.one_f_one_b import OneFOneB
from dpsim.compile.strategies import Strategy
from dpsim.core.lean import dataclass
from dpsim.core.record import Refused
from dpsim.describe.sections import Host
from dpsim.machines.devices import Device
from dpsim.models import Model, split
from dpsim.models.compute import DEFAULT_EFFICIENCY, LayerTime
from dpsim.models.execution import floor_of
from dpsim.models.expert_split import expert_part
from dpsim.models.precision import Optimizer
from dpsim.models.updates import UpdateCost, update_of


@dataclass(frozen=True)
class Programs:
    """What ranks do with their batches; under a `toy`, an ideal backend, there is no bookkeeping.

    carrier is the backend's name; all else are sections of the scenario.
    """

    batches: Batches
    strategy: Strategy
    optimizer: Optimizer
    host: Host
    schedule: Schedule | None
    moe: Moe
    stages: Literal["balanced"] | tuple[tuple[str, ...], ...] | None
    iteration: int | Literal["steady"]
    toy: bool
    compression: Compression | None = None
    carrier: str = ""
    copied: HostCopy | None = None
    context: Context = field(default_factory=Context)

    @property
    def _model(self) -> Model:
        return self.batches.pace.work.model

    # -- jobs ---------------------------------------------------------------------------------

    @cached_property
    def job(self) -> Callable[[float, int], Job]:
        """(samples of a micro-batch, number of the kind of device) -> the work of one rank that
        holds the whole model; made once."""
        return cache(self._job)

    def _job(self, samples: float, kind: int = 0, part: Model | None = None) -> Job:
        """`part` is the rank's part of the model where it does not hold all of it."""
        batches, pace, site = self.batches, self.batches.pace, self.batches.site
        device, timed = pace.kinds[kind], _recorded_update(self._model)
        free = self.toy or device is None or timed is not None
        update = self._update(part or self._model, device)
        return Job(
            model=part or self._model,
            times=pace.times(samples, part, kind),
            ranks=batches.mesh.holders,
            micro_batches=batches.batch.accumulation,
            samples=samples,
            precision=pace.work.precision,
            optimizer=self.optimizer,
            serial=self.host.serial + _recorded_wait(self._model),
            copy_bandwidth=None if free or device is None else device.memory_bandwidth,
            control=not self.toy,
            update=update.each if timed is None else timed,
            least_update=update.least if timed is None else 0.0,
            slowest=None if part is not None else self._slowest(),
            local_size=site.gpus and min(site.gpus, site.ranks),
            sites=site.sites,
            elsewhere=_elsewhere(batches.shares),
            compression=self.compression,
            coder=None if self.toy or device is None else _coder(device),
            gpu=device is not None and self.carrier not in ("gloo", "free"),
            compiled=self.carrier == "ici",
            servers=self.carrier == "parameter_server",
            whole=self.carrier == "ideal" and not site.sites,
            expert_ranks=batches.mesh.expert_ranks,
        )

    def _update(self, model: Model, device: Device | None) -> UpdateCost:
        """What one update of `model` comes to; its launches are played where the host's are."""
        execution = self.batches.pace.work.execution
        found = update_of(self.optimizer, model, device and floor_of(device, execution))
        played = self.host.launch is not None and not execution.cuda_graphs
        return found._replace(least=0.0) if played else found

    def _slowest(self) -> tuple[LayerTime, ...] | None:
        """Layer times on the rank that takes longest, by its share, its device and `slow_ranks`;
        None where all ranks are alike."""
        slow, batches, pace = self.batches.variation.fixed, self.batches, self.batches.pace
        if not slow and not batches.uneven:
            return None
        found = {(*part, slow.get(rank, 1.0)) for rank, part in enumerate(batches.of_rank)}
        if len(pace.kinds) == 1:
            share, kind, factor = max(found, key=lambda one: (one[0] * one[2], one))
        else:
            share, kind, factor = max(found, key=lambda one: (one[2] * pace.seconds(*one[:2]), one))
        return tuple(t.scaled(factor) for t in pace.times(share, kind=kind))

    # -- where the model is split -------------------------------------------------------------

    @cached_property
    def layout(self) -> Layout:
        """How the model is spread over the mesh.  Raises Refused where it cannot be."""
        mesh, model, pace = self.batches.mesh, self._model, self.batches.pace
        accept_shared_launches(self.host, model, self.strategy)
        if self.iteration != "steady":
            message = "first iterations are not modelled with tensor or pipeline parallelism"
            raise Refused(message, ("iteration",))
        split.accept_tensor(model, mesh.tensor)
        if pace.parallel.sequence_parallel:
            split.accept_sequence(model, mesh.tensor, mesh.context)
        schedule = self.schedule or OneFOneB()
        times = pace.times(max(self.batches.shares), self._with_own_experts(model))
        costs = [time.forward + time.backward for time in times]
        stages = assign(model, costs, schedule.stages(mesh.pipeline), self.stages)
        tables = mirrored(split.shared_tables(model, stages), schedule.pipes, len(stages))
        return Layout(
            mesh,
            schedule,
            stages * schedule.pipes,
            sequence=pace.parallel.sequence_parallel,
            asynchronous=pace.parallel.async_tensor_parallel,
            overlapped=pace.parallel.overlapped(by_system=self.strategy.overlaps_tensors),
            blocking_sends=pace.parallel.blocking_sends,
            recompute=pace.recompute,
            tables=tuple((a, b, -(-t.elements // mesh.tensor)) for a, b, t in tables),
            moe=self.moe,
            routes=self._routes(),
            splitting=self._splitting,
        )

    @cached_property
    def _splitting(self) -> Splitting | None:
        """How ranks split sequences; Refused where the model's cannot be."""
        mesh, gpus, torch = self.batches.mesh, self.batches.site.gpus, self.strategy.torch_attention
        if mesh.context == 1:
            return None
        near = gpus and sum(rank < gpus for rank in mesh.context_groups(0)[0])
        return splitting(self.context, self._model, mesh.context, mesh.tensor, near, torch=torch)

    def _routes(self) -> tuple[tuple[tuple[Carrier, Partition], ...], ...]:
        """For every pipeline rank what carries tokens to experts; empty where they stay."""
        mesh, gpus = self.batches.mesh, self.batches.site.gpus
        if mesh.expert == 1:
            return ()
        sparse = [layer for layer in self._model.layers if layer.experts]
        if not sparse:
            message = f"{self._model.name} has no experts; 1 is accepted"
            raise Refused(message, ("parallel", "expert"))
        for layer in sparse:
            if layer.experts % mesh.expert:
                fitting = [n for n in range(1, layer.experts + 1) if layer.experts % n == 0]
                raise Refused(
                    f"{layer.experts} experts of {layer.name} do not split over {mesh.expert} "
                    f"ranks; {', '.join(map(str, fitting))} would",
                    ("parallel", "expert"),
                )
        first = sparse[0]
        if self.moe.dispatch_dtype and first.routed_bytes is not None:
            message = "explicit layers say what they send in `activation`; leave it out"
            raise Refused(message, ("moe", "dispatch_dtype"))
        rows = (mesh.expert_groups(row) for row in range(mesh.pipeline))
        return tuple(ways(self.moe, groups, gpus, first.chosen, first.experts) for groups in rows)

    @cached_property
    def stage_job(self) -> Callable[[int, int], Job]:
        """(stage, samples) -> the work of one rank on it; made once."""
        return cache(self._stage_job)

    def _stage_job(self, stage: int, samples: int) -> Job:
        part = self._part(self.layout.stages[stage])
        return self.layout.placed(self._job(samples, part=part), stage)

    def part_job(self, layers: Sequence[int], samples: int) -> Job:
        """The work of one rank if it held its part of these layers."""
        return self._job(samples, part=self._part(layers))

    def _part(self, layers: Sequence[int]) -> Model:
        """One rank's part of `layers`."""
        mesh = self.batches.mesh
        part = self._with_own_experts(split.stage_of(self._model, layers))
        if self._splitting is not None:
            part = self._splitting.part(part)
        if mesh.tensor > 1:
            own = self.layout.sequence, mesh.expert_tensor < mesh.tensor
            return split.tensor_part(part, mesh.tensor, sequence=own[0], whole_experts=own[1])
        return part

    def _with_own_experts(self, part: Model) -> Model:
        """`part` with the experts that one rank has of it."""
        ranks = self.batches.mesh.expert
        experts = max((layer.experts for layer in part.layers), default=0)
        if ranks == 1 or not experts:
            return part
        load, again = self.moe.load(ranks, experts), not self.moe.once
        return expert_part(part, ranks, load, sorted_again=again)

    # -- casts --------------------------------------------------------------------------------

    @cached_property
    def cast(self) -> Callable[[int | None], Cast]:
        """Iteration (1, 2, …; None in the steady state) -> who plays what; compiled once."""
        return cache(self._cast)

    def _cast(self, iteration: int | None) -> Cast:
        batches, strategy = self.batches, self.strategy
        self.moe.check(self._model, batches.batch.accumulation)
        if not batches.mesh.plain:
            cast = pipeline.cast(self.layout, strategy, batches.shares, self.stage_job)
            if self.copied is None:
                return cast
            copied = self.copied, self.samples_copied
            return copies.onto_first(cast, self.layout, batches.site.gpus, *copied)
        parts = {part: number for number, part in enumerate(batches.parts)}
        programs = tuple(self._program(*part, iteration) for part in parts)
        ranks, one = batches.site.ranks, len(parts) == 1
        roles = (0,) * ranks if one else tuple(parts[part] for part in batches.of_rank)
        groups = dict(strategy.groups_of(self.job(*batches.parts[0])))
        if self.copied is not None:
            groups[copies.GROUP] = copies.shared_out(ranks, batches.mesh, (0,), batches.site.gpus)
        return Cast(programs, roles, {"world": everyone(ranks), **groups})

    @property
    def asked(self) -> Cast:
        """The cast of the step that the scenario asks for, rank by rank."""
        return self.cast(None if self.iteration == "steady" else self.iteration)

    def _program(self, samples: int, kind: int, iteration: int | None) -> Program:
        """What ranks with so many samples on this kind of device issue, and what that costs their
        host."""
        strategy, told, job = self.strategy, self.host, self.job(samples, kind)
        program = self._with_copy(strategy.program(job, iteration))
        if told.launch is None:
            return program
        accept_launches(told, self._model, strategy)
        if told.captured or self.batches.pace.work.execution.cuda_graphs:
            program = host.captured(program, told.launch)
        else:
            again = self.batches.pace.recompute
            times = host.issue_times(self._model, told.launch, told.kernels, again)
            issuing = strategy.program(replace(job, times=times, slowest=None), iteration)
            updates = self._update(self._model, None).launches
            program = host.issued(program, self._with_copy(issuing), told.launch, updates)
        return host.waiting(program) if told.waits else program

    @property
    def samples_copied(self) -> float:
        """Samples of a step that are copied to a device that micro-batches begin on; as many as to
        the fullest."""
        batches = self.batches
        pipes = 1 if batches.mesh.plain else self.layout.schedule.pipes
        return max(batches.shares) * batches.batch.accumulation / pipes

    def _with_copy(self, program: Program) -> Program:
        """`program` with the copy of its batches."""
        if self.copied is None:
            return program
        if self.strategy.rounds(self.job(*self.batches.parts[0])) is not None:
            message = (
                "copies are modelled where ranks wait for each other in every step; leave it out"
            )
            raise Refused(message, ("input", "copy"))
        return copies.with_copy(program, self.copied, self.samples_copied)


def _coder(device: Device) -> Coder:
    """How fast a device codes gradients, in fp32 or the slowest dtype that it states."""
    peak = device.peak.get("fp32") or min(device.peak.values())
    return Coder(device.memory_bandwidth, peak * DEFAULT_EFFICIENCY, device.launch_overhead)


def _recorded_update(model: Model) -> float | None:
    """Seconds per parameter of all that followed the last gradient of a recorded step: the
    optimizer, and DDP's copies, which are in the recorded durations already."""
    recorded = model.recorded
    if recorded is None or not recorded.timed:
        return None
    return recorded.after / max(model.trained, 1)


def _recorded_wait(model: Model) -> float:
    """Seconds between a recorded step's optimizer and the next forward, which another device does
    not shorten: loading data, mostly.  Recorded durations hold them already."""
    recorded = model.recorded
    return recorded.between if recorded is not None and not recorded.timed else 0.0


def _elsewhere(shares: tuple[int, ...]) -> int | None:
    """Samples of all ranks but the first, where ranks differ."""
    return None if min(shares) == max(shares) else sum(shares[1:])
