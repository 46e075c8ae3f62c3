"""gloo: CPU collectives over TCP, as PyTorch's ProcessGroupGloo uses them.

Rules read in pytorch/gloo gloo/{allreduce,allgather,broadcast,reduce,alltoall}.cc (commits
0fdde35a, 19f1d3ac, e0055310, 55b6bf77, 3d08580f) and pytorch/pytorch
torch/csrc/distributed/c10d/ProcessGroupGloo.cpp (commit 0069b729):

* All-reduce is a ring in rank order over segments.  The buffer has max(ceil(S / 1 MiB), 2P)
  segments, rounded up to a multiple of P; k = segments / P of them make a rank's chunk.
  Reduce-scatter, then all-gather; (P-1) k segments are sent in each.
* Two segments are in flight: the next one is sent when the last but one has arrived and has been
  added up.  So transfer, latency and the CPU's addition overlap two deep.
* All-gather is such a ring with two segments a rank; a broadcast is a binomial tree of whole
  messages; a reduce-scatter is an all-reduce of which every rank keeps its part.
* A reduce is the reduce-scatter of an all-reduce, but for its loop, which sends 2 segments fewer
  than there are; then every rank sends its chunk to the root, all at once.
* An all-to-all posts its P-1 messages at once, a send is one message; the hosts' own time for each
  of many messages at once is not modelled, only that of one.
* A process group has two worker threads, which take collectives off one queue in order; so two
  of them run at once and share the links (`Options`: two threads per device, one device).

Bytes move between host memories.  Ranks of one node would talk over the loopback interface, which
no machine file states, so they are refused; so is nothing said of copies from and to a GPU.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Annotated

from dpsim.backends import Backend, Edge, Phase, Plan, Topology
from dpsim.collectives import ring_payload
from dpsim.core import units
from dpsim.core.record import Check, Refused, record

MAX_SEGMENT = 1024 * 1024  # bytes; gloo/allreduce.h, kMaxSegmentSize

Hop = tuple[int, int]


@record
class Gloo(Backend):
    """Settings of a network and of the hosts on it.

    latency   of one message beside the links' own: system calls, wake-ups, TCP [s].  Default:
              least time of a 64 B all-reduce of two hosts, halved (validation/lab, 2-core x86-64)
    efficiency  payload over a link's nominal bandwidth.  Default: 1448 of the 1538 bytes that a
              full Ethernet frame takes on the wire (MTU 1500, TCP timestamps)
    reduce    bytes of segments that one CPU thread adds up in a second.  Default: fp32 sum of
              1 MiB from memory (torch 2.13, one thread of an x86-64 machine: 7 to 12 GB/s)
    threads   worker threads of the process group: collectives that run at once
    """

    latency: units.Seconds = 60e-6
    efficiency: units.PositiveFraction = 0.94
    reduce: units.BytesPerSecond = 10e9
    threads: Annotated[int, Check(1, 64)] = 2

    @property
    def concurrency(self) -> int:
        return self.threads

    def plan(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology | None
    ) -> Plan:
        n = len(ranks)
        if n == 1:
            return Plan((), None, "none", 0.0)
        assert topology is not None
        _require_one_rank_a_node(ranks, topology)
        if operation == "broadcast":
            return self._tree(ranks, size, topology)
        if operation == "all_gather":
            onward = list(zip(ranks, ranks[1:] + ranks[:1], strict=True))
            gathered = self._phase(onward, 2 * (n - 1), size / (2 * n), 0.0, topology)
            return Plan((gathered,), None, "ring", (n - 1) * size / n)
        if operation in ("all_to_all", "send"):
            return self._messages(operation, ranks, size, topology)
        if operation == "reduce":
            return self._reduce(ranks, size, topology)
        per_rank = segments(size, n) // n
        count, segment = (n - 1) * per_rank, size / (n * per_rank)
        back = list(zip(ranks, ranks[-1:] + ranks[:-1], strict=True))
        phases = (
            self._phase(back, count, segment, segment / self.reduce, topology),
            self._phase(back, count, segment, 0.0, topology),
        )
        return Plan(phases, None, "ring", 2 * count * segment)

    def _messages(
        self, operation: str, ranks: tuple[int, ...], size: float, topology: Topology
    ) -> Plan:
        """Messages that are all under way at once."""
        n, part, hops = len(ranks), size, [(ranks[0], ranks[1])]
        if operation == "all_to_all":
            part, hops = size / n, [(a, b) for a in ranks for b in ranks if a != b]
        elif n > 2:
            hops = list(zip(ranks, ranks[1:] + ranks[:1], strict=True))
        found = self._phase(hops, 1, part, 0.0, topology)
        return Plan((found,), None, "direct", ring_payload(operation, n, size))

    def _reduce(self, ranks: tuple[int, ...], size: float, topology: Topology) -> Plan:
        n, found = len(ranks), segments(size, len(ranks))
        back = list(zip(ranks, ranks[-1:] + ranks[:-1], strict=True))
        segment = size / found
        adding = self._phase(back, found - 2, segment, segment / self.reduce, topology)
        to_root = [(rank, ranks[0]) for rank in ranks[1:]]
        gathered = self._phase(to_root, 1, size / n, 0.0, topology)
        sent = (found - 2) * segment + (n - 1) / n * size / n
        return Plan((adding, gathered), None, "ring", sent)

    def _tree(self, ranks: tuple[int, ...], size: float, topology: Topology) -> Plan:
        """In round i the first 2^i ranks send to the ranks 2^i further on.

        The root issues all its messages at once; they share its link, so the last one arrives as
        if they went one after the other.
        """
        n = len(ranks)
        phases = []
        for i in range((n - 1).bit_length()):
            hops = [(ranks[a], ranks[a + 2**i]) for a in range(2**i) if a + 2**i < n]
            phases.append(self._phase(hops, 1, size, 0.0, topology))
        return Plan(tuple(phases), None, "binomial tree", (n - 1) * size / n)

    def _phase(
        self, hops: list[Hop], count: int, segment: float, adding: float, topology: Topology
    ) -> Phase:
        """`count` segments over every hop at once, two in flight; `adding` up one takes the CPU
        that long [s]."""
        crossings = _crossings(hops, topology)
        busy = {
            edge: times / (topology.link(edge).bandwidth * self.efficiency)
            for edge, times in crossings.items()
        }
        busiest = max(busy, key=lambda edge: busy[edge])
        wire = busy[busiest] * segment
        total = pipelined(count, self.latency + _latency(hops, topology), wire, adding)
        return Phase(
            latency=total - count * wire,
            seconds=count * wire,
            loads={edge: times * count * segment for edge, times in crossings.items()},
            size=max(crossings.values()) * count * segment / self.efficiency,
            busiest=busiest,
        )


def segments(size: float, n: int) -> int:
    """How many segments an all-reduce of `size` bytes over `n` ranks has."""
    wanted = max(math.ceil(size / MAX_SEGMENT), 2 * n)
    return -(-wanted // n) * n


def pipelined(count: int, latency: float, wire: float, adding: float) -> float:
    """Time of `count` segments with two in flight [s].

    Each takes `wire` on the link, arrives `latency` later and is then added up in `adding`.
    Either the slower of link and CPU sets the pace, or the way of a segment there and through,
    of which two are under way at a time.
    """
    through, pace = latency + wire + adding, max(wire, adding)
    odd = count % 2
    return max(through + (count - 1) * pace, (count + odd) / 2 * through + (1 - odd) * pace)


def _crossings(hops: Iterable[Hop], topology: Topology) -> Counter[Edge]:
    """How many hops cross each link."""
    found: Counter[Edge] = Counter()
    for source, target in hops:
        found.update(topology.route(source, target))
    return found


def _latency(hops: Iterable[Hop], topology: Topology) -> float:
    """The longest latency of the links of a hop [s]."""
    return max(sum(topology.link(edge).latency for edge in topology.route(*hop)) for hop in hops)


def _require_one_rank_a_node(ranks: tuple[int, ...], topology: Topology) -> None:
    if len({topology.node_of(rank) for rank in ranks}) < len(ranks):
        raise Refused(
            "gloo is modelled between nodes with one rank each; several ranks of one node talk "
            "over its loopback interface, which is not modelled (gpus_per_node: 1 is accepted)",
            ("collective", "backend"),
        )
