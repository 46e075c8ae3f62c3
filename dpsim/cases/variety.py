"""Variety: what makes ranks and steps differ from quiet ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpsim.backends import Backend
from dpsim.cases.batches import Batches
from dpsim.cases.frameworks import backup_workers
from dpsim.cases.pace import fitted
from dpsim.core.arrays import Array
from dpsim.core.plugins import name_of
from dpsim.core.record import Refused
from dpsim.models.section import below
from dpsim.play.quorum import Quorum
from dpsim.variability import Site, Variation, expected_maximum, read_numbers
from dpsim.variability.spares import Spared

#: step -> multiplier of every rank's compute
Factors = Callable[[int], Array]


@dataclass(frozen=True)
class Variety:
    """What varies around the batches of ranks."""

    batches: Batches

    @cached_property
    def variation(self) -> Variation:
        """What makes ranks differ here: files read, nodes and compute known."""
        batches, scenario = self.batches, self.batches.scenario
        varied, samples = scenario.variability, max(batches.shares)
        gpus, seconds = batches.site.gpus, 0.0
        if varied.pauses is not None:
            seconds = batches.step_seconds
            if len(batches.pace.hardware.kinds) > 1:
                message = "pauses are not modelled where devices differ"
                raise Refused(message, ("variability", "pauses"))
        samples *= scenario.batch.accumulation
        site = Site(batches.site.ranks, gpus, varied.nodes_per_rack, seconds, samples)
        if batches.spares:
            return Spared(varied, site, scenario.seed, self._numbers, spares=batches.spares)
        return Variation(varied, site, scenario.seed, self._numbers)

    def _numbers(self, name: str) -> tuple[tuple[float, ...], str]:
        return read_numbers(below(self.batches.site.base, name, "variability"))

    @property
    def waiting(self) -> float:
        """Mean of the slowest rank's compute over that of a single one: E[max of N], normal."""
        site, scenario = self.batches.site, self.batches.scenario
        given = scenario.compute.spread
        if given is None and (site.machine is None or scenario.variability.varies):
            return 1.0
        spread = fitted("gpu.spread", site.device) if given is None else given
        return 1.0 + spread * expected_maximum(site.ranks)

    def quiet(self, players: int, scale: float) -> Factors:
        """Factors of players that nothing slows; `scale` multiplies all compute."""
        scale *= self.waiting
        return lambda step: np.full(players, scale)

    def factors(self, scale: float) -> Factors:
        """Factors of all ranks with what varies; `scale` multiplies all compute but pauses."""
        scale *= self.waiting
        return lambda step: self.variation.factors(step, scale)

    def counted(self, factors: Factors, backend: Backend) -> Factors:
        """`factors` with late ranks cut off, where there are backup workers."""
        batches, scenario = self.batches, self.batches.scenario
        backup, where = backup_workers(scenario.strategy), ("strategy", "backup_workers")
        if not backup:
            return factors
        if backup >= batches.site.ranks:
            message = f"{backup} of {batches.site.ranks} ranks leave nobody to wait for"
            raise Refused(message, where)
        if not batches.mesh.plain:
            raise Refused("with tensor or pipeline parallelism every rank is needed", where)
        if not backend.ideal:
            raise Refused(
                f"an all-reduce of {name_of(backend)} needs every rank; backend free, ideal "
                "or ideal_ring is accepted",
                where,
            )
        if scenario.batch.global_ is None and batches.uneven:
            raise Refused("late ranks are not modelled where shares or devices differ", where)
        if scenario.batch.global_ is not None:
            raise Refused("late samples are dropped; give batch.per_device, not global", where)
        return Quorum(factors, backup, batches.step_seconds, scenario.host.serial)
