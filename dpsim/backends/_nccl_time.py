"""How long NCCL's choice takes: its structure, with constants fitted per kind of link.

T = floor + L + F + X with

floor   one launch: kernel, and the proxy threads where there is a network; RCCL takes longer there
        by `xgmi.between` [s]
L       hops on the critical path x time of one (`Tuning.hops`, `Tuning.steps`) x a fitted factor
        for each kind of link and protocol
        (and for LL and LL128 in all-gather and reduce-scatter between nodes another, and
        for them over EFA adapters of the second generation on another)
X       bytes over the busiest link at its nominal bandwidth, over the fitted share of it that the
        protocol reaches there (less of RDMA where NICs don't reach the GPUs' memory; through host
        memory, which both directions share, twice of it where one is silent: in a broadcast or
        reduce of two), which falls as (nodes / 2) ** -c; with sockets no more than a rate per TCP
        connection
F       2 f L sqrt(X / (L + X)): hops take longer once the buffers are full, as NCCL's own factors
        of 1.4 and 1.9 on a ring's latency say; f = 0.2 and 0.45 would be these factors at large
        sizes, and the root leads over to them.  A broadcast's chain adds for every further hop the
        time of a piece, of which a channel's buffer holds eight; a reduce is taken for its mirror
        image.  PAT, of which no measurement is known, has the ring's constants, and the share of
        the bandwidth by which NCCL's own estimate lowers it

Nor is a measurement known of switches that add (SHARP): their hops and shares are the network's,
without c, for one stream goes on from every leaf, which none of another node's can meet; where all
GPUs of a node exchange parts before (collnet_direct), NVSwitches are shared as in an all-to-all.

The constants, with errors and what they were fitted on, are in dpsim/core/fitted/nccl.yaml; the
program that fits them is validation/fit_nccl.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from dpsim.backends import Edge
from dpsim.backends import _nccl_tables as tables
from dpsim.backends._nccl_graph import NcclGraph
from dpsim.backends._nccl_traffic import RELAYED, Traffic
from dpsim.backends._nccl_tuning import PAT_SHARE, ROOTED, SHARP, Hops, Tuning
from dpsim.core import constants
from dpsim.core.lean import dataclass
from dpsim.core.many import root
from dpsim.machines.devices import SOCKETS

#: kinds whose NICs move GPUs' memory themselves where the GPUs let them
REMOTE = ("infiniband", "omni_path", "roce", "efa")
#: algorithms whose buffers fill as a ring's do
_RINGS = ("ring", "pat")
#: kinds of which nothing is known: their links' own latency and bandwidth apply
UNKNOWN = ("local",)


class Time(NamedTuple):
    """Seconds: before anything moves, without bytes moving, and of bytes moving.

    share   of the nominal bandwidth that each kind of link reaches
    """

    floor: float
    latency: float
    transfer: float
    share: Mapping[str, float]
    busiest: Edge

    def divided(self, factor: float) -> Time:
        """The same with hops and bytes in a `factor`th of the time."""
        share = {kind: reached * factor for kind, reached in self.share.items()}
        less = self.latency / factor, self.transfer / factor
        return Time(self.floor, *less, share, self.busiest)


@dataclass(frozen=True)
class Constants:
    """The fitted numbers by name, "nvswitch.floor" [s] and so on (factors otherwise)."""

    values: Mapping[str, float]

    def of(self, kind: str, name: str) -> float:
        return self.values[f"{kind}.{name}"]


@cache
def shipped() -> Constants:
    """The constants that come with dpsim: fitted on measured collectives, and where a kind has
    none of its own, on training runs."""
    measured = constants.numbers("nccl")
    trained = constants.numbers("training")
    return Constants(measured | {name: v for name, v in trained.items() if name in measured})


def family(algorithm: str) -> str:
    """Which bandwidth share an algorithm has: `nvls` for what the switches reduce."""
    return "nvls" if algorithm in ("nvls", "nvls_tree", "nvls_sharp") else algorithm


def predicted(
    fitted: Constants,
    tuning: Tuning,
    traffic: Traffic,
    operation: str,
    choice: tuple[str, str],
    size: float,
    sockets: int | None = None,
) -> Time:
    """The time of `operation` on `size` bytes carried out by `choice` (algorithm, protocol);
    `sockets`: TCP connections for each that a channel has; None: as many as NCCL has threads."""
    algorithm, protocol = choice
    graph = tuning.graph
    share = {kind: reached(fitted, kind, algorithm, protocol) for kind in traffic.paces}
    if graph.hosted and graph.outside in REMOTE:
        share[graph.outside] *= fitted.of(graph.outside, "hosted")
    if graph.nodes > 2 and graph.outside in share and algorithm not in SHARP:
        share[graph.outside] *= (graph.nodes / 2) ** -fitted.of(graph.outside, "crowding")
    if graph.staged and graph.ranks == 2 and operation in ROOTED:
        share = {kind: 2 * reached for kind, reached in share.items()}  # one way is silent
    last = 1.0 + _last(fitted, graph, operation, algorithm)
    share = {kind: reached / last for kind, reached in share.items()}
    slowest = max(traffic.paces, key=lambda kind: traffic.paces[kind][0] / share[kind])
    pace, busiest = traffic.paces[slowest]
    transfer = size * pace / share[slowest]
    if graph.outside in SOCKETS:
        own = tables.threads(graph.adapters, graph.outside, tuning.version)
        flows = tuning.connections * (sockets or own)
        transfer = max(transfer, size * traffic.nic / (flows * fitted.of(graph.outside, "flow")))
    latency = path_latency(fitted, tuning, operation, choice)
    fill = 0.0
    if transfer > 0:
        share_paid = fitted.of(graph.kind, "ring_fill" if algorithm in _RINGS else "fill")
        fill = 2 * share_paid * latency * root(transfer / (latency + transfer))
    if operation in ROOTED:
        fill += fitted.of(graph.kind, "chain") * _chain(graph, protocol, size) * transfer
    floor = fitted.of(graph.kind, "floor")
    if graph.inside == "xgmi" and graph.outside:
        floor += fitted.of("xgmi", "between")
    return Time(floor, latency + fill, transfer, share, busiest)


def _last(fitted: Constants, graph: NcclGraph, operation: str, algorithm: str) -> float:
    """What the last step of a ring adds where it takes time, as a share of those that send."""
    if graph.kind != "nvswitch" or algorithm != "ring" or operation in ROOTED:
        return 0.0
    sending = (graph.ranks - 1) * (2 if operation == "all_reduce" else 1)
    return fitted.of(graph.kind, "last") / sending


#: bytes of a piece, an eighth of a channel's buffer (2.30.7 src/init.cc and src/enqueue.cc)
_PIECE = {"ll": 32 << 10, "ll128": 576_000, "simple": 512 << 10}


def _chain(graph: NcclGraph, protocol: str, size: float) -> float:
    """How many times the transfer time passes until the first piece is at the end of a chain."""
    share = max(size / graph.channels, 1.0)
    return (graph.ranks - 2) * min(_PIECE[protocol] / share, 1.0)


def reached(fitted: Constants, kind: str, algorithm: str, protocol: str) -> float:
    """The share of a link's nominal bandwidth that the protocol reaches on that kind."""
    if kind == RELAYED:
        return reached(fitted, "nvlink", algorithm, protocol) * fitted.of("nvlink", "relay")
    if protocol != "simple":
        return fitted.of(kind, f"{protocol}_efficiency")
    if family(algorithm) == "nvls" and kind == "nvswitch":
        return fitted.of(kind, "nvls_efficiency")
    if algorithm == "collnet_direct" and kind == "nvswitch":  # parts go to all and come from all
        return fitted.of(kind, "message_efficiency")
    return fitted.of(kind, "efficiency") * (PAT_SHARE if algorithm == "pat" else 1.0)


