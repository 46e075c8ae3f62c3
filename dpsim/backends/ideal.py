"""Ideal: every operation takes latency + bytes/bandwidth, whatever the number of ranks.

The toy of hand-checked examples: `bytes` is the full, unsharded size (of a send, the message); one
rank alone takes no time; communicators don't share anything.
"""

from __future__ import annotations

from dpsim.backends import Plan, Ranks, Topology, fixed
from dpsim.backends._toy import Toy
from dpsim.core.record import record


@record
class Ideal(Toy):
    """`latency` [s] per operation and `bandwidth` [B/s] for its full size (None: infinite)."""

    def plan(self, operation: str, ranks: Ranks, size: float, topology: Topology | None) -> Plan:
        n = len(ranks)
        alone = n == 1
        return fixed(
            0.0 if alone else self.latency,
            0.0 if alone else self.moving(size),
            operation,
            n,
            size,
            "ideal",
        )
