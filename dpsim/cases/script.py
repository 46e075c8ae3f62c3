"""Script: the plays that engines are given, and with how many steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpsim.cases.batches import Batches
from dpsim.cases.network import Network, Stretched
from dpsim.cases.pace import fitted
from dpsim.cases.programs import Programs
from dpsim.cases.variety import Factors, Variety
from dpsim.compile.program import Cast
from dpsim.core.plugins import name_of
from dpsim.describe.scenario import Scenario
from dpsim.play import Costs, Play
from dpsim.play.bundled import BundledCosts

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
class Script:
    """The plays of a case, or of a stretched or quiet one."""

    scenario: Scenario
    batches: Batches
    variety: Variety
    programs: Programs
    network: Network

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
        variability, iteration = self.scenario.variability, self.scenario.iteration
        stretch = stretch or Stretch()
        alike = self._alike and (quiet or not variability.varies)
        factors, costs = self._factors(stretch, quiet, alike), self._costs(stretch)
        slow, network = self.contention, _calm if quiet else self.variety.variation.network
        if alike:  # one player for all ranks that hold the same stages
            costs = BundledCosts(costs, self.programs.cast(None).groups)
        if iteration != "steady":
            cast = self._first_casts(iteration)
            return [Play(cast, costs, iteration, iteration - 1, factors, slow, network)]
        steady = self.programs.players() if alike else self.programs.cast(None)
        if variability.random and not quiet:
            steps = min(variability.steps, at_most or variability.steps)
            return [Play(lambda _: steady, costs, steps + 2, 2, factors, slow, network)]
        plays = [Play(lambda _: steady, costs, n, n // 2, factors, slow) for n in _SETTLING]
        if not self.batches.mesh.plain:  # all ranks wait for each other: steps hardly overlap
            plays.insert(0, Play(lambda _: steady, costs, 2, 0, factors, slow))
        return plays

    def _factors(self, stretch: Stretch, quiet: bool, alike: bool) -> Factors:
        mesh, site, variety = self.batches.mesh, self.batches.site, self.variety
        if not quiet and not alike:
            factors = variety.factors(stretch.compute)
        else:
            factors = variety.quiet(mesh.pipeline if alike else site.ranks, stretch.compute)
        return factors if quiet else variety.counted(factors, self.network.backend)

    def _costs(self, stretch: Stretch) -> Costs:
        if (stretch.latency, stretch.transfer) == (1.0, 1.0):
            return self.network.costs
        return Stretched(self.network.costs, stretch.latency, stretch.transfer)

    def _first_casts(self, iteration: int) -> Callable[[int], Cast]:
        """The casts of the first iterations, which differ; later ones repeat the fourth."""
        casts = [self.programs.cast(k + 1) for k in range(min(iteration, 4))]
        return lambda step: casts[min(step, len(casts) - 1)]

    @property
    def _alike(self) -> bool:
        """Whether all ranks that hold the same stages do the same, where nothing varies."""
        if self.batches.mesh.plain:
            return False
        return min(self.batches.shares) == max(self.batches.shares)

    @property
    def contention(self) -> float:
        """How much longer computing takes beside a collective: as given, else as fitted for the
        backend's kernels."""
        given, site = self.scenario.compute.contention, self.batches.site
        if given is not None or site.machine is None:
            return given or 0.0
        return fitted(f"{name_of(self.network.backend)}.contention", site.device)


def _calm(step: int) -> float:
    return 1.0
