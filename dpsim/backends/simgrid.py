"""SimGrid: the ring of an S4U program over the network model CM02, to the nanosecond.

All-reduce takes 2(N-1) (latency + m/rate) with messages of m = S/N bytes; reduce-scatter and
all-gather, one pass of them, half of it.  In CM02 a message takes the sum of its links' latencies
and then moves at the rate of the slowest link, at most tcp_gamma/(2 latency): TCP's window over a
round trip (simgrid/simgrid 3.32, src/surf/network_cm02.cpp: surf_network_model_init_CM02 and
communicate).  The program has one actor per rank, which puts to the next and gets from the one
before, on full-duplex links of its own; so nothing is shared.  Not modelled: other network models
(LV08 has factors on latency and bandwidth), and what network/crosstraffic sends back.
"""

from __future__ import annotations

from dpsim.backends import Plan, Ranks, Topology, fixed
from dpsim.backends._peer_rings import passes
from dpsim.backends._toy import Toy
from dpsim.core import units
from dpsim.core.record import record


@record
class SimGrid(Toy):
    """What its platform file says of the links that a message crosses.

    latency    the sum of theirs (two of 250 ns: 500 ns)
    bandwidth  of the slowest of them, one way; left out: infinite
    tcp_gamma  TCP's window, the option network/TCP-gamma; 0: no window
    """

    tcp_gamma: units.Bytes = 4_194_304.0

    def plan(self, operation: str, ranks: Ranks, size: float, topology: Topology | None) -> Plan:
        n = len(ranks)
        steps = passes(operation, "SimGrid") * (n - 1)
        latency, transfer = steps * self.latency, steps * self._moving(size / n)
        return fixed(latency, transfer, operation, n, size, "ring")

    def _moving(self, size: float) -> float:
        """Time that a message of so many bytes takes apart from its latency [s]."""
        window = size * 2.0 * self.latency / self.tcp_gamma if self.tcp_gamma else 0.0
        return max(self.moving(size), window)