def path_latency(
    fitted: Constants, tuning: Tuning, operation: str, choice: tuple[str, str]
) -> float:
    """Latency of the critical path [s]; the hardware's, hence by the newest version's table."""
    algorithm, protocol = choice
    graph = tuning.graph
    newest = Tuning(graph, tables.NEWEST, tuning.post)
    steps, hops = newest.steps(algorithm, protocol), _hops(newest, operation, algorithm)
    total, longer = 0.0, 0.0
    if hops.inside and graph.inside:
        name = "step_nvls" if family(algorithm) == "nvls" else f"step_{protocol}"
        total += hops.inside * steps.inside * fitted.of(graph.inside, name)
    if hops.between:
        factor = fitted.of(graph.outside, f"step_{protocol}")
        if graph.efa > 1 and protocol != "simple":
            factor *= fitted.of("efa", "newer")
        if operation in ("all_gather", "reduce_scatter") and protocol != "simple":
            factor *= fitted.of(graph.outside, "gather")
        total += hops.between * steps.between * factor
        longer = hops.between * graph.crossing.added(steps.between * factor * 1e-6)
    return total * 1e-6 + longer


def longer_way(tuning: Tuning, operation: str, choice: tuple[str, str]) -> float:
    """What a scenario's latency between nodes adds to NCCL's own estimate [s]."""
    step = tuning.steps(*choice).between * 1e-6
    return _hops(tuning, operation, choice[0]).between * tuning.graph.crossing.added(step)


def _hops(tuning: Tuning, operation: str, algorithm: str) -> Hops:
    """Steps on the critical path: one where an operation has a root and goes by a chain."""
    hops = tuning.hops(operation, algorithm)
    if operation in ROOTED:
        hops = hops._replace(inside=min(hops.inside, 1), between=min(hops.between, 1))
    return hops


__all__ = ["UNKNOWN", "Constants", "Time", "predicted", "shipped"]
