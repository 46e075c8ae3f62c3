"""A case: one point of a scenario, compiled and ready to be played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dpsim.backends import Backend, Plan
from dpsim.backends.free import Free
from dpsim.backends.nccl import Nccl
from dpsim.calibrated import Calibration
from dpsim.calibrated import find as find_calibration
from dpsim.compute import DEFAULT_EFFICIENCY, LayerTime, layer_times, optimizer_seconds
from dpsim.constants import shipped
from dpsim.engines import Costs, Play
from dpsim.engines.measured import MeasuredCosts
from dpsim.hardware import Device, dtype_class
from dpsim.machine import Machine, load_device, load_machine
from dpsim.models import Model
from dpsim.modelspec import below
from dpsim.modelspec import load as load_model
from dpsim.plugins import name_of
from dpsim.precision import Precision, PrecisionSpec
from dpsim.program import Cast
from dpsim.record import Refused
from dpsim.scenario import Scenario
from dpsim.strategies import Job
from dpsim.timeline import Array
from dpsim.topology import Topology
from dpsim.variability import expected_maximum
from dpsim.yamlfile import FileRefused

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
    """One point: the scenario without its sweep, and what follows from it."""

    scenario: Scenario
    base: Path
    compute_scale: float = 1.0

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

    @property
    def global_batch(self) -> int:
        batch = self.scenario.batch
        if batch.global_ is not None:
            return batch.global_
        return (batch.per_device or 1) * batch.accumulation * self.ranks

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """Samples of one micro-batch on every rank."""
        batch = self.scenario.batch
        if batch.global_ is None:
            return (batch.per_device or 1,) * self.ranks
        base, extra = divmod(batch.global_ // batch.accumulation, self.ranks)
        if base == 0:
            raise Refused(
                f"global {batch.global_} leaves some of {self.ranks} ranks without a sample",
                ("batch", "global"),
            )
        return tuple(base + (rank < extra) for rank in range(self.ranks))

    @property
    def tokens_per_sample(self) -> int:
        return self.model.tokens

    # -- programs -----------------------------------------------------------------------------

    def job(self, samples: float) -> Job:
        s, device = self.scenario, self.device
        toy = self.backend.ideal
        times = self._times(samples)
        timed = self._recorded_update()
        return Job(
            model=self.model,
            ranks=self.ranks,
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
            slowest=self._slowest(),
            local_size=min(self.topology.gpus, self.ranks) if self.topology else None,
        )

    def _recorded_update(self) -> float | None:
        """Seconds per parameter of all that followed the last gradient of a recorded step: the
        optimizer, and DDP's copies, which are in the recorded durations already."""
        recorded = self.model.recorded
        if recorded is None or not recorded.timed:
            return None
        return recorded.after / max(self.model.parameters, 1)

    def _slowest(self) -> tuple[LayerTime, ...] | None:
        """Layer times on the rank that takes longest, by its share and by `slow_ranks`; None
        where all ranks are alike."""
        slow = self.scenario.variability.slow_ranks or {}
        if not slow and min(self.shares) == max(self.shares):
            return None
        pairs = {(share, slow.get(rank, 1.0)) for rank, share in enumerate(self.shares)}
        share, factor = max(pairs, key=lambda pair: (pair[0] * pair[1], pair))
        times = self._times(share)
        return tuple(LayerTime(t.forward * factor, t.backward * factor, t.bound) for t in times)

    def _times(self, samples: float) -> tuple[LayerTime, ...]:
        device, dtype, s = self.device, self.precision.compute, self.scenario
        try:
            if device is not None:
                device.peak_for(dtype)
        except ValueError as error:
            raise Refused(str(error), ("precision", "compute")) from None
        try:
            found = layer_times(self.model, device, dtype, samples, self.efficiency, s.recompute)
        except ValueError as error:
            raise Refused(str(error), ("model",)) from None
        scale = self.compute_scale
        return tuple(LayerTime(t.forward * scale, t.backward * scale, t.bound) for t in found)

    def cast(self, iteration: int | None) -> Cast:
        """Who plays what in `iteration`; compiled once."""
        if iteration not in self._casts:
            sizes = sorted(set(self.shares), reverse=True)
            programs = tuple(
                self.scenario.strategy.program(self.job(size), iteration) for size in sizes
            )
            roles = tuple(sizes.index(size) for size in self.shares)
            world = (tuple(range(self.ranks)),)
            groups = {"world": world, **self.scenario.strategy.groups(self.ranks)}
            self._casts[iteration] = Cast(programs, roles, groups)
        return self._casts[iteration]

    @cached_property
    def _casts(self) -> dict[int | None, Cast]:
        return {}

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
        variability, seed = self.scenario.variability, self.scenario.seed
        ones = np.ones(self.ranks)
        scale = stretch.compute if stretch else 1.0

        scale *= self.waiting

        def factors(step: int) -> Array:
            return (ones if quiet else variability.factors(seed, step, self.ranks)) * scale

        costs = self.costs
        if stretch and (stretch.latency, stretch.transfer) != (1.0, 1.0):
            costs = Stretched(self.costs, stretch.latency, stretch.transfer)
        slow = self.contention
        iteration = self.scenario.iteration
        if iteration != "steady":
            casts = {k: self.cast(k + 1) for k in _distinct(iteration)}
            cast = _last_known(casts)
            return [Play(cast, costs, iteration, iteration - 1, factors, slow)]
        steady = self.cast(None)
        if variability.random and not quiet:
            steps = min(variability.steps, at_most or variability.steps)
            return [Play(lambda _: steady, costs, steps + 2, 2, factors, slow)]
        return [Play(lambda _: steady, costs, n, n // 2, factors, slow) for n in _SETTLING]

    @property
    def efficiency(self) -> float:
        """Share of the device's peak that kernels reach: as given, else as fitted for devices of
        its generation in this dtype, else DEFAULT_EFFICIENCY."""
        given, device = self.scenario.compute.efficiency, self.device
        if given is not None or device is None:
            return DEFAULT_EFFICIENCY if given is None else given
        return self._fitted(f"{self.kind}.efficiency") or DEFAULT_EFFICIENCY

    @property
    def kind(self) -> str:
        """Generation of the device and class of the dtype that it computes in: "volta.half"."""
        generation = self.device.generation if self.device else "other"
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
        if given is None and (self.machine is None or varied.random or varied.slow_ranks):
            return 1.0
        spread = self._fitted("gpu.spread") if given is None else given
        return 1.0 + spread * expected_maximum(self.ranks)

    def _fitted(self, name: str) -> float:
        """A constant fitted on training runs; 0 where there is none, and on processors that are
        no GPUs."""
        constants = shipped("training")
        device = self.device
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
