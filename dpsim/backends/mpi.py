"""MPI: Open MPI's or MPICH's own choice of algorithm, over host memory or GPU to GPU.

* The library's default rules choose the algorithm by ranks and size (`_mpi_rules`).
* A message takes a latency, its bytes over the most loaded link of its way, and the CPU's addition.
* Buffers of a GPU are copied to the host before and back after, unless `cuda_aware`.  All-reduces
  are copied even then: both libraries reduce in host memory (open-mpi/ompi
  ompi/mca/coll/cuda/coll_cuda_allreduce.c; pmodels/mpich MPIR_Coll_host_buffer_alloc in
  src/mpi/coll).
* One collective at a time: torch's process group has one thread for them (pytorch/pytorch
  torch/csrc/distributed/c10d/ProcessGroupMPI.cpp).

Messages between processes of one node go through shared memory, whose speed no machine file
states: without the key `shared_memory` they are refused, except from GPU to GPU.  MPICH composes
collectives of several processes a node in a way of its own (ch4), which is not modelled.  No eager
and rendezvous protocols, no coll/han, no vendor's tuning files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from dpsim.backends import Backend, Edge, Phase, Plan, Ranks, Topology
from dpsim.backends._mpi_rounds import Round, rounds
from dpsim.backends._mpi_rules import RULES, choose
from dpsim.collectives import Transfer
from dpsim.core import units
from dpsim.core.record import Refused, Text, record

Route = Callable[[int, int], tuple[Edge, ...]]
_REDUCES = ("all_reduce",)


@record
class Mpi(Backend):
    """The library, where its buffers are, and how fast the host is.

    implementation  open_mpi or mpich
    version     whose rules choose: "4.0" or "5.0" of Open MPI (4.1 has those of 5.0), "3" or "4" of
                MPICH; "" is the newest known
    buffers     device: gradients are in a GPU's memory; host: on a processor
    cuda_aware  the library moves GPU buffers itself, without copies (not those it reduces)
    latency     of one message [s]; left out: that of the links of the machine file, which for most
                machines is NCCL's and longer than MPI's on RDMA.  osu_latency measures it
    efficiency  payload over a link's nominal bandwidth; osu_bw over the nominal one measures it
    reduce      bytes that a process adds up in a second.  Default: median of what 22 published
                all-reduces of 8 MB and more leave for it on two clusters (2.0 to 5.6 GB/s but for
                two; validation/published, lumi_cpu and mn5_cpu, one rank a node)
    copy        rate of a copy between GPU and host; left out: that of the links between them
                (pinned memory)
    copy_latency  of such a copy.  Default: a choice, the time of a small synchronous copy
    shared_memory  rate of a message between two processes of a node, whatever the others do [B/s];
                left out: unknown, one rank a node is accepted
    """

    implementation: Literal["open_mpi", "mpich"] = "open_mpi"
    version: Text = ""
    buffers: Literal["device", "host"] = "device"
    cuda_aware: bool = False
    latency: units.Seconds | None = None
    efficiency: units.PositiveFraction = 1.0
    reduce: units.BytesPerSecond = 3e9
    copy: units.BytesPerSecond | None = None
    copy_latency: units.Seconds = 10e-6
    shared_memory: units.BytesPerSecond | None = None

    def __post_init__(self) -> None:
        known = RULES[self.implementation]
        if self.version and self.version not in known:
            accepted = ", ".join(f'"{v}"' for v in known)
            message = f"the rules of {self.implementation} {self.version[:20]} are not known"
            raise Refused(f"{message}; accepted: {accepted}", ("version",))
        if self.cuda_aware and self.buffers == "host":
            raise Refused("means nothing for buffers on the host", ("cuda_aware",))

    def plan(self, operation: str, ranks: Ranks, size: float, topology: Topology | None) -> Plan:
        ranks = tuple(ranks)
        n = len(ranks)
        if n == 1:
            return Plan((), None, "none", 0.0)
        assert topology is not None
        if operation == "send":
            name, found = "send", [Round(1, _sends(ranks, size))]
        else:
            version = self.version or list(RULES[self.implementation])[-1]
            rule = choose(self.implementation, version, operation, n, size)
            name = rule.algorithm
            found = rounds(operation, rule, ranks, size, topology)
        direct = self.cuda_aware and operation not in _REDUCES
        self._require_known_ways(operation, ranks, topology, direct)
        route: Route = topology.route if direct else _HostRoutes(topology)
        phases = [self._phase(r, route, topology) for r in found]
        if self.buffers == "device" and not direct:
            phases = list(self._staged(operation, ranks, size, phases, topology))
        total = sum(r.repeats * sum(t.bytes for t in r.transfers) for r in found)
        sent = size if operation == "send" else total / n
        return Plan(tuple(phases), None, name, sent)

    def _phase(self, found: Round, route: Route, topology: Topology) -> Phase:
        """The repeats of a round: its slowest message sets the pace, then the CPU adds up."""
        messages = [(size, route(a, b)) for a, b, size in found.transfers]
        loads = _loads(messages)
        busy = {
            edge: load / (topology.link(edge).bandwidth * self.efficiency)
            for edge, load in loads.items()
        }
        busiest = max(busy, key=lambda edge: busy[edge], default=None)
        pace = 0.0 if busiest is None else busy[busiest]
        slowest = max(self._alone(size, way, busy, topology) for size, way in messages)
        count = found.repeats
        waiting = count * (slowest - pace + found.added / self.reduce)
        if busiest is None:
            return Phase(waiting)
        return Phase(
            latency=waiting,
            seconds=count * pace,
            loads={edge: count * load for edge, load in loads.items()},
            size=count * max(loads.values()) / self.efficiency,
            busiest=busiest,
        )

    def _alone(
        self, size: float, way: tuple[Edge, ...], busy: Mapping[Edge, float], topology: Topology
    ) -> float:
        """Latency and moving of one message [s]; without a way it goes through shared memory."""
        latency = self.latency
        if latency is None:
            latency = sum(topology.link(edge).latency for edge in way)
        if way:
            return latency + max(busy[edge] for edge in way)
        assert self.shared_memory is not None
        return latency + size / self.shared_memory

    def _staged(
        self, operation: str, ranks: tuple[int, ...], size: float, moved: list[Phase],
        topology: Topology,
    ) -> Iterator[Phase]:  # fmt: skip
        """`moved` between a copy of what each rank gives and one of what it gets."""
        giving = ranks if operation != "broadcast" else ranks[:1]
        getting = ranks if operation != "broadcast" else ranks[1:]
        if operation == "send" and len(ranks) == 2:
            giving, getting = ranks[:1], ranks[1:]
        given = size / len(ranks) if operation == "all_gather" else size
        yield self._copies(giving, given, topology, down=True)
        yield from moved
        yield self._copies(getting, size, topology, down=False)

    def _copies(
        self, ranks: tuple[int, ...], size: float, topology: Topology, *, down: bool
    ) -> Phase:
        host = _HostRoutes(topology)
        ways = [host.to_host(rank) if down else host.to_device(rank) for rank in ranks]
        loads = _loads([(size, way) for way in ways])
        busy = {edge: load / topology.link(edge).bandwidth for edge, load in loads.items()}
        busiest = max(busy, key=lambda edge: busy[edge])
        own = 0.0 if self.copy is None else size / self.copy
        seconds = max(busy[busiest], own)
        return Phase(self.copy_latency, seconds, loads, max(loads.values()), busiest)

    def _require_known_ways(
        self, operation: str, ranks: tuple[int, ...], topology: Topology, direct: bool
    ) -> None:
        """Refused where nothing is known of the messages inside a node."""
        if len({topology.node_of(rank) for rank in ranks}) == len(ranks):
            return
        path = ("collective", "backend")
        modelled = "mpi is modelled between nodes with one rank each (gpus_per_node: 1 is accepted)"
        if self.implementation == "mpich" and operation != "send":
            raise Refused(f"{modelled}, and MPICH over several ranks a node is not", path)
        if not direct and self.shared_memory is None:
            raise Refused(
                f"{modelled}, or with shared_memory, the rate of messages inside a node", path
            )


@dataclass(frozen=True)
class _HostRoutes:
    """Ways between the hosts' memories: from the socket nearest to a rank's GPU over its NIC.

    Inside a node there is none: shared memory.
    Where a machine file has no sockets, its ranks are the hosts themselves.
    """

    topology: Topology

    def __call__(self, source: int, target: int) -> tuple[Edge, ...]:
        if self.topology.node_of(source) == self.topology.node_of(target):
            return ()
        whole = self.topology.route(source, target)
        if not self.topology.sockets:
            return whole
        outside = tuple(e for e in whole if {e[0][0], e[1][0]} & {"leaf", "spine"})
        leaves, enters = outside[0][0], outside[-1][1]
        return (
            *self._way(self._socket(source), leaves),
            *outside,
            *self._way(enters, self._socket(target)),
        )

    def to_host(self, rank: int) -> tuple[Edge, ...]:
        """From a rank's GPU to its host's memory."""
        return self._way(self._device(rank), self._socket(rank))

    def to_device(self, rank: int) -> tuple[Edge, ...]:
        """From the host's memory to a rank's GPU."""
        return self._way(self._socket(rank), self._device(rank))

    def _device(self, rank: int) -> tuple[str, int, int]:
        node, gpu = divmod(rank, self.topology.gpus)
        return "gpu", node, gpu

    def _socket(self, rank: int) -> tuple[str, int, int]:
        gpu = rank % self.topology.gpus
        if not self.topology.sockets:
            raise Refused(
                "this machine's file names no sockets, so nothing is known of copies between GPU "
                "and host; set buffers: host, or cuda_aware: true",
                ("collective", "backend"),
            )
        near = min(
            self.topology.sockets,
            key=lambda k: (len(self.topology.inside(("gpu", 0, gpu), ("socket", 0, k))), k),
        )
        return ("socket", self.topology.node_of(rank), near)

    def _way(self, source: tuple[str, int, int], target: tuple[str, int, int]) -> tuple[Edge, ...]:
        node = source[1]
        inside = self.topology.inside((source[0], 0, source[2]), (target[0], 0, target[2]))
        return tuple(((a[0], node, *a[2:]), (b[0], node, *b[2:])) for a, b in inside)


def _sends(ranks: tuple[int, ...], size: float) -> tuple[Transfer, ...]:
    if len(ranks) == 2:
        return (Transfer(ranks[0], ranks[1], size),)
    return tuple(Transfer(a, b, size) for a, b in pairwise((*ranks, ranks[0])))


def _loads(messages: Iterable[tuple[float, tuple[Edge, ...]]]) -> dict[Edge, float]:
    """Bytes on each link."""
    found: dict[Edge, float] = {}
    for size, way in messages:
        for edge in way:
            found[edge] = found.get(edge, 0.0) + size
    return found
