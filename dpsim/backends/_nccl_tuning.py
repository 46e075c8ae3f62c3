"""How NCCL chooses: its estimate of every algorithm and protocol, and the least of them, unless the
network's plug-in knows better (`_ofi_tuner`); before 2.5, by sizes (`_nccl_thresholds`).

NVIDIA/nccl src/graph/tuning.cc (`ncclTopoTuneModel`, `ncclTopoGetAlgoTime`) and src/enqueue.cc
(`topoGetAlgoInfo`), 2.30.7; constants by version in `_nccl_tables`.  The estimates rank; they were
not made to predict (docs/assumptions.md, A12).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dpsim.backends import _nccl_tables as tables
from dpsim.backends import _ofi_tuner
from dpsim.backends._nccl_graph import NcclGraph, rounded_down
from dpsim.backends._nccl_tables import Era
from dpsim.backends._nccl_thresholds import ll_limit, tree_limit
from dpsim.core.lean import dataclass
from dpsim.machines.devices import SOCKETS

_ONE_PASS = ("all_gather", "reduce_scatter")
_OLDEST_PAT = tables.PAT_CAPABILITY
#: algorithms in which switches between the nodes add (SHARP); NCCL calls nvls_sharp NVLS too
SHARP = ("collnet_direct", "collnet_chain", "nvls_sharp")
ALGORITHMS = ("tree", "ring", "nvls", "nvls_tree", "pat", *SHARP)
_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
#: operations with a root: NCCL has only rings for them, through which pieces pass like in a pipe
ROOTED = ("broadcast", "reduce")
#: what PAT reaches of the channels' bandwidth, by NCCL's own estimate
PAT_SHARE = 0.75


class Hops(NamedTuple):
    """Steps on the critical path: inside nodes, between nodes, and steps of another sort."""

    inside: float
    between: float


class Choice(NamedTuple):
    """An algorithm with a protocol, and NCCL's own estimate [s]."""

    algorithm: str
    protocol: str
    seconds: float


