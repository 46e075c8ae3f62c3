"""Ideal: every operation takes latency + bytes/bandwidth, whatever the number of ranks.

The toy of hand-checked examples: `bytes` is the full, unsharded size; one rank alone takes no
time; communicators don't share anything.
"""

from __future__ import annotations

import dataclasses

from dpsim.backends import Backend, Plan, fixed
from dpsim.record import record
from dpsim.topology import Topology
from dpsim.units import BytesPerSecond, Seconds


@record
class Ideal(Backend):
    """`latency` [s] per operation and `bandwidth` [B/s] for its full size (None: infinite)."""

    latency: Seconds = 0.0
    bandwidth: BytesPerSecond | None = None

    ideal = True

    def plan(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology | None
    ) -> Plan:
        n = len(ranks)
        transfer = size / self.bandwidth if self.bandwidth else 0.0
        seconds = self.latency + transfer if n > 1 else 0.0
        return fixed(seconds, operation, n, size, "ideal")

    def faster(self, bandwidth: float, latency: float) -> Ideal:
        return dataclasses.replace(
            self,
            latency=self.latency * latency,
            bandwidth=self.bandwidth * bandwidth if self.bandwidth else None,
        )
