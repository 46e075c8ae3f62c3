"""What the ideal backends share: a latency, a bandwidth and no machine."""

from __future__ import annotations

from dpsim.backends import Backend
from dpsim.core import units
from dpsim.core.record import record


@record
class Toy(Backend):
    """`latency` [s] and `bandwidth` [B/s] (None: infinite) of the toy's one network."""

    latency: units.Seconds = 0.0
    bandwidth: units.BytesPerSecond | None = None

    ideal = True

    def moving(self, size: float) -> float:
        """Time that `size` bytes take apart from the latency [s]."""
        return size / self.bandwidth if self.bandwidth else 0.0
