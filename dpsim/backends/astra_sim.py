"""ASTRA-sim: the ring of ASTRA-sim 2.0 over its analytical network, to the nanosecond.

The congestion-aware and the unaware network give one answer on a ring.  An all-reduce takes

    splits (2(N-1) (floor(latency + m/bandwidth) + d) + (N-1) 3 floor(m/memory) + d)   [ns]

with messages of m = S/splits/N whole bytes and the endpoint delay d.  A reduce-scatter is its first
half; an all-gather its second, which adds nothing up.  The parts run one after another (one active
chunk per dimension).  Read in astra-sim/astra-sim 2.0 (commit 518bd513), below astra-sim/system/:
messages and what is added up in astraccl/native_collectives/collective_algorithm/Ring.cc, a write
and two reads of it in PacketBundle.cc, the delay in MemBus.cc, the parts in Sys.cc
(generate_collective, determine_chunk_size); whole nanoseconds of a message in
astra-sim/astra-network-analytical, congestion_aware/network/Link.cpp.

Not modelled: other topologies, all-to-all (a ring forwards its messages), and broadcast, which
ASTRA-sim itself does not carry out.
"""

from __future__ import annotations

import math
from typing import Annotated

from dpsim.backends import Plan, Ranks, Topology, fixed
from dpsim.backends._peer_rings import passes
from dpsim.backends._toy import Toy
from dpsim.core import units
from dpsim.core.record import Check, Refused, Text, record

_LACKS = "; all_to_all is forwarded there from rank to rank, and broadcast is a stub"


@record
class AstraSim(Toy):
    """What its network and system files say.  It counts 2^30 bytes to the GB of the former and 10^9
    to that of the latter: `bandwidth: [ 50 ]` there is `50 GiB/s` here, and `"local-mem-bw": 1600`
    is `1600 GB/s`.

    latency         of a link
    bandwidth       of a link, one way; left out: infinite
    topology        of the network file; Ring is modelled
    splits          preferred-dataset-splits: parts of a collective that run one after another
    endpoint_delay  endpoint-delay of every message, in whole ns
    local_memory_bandwidth  local-mem-bw, which adding up takes; left out: it takes no time
    """

    topology: Text = "Ring"
    splits: Annotated[int, Check(1, 1_000_000)] = 1
    endpoint_delay: units.Seconds = 10e-9
    local_memory_bandwidth: units.BytesPerSecond | None = None

    def __post_init__(self) -> None:
        if self.topology != "Ring":
            message = f"{self.topology[:40]!r} is not modelled as ASTRA-sim plays it; Ring is"
            raise Refused(message, ("topology",))
        if not _ns(self.endpoint_delay).is_integer():
            raise Refused("is counted in whole nanoseconds there", ("endpoint_delay",))

    def plan(self, operation: str, ranks: Ranks, size: float, topology: Topology | None) -> Plan:
        n = len(ranks)
        steps = passes(operation, "ASTRA-sim", _LACKS) * (n - 1)
        if n == 1 or size <= 0:
            return fixed(0.0, 0.0, operation, n, size, "ring")
        parts, message = self._parts(operation, n, int(size))
        rate = self.bandwidth / 1e9 if self.bandwidth else math.inf
        delay, latency = _ns(self.endpoint_delay), _ns(self.latency)
        empty = steps * (math.floor(latency) + delay) + delay
        whole = steps * (math.floor(latency + message / rate) + delay) + delay
        if operation != "all_gather":
            whole += (n - 1) * 3 * self._memory(message)
        whole, empty = parts * whole / 1e9, parts * empty / 1e9
        return fixed(empty, whole - empty, operation, n, size, "ring")

    def _parts(self, operation: str, n: int, size: int) -> tuple[int, int]:
        """How many parts of equal size run one after another, and the bytes of their messages."""
        if operation == "all_gather":  # whose size is that of one rank's part there
            size //= n
            part = max(size // self.splits, 1)
            return -(-size // part), part
        part = size // self.splits
        if part < n:
            size, part = self.splits * n, n
        return -(-size // part), part // n

    def _memory(self, message: int) -> int:
        """One of the three times that adding up takes [ns]."""
        bandwidth = self.local_memory_bandwidth
        return math.floor(message / bandwidth * 1e9) if bandwidth else 0


def _ns(seconds: float) -> float:
    """Nanoseconds; 500e-9 s are 500, and not the float below."""
    return round(seconds * 1e9, 6)
