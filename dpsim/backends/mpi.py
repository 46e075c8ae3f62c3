"""MPI: Open MPI's or MPICH's own choice of algorithm, over host memory or GPU to GPU.

* The library's default rules choose the algorithm by ranks and size (`_mpi_rules`).
* A message takes a latency, its bytes over the most loaded link of its way, and the CPU's addition.
* Buffers of a GPU are copied to the host before and back after, unless `cuda_aware`.  All-reduces
  are copied even then: both libraries reduce in host memory (open-mpi/ompi
  ompi/mca/coll/cuda/coll_cuda_allreduce.c; pmodels/mpich MPIR_Coll_host_buffer_alloc in
  src/mpi/coll).
* Over sockets a message has one TCP connection (btl_tcp_links of Open MPI is 1), which carries no
  more than the rate fitted for NCCL's on such a network (`ethernet.flow` and its like).
* One collective at a time: torch's process group has one thread for them (pytorch/pytorch
  torch/csrc/distributed/c10d/ProcessGroupMPI.cpp).

Messages between processes of one node go through shared memory, whose speed no machine file
states: without the key `shared_memory` they are refused, except from GPU to GPU.  MPICH composes
collectives of several processes a node in a way of its own (ch4), which is not modelled.  No eager
and rendezvous protocols, no coll/han, no vendor's tuning files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np

from dpsim.backends import Backend, Edge, Phase, Plan, Ranks, Topology
from dpsim.backends._mpi_rounds import Round, rounds
from dpsim.backends._mpi_rules import ALGORITHMS, RULES, MpiRule, choose, forced
from dpsim.backends._nccl_time import shipped
from dpsim.backends._nccl_traffic import is_cable
from dpsim.collectives import TransferList, Transfers, convoys_of, members_of, onward, rank_array
from dpsim.core import units
from dpsim.core.arrays import Array, IntArray
from dpsim.core.record import Refused, Text, record
from dpsim.machines.devices import SOCKETS
from dpsim.machines.fabrics import Vertex
from dpsim.machines.tally import Convoy, Tally
from dpsim.machines.topology import Way

_REDUCES = ("all_reduce", "reduce_scatter")


@record
class Mpi(Backend):
    """The library, where its buffers are, and how fast the host is.

    implementation  open_mpi or mpich
    version     whose rules choose: "4.0" or "5.0" of Open MPI (4.1 has those of 5.0), "3" or "4" of
                MPICH; "" is the newest known
    algorithm   taken for every operation in place of the library's choice; "auto": that
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
    algorithm: Text = "auto"
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
        named = sorted({name for names in ALGORITHMS.values() for name in names})
        if self.algorithm not in ("auto", *named):
            message = f"{self.algorithm[:40]!r} is not known; accepted: auto, {', '.join(named)}"
            raise Refused(message, ("algorithm",))
        if self.cuda_aware and self.buffers == "host":
            raise Refused("means nothing for buffers on the host", ("cuda_aware",))

    def plan(self, operation: str, ranks: Ranks, size: float, topology: Topology | None) -> Plan:
        n = len(ranks)
        if n == 1:
            return Plan((), None, "none", 0.0)
        assert topology is not None
        if operation == "send":
            name, found = "send", [Round(1, onward(ranks, size))]
        else:
            rule = self._rule(operation, n, size)
            name = rule.algorithm
            found = rounds(operation, rule, ranks, size, topology)
        direct = self.cuda_aware and operation not in _REDUCES
        self._require_known_ways(operation, ranks, topology, direct)
        host = None if direct else _Hosts(topology)
        phases = [self._phase(r, host, topology) for r in found]
        if self.buffers == "device" and not direct:
            phases = list(self._staged(operation, ranks, size, phases, topology))
        total = sum(r.repeats * TransferList.of(r.transfers).bytes for r in found)
        sent = size if operation == "send" else total / n
        return Plan(tuple(phases), None, name, sent)

    def _rule(self, operation: str, n: int, size: float) -> MpiRule:
        """The algorithm for `size` bytes over `n` ranks."""
        if self.algorithm != "auto":
            return forced(self.algorithm, operation, n)
        version = self.version or list(RULES[self.implementation])[-1]
        return choose(self.implementation, version, operation, n, size)

    def _phase(self, found: Round, host: _Hosts | None, topology: Topology) -> Phase:
        """The repeats of a round: its slowest message sets the pace, then the CPU adds up."""
        convoys = [
            (convoy if host is None else host.convoy(convoy, part), part)
            for flow in TransferList.of(found.transfers).parts
            for convoy, part in convoys_of(flow, topology)
        ]
        tally = Tally(topology, _nodes(convoy for convoy, _ in convoys))
        connection = _connection(topology)
        for convoy, part in convoys:
            tally.add(convoy, part.bytes, part.order)
        loads, count = tally.loads(), found.repeats
        pace = loads.slowest[0] / self.efficiency if loads else 0.0
        apart = [float(np.max(p.bytes)) for convoy, p in convoys if convoy.way.nics]
        alone = max(apart, default=0.0) / connection
        pace = max(pace, alone)
        slowest = max(
            max(self._alone(tally, convoy, part.bytes), alone) for convoy, part in convoys
        )
        waiting = count * (slowest - pace + found.added / self.reduce)
        if not loads:
            return Phase(waiting)
        return Phase(
            latency=waiting,
            seconds=count * pace,
            loads=loads.of(count * loads.carried),
            size=count * loads.most / self.efficiency,
            busiest=loads.slowest[1],
        )

    def _alone(self, tally: Tally, convoy: Convoy, size: float | Array) -> float:
        """Latency and moving of the slowest message of a convoy on its own [s]; without a way they
        go through shared memory."""
        latency = tally.latencies(convoy) if self.latency is None else self.latency
        busy: Array | float = 0.0
        for _, loads, bandwidths in tally.crossed(convoy):
            busy = np.fmax(busy, loads / bandwidths / self.efficiency)
        if convoy.way == Way(()):
            assert self.shared_memory is not None
            busy = size / self.shared_memory
        return float(np.max(latency + busy))

    def _staged(
        self, operation: str, ranks: Ranks, size: float, moved: list[Phase],
        topology: Topology,
    ) -> Iterator[Phase]:  # fmt: skip
        """`moved` between a copy of what each rank gives and one of what it gets."""
        giving = ranks if operation != "broadcast" else ranks[:1]
        getting = ranks if operation != "broadcast" else ranks[1:]
        if operation == "send" and len(ranks) == 2:
            giving, getting = ranks[:1], ranks[1:]
        given = size / len(ranks) if operation == "all_gather" else size
        got = size / len(ranks) if operation == "reduce_scatter" else size
        yield self._copies(giving, given, topology, down=True)
        yield from moved
        yield self._copies(getting, got, topology, down=False)

    def _copies(self, ranks: Ranks, size: float, topology: Topology, *, down: bool) -> Phase:
        host, found = _Hosts(topology), rank_array(ranks)
        tally = Tally(topology, np.unique(found // topology.gpus))
        (flow,) = TransferList.between(found, found, size).parts
        for convoy, part in convoys_of(flow, topology):
            gpu = int(part.sources[0]) % topology.gpus
            way = Way(host.to_host(gpu) if down else host.to_device(gpu))
            tally.add(convoy._replace(way=way), size, part.order)
        loads = tally.loads()
        busy, busiest = loads.slowest
        own = 0.0 if self.copy is None else size / self.copy
        return Phase(self.copy_latency, max(busy, own), loads, loads.most, busiest)

    def _require_known_ways(
        self, operation: str, ranks: Ranks, topology: Topology, direct: bool
    ) -> None:
        """Refused where nothing is known of the messages inside a node."""
        if len(members_of(ranks, topology).nodes) == len(ranks):
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
class _Hosts:
    """Ways between the hosts' memories: from the socket nearest to a rank's GPU over its NIC.

    Inside a node there is none: shared memory.
    Where a machine file has no sockets, its ranks are the hosts themselves.
    """

    topology: Topology

    def convoy(self, convoy: Convoy, messages: Transfers) -> Convoy:
        """The same messages between hosts."""
        first, last = convoy.way.nics or (None, None)
        if first is None or last is None:
            return convoy._replace(way=Way(()))
        if not self.topology.sockets:
            return convoy
        inside, gpus = self.topology.inside, self.topology.gpus
        source, target = (int(ends[0]) % gpus for ends in messages[:2])
        out = inside(self._socket(source), ("nic", 0, first))
        into = inside(("nic", 0, last), self._socket(target))
        return convoy._replace(way=convoy.way._replace(out=out, into=into))

    def to_host(self, gpu: int) -> tuple[Edge, ...]:
        """From a GPU of node 0 to its host's memory."""
        return self.topology.inside(("gpu", 0, gpu), self._socket(gpu))

    def to_device(self, gpu: int) -> tuple[Edge, ...]:
        """From the host's memory to a GPU of node 0."""
        return self.topology.inside(self._socket(gpu), ("gpu", 0, gpu))

    def _socket(self, gpu: int) -> Vertex:
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
        return ("socket", 0, near)


def _connection(topology: Topology) -> float:
    """Rate of a message between nodes that sockets join [B/s]; elsewhere no limit."""
    if topology.nodes < 2:
        return inf
    cable = next(e for e in topology.route(0, topology.ranks - 1) if is_cable(e))
    kind = topology.link(cable).kind
    return shipped().of(kind, "flow") if kind in SOCKETS else inf


def _nodes(convoys: Iterable[Convoy]) -> IntArray:
    """The nodes at the ends of all convoys, ascending."""
    return np.unique(np.concatenate([ends for convoy in convoys for ends in convoy[1:]]))
