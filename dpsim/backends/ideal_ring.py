"""Ideal ring: all-reduce takes 2(N-1)(latency + S/(N bandwidth)), half of it for the other two.

The textbook ring on private links (Patarasuk and Yuan 2009), without a machine.  A broadcast is
latency + S/bandwidth.
"""

from __future__ import annotations

import dataclasses

from dpsim.backends import Backend, Plan, fixed
from dpsim.record import record
from dpsim.topology import Topology
from dpsim.units import BytesPerSecond, Seconds


@record
class IdealRing(Backend):
    """`latency` [s] per message and `bandwidth` [B/s] of a rank, one way (None: infinite)."""

    latency: Seconds = 0.0
    bandwidth: BytesPerSecond | None = None

    ideal = True

    def plan(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology | None
    ) -> Plan:
        n = len(ranks)
        if operation == "broadcast":
            steps, piece = float(n > 1), size
        else:
            steps, piece = (2.0 if operation == "all_reduce" else 1.0) * (n - 1), size / n
        transfer = piece / self.bandwidth if self.bandwidth else 0.0
        return fixed(steps * (self.latency + transfer), operation, n, size, "ring")

    def faster(self, bandwidth: float, latency: float) -> IdealRing:
        return dataclasses.replace(
            self,
            latency=self.latency * latency,
            bandwidth=self.bandwidth * bandwidth if self.bandwidth else None,
        )
