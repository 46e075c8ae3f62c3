"""Hardware: which kind of device every rank has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpsim.cases.site import Site, named
from dpsim.cases.work import Work
from dpsim.core.record import Refused
from dpsim.describe.scenario import Parallel
from dpsim.describe.uneven import ranks_of
from dpsim.machines.devices import Device
from dpsim.machines.machine import load_device


@dataclass(frozen=True)
class Hardware:
    """The machine's own device, and those that some ranks have instead."""

    site: Site
    work: Work
    parallel: Parallel

    @cached_property
    def kinds(self) -> tuple[Device | None, ...]:
        """The kinds of devices that ranks have; the machine's own is the first."""
        given = self.site.cluster.devices
        if not given:
            return (self.site.device,)
        found = [self.site.device]
        for name in given.values():
            device = self._named(name)
            if device not in found:
                found.append(device)
        if len(found) > 1 and not self.parallel.mesh(self.site.ranks).plain:
            message = "ranks that share a model have one kind of device; leave it out"
            raise Refused(message, ("cluster", "devices"))
        if len(found) > 1 and any(layer.forward is not None for layer in self.work.model.layers):
            raise Refused(
                "the model's layers state their durations, whatever the device; say how slow ranks "
                "are with variability.slow_ranks",
                ("cluster", "devices"),
            )
        return tuple(found)

    def _named(self, name: str) -> Device:
        return named(self.site.base, "devices", name, load_device)

    @cached_property
    def of_rank(self) -> tuple[int, ...]:
        """The place in `kinds` of every rank's own."""
        found = [0] * self.site.ranks
        for text, name in (self.site.cluster.devices or {}).items():
            number = self.kinds.index(self._named(name))
            for ranks in ranks_of(text):
                found[ranks.start : ranks.stop] = [number] * len(found[ranks.start : ranks.stop])
        return tuple(found)

    @property
    def peak(self) -> float | None:
        """What all devices could do in the dtype that they compute in [FLOP/s]."""
        if self.site.device is None:
            return None
        counts = np.bincount(self.of_rank, minlength=len(self.kinds))
        return float(sum(self.peak_of(k) * int(count) for k, count in enumerate(counts) if count))

    def peak_of(self, kind: int) -> float:
        """What one device of this kind could do [FLOP/s]; Refused where it lacks the dtype."""
        device = self.kinds[kind]
        assert device is not None
        try:
            return device.peak_for(self.work.precision.compute)
        except ValueError as error:
            raise Refused(str(error), ("precision", "compute")) from None
