"""A case: one point of a scenario, compiled and ready to be played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dpsim.backends import Backend, Plan
from dpsim.backends.curves.file import Calibration
from dpsim.backends.curves.file import find as find_calibration
from dpsim.backends.free import Free
from dpsim.backends.nccl import Nccl
from dpsim.compile import host, pipeline
from dpsim.compile.job import Job
from dpsim.compile.layout import Layout, assign
from dpsim.compile.placement import Mesh
from dpsim.compile.program import Cast, Program
from dpsim.compile.schedules.one_f_one_b import OneFOneB
from dpsim.core.arrays import Array
from dpsim.core.constants import shipped
from dpsim.core.plugins import name_of
from dpsim.core.record import Refused
from dpsim.core.yamlfile import FileRefused
from dpsim.describe.scenario import Scenario
from dpsim.describe.uneven import proportional, ranks_of
from dpsim.machines.devices import Device, dtype_class
from dpsim.machines.machine import Machine, load_device, load_machine
from dpsim.machines.topology import Topology
from dpsim.models import Model
from dpsim.models.compute import DEFAULT_EFFICIENCY, LayerTime, layer_times, optimizer_seconds
from dpsim.models.precision import Precision, PrecisionSpec
from dpsim.models.section import below
from dpsim.models.section import load as load_model
from dpsim.models.split import shared_tables, stage_of, tensor_part
from dpsim.play import Costs, Play
from dpsim.play.bundled import BundledCosts
from dpsim.play.measured import MeasuredCosts
from dpsim.play.quorum import Quorum
from dpsim.variability import Site, Variability, Variation, expected_maximum, read_numbers
from dpsim.variability.spares import Spared

#: ranks of a machine beyond which nothing is built: memory and time grow with every cable
MAX_RANKS = 131_072
#: steps of a deterministic run; the period has settled if the last two agree
_SETTLING = (4, 16, 64)


@dataclass(frozen=True)
class Stretch:
    """What an interval or a what-if changes: multipliers of compute time, and of the latency and
    transfer time of collectives."""

    compute: float = 1.0
    latency: float = 1.0
    transfer: float = 1.0


@dataclass(frozen=True)
class Case:
    """One point: the scenario without its sweep, and what follows from it.

    `spares` nodes, the slowest throughout, have been replaced by quiet ones (a what-if)."""

    scenario: Scenario
    base: Path
    compute_scale: float = 1.0
    spares: int = 0

    @cached_property
    def machine(self) -> Machine | None:
        name = self.scenario.cluster.machine
        if name is None:
            return None
        machine: Machine = self._named("machine", name, load_machine)
        device = self.scenario.cluster.device
        if device is None:
            return machine
        return replace(machine, device=self._named("device", device, load_device))

    @cached_property
    def devices(self) -> tuple[Device | None, ...]:
        """The kinds of devices that ranks have; the machine's own is the first."""
        if not self.scenario.cluster.devices:
            return (self.device,)
        found = [self.device]
        for name in self.scenario.cluster.devices.values():
            device = self._named("devices", name, load_device)
            if device not in found:
                found.append(device)
        if len(found) > 1 and not self.mesh.plain:
            message = "ranks that share a model have one kind of device; leave it out"
            raise Refused(message, ("cluster", "devices"))
        if len(found) > 1 and any(layer.forward is not None for layer in self.model.layers):
            raise Refused(
                "the model's layers state their durations, whatever the device; say how slow ranks "
                "are with variability.slow_ranks",
                ("cluster", "devices"),
            )
        return tuple(found)

    @cached_property
    def device_of(self) -> tuple[int, ...]:
        """The place in `devices` of every rank's own."""
        found = [0] * self.ranks
        for text, name in (self.scenario.cluster.devices or {}).items():
            number = self.devices.index(self._named("devices", name, load_device))
            for ranks in ranks_of(text):
                found[ranks.start : ranks.stop] = [number] * len(found[ranks.start : ranks.stop])
        return tuple(found)

    @property
    def peak(self) -> float | None:
        """What all devices could do in the dtype that they compute in [FLOP/s]."""
        if self.device is None:
            return None
        counts = np.bincount(self.device_of, minlength=len(self.devices))
        return float(sum(self._peak_of(k) * int(count) for k, count in enumerate(counts) if count))

    def _peak_of(self, kind: int) -> float:
        device = self.devices[kind]
        assert device is not None
        try:
            return device.peak_for(self.precision.compute)
        except ValueError as error:
            raise Refused(str(error), ("precision", "compute")) from None

    def _named(self, key: str, name: str, read: Callable[[str, Path], Any]) -> Any:
        """What `read` finds under `name`; files must lie below the scenario's folder."""
        if "/" in name or name.endswith((".yaml", ".yml", ".json")):
            path = below(self.base, name, f"cluster.{key}")
            if not path.exists():
                raise Refused(f"there is no file {name[:200]!r}", ("cluster", key))
        try:
            return read(name, self.base)
        except Refused as error:
            if isinstance(error, FileRefused):
                raise
            raise Refused(error.message, ("cluster", key)) from None

    @property
    def device(self) -> Device | None:
        return self.machine.device if self.machine else None

    @cached_property
    def topology(self) -> Topology | None:
        cluster = self.scenario.cluster
        if self.machine is None:
            return None
        per_node = cluster.gpus_per_node or self.machine.gpus_per_node
        nodes = cluster.nodes or -(-(cluster.ranks or 1) // per_node)
        ranks = cluster.ranks or nodes * per_node
        if ranks > MAX_RANKS:
            raise Refused(_too_many(ranks, per_node), ("cluster",))
        return self._built(nodes, cluster.ranks, cluster.gpus_per_node)

    def _built(self, nodes: int, ranks: int | None, gpus_per_node: int | None) -> Topology:
        """So many nodes of the machine, with what the scenario overrides."""
        assert self.machine is not None
        cluster = self.scenario.cluster
        return self.machine.topology(
            nodes=nodes,
            ranks=ranks,
            gpus_per_node=gpus_per_node,
            nics_per_node=cluster.nics_per_node,
            inter_node_bandwidth=cluster.inter_node_bandwidth,
            inter_node_kind=cluster.inter_node_kind,
            oversubscription=cluster.oversubscription,
            routing=cluster.routing,
            seed=self.scenario.seed,
        )

    @property
    def ranks(self) -> int:
        return self.topology.ranks if self.topology else self.scenario.cluster.ranks or 1

    @property
    def nodes(self) -> int | None:
        return self.topology.nodes if self.topology else None

    @cached_property
    def model(self) -> Model:
        return load_model(self.scenario.model, self.base, self.device)

    @cached_property
    def precision(self) -> Precision:
        """As given, else everything in the model's own dtype."""
        dtype = self.model.dtype
        given = self.scenario.precision or PrecisionSpec()
        return given.filled(dtype)  # type: ignore[arg-type]

    @cached_property
    def backend(self) -> Backend:
        return self.scenario.collective or Nccl()

    @cached_property
    def costs(self) -> Costs:
        if self.topology is not None and self.topology.ranks > 1:
            _ = self.topology.graph  # refuses what is not connected
        if self.calibration is None or self.topology is None:
            return Costs(self.backend, self.topology)
        curves = self.calibration.curves
        return MeasuredCosts(self.backend, self.topology, curves, self._group)

    @cached_property
    def calibration(self) -> Calibration | None:
        name = self.scenario.calibration
        return None if name is None else find_calibration(name, self.base)

    def _group(self, ranks: int, nodes: int) -> Topology:
        """`ranks` of the machine on `nodes` nodes, evenly: a group that was measured."""
        try:
            if ranks > MAX_RANKS:
                raise Refused(f"more than {MAX_RANKS:,} ranks")
            return self._built(nodes, ranks, -(-ranks // nodes))
        except Refused as error:
            raise Refused(
                f"a curve of {ranks} ranks on {nodes} nodes does not fit this machine: {error}",
                ("calibration",),
            ) from None

    # -- batch --------------------------------------------------------------------------------

    @cached_property
    def mesh(self) -> Mesh:
        """How the ranks are spread over tensor, data and pipeline parallelism."""
        return self.scenario.parallel.mesh(self.ranks)

    @property
    def global_batch(self) -> int:
        batch = self.scenario.batch
        if batch.global_ is not None:
            return batch.global_
        if batch.per_rank:
            return sum(self.shares) * batch.accumulation
        counted = self.mesh.data - self.backup_workers
        return (batch.per_device or 1) * batch.accumulation * max(counted, 0)

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """Samples of one micro-batch on every rank; ranks of one replica have the same ones."""
        batch, mesh = self.scenario.batch, self.mesh
        if (batch.by_speed or batch.per_rank) and not mesh.plain:
            key = "by_speed" if batch.by_speed else "per_rank"
            message = "ranks that share a model have equal batches; leave it out"
            raise Refused(message, ("batch", key))
        if batch.by_speed:
            return self._shares_by_speed
        if batch.global_ is None:
            own, usual = batch.per_rank or {}, batch.per_device or 1
            return tuple(own.get(rank, usual) for rank in range(self.ranks))
        base, extra = divmod(batch.global_ // batch.accumulation, mesh.data)
        if base == 0:
            what = "ranks" if mesh.plain else "replicas"
            raise Refused(
                f"global {batch.global_} leaves some of {mesh.data} {what} without a sample",
                ("batch", "global"),
            )
        return tuple(base + (mesh.place(rank, "data") < extra) for rank in range(self.ranks))

    @cached_property
    def _shares_by_speed(self) -> tuple[int, ...]:
        """Samples in proportion to how many a rank computes in a second at an equal share."""
        batch = self.scenario.batch
        total = (batch.per_device or 0) * self.ranks
        if batch.global_ is not None:
            total = batch.global_ // batch.accumulation
        if total < self.ranks:
            message = f"{total:,} samples leave some of {self.ranks:,} ranks without one"
            raise Refused(message, ("batch",))
        seconds = self.slowness(total / self.ranks)
        if seconds.min() <= 0:
            raise Refused("compute takes no time, so ranks have no speed", ("batch", "by_speed"))
        shares = proportional(total, (1.0 / seconds).tolist())
        if min(shares) == 0:
            rank = shares.index(0)
            message = f"rank {rank} is so slow that it gets no sample; give more samples"
            raise Refused(message, ("batch", "by_speed"))
        return shares

    def slowness(self, samples: float) -> Array:
        """What every rank computes for `samples` samples, with what is slow in every step [s]."""
        whole = self.scenario.variability.expanded
        lasting = Variability(slow_ranks=whole.slow_ranks, slow_nodes=whole.slow_nodes)
        site = Site(self.ranks, self.topology.gpus if self.topology is not None else None)
        fixed = Spared(lasting, site, self.scenario.seed, spares=self.spares).fixed
        seconds = [
            sum(t.forward + t.backward for t in self._unscaled(samples, self.model, kind))
            for kind in range(len(self.devices))
        ]
        found = np.array(seconds)[list(self.device_of)]
        for rank, factor in fixed.items():
            found[rank] *= factor
        return np.asarray(found)

    @cached_property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """The different shares of ranks: samples of a micro-batch, and kind of device; the most
        samples first."""
        found = set(zip(self.shares, self.device_of, strict=True))
        return tuple(sorted(found, key=lambda part: (-part[0], part[1])))

    @property
    def uneven(self) -> bool:
        """Whether ranks differ in samples or device."""
        return len(self.parts) > 1

    @property
    def rank_seconds(self) -> Array:
        """What every rank computes in a micro-batch, with nothing that varies [s]."""
        known = {
            part: sum(t.forward + t.backward for t in self._times(part[0], self.model, part[1]))
            for part in self.parts
        }
        return np.array([known[part] for part in zip(self.shares, self.device_of, strict=True)])

    @property
    def tokens_per_sample(self) -> int:
        return self.model.tokens

    # -- programs -----------------------------------------------------------------------------

    def job(self, samples: float, model: Model | None = None, kind: int = 0) -> Job:
        """The work of one rank whose micro-batches have `samples` samples, on the device number
        `kind`; `model` is its part of the model where it does not hold all of it."""
        s, device, part = self.scenario, self.devices[kind], model is not None
        model = model or self.model
        toy = self.backend.ideal
        times = self._times(samples, model, kind)
        timed = self._recorded_update()
        return Job(
            model=model,
            ranks=self.mesh.data,
            times=times,
            micro_batches=s.batch.accumulation,
            samples=samples,
            precision=self.precision,
            optimizer=s.optimizer,
            serial=s.host.serial,
            copy_bandwidth=None
            if toy or device is None or timed is not None
            else device.memory_bandwidth,
            control=not toy,
            update=optimizer_seconds(s.optimizer.kind, 1.0, device) if timed is None else timed,
            slowest=None if part else self._slowest(),
            local_size=min(self.topology.gpus, self.ranks) if self.topology else None,
            elsewhere=None if min(self.shares) == max(self.shares) else sum(self.shares[1:]),
        )

    def _recorded_update(self) -> float | None:
        """Seconds per parameter of all that followed the last gradient of a recorded step: the
        optimizer, and DDP's copies, which are in the recorded durations already."""
        recorded = self.model.recorded
        if recorded is None or not recorded.timed:
            return None
        return recorded.after / max(self.model.parameters, 1)

    def _slowest(self) -> tuple[LayerTime, ...] | None:
        """Layer times on the rank that takes longest, by its share, its device and `slow_ranks`;
        None where all ranks are alike."""
        slow = self.variation.fixed
        if not slow and not self.uneven:
            return None
        found = {
            (share, kind, slow.get(rank, 1.0))
            for rank, (share, kind) in enumerate(zip(self.shares, self.device_of, strict=True))
        }
        if len(self.devices) == 1:
            share, kind, factor = max(found, key=lambda one: (one[0] * one[2], one))
        else:
            share, kind, factor = max(found, key=lambda one: (self._seconds(*one), one))
        return tuple(t.scaled(factor) for t in self._times(share, self.model, kind))

    def _seconds(self, samples: int, kind: int, factor: float) -> float:
        times = self._times(samples, self.model, kind)
        return factor * sum(t.forward + t.backward for t in times)

    def _times(self, samples: float, model: Model, kind: int = 0) -> tuple[LayerTime, ...]:
        found = self._unscaled(samples, model, kind)
        return tuple(t.scaled(self.compute_scale) for t in found)

    def _unscaled(self, samples: float, model: Model, kind: int) -> tuple[LayerTime, ...]:
        """Layer times on the device number `kind`, before calibration."""
        device, dtype, s = self.devices[kind], self.precision.compute, self.scenario
        if device is not None:
            self._peak_of(kind)
        efficiency, floor = self._efficiency_of(kind), s.host.launch is None
        try:
            return layer_times(model, device, dtype, samples, efficiency, s.recompute, floor=floor)
        except ValueError as error:
            raise Refused(str(error), ("model",)) from None

    def cast(self, iteration: int | None) -> Cast:
        """Who plays what in `iteration`; compiled once."""
        if iteration not in self._casts and not self.mesh.plain:
            layout, jobs = self.layout, self.stage_job
            self._casts[iteration] = pipeline.cast(
                layout, self.scenario.strategy, self.shares, jobs
            )
        if iteration not in self._casts:
            parts = {part: number for number, part in enumerate(self.parts)}
            programs = tuple(self._program(*part, iteration) for part in parts)
            roles = tuple(parts[one] for one in zip(self.shares, self.device_of, strict=True))
            world = (tuple(range(self.ranks)),)
            groups = {"world": world, **self.scenario.strategy.groups(self.ranks)}
            self._casts[iteration] = Cast(programs, roles, groups)
        return self._casts[iteration]

    def _program(self, samples: int, kind: int, iteration: int | None) -> Program:
        """What ranks with so many samples on this kind of device issue, and what that costs their
        host."""
        s, job = self.scenario, self.job(samples, kind=kind)
        program = s.strategy.program(job, iteration)
        if s.host.launch is None:
            return program
        self._check_launches()
        if s.host.captured:
            program = host.captured(program, s.host.launch)
        else:
            times = host.issue_times(self.model, s.host.launch, s.host.kernels, s.recompute)
            issuing = s.strategy.program(replace(job, times=times, slowest=None), iteration)
            program = host.issued(program, issuing, s.host.launch)
        return host.waiting(program) if s.host.waits else program

    def _check_launches(self) -> None:
        """Refuse where launches are not modelled, or are in the durations already."""
        where, strategy = ("host", "launch"), self.scenario.strategy
        recorded = self.model.recorded
        if recorded is not None and recorded.timed:
            raise Refused("recorded durations hold what the host cost; leave it out", where)
        if strategy.own_launches:
            kind = name_of(strategy)
            raise Refused(f"the host's launches are not modelled for {kind}; leave it out", where)

    @property
    def asked(self) -> Cast:
        """The cast of the step that the scenario asks for, rank by rank."""
        iteration = self.scenario.iteration
        return self.cast(None if iteration == "steady" else iteration)

    @cached_property
    def layout(self) -> Layout:
        """How the model is spread over the mesh.  Raises Refused where it cannot be."""
        s, mesh, model = self.scenario, self.mesh, self.model
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
        times = self._times(max(self.shares), model)
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

    def stage_job(self, stage: int, samples: int) -> Job:
        """The work of one rank on `stage`; compiled once."""
        key = (stage, samples)
        if key not in self._stage_jobs:
            sequence = self.scenario.parallel.sequence_parallel
            part = stage_of(self.model, self.layout.stages[stage])
            if self.mesh.tensor > 1:
                part = tensor_part(part, self.mesh.tensor, sequence=sequence)
            self._stage_jobs[key] = replace(self.job(samples, part), stage=stage)
        return self._stage_jobs[key]

    @cached_property
    def _stage_jobs(self) -> dict[tuple[int, int], Job]:
        return {}

    @cached_property
    def _casts(self) -> dict[int | None, Cast]:
        return {}

    @cached_property
    def variation(self) -> Variation:
        """What makes ranks differ here: files read, nodes and compute known."""
        varied, samples = self.scenario.variability, max(self.shares)
        micro_batches, gpus = self.scenario.batch.accumulation, None
        if self.topology is not None:
            gpus = self.topology.gpus
        seconds = 0.0
        if varied.pauses is not None:
            seconds = self._computing
            if len(self.devices) > 1:
                message = "pauses are not modelled where devices differ"
                raise Refused(message, ("variability", "pauses"))
        site = Site(self.ranks, gpus, varied.nodes_per_rack, seconds, samples * micro_batches)
        if self.spares:
            return Spared(varied, site, self.scenario.seed, self._numbers, spares=self.spares)
        return Variation(varied, site, self.scenario.seed, self._numbers)

    @property
    def _computing(self) -> float:
        """What a quiet rank computes in a step [s]; a model that is split is shared out evenly."""
        times = self._times(max(self.shares), self.model)
        whole = sum(t.forward + t.backward for t in times)
        return whole * self.scenario.batch.accumulation * self.mesh.data / self.ranks

    def _counted(self, factors: Callable[[int], Array]) -> Callable[[int], Array]:
        """`factors` with late ranks cut off, where there are backup workers."""
        backup, where = self.backup_workers, ("strategy", "backup_workers")
        if not backup:
            return factors
        if backup >= self.ranks:
            raise Refused(f"{backup} of {self.ranks} ranks leave nobody to wait for", where)
        if not self.mesh.plain:
            raise Refused("with tensor or pipeline parallelism every rank is needed", where)
        if not self.backend.ideal:
            raise Refused(
                f"an all-reduce of {name_of(self.backend)} needs every rank; backend free, ideal "
                "or ideal_ring is accepted",
                where,
            )
        if self.scenario.batch.global_ is None and self.uneven:
            raise Refused("late ranks are not modelled where shares or devices differ", where)
        if self.scenario.batch.global_ is not None:
            raise Refused("late samples are dropped; give batch.per_device, not global", where)
        return Quorum(factors, backup, self._computing, self.scenario.host.serial)

    @property
    def backup_workers(self) -> int:
        """Ranks whose gradients a step does not wait for."""
        return self.scenario.strategy.backup_workers

    def _numbers(self, name: str) -> tuple[tuple[float, ...], str]:
        return read_numbers(below(self.base, name, "variability"))

    # -- plays --------------------------------------------------------------------------------

    def plays(
        self,
        *,
        stretch: Stretch | None = None,
        quiet: bool = False,
        at_most: int | None = None,
    ) -> list[Play]:
        """The plays to try in turn: a deterministic one is repeated with more steps until its
        period has settled.  `quiet` leaves out all variability; `at_most` limits the steps that
        are played where there is some."""
        variability = self.scenario.variability
        alike = self._alike and (quiet or not variability.varies)
        ones = np.ones(self.mesh.pipeline if alike else self.ranks)
        scale = stretch.compute if stretch else 1.0

        scale *= self.waiting

        def each(step: int) -> Array:
            return ones * scale if quiet or alike else self.variation.factors(step, scale)

        factors = each if quiet else self._counted(each)
        costs = self.costs
        if stretch and (stretch.latency, stretch.transfer) != (1.0, 1.0):
            costs = Stretched(self.costs, stretch.latency, stretch.transfer)
        slow, network = self.contention, _calm if quiet else self.variation.network
        if not self.mesh.plain:
            costs, steady = self._bundled(costs) if alike else (costs, self.cast(None))
        iteration = self.scenario.iteration
        if iteration != "steady":
            casts = {k: self.cast(k + 1) for k in _distinct(iteration)}
            cast = _last_known(casts)
            return [Play(cast, costs, iteration, iteration - 1, factors, slow, network)]
        if self.mesh.plain:
            steady = self.cast(None)
        if variability.random and not quiet:
            steps = min(variability.steps, at_most or variability.steps)
            return [Play(lambda _: steady, costs, steps + 2, 2, factors, slow, network)]
        plays = [Play(lambda _: steady, costs, n, n // 2, factors, slow) for n in _SETTLING]
        if not self.mesh.plain:  # all ranks wait for each other: steps hardly overlap
            plays.insert(0, Play(lambda _: steady, costs, 2, 0, factors, slow))
        return plays

    def _bundled(self, costs: Costs) -> tuple[Costs, Cast]:
        """Costs and cast with one player for all ranks that hold the same stages."""
        cast = self.cast(None)
        return BundledCosts(costs, cast.groups), pipeline.players(cast, self.mesh)

    @property
    def _alike(self) -> bool:
        """Whether all ranks that hold the same stages do the same, where nothing varies."""
        return not self.mesh.plain and min(self.shares) == max(self.shares)

    @property
    def efficiency(self) -> float:
        """Share of the device's peak that kernels reach: as given, else as fitted for devices of
        its generation in this dtype, else DEFAULT_EFFICIENCY."""
        return self._efficiency_of(0)

    def _efficiency_of(self, kind: int) -> float:
        given, device = self.scenario.compute.efficiency, self.devices[kind]
        if given is not None or device is None:
            return DEFAULT_EFFICIENCY if given is None else given
        return self._fitted(f"{self._kind_of(device)}.efficiency", device) or DEFAULT_EFFICIENCY

    @property
    def kind(self) -> str:
        """Generation of the device and class of the dtype that it computes in: "volta.half"."""
        return self._kind_of(self.device)

    def _kind_of(self, device: Device | None) -> str:
        generation = device.generation if device else "other"
        return f"{generation}.{dtype_class(self.precision.compute)}"

    @property
    def contention(self) -> float:
        """How much longer computing takes beside a collective: as given, else as fitted for the
        backend's kernels."""
        given = self.scenario.compute.contention
        if given is not None or self.machine is None:
            return given or 0.0
        return self._fitted(f"{name_of(self.backend)}.contention")

    @property
    def waiting(self) -> float:
        """Mean of the slowest rank's compute over that of a single one: E[max of N], normal."""
        given, varied = self.scenario.compute.spread, self.scenario.variability
        if given is None and (self.machine is None or varied.varies):
            return 1.0
        spread = self._fitted("gpu.spread") if given is None else given
        return 1.0 + spread * expected_maximum(self.ranks)

    def _fitted(self, name: str, device: Device | None = None) -> float:
        """A constant fitted on training runs; 0 where there is none, and where `device` (left
        out: the machine's) is no GPU."""
        constants = shipped("training")
        device = device or self.device
        gpu = device is not None and device.compute_capability > 0
        return constants[name].value if gpu and name in constants else 0.0

    def scaled(self, compute_scale: float) -> Case:
        """The same case with another level of compute."""
        other = Case(self.scenario, self.base, compute_scale)
        return self._shared(other, *_MACHINE, *_MODEL, "backend", "costs", "shares")

    def at_ranks(self, ranks: int) -> Case:
        """The same case on `ranks` ranks."""
        if self.ranks == ranks:
            return self
        cluster = replace(self.scenario.cluster, nodes=None, ranks=ranks)
        other = Case(replace(self.scenario, cluster=cluster), self.base, self.compute_scale)
        return self._shared(other, "machine", *_MODEL, "backend")

    def without_communication(self) -> Case:
        """The same case with collectives that take no time."""
        free = replace(self.scenario, collective=Free(), calibration=None)
        other = Case(free, self.base, self.compute_scale)
        return self._shared(other, *_MACHINE, *_MODEL, "shares")

    def on_cluster_of(self, other: Case) -> Case:
        """This case with what `other`, a case on the same cluster, has worked out about it."""
        return other._shared(self, *_MACHINE, "backend", "costs")

    def _shared(self, other: Case, *names: str) -> Case:
        """`other` with what this case has worked out already and `names` both have alike."""
        other.__dict__.update({n: self.__dict__[n] for n in names if n in self.__dict__})
        return other


#: what of a case follows from the machine, and from the model, alone
_MACHINE = ("machine", "topology")
_MODEL = ("model", "precision")


def _too_many(ranks: int, per_node: int) -> str:
    size = ranks * 8e-6  # GB: 8 kB a rank of graph, routes and timeline
    accepted = f"at most {MAX_RANKS:,} ranks ({MAX_RANKS // per_node:,} nodes of {per_node})"
    return (
        f"{ranks:,} ranks would need about {size:,.0f} GB and hours; {accepted} are accepted on a "
        "machine, and up to 1,048,576 without one (collective: backend ideal_ring)"
    )


def _calm(step: int) -> float:
    return 1.0


def _distinct(iteration: int) -> range:
    """Programs differ in the first iterations only; later ones repeat the fourth."""
    return range(min(iteration, 4))


def _last_known(casts: dict[int, Cast]) -> Callable[[int], Cast]:
    last = max(casts)
    return lambda step: casts[min(step, last)]


class Stretched(Costs):
    """Costs with every latency and every transfer time multiplied: what if the network were
    slower or faster?"""

    def __init__(self, costs: Costs, latency: float, transfer: float) -> None:
        super().__init__(costs.backend, costs.topology)
        self._inner, self._latency, self._transfer = costs, latency, transfer

    def plan(self, operation: str, ranks: tuple[int, ...], size: float) -> Plan:
        plan = self._inner.plan(operation, ranks, size)
        phases = tuple(
            replace(
                phase,
                latency=phase.latency * self._latency,
                seconds=phase.seconds * self._transfer,
                size=phase.size * self._transfer,
            )
            for phase in plan.phases
        )
        launch = plan.launch * self._latency
        return replace(plan, phases=phases, stages=None, launch=launch)
