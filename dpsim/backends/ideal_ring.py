"""Ideal ring: all-reduce takes 2(N-1)(latency + S/(N bandwidth)), half of it for most others.

The textbook ring on private links (Patarasuk and Yuan 2009), without a machine.  All-gather and
reduce-scatter are one pass of N-1 messages of S/N bytes.  So is an all-to-all, which is no ring: in
round k every rank sends S/N bytes to the rank k further on (pairwise exchange; Thakur, Rabenseifner
and Gropp 2005).  A broadcast, a reduce (its mirror image) and a send are latency + S/bandwidth: a
pipeline of pieces too small to count.
"""

from __future__ import annotations

from dpsim.backends import Plan, Ranks, Topology, fixed
from dpsim.backends._toy import Toy
from dpsim.core.record import record

#: operations of one message of all bytes, on every link that they cross
_PIPELINES = ("broadcast", "reduce", "send")


@record
class IdealRing(Toy):
    """`latency` [s] per message and `bandwidth` [B/s] of a rank, one way (None: infinite)."""

    def plan(self, operation: str, ranks: Ranks, size: float, topology: Topology | None) -> Plan:
        n = len(ranks)
        if operation in _PIPELINES:
            steps, piece = float(n > 1), size
        else:
            steps, piece = (2.0 if operation == "all_reduce" else 1.0) * (n - 1), size / n
        latency, transfer = steps * self.latency, steps * self.moving(piece)
        return fixed(latency, transfer, operation, n, size, "ring")
