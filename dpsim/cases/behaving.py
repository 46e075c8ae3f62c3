"""Where workers behave: what they are given to play with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np

from dpsim.backends.ideal_ring import IdealRing
from dpsim.cases.batches import Batches
from dpsim.cases.costs import Stretched, Transport
from dpsim.cases.plays import Stretch
from dpsim.cases.programs import Programs
from dpsim.cases.sited import sited
from dpsim.cases.work import spread_of
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.core.plugins import name_of
from dpsim.core.record import Refused
from dpsim.describe.scenario import Scenario
from dpsim.play import Costs
from dpsim.play.cabled import Cabled
from dpsim.play.scene import Scene
from dpsim.variability import expected_slowest, stream

#: clocks of every worker that are played where nothing is random, beyond those before
CLOCKS, WARMUP = 32, 4
#: backends that carry a message from one place to another; others know collectives only
CARRIERS = ("free", "gloo", "ideal", "ideal_ring", "mpi", "nccl")


@dataclass(frozen=True)
class StageSet:
    """The scenes of a case whose workers behave."""

    scenario: Scenario
    batches: Batches
    programs: Programs
    transport: Transport

    def scene(self, stretch: Stretch, *, quiet: bool, at_most: int | None = None) -> Scene:
        """What is played: stretched, without variability where `quiet`, and over `at_most` clocks
        of every worker where anything is random."""
        self._check()
        scenario = self.scenario
        varied, costs = scenario.variability, self.costs
        if (stretch.latency, stretch.transfer) != (1.0, 1.0):
            costs = Stretched(costs, stretch.latency, stretch.transfer)
        clocks = CLOCKS
        if varied.random and not quiet:
            clocks = min(varied.steps, at_most or varied.steps)
        ranks, seed = self.batches.site.ranks, scenario.seed
        return Scene(
            behave=scenario.strategy.behave,
            jobs=[self.programs.job(*part) for part in self.batches.of_rank],
            seats=(*range(ranks), *self.seats),
            costs=costs,
            factors=self._factors(stretch.compute * self.waiting, quiet),
            draws=lambda cause, clock: np.asarray(stream(seed, cause, clock).random(ranks)),
            horizon=scenario.horizon,
            clocks=clocks,
            warmup=WARMUP,
        )

    def _factors(self, scale: float, quiet: bool) -> Callable[[int], Array]:
        variation, ranks = self.batches.variation, self.batches.site.ranks
        if quiet:
            return lambda clock: np.ones(ranks) * scale
        busy = None
        if self.scenario.variability.expanded.pauses:
            cast = self.programs.cast(None)
            each = [sum(op.seconds for op in p.ops if op.scales) for p in cast.programs]
            busy = np.array([each[role] for role in cast.roles])
        return lambda clock: variation.factors(clock, scale, busy)

    @property
    def waiting(self) -> float:
        """By what the fitted spread of devices lengthens a clock: where all wait for all, the
        slowest's in the mean; where nobody waits, none."""
        site, given = self.batches.site, self.scenario.compute.spread
        together = self.scenario.strategy.gradients_of_step(site.ranks)
        if given is None and self.scenario.variability.scatters:
            return 1.0
        spread = spread_of(self.scenario, site.device, self.batches.step_seconds)
        if not spread or together < site.ranks or not self.scenario.strategy.waits_for_all:
            return 1.0
        return expected_slowest(site.ranks, self.batches.variation.fixed, spread)

    # -- places -----------------------------------------------------------------------------------

    @property
    def _beside(self) -> tuple[int | None, ...]:
        return self.scenario.strategy.servers_at(self.batches.site.ranks)

    @property
    def own_nodes(self) -> int:
        """Nodes that are servers' alone."""
        return sum(seat is None for seat in self._beside)

    @cached_property
    def seats(self) -> tuple[int, ...]:
        """The rank that stands for each server on the network: behind all ranks where it has a node
        of its own."""
        site = self.transport.site
        if site.parts:
            first = site.ranks  # places by number alone: `sited` says where they are
            return tuple(first + k for k in range(len(self._beside)))
        gpus = site.gpus or 1
        first = (site.nodes or site.ranks) * gpus
        found: list[int] = []
        for seat in self._beside:
            found.append(first if seat is None else seat)
            first += gpus if seat is None else 0
        return tuple(found)

    @cached_property
    def costs(self) -> Costs:
        """Plans of messages and collectives, on a network that has the servers' nodes too."""
        backend, site = self.transport.backend, self.transport.site
        if site.parts:
            return sited(self.transport, self.scenario.strategy)
        if isinstance(backend, IdealRing) and backend.bandwidth:
            return Cabled(backend, backend.latency, backend.bandwidth)
        if not self.own_nodes or site.nodes is None:
            return self.transport.costs
        cluster = replace(site.cluster, ranks=None, nodes=site.nodes + self.own_nodes)
        wider = replace(site, cluster=cluster)
        return replace(self.transport, site=wider).costs

    def _check(self) -> None:
        """Refuse what is not modelled where workers behave."""
        scenario, name = self.scenario, name_of(self.scenario.strategy)
        backend = name_of(self.transport.backend)
        if backend not in CARRIERS:
            said = f"carries no messages of {name}; {', '.join(CARRIERS)} do"
            if backend == "parameter_server":
                said = (
                    "is for strategies that wait for all ranks, and its servers are beside them; "
                    f"{name} has servers of its own: {', '.join(CARRIERS)} carry its messages"
                )
            raise Refused(f"{backend} {said}", ("collective", "backend"))
        if not self.batches.mesh.plain:
            raise Refused(f"{name} is not modelled with tensor, pipeline or expert parallelism",
                          ("parallel",))  # fmt: skip
        scenario.strategy.servers_in(self.transport.site.wan.places)
        ranks, batch = self.batches.site.ranks, scenario.batch
        if scenario.strategy.gradients_of_step(ranks) != ranks and batch.global_ is not None:
            said = "an update does not take one gradient of every worker; give batch.per_device"
            raise Refused(f"{said}, not global", ("batch", "global"))
        for key, asked in (
            ("iteration", scenario.iteration != "steady"),
            ("detail", scenario.detail == "rounds"),
            ("variability.delays", scenario.variability.delays is not None),
            ("variability.link_episodes", scenario.variability.expanded.link_episodes is not None),
            ("host.launch", scenario.host.launch is not None),
            ("calibration", scenario.calibration is not None),
        ):
            if asked:
                raise Refused(f"is not modelled for {name}; leave it out", tuple(key.split(".")))
