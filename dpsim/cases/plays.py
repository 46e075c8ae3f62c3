"""Plays: the plays that engines are given, and with how many steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from dpsim.backends import ideal_ones
from dpsim.cases.batches import Batches
from dpsim.cases.costs import Stretched, Transport
from dpsim.cases.delayed import Delayed
from dpsim.cases.programs import Programs
from dpsim.cases.work import contended, spread_of
from dpsim.compile import pipeline
from dpsim.compile.program import Cast
from dpsim.compile.strategies import Folded, Rhythm
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.core.many import Many
from dpsim.core.places import below
from dpsim.core.plugins import name_of
from dpsim.core.record import Refused
from dpsim.describe.scenario import Scenario
from dpsim.play import Costs, Late, Play
from dpsim.play.bundled import bundled
from dpsim.play.quorum import Quorum
from dpsim.variability import expected_slowest

#: steps of a deterministic run; the period has settled if the last two agree
_SETTLING = (4, 16, 64)
#: steps that are played at least, of programs that stand for many
LEAST = 8
#: steps at most of which the factors are drawn, of those that a played step stands for
DRAWN = 1000
#: step -> multiplier of every rank's compute
Factors = Callable[[int], Array | float]


@dataclass(frozen=True)
class Stretch:
    """What an interval or a what-if changes: multipliers of compute time, and of the latency and
    transfer time of collectives."""

    compute: float = 1.0
    latency: float = 1.0
    transfer: float = 1.0


@dataclass(frozen=True)
class Script:
    """The plays of a case, or of a stretched or quiet one."""

    scenario: Scenario
    batches: Batches
    programs: Programs
    transport: Transport

    def plays(self, stretch: Stretch, *, quiet: bool, at_most: int | None) -> list[Play]:
        """The plays to try in turn: a deterministic one is repeated with more steps until its
        period has settled.  `quiet` leaves out all variability; `at_most` limits the steps that
        are played where there is some."""
        variability, iteration = self.scenario.variability, self.scenario.iteration
        mesh, programs = self.batches.mesh, self.programs
        alike = self._alike and (quiet or not variability.varies)
        factors, costs = self._factors(stretch, quiet, alike), self._costs(stretch, alike)
        slow, network = self.contention, _calm if quiet else self._network
        if iteration != "steady":
            cast = self._first_casts(iteration)
            late = self._late(cast, quiet)
            return [Play(cast, costs, iteration, iteration - 1, factors, slow, network, late)]
        steady = programs.cast(None)
        steady = pipeline.players(steady, mesh) if alike else steady
        late = self._late(lambda _: steady, quiet)
        if variability.random and not quiet:
            steps = self._rounds(min(variability.steps, at_most or variability.steps))
            return [Play(lambda _: steady, costs, steps + 2, 2, factors, slow, network, late)]
        spans = [(n, n // 2) for n in _SETTLING]
        if not mesh.plain:  # all ranks wait for each other: steps hardly overlap
            spans.insert(0, (2, 0))
        return [
            Play(lambda _: steady, costs, n, before, factors, slow, delays=late, steady=True)
            for n, before in spans
        ]

    @property
    def _alike(self) -> bool:
        """Whether all ranks that hold the same stages do the same, where nothing varies; rounds
        are of the ranks themselves, so there every rank plays."""
        batches = self.batches
        if batches.mesh.plain or self.scenario.detail == "rounds":
            return False
        return min(batches.shares) == max(batches.shares)

    def _first_casts(self, iteration: int) -> Callable[[int], Cast]:
        """The casts of the first iterations, which differ; later ones repeat the fourth, until
        gradients are compressed in another way, and unless workers exchange now and then."""
        apart = self._rhythm is not None
        codec = self.scenario.compressed
        found: list[Cast] = []
        before = None
        for k in range(1, iteration + 1):
            now = codec.at(k) if codec else None
            same = k > 4 and now == before and not apart
            found.append(found[-1] if same else self.programs.cast(k))
            before = now
        return lambda step: found[min(step, len(found) - 1)]

    def _costs(self, stretch: Stretch, alike: bool) -> Costs:
        costs = self.transport.costs
        if (stretch.latency, stretch.transfer) != (1.0, 1.0):
            costs = Stretched(costs, stretch.latency, stretch.transfer)
        return bundled(costs, self.programs.cast(None).groups) if alike else costs

    # -- delays and factors -------------------------------------------------------------------

    def _late(self, cast: Callable[[int], Cast], quiet: bool) -> Callable[[int], Late] | None:
        """Step -> which of its operations are late; None where none is."""
        delays = None if quiet else self.delays
        return None if delays is None else lambda step: delays(cast(step))

    @cached_property
    def delays(self) -> Delayed | None:
        """By how much single operations are late; None where none is."""
        said, where = self.scenario.variability.delays, ("variability", "delays")
        if said is None:
            return None
        if self._folded.steps > 1:
            raise Refused("single delays are not modelled in rounds of local steps", where)
        if self.scenario.strategy.backup_workers:
            raise Refused("single delays are not modelled beside backup workers", where)
        return Delayed(said.made(lambda name: below(self.batches.site.base, name, ".".join(where))))

    def _factors(self, stretch: Stretch, quiet: bool, alike: bool) -> Factors:
        ones = np.ones(self.batches.mesh.pipeline if alike else self.batches.site.ranks)
        scale = stretch.compute * self.waiting
        paused = self.scenario.variability.expanded.pauses and not (quiet or alike)
        busy = self._busy if paused else None
        equal = quiet or not self.scenario.variability.varies
        equal = equal and not self.scenario.strategy.backup_workers

        def each(step: int) -> Array | float:
            if equal and isinstance(scale, Many):  # of many points: nothing sets ranks apart
                return scale
            if quiet or alike:
                return ones * scale
            return self._drawn(step, scale, busy)

        return each if quiet else self._counted(each)

    @cached_property
    def _folded(self) -> Folded:
        """What a played step stands for."""
        programs = self.programs
        steady = self.batches.mesh.plain and self.scenario.iteration == "steady"
        job = programs.job(*self.batches.parts[0]) if steady else None
        return Folded() if job is None else self.scenario.strategy.folded(job)

    @property
    def _rhythm(self) -> Rhythm | None:
        """When workers exchange; None where they do in every step."""
        if not self.batches.mesh.plain:
            return None
        return self.scenario.strategy.rounds(self.programs.job(*self.batches.parts[0]))

    def _rounds(self, steps: int) -> int:
        """As many played steps as stand for `steps`; a few at least."""
        folded = self._folded.steps
        return steps if folded == 1 else max(-(-steps // folded), min(steps, LEAST))

    def _network(self, step: int) -> float:
        """How many times as long bytes between nodes take in a played step."""
        many, network = self._folded.steps, self.batches.variation.network
        drawn = range(step * many, (step + 1) * many, -(-many // DRAWN))
        return sum(network(k) for k in drawn) / len(drawn)

    def _drawn(self, step: int, scale: float, busy: Array | None) -> Array:
        """The factors of a played step: the mean of those that it stands for, in each of which the
        slowest of the ranks that wait for each other counts."""
        variation, folded = self.batches.variation, self._folded
        if folded.steps == 1 or not self.scenario.variability.random:
            return variation.factors(step, scale, busy)
        first, total = step * folded.steps, np.zeros(self.batches.site.ranks)
        drawn = range(first, first + folded.steps, -(-folded.steps // DRAWN))
        for k in drawn:
            each = variation.factors(k, scale, busy).reshape(-1, folded.together)
            total += np.repeat(each.max(axis=1), folded.together)
        return np.asarray(total / len(drawn))

    @property
    def _busy(self) -> Array:
        """What variability multiplies in a step, for every rank [s]: layers and updates."""
        cast = self.programs.cast(None)
        each = [sum(op.seconds for op in p.ops if op.scales) for p in cast.programs]
        found = np.array([each[role] for role in cast.roles])
        if not found.all():
            raise Refused("a rank has no compute to pause", ("variability", "pauses"))
        return found

    def _counted(self, factors: Factors) -> Factors:
        """`factors` with late ranks cut off, where there are backup workers."""
        batches, ranks, batch = self.batches, self.batches.site.ranks, self.scenario.batch
        backup, where = self.scenario.strategy.backup_workers, ("strategy", "backup_workers")
        if not backup:
            return factors
        if backup >= ranks:
            raise Refused(f"{backup} of {ranks} ranks leave nobody to wait for", where)
        if not batches.mesh.plain:
            raise Refused("with tensor or pipeline parallelism every rank is needed", where)
        if not self.transport.backend.ideal:
            raise Refused(
                f"an all-reduce of {name_of(self.transport.backend)} needs every rank; "
                f"backend {ideal_ones()} is accepted",
                where,
            )
        if batch.global_ is not None:
            raise Refused("late samples are dropped; give batch.per_device, not global", where)
        if batches.uneven:
            raise Refused("late ranks are not modelled where shares or devices differ", where)
        return Quorum(factors, backup, batches.step_seconds, self.scenario.host.serial)

    @property
    def unsaid(self) -> float:
        """The fitted spread that stated variability takes the place of; 0 where it does not."""
        stated = self.scenario.compute.spread is None and self.scenario.variability.scatters
        return self.spread if stated else 0.0

    @cached_property
    def waiting(self) -> float:
        """Mean of the slowest rank's compute over that of a single one (of the slowest, where some
        are said to be): E[max of N], normal."""
        if self.unsaid or not self.spread:
            return 1.0
        batches = self.batches
        return expected_slowest(batches.site.ranks, batches.variation.fixed, self.spread)

    @property
    def contention(self) -> float:
        """How much longer computing takes beside a collective: as given, else as fitted for the
        backend's kernels."""
        given, batches = self.scenario.compute.contention, self.batches
        if given is not None:
            return given
        kernels = name_of(self.transport.backend)
        return contended(kernels, batches.site.device, batches.pace.work.large)

    @cached_property
    def spread(self) -> float:
        """Standard deviation of the ranks' compute, as a share of it."""
        return spread_of(self.scenario, self.batches.site.device, self.batches.step_seconds)


def _calm(step: int) -> float:
    return 1.0
