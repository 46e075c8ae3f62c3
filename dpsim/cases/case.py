"""A case: one point of a scenario, compiled and ready to be played."""

from __future__ import annotations

from dataclasses import field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dpsim.backends import Backend
from dpsim.cases import typical_code
from dpsim.cases.batches import Batches
from dpsim.cases.behaving import StageSet
from dpsim.cases.chapters import Chapters
from dpsim.cases.costs import Transport
from dpsim.cases.feed import Feed
from dpsim.cases.plays import Script, Stretch
from dpsim.cases.preparation import Preparation
from dpsim.cases.programs import Programs
from dpsim.cases.provisions import fed_by
from dpsim.cases.site import Site
from dpsim.cases.unlimited import unlimited
from dpsim.cases.work import ModelWork, Pace, Seats
from dpsim.compile.context import Context
from dpsim.compile.job import Job
from dpsim.compile.placement import Mesh
from dpsim.compile.routing import Moe
from dpsim.compile.schedules import Act
from dpsim.core import plugins
from dpsim.core.lean import dataclass
from dpsim.describe.scenario import Scenario
from dpsim.describe.sections import Batch, Input, made_up
from dpsim.machines.devices import Device
from dpsim.machines.machine import Machine
from dpsim.machines.topology import Topology
from dpsim.models import Model
from dpsim.models.execution import Brought
from dpsim.models.precision import Optimizer, Precision
from dpsim.models.recomputing import WHOLE_BLOCKS
from dpsim.models.sums import GradientSums
from dpsim.play import Costs, Play


