"""Ideal ring: all-reduce takes 2(N-1)(latency + S/(N bandwidth)), half of it for the other two.

The textbook ring on private links (Patarasuk and Yuan 2009), without a machine.  A broadcast is
latency + S/bandwidth.
"""

from __future__ import annotations

from dpsim.backends import Plan, fixed
from dpsim.backends._toy import Toy
from dpsim.record import record
from dpsim.topology import Topology


@record
class IdealRing(Toy):
    """`latency` [s] per message and `bandwidth` [B/s] of a rank, one way (None: infinite)."""

    def plan(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology | None
    ) -> Plan:
        n = len(ranks)
        if operation == "broadcast":
            steps, piece = float(n > 1), size
        else:
            steps, piece = (2.0 if operation == "all_reduce" else 1.0) * (n - 1), size / n
        latency, transfer = steps * self.latency, steps * self.moving(piece)
        return fixed(latency, transfer, operation, n, size, "ring")