@dataclass(frozen=True)
class Tuning:
    """NCCL's model of one group at one version.

    post   time to post a network operation [us]: 1.0, and 2.0 on AMD x86 hosts
    sharp  whether there is a plug-in for switches that add, and NCCL_COLLNET_ENABLE is set
    """

    graph: NcclGraph
    version: tuple[int, int]
    post: float = 1.0
    sharp: bool = False

    @property
    def era(self) -> Era:
        return tables.era_of(self.version)

    def choices(
        self, operation: str, size: float, algorithm: str = "auto", protocol: str = "auto"
    ) -> list[Choice]:
        """Every pair that this version has for `operation` here, the one that it takes first: what
        the network's plug-in says, the fastest by its estimates, or by size."""
        found = []
        for name in ALGORITHMS if algorithm == "auto" else (algorithm,):
            for proto in tables.PROTOCOLS if protocol == "auto" else (protocol,):
                if self.allowed(operation, name, proto, exact=protocol != "auto"):
                    found.append(Choice(name, proto, self.seconds(operation, name, proto, size)))
        if self.version >= tables.ESTIMATES:
            own = self._told(operation, size, found, free=algorithm == protocol == "auto")
            return sorted(found, key=lambda c: ((c.algorithm, c.protocol) != own, c.seconds))
        name, proto = self._by_size(operation, size)
        return sorted(found, key=lambda c: (c.algorithm != name, c.protocol != proto, c.seconds))

    def _told(
        self, operation: str, size: float, found: list[Choice], *, free: bool
    ) -> tuple[str, str] | None:
        """The pair that the network's plug-in takes of those that were `found`, if it has one;
        `free`: no user has chosen."""
        graph, first = self.graph, _ofi_tuner.TUNERS if free else _ofi_tuner.BESIDE_USERS
        if not graph.amazon or self.version < first:
            return None
        pairs = [(choice.algorithm, choice.protocol) for choice in found]
        return _ofi_tuner.told(graph.amazon, graph.nodes, graph.ranks, operation, size, pairs)

    def _by_size(self, operation: str, size: float) -> tuple[str, str]:
        """The pair that versions before 2.5 take, whatever the estimates say."""
        graph, channels = self.graph, self.connections * max(self.graph.nics, 1)
        trees = operation == "all_reduce" and self.version >= tables.TREES
        limit = tree_limit(graph.ranks, graph.nodes, channels, graph.linked) if trees else 0.0
        tree = trees and size <= limit
        chunks = 1 if tree or operation in ROOTED else graph.ranks
        low = ll_limit(size, chunks, channels, graph.nodes, tree=tree, capability=graph.capability)
        return "tree" if tree else "ring", "ll" if size <= low else "simple"

    @property
    def connections(self) -> int:
        """Connections that a NIC sends over: a ring has one a channel, and NCCL doubles the
        channels of its search (src/graph/connect.cc); before 2.5 with NVLink only
        (src/misc/rings.cc)."""
        graph = self.graph
        doubled = self.version >= tables.ESTIMATES or graph.linked
        return max(1, (2 if doubled else 1) * graph.channels // max(graph.nics, 1))

    def allowed(self, operation: str, algorithm: str, protocol: str, *, exact: bool) -> bool:
        """Whether NCCL has this pair (`tuning.cc`); `exact`: this protocol was asked for."""
        if protocol == "ll128" and (self.version < tables.LL128 or not (exact or self._ll128())):
            return False
        if algorithm in ("ring", "tree"):
            trees = operation == "all_reduce" and self.version >= tables.TREES
            return trees or algorithm == "ring"
        if algorithm == "pat":
            return protocol == "simple" and operation in _ONE_PASS and self._pat()
        way = self._streams if algorithm in SHARP else self._nvls
        return protocol == "simple" and way(operation, algorithm)

    def _nvls(self, operation: str, algorithm: str) -> bool:
        """Whether NVSwitches can add for `operation`: within one node, or below a tree of nodes."""
        graph, version = self.graph, self.version
        if not graph.switched or graph.arch < 2 or graph.per_node < 2:
            return False
        if algorithm == "nvls":
            few = operation == "all_reduce" or graph.ranks <= tables.NVLS_HEADS
            return version >= tables.NVLS and graph.nodes == 1 and operation not in ROOTED and few
        return version >= tables.NVLS_TREES and graph.nodes > 1 and operation == "all_reduce"

    def _ll128(self) -> bool:
        graph = self.graph
        near = graph.nodes == 1 or graph.near
        # a virtual NIC looks as near as any: Google's machines run it over gVNIC
        apart = graph.outside in SOCKETS and graph.outside != "gvnic"
        return graph.nvlink and near and not apart

    def _streams(self, operation: str, algorithm: str) -> bool:
        """Whether the network's switches can carry out `operation` in this way."""
        graph, version = self.graph, self.version
        if not self.sharp or graph.nodes < 2 or version < tables.COLLNET:
            return False
        if algorithm == "collnet_chain":
            return operation == "all_reduce"
        if operation in _ONE_PASS:
            if version < tables.SHARP_GATHERS or graph.nics < graph.per_node:
                return False
        elif operation != "all_reduce":
            return False
        newer = graph.arch >= 2 and version >= tables.NVLS_TREES
        return graph.switched and (algorithm == "collnet_direct" or newer)

    def _pat(self) -> bool:
        """`ncclPatEnable`: one GPU a node.  A capability of 0 says that none is stated."""
        graph = self.graph
        alone = graph.nodes == graph.ranks > 1
        return alone and self.version >= tables.PAT and not 0 < graph.capability < _OLDEST_PAT

    # -- bandwidth ------------------------------------------------------------------------------

    def bandwidth(self, operation: str, algorithm: str, protocol: str) -> float:
        """Algorithm bandwidth [GB/s]."""
        graph = self.graph
        n, arch, k = graph.ranks, graph.arch, graph.column
        if algorithm in ("nvls", "nvls_tree", "nvls_sharp"):
            return self._in_network(operation, algorithm)
        if algorithm in SHARP:
            return self._collnet(operation, algorithm)
        inside = graph.tree_intra if algorithm == "tree" else graph.intra
        total = graph.channels * (inside if graph.nodes <= 2 else graph.inter)
        low = tables.LL_MAX[arch if graph.nodes == 1 else 0][k]
        if algorithm == "ring":
            if protocol == "ll":
                total = min(low, total / 2)
            elif protocol == "ll128":
                share = 0.7 if graph.per_node < 2 and self.version <= (2, 22) else 0.92
                total = min(share * total, graph.channels * tables.RING_LL128_CHANNEL[arch][k])
            passes = _PASSES.get(operation)
            return total * n / (passes * (n - 1)) if passes else total
        if algorithm == "pat":
            return PAT_SHARE * total
        total = min(0.92 * total, graph.channels * tables.TREE_CHANNEL[arch][k])
        if protocol == "ll":
            total = min(total / 3.8, low)
        elif protocol == "ll128":
            share = 7 / 9 if graph.nodes == 1 else 120 / 128
            total = min(share * total, graph.channels * tables.TREE_LL128_CHANNEL[arch][k])
        return total / 2

    def _in_network(self, operation: str, algorithm: str) -> float:
        graph = self.graph
        n, heads = graph.ranks, min(tables.NVLS_HEADS, graph.per_node)
        inside = tables.NVLS_EFFICIENCY[graph.arch] * (heads - 1) / heads
        inside *= self._head_speed()
        passes = _PASSES[operation]
        inside *= 2 if passes == 2 else (graph.per_node - 1) / graph.per_node
        speed = inside
        if algorithm == "nvls_tree":
            outside = graph.channels * graph.inter / heads * (2 if graph.nodes <= 2 else 1)
            cap = tables.NVLS_TREE_CHANNEL[graph.arch][graph.column]
            speed = min(inside, outside, cap)
        elif algorithm == "nvls_sharp":
            speed = min(inside, graph.channels * graph.inter / heads)
        return heads * speed * n / (passes * (n - 1))

    def _collnet(self, operation: str, algorithm: str) -> float:
        graph = self.graph
        speeds = tables.INTER_SPEEDS[max(graph.arch - 1, 0)]
        total = graph.channels * rounded_down(graph.tree_intra, speeds)
        if operation in _ONE_PASS:
            outside = 0.9 * graph.channels * graph.inter
            return graph.per_node * min(total, outside) / max(graph.nics, 1)
        if algorithm == "collnet_direct":
            over = graph.per_node / max(graph.nics, 1)
            total /= (over + 1) / 2
            total *= 0.85 if graph.arch >= 2 else 1.0
        return total / 2

    def _head_speed(self) -> float:
        """GB/s per head: what the GPU's NVLinks carry, shared out over the heads."""
        heads = min(tables.NVLS_HEADS, self.graph.per_node)
        return self.graph.local_bandwidth / heads

    # -- latency --------------------------------------------------------------------------------

    def hops(self, operation: str, algorithm: str) -> Hops:
        """Steps on the critical path, inside nodes and between them."""
        n, nodes, others = self.graph.ranks, self.graph.nodes, self.graph.per_node - 1
        deep = math.floor(math.log2(nodes))
        if algorithm == "ring":
            passes = _PASSES.get(operation, 1)
            hops = Hops(passes * (n - nodes), passes * (nodes - 1))
        elif algorithm == "tree":
            hops = Hops(2 * others, 2 * deep)
        elif algorithm == "pat":
            hops = Hops(0, self._pat_hops())
        elif algorithm == "collnet_chain":
            hops = Hops(2 * others, 1)
        elif algorithm == "collnet_direct":
            further = others * tables.DIRECT_ARITY / self.steps(algorithm, "simple").inside
            hops = Hops(2 * (min(1, others) + further), 1)
        else:
            hops = Hops(1, {"nvls": 0, "nvls_tree": 2 * deep, "nvls_sharp": 1}[algorithm])
        return hops

    def _pat_hops(self) -> float:
        """PAT's log2(N) steps of 1/3.5 of a network step each, and 2.8 us a rank, as such steps."""
        step = self.steps("pat", "simple").between
        return math.floor(math.log2(self.graph.nodes)) / 3.5 + 2.8 * self.graph.ranks / step

    def steps(self, algorithm: str, protocol: str) -> Hops:
        """Time of one step inside nodes and between them [us] (`hwLat`)."""
        graph, era = self.graph, self.era
        place = tables.PROTOCOLS.index(protocol)
        local = era.nvlink if graph.nvlink or graph.inside == "xgmi" else era.pcie
        inside = local[algorithm][place]
        outside = era.net["tree" if graph.per_node == 1 else algorithm][place]
        if algorithm == "ring" and graph.nodes > 1:
            inside = max(inside, self.post * (3 if protocol == "simple" else 1))
        return Hops(inside, outside)

    def latency(self, operation: str, algorithm: str, protocol: str) -> float:
        """Latency by NCCL's own constants [us]."""
        graph, era = self.graph, self.era
        place = tables.PROTOCOLS.index(protocol)
        base = era.base[algorithm][place]
        if operation in ROOTED:
            hw = era.nvlink if graph.nvlink else era.pcie
            one = (era.net if graph.nodes > 1 else hw)["ring"][place]
            return base + one
        steps, hops = self.steps(algorithm, protocol), self.hops(operation, algorithm)
        return base + hops.inside * steps.inside + hops.between * steps.between

    # -- time -----------------------------------------------------------------------------------

    def seconds(self, operation: str, algorithm: str, protocol: str, size: float) -> float:
        """NCCL's estimate [s] of an operation on `size` bytes (the larger of what goes in or comes
        out of all ranks, as in nccl-tests)."""
        graph = self.graph
        speed = self.bandwidth(operation, algorithm, protocol)
        latency = self.latency(operation, algorithm, protocol)
        if algorithm == "tree":
            speed *= tree_correction(protocol, size)
        if self._plateau(operation, algorithm, protocol, size):
            latency *= 1.9 if graph.arch < 1 or self.version < (2, 18) else 1.4
        return (latency + size / (1e3 * speed)) * 1e-6

    def _plateau(self, operation: str, algorithm: str, protocol: str, size: float) -> bool:
        if (operation, algorithm, protocol) != ("all_reduce", "ring", "simple"):
            return False
        graph = self.graph
        if graph.nodes == 1:
            return False
        if self.version < (2, 18):
            return size >= 4096 * graph.ranks
        return size / (2 * graph.channels * graph.ranks) >= 64


def tree_correction(protocol: str, size: float) -> float:
    """NCCL's correction of a tree's bandwidth at mid sizes."""
    if size < 64:
        return 1.0
    place = int(math.log2(size / 64))
    return tables.TREE_CORRECTION[protocol][place] if place < 23 else 1.0