@dataclass(frozen=True)
class Case:
    """One point: the scenario without its sweep, and what follows from it, chapter by chapter.

    compute_scale  the level of compute that calibration has found
    spares         nodes, the slowest throughout, that have been replaced by quiet ones (a what-if)
    exchange       by what collectives take longer than modelled, inside a node and between nodes
    shared         what need not be worked out again
    """

    scenario: Scenario
    base: Path
    compute_scale: float = 1.0
    spares: int = 0
    exchange: tuple[float, float] = (1.0, 1.0)
    shared: Chapters = field(default_factory=Chapters, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """What it is made of, for copies and pickles: the rest follows from that."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"shared": Chapters()}

    # -- chapters -----------------------------------------------------------------------------

    @cached_property
    def site(self) -> Site:
        """The machine and the nodes of it that are used."""
        s = self.scenario
        drawn = s.seed if s.cluster.routing == "ecmp" else 0
        return self.shared.known(Site, s.cluster, drawn, self.base, s.sites, s.links)

    @cached_property
    def batch(self) -> Batch:
        """The scenario's, with its micro-batches counted; Refused where they do not divide."""
        batch = self.scenario.batch
        if not batch.follows:
            return batch
        return batch.on(self.scenario.parallel.mesh(self.site.ranks).data)

    @cached_property
    def work(self) -> ModelWork:
        """The model and its dtypes."""
        s = self.scenario
        own = s.strategy
        brought = Brought(own.library_attention, own.fused_kernels, own.channels_last)
        rated, others = s.compute.efficiency is None, self.site.others
        made = s.execution, s.strategy.autocasts, rated, others, brought, self._sums
        given = (s.model, s.precision, self.base, self.site.device, *made)
        return self.shared.known(ModelWork, *given)

    @property
    def _sums(self) -> GradientSums | None:
        """How gradients of micro-batches are added up; where layers or steps are split, in every
        one, so that durations do not depend on their number and long steps follow from short."""
        s = self.scenario
        piped, times = s.parallel.pipeline > 1, self.batch.accumulation
        found = s.strategy.sums(piped=piped)
        split = times > 1 and (piped or s.parallel.tensor > 1 or s.parallel.context > 1)
        zeroed = found is not None and (found.zeroed or split)
        # to zeros each is added alike: steps of other lengths have the same model then
        return found and found._replace(times=1 if zeroed else times, zeroed=zeroed)

    @cached_property
    def pace(self) -> Pace:
        """The devices of ranks and how long they take for layers."""
        s, site = self.scenario, self.site
        where = (site.ranks, site.gpus, site.device, site.devices, site.base, site.sizes)
        seats = self.shared.known(Seats, *where)
        launch, mesh = s.host.launch, s.parallel
        split = launch is not None and not mesh.mesh(site.ranks).plain
        least = launch * s.host.kernels if launch is not None and split else 0.0
        launched = launch is not None and not split
        level = self.compute_scale * typical_code.level_of(s, self.work.model)
        own = (s.compute, mesh, s.recompute, launched, level, least)
        return self.shared.known(Pace, seats, self.work, *own)

    @cached_property
    def batches(self) -> Batches:
        """The samples of every rank, and what varies."""
        s = self.scenario
        late = self.site.ranks - s.strategy.gradients_of_step(self.site.ranks)
        own = (self.batch, late, s.variability, s.seed, self.spares)
        return self.shared.known(Batches, self.pace, *own)

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer, with whether it keeps a copy of weights in 16 bit."""
        s = self.scenario
        return s.optimizer.settled(by_system=s.strategy.copies_weights)

    @cached_property
    def programs(self) -> Programs:
        """What every rank issues."""
        s = self.scenario
        own = (s.strategy, self.optimizer, s.host, s.schedule, s.moe or Moe())
        backend = self.backend
        copied = None if s.input is None else s.input.copy
        coded = (s.codec, plugins.name_of(backend))
        return self.shared.known(
            Programs, self.batches, *own, s.stages, s.iteration, backend.ideal, *coded, copied,
            s.context or Context(),
        )  # fmt: skip

    @cached_property
    def transport(self) -> Transport:
        """What collectives cost."""
        s = self.scenario
        return self.shared.known(Transport, self.site, s.collective, s.calibration, self.exchange)

    @cached_property
    def feed(self) -> Feed | None:
        """What feeds the ranks; None where nothing is known of it, or it is no limit."""
        s = self.scenario
        if not s.fed:
            return None
        own = (
            fed_by(s.input, self.base),
            self.batches,
            self.machine,
            s.seed,
            self.base,
            self.model.tokens,
        )
        return Feed(self.shared.known(Preparation, *own))

    @property
    def hungry(self) -> Case:
        """This case where nothing holds up its batches."""
        if self.feed is None:
            return self
        free = replace(self.scenario, input=unlimited(self.scenario.input))
        return replace(self, scenario=free)

    @property
    def synthetic(self) -> Case:
        """This case with data that are made up: neither loaded nor, unless said so, copied."""
        if made_up(self.scenario.input):
            return self
        return replace(self, scenario=replace(self.scenario, input=Input(synthetic=True)))

    @cached_property
    def stage_set(self) -> StageSet:
        """What workers that behave are given."""
        return StageSet(self.scenario, self.batches, self.programs, self.transport)

    @cached_property
    def script(self) -> Script:
        """The plays of engines."""
        return Script(self.scenario, self.batches, self.programs, self.transport)

    def knowing(self, other: Case) -> Case:
        """This case with what `other` has worked out, as far as it holds here too."""
        return replace(self, shared=other.shared)

    # -- what is asked for most ---------------------------------------------------------------

    def plays(
        self, stretch: Stretch | None = None, *, quiet: bool = False, at_most: int | None = None
    ) -> list[Play]:
        """The plays to try in turn, as `Script.plays` has it."""
        return self.script.plays(stretch or Stretch(), quiet=quiet, at_most=at_most)

    def job(self, samples: float, kind: int = 0) -> Job:
        """The work of one rank with so many samples, as `Programs.job` has it."""
        return self.programs.job(samples, kind)

    @cached_property
    def acts(self) -> tuple[tuple[Act, ...], ...]:
        """What every pipeline rank runs in a step, in order; Refused where the schedule cannot."""
        return self.programs.layout.acts(self.batch.accumulation)

    @property
    def machine(self) -> Machine | None:
        """None where ranks alone are given."""
        return self.site.machine

    @property
    def device(self) -> Device | None:
        """The machine's own device."""
        return self.site.device

    @property
    def topology(self) -> Topology | None:
        """Graph and routes of the machine."""
        return self.site.topology

    @property
    def ranks(self) -> int:
        """How many ranks train."""
        return self.site.ranks

    @property
    def nodes(self) -> int | None:
        """How many nodes they are on; None without a machine."""
        return self.site.nodes

    @property
    def model(self) -> Model:
        """What is trained."""
        return self.work.model

    @property
    def precision(self) -> Precision:
        """In which dtypes."""
        return self.work.precision

    @property
    def eager(self) -> bool:
        """Whether the model's layers keep what torch's modules keep, one by one."""
        asked, compiled = self.scenario.memory.kernels, self.scenario.execution.compile
        if asked is None and compiled is not None:
            return not compiled
        return not self.scenario.strategy.fused_kernels if asked is None else asked == "eager"

    @property
    def rebuilds_blocks(self) -> bool:
        """Whether backward computes whole blocks again."""
        return self.scenario.recompute in WHOLE_BLOCKS

    def eager_loss(self, eager: bool) -> bool:
        """Whether the loss is torch's own, where the layers are `eager` or not."""
        asked = self.scenario.memory.loss
        return eager if asked is None else asked == "eager"

    @property
    def mesh(self) -> Mesh:
        """How the ranks are spread over tensor, data and pipeline parallelism."""
        return self.batches.mesh

    @property
    def shares(self) -> tuple[int, ...]:
        """Samples of one micro-batch on every rank."""
        return self.batches.shares

    @property
    def global_batch(self) -> int:
        """Samples of a step that count, over all ranks."""
        return self.batches.total

    @property
    def backend(self) -> Backend:
        """Who carries out collectives."""
        return self.transport.backend

    @property
    def costs(self) -> Costs:
        """Plans of collectives."""
        return self.transport.costs
