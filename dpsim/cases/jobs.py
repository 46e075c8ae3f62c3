"""Jobs: the work of one rank, ready to be compiled."""

from __future__ import annotations

from dataclasses import dataclass

from dpsim.cases.batches import Batches
from dpsim.cases.variety import Variety
from dpsim.compile.strategies import Job
from dpsim.models import Model
from dpsim.models.compute import LayerTime, optimizer_seconds


@dataclass(frozen=True)
class Jobs:
    """Makes the jobs of ranks; under a `toy`, an ideal backend, there is no bookkeeping."""

    batches: Batches
    variety: Variety
    toy: bool

    def of(self, samples: float, part: Model | None = None, kind: int = 0) -> Job:
        """The work of one rank whose micro-batches have `samples` samples, on the device number
        `kind`; `part` is its part of the model where it does not hold all of it."""
        s, batches, pace = self.batches.scenario, self.batches, self.batches.pace
        device, work, toy = pace.hardware.kinds[kind], pace.hardware.work, self.toy
        timed = _recorded_update(work.model)
        return Job(
            model=part or work.model,
            times=pace.times(samples, part, kind),
            ranks=batches.mesh.data,
            micro_batches=s.batch.accumulation,
            samples=samples,
            precision=work.precision,
            optimizer=s.optimizer,
            serial=s.host.serial,
            copy_bandwidth=None
            if toy or device is None or timed is not None
            else device.memory_bandwidth,
            control=not toy,
            update=optimizer_seconds(s.optimizer.kind, 1.0, device) if timed is None else timed,
            slowest=None if part is not None else self._slowest(),
            local_size=batches.site.local_size,
            elsewhere=_elsewhere(batches.shares),
        )

    def _slowest(self) -> tuple[LayerTime, ...] | None:
        """Layer times on the rank that takes longest, by its share, its device and `slow_ranks`;
        None where all ranks are alike."""
        slow, batches, pace = self.variety.variation.fixed, self.batches, self.batches.pace
        if not slow and not batches.uneven:
            return None
        found = {(*part, slow.get(rank, 1.0)) for rank, part in enumerate(batches.of_rank)}
        if len(pace.hardware.kinds) == 1:
            share, kind, factor = max(found, key=lambda one: (one[0] * one[2], one))
        else:
            share, kind, factor = max(found, key=lambda one: (one[2] * pace.seconds(*one[:2]), one))
        return tuple(t.scaled(factor) for t in pace.times(share, kind=kind))


def _elsewhere(shares: tuple[int, ...]) -> int | None:
    """Samples of all ranks but the first, where ranks differ."""
    return None if min(shares) == max(shares) else sum(shares[1:])


def _recorded_update(model: Model) -> float | None:
    """Seconds per parameter of all that followed the last gradient of a recorded step: the
    optimizer, and DDP's copies, which are in the recorded durations already."""
    recorded = model.recorded
    if recorded is None or not recorded.timed:
        return None
    return recorded.after / max(model.parameters, 1)
