"""Batches: how many samples every rank computes, how long it takes for them, and what varies."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from dpsim.cases.rebalancing import Deal, deals
from dpsim.cases.work import Pace, Seats
from dpsim.compile.placement import Mesh
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.core.places import below
from dpsim.core.record import Refused
from dpsim.describe.sections import Batch
from dpsim.describe.uneven import proportional
from dpsim.variability import Crew, Variability, Variation, read_numbers
from dpsim.variability.spares import Spared


@dataclass(frozen=True)
class Batches:
    """The batch of a step, shared out to ranks.

    backup    ranks whose samples do not count, being late
    varied    how ranks differ from step to step; `seed` draws it
    spares    slow nodes that have been replaced
    """

    pace: Pace
    batch: Batch
    backup: int
    varied: Variability
    seed: int
    spares: int

    @property
    def site(self) -> Seats:
        """Who computes."""
        return self.pace.site

    @cached_property
    def mesh(self) -> Mesh:
        """How the ranks are spread over tensor, data and pipeline parallelism."""
        return self.pace.parallel.mesh(self.site.ranks)

    @property
    def total(self) -> int:
        """Samples of a step that count, over all ranks."""
        batch = self.batch
        if batch.global_ is not None:
            return batch.global_
        if batch.per_rank:
            return sum(self.shares) * batch.accumulation
        counted = self.mesh.data - self.backup
        return (batch.per_device or 1) * batch.accumulation * max(counted, 0)

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """Samples of one micro-batch on every rank; ranks of one replica have the same ones."""
        batch, mesh, ranks = self.batch, self.mesh, self.site.ranks
        dealt = ("by_speed", batch.by_speed), ("per_rank", batch.per_rank)
        asked = [key for key, value in (*dealt, ("rebalance", batch.rebalance)) if value]
        if asked and not mesh.plain:
            message = "ranks that share a model have equal batches; leave it out"
            raise Refused(message, ("batch", asked[0]))
        if batch.rebalance is not None:
            return self.deals[-1].shares
        if batch.by_speed:
            return self._by_speed()
        if batch.global_ is None:
            own, usual = batch.per_rank or {}, batch.per_device or 1
            return tuple(own.get(rank, usual) for rank in range(ranks)) if own else (usual,) * ranks
        base, extra = divmod(batch.global_ // batch.accumulation, mesh.data)
        if base == 0:
            what = "ranks" if mesh.plain else "replicas"
            raise Refused(
                f"global {batch.global_} leaves some of {mesh.data} {what} without a sample"
                + self._too_many(batch.global_ // mesh.data),
                ("batch", "global"),
            )
        if extra == 0:
            return (base,) * ranks
        return tuple(base + (mesh.place(rank, "data") < extra) for rank in range(ranks))

    def _too_many(self, each: int) -> str:
        """What to add where micro-batches are the reason, for `each` sample of a replica."""
        count = self.batch.accumulation
        if count == 1:
            return ""
        instead = f"; accumulation up to {each} is accepted" if each else ""
        return f" in each of {count} micro-batches{instead}"

    @cached_property
    def deals(self) -> tuple[Deal, ...]:
        """How samples were dealt while training ran, the first deal first; with `rebalance`."""
        assert self.batch.rebalance is not None
        return deals(self, self.batch.rebalance, self._dealt)

    @property
    def _dealt(self) -> int:
        """Samples of a micro-batch over all ranks, of which each gets some."""
        batch, ranks = self.batch, self.site.ranks
        total = (batch.per_device or 0) * ranks
        if batch.global_ is not None:
            total = batch.global_ // batch.accumulation
        if total < ranks:
            message = f"{total:,} samples leave some of {ranks:,} ranks without one"
            raise Refused(message, ("batch",))
        return total

    def _by_speed(self) -> tuple[int, ...]:
        """Samples in proportion to how many a rank computes in a second at an equal share."""
        ranks, total = self.site.ranks, self._dealt
        seconds = self.slowness(total / ranks)
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
        whole, pace = self.varied.expanded, self.pace
        lasting = Variability(slow_ranks=whole.slow_ranks, slow_nodes=whole.slow_nodes)
        ranks = Crew(self.site.ranks, self.site.gpus)
        fixed = Spared(lasting, ranks, self.seed, spares=self.spares).fixed
        kinds = range(len(pace.kinds))
        seconds = [pace.uncalibrated_seconds(samples, kind) for kind in kinds]
        found = np.array(seconds)[list(pace.of_rank)]
        for rank, factor in fixed.items():
            found[rank] *= factor
        return np.asarray(found)

    @cached_property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """The different shares of ranks: samples of a micro-batch, and kind of device; the most
        samples first."""
        return tuple(sorted(set(self.of_rank), key=lambda part: (-part[0], part[1])))

    @cached_property
    def of_rank(self) -> tuple[tuple[int, int], ...]:
        """The part of every rank."""
        if self.site.devices is None and min(self.shares) == max(self.shares):
            return ((self.shares[0], 0),) * self.site.ranks
        return tuple(zip(self.shares, self.pace.of_rank, strict=True))

    @property
    def uneven(self) -> bool:
        """Whether ranks differ in samples or device."""
        return len(self.parts) > 1

    @property
    def rank_seconds(self) -> Array:
        """What every rank computes in a micro-batch, with nothing that varies [s]."""
        known = {part: self.pace.seconds(*part) for part in self.parts}
        return np.array([known[part] for part in self.of_rank])

    @property
    def step_seconds(self) -> float:
        """What a quiet rank computes in a step [s]; a model that is split is shared out evenly."""
        whole = self.pace.seconds(max(self.shares))
        return whole * self.batch.accumulation * self.mesh.data / self.site.ranks

    @cached_property
    def variation(self) -> Variation:
        """What makes ranks differ here: files read, nodes and compute known."""
        varied, site, seconds = self.varied, self.site, 0.0
        samples = max(self.shares) * self.batch.accumulation
        if varied.pauses is not None:
            seconds = self.step_seconds
            if len(self.pace.kinds) > 1:
                message = "pauses are not modelled where devices differ"
                raise Refused(message, ("variability", "pauses"))
        ranks = Crew(site.ranks, site.gpus, varied.nodes_per_rack, seconds, samples)
        if self.spares:
            return Spared(varied, ranks, self.seed, self.numbers, spares=self.spares)
        return Variation(varied, ranks, self.seed, self.numbers)

    def numbers(self, name: str) -> tuple[tuple[float, ...], str]:
        """The numbers of a file that says how ranks vary."""
        return read_numbers(below(self.site.base, name, "variability"))
