"""What the ideal backends share: a latency, a bandwidth and no machine."""

from __future__ import annotations

from dpsim.backends import Backend
from dpsim.core.record import record
from dpsim.core.units import BytesPerSecond, Seconds


@record
class Toy(Backend):
    """`latency` [s] and `bandwidth` [B/s] (None: infinite) of the toy's one network."""

    latency: Seconds = 0.0
    bandwidth: BytesPerSecond | None = None

    ideal = True

    def moving(self, size: float) -> float:
        """Time that `size` bytes take apart from the latency [s]."""
        return size / self.bandwidth if self.bandwidth else 0.0
