"""NCCL and RCCL: ring, double binary tree, NVSwitch reduction, PAT, in LL, LL128 and Simple;
and the algorithms in which the network's switches add (SHARP), where asked for.

NCCL's own model of the machine's graph chooses algorithm and protocol for every size, with the
constants of the version asked for (`_nccl_tuning`, `_nccl_tables`).  What the choice then costs is
its structure, hops and bytes over the links of the graph, with constants fitted per kind of link
(`_nccl_time`, dpsim/core/fitted/nccl.yaml).  Links of kind `local`, of which nothing is known,
keep their own latency and bandwidth.  Sends, and the all-to-alls that are made of them, are outside
NCCL's model and have their own (`_nccl_messages`).  See docs/assumptions.md, A11 and A12.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np

from dpsim.backends import Backend, Phase, Plan, Topology
from dpsim.backends import _nccl_messages as messages
from dpsim.backends import _nccl_tables as tables
from dpsim.backends._nccl_graph import NcclGraph, graph_of, require_gpus
from dpsim.backends._nccl_sharp import check_network, check_settings
from dpsim.backends._nccl_time import UNKNOWN, Time, longer_way, predicted, reached, shipped
from dpsim.backends._nccl_traffic import Traffic, scaled, shape, shapes_of, traffic_of
from dpsim.backends._nccl_tuning import ROOTED, Choice, Tuning
from dpsim.collectives import (
    Algorithm,
    Ranks,
    Stage,
    as_ranks,
    collnet_chain,
    collnet_direct,
    members_of,
    nvls_sharp,
    onward,
    ring_payload,
)
from dpsim.collectives.direct import Direct
from dpsim.collectives.nvls_tree import sent as nvls_tree_sent
from dpsim.core import plugins, units
from dpsim.core.lean import dataclass
from dpsim.core.many import root
from dpsim.core.record import Check, Natural, Refused, Text, record
from dpsim.machines.loads import Loads

#: NCCL's names of algorithms, and the plug-ins of dpsim/collectives that carry them out
PLUGINS = {
    "ring": "ring", "tree": "double_tree", "nvls": "nvls", "nvls_tree": "nvls_tree", "pat": "pat",
    "collnet_direct": "collnet_direct", "collnet_chain": "collnet_chain",
    "nvls_sharp": "nvls_sharp",
}  # fmt: skip
#: what a rank sends, by operation, ranks a node, nodes and size
_SENT = {
    "collnet_direct": collnet_direct.sent, "collnet_chain": collnet_chain.sent,
    "nvls_sharp": nvls_sharp.sent,
}  # fmt: skip
Sockets = Annotated[int, Check(1, 64)]


def expected(topology: Topology, ranks: Ranks) -> NcclGraph:
    """What dpsim expects NCCL's search to find for `ranks`: channels, speeds, kinds of links."""
    return graph_of(topology, ranks)


def version_of(text: str) -> tuple[int, int]:
    """ "2.18.5" as (2, 18); the newest where the text is empty.  Refused where it is none."""
    if not text:
        return tables.NEWEST
    found = re.fullmatch(r"(\d{1,3})\.(\d{1,3})(?:\.\d{1,3})?", text)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if not tables.OLDEST <= version <= tables.NEWEST:
        low, high = (".".join(map(str, v)) for v in (tables.OLDEST, tables.NEWEST))
        raise Refused(f"{text[:60]!r} is no version from {low} to {high}", ("version",))
    return version


@record
class Nccl(Backend):
    """NCCL as users set it.

    version     "2.0" … "2.30"; "" is the newest known
    algorithm   auto, ring, tree, nvls, nvls_tree, pat, collnet_chain or collnet_direct
                (NCCL_ALGO), or another plug-in of dpsim/collectives, which then runs on the
                links' own latencies.  Sends, and all-to-alls unless the plug-in has them, go on
                as NCCL does them
    protocol    auto, ll, ll128 or simple (NCCL_PROTO)
    launch      time before any byte moves [s]; left out: the fitted one of the kind of link
    efficiency  a factor on the fitted share of the links' bandwidth (a measured machine's own)
    channels    most channels (NCCL_MAX_NCHANNELS); 0: as many as NCCL's search finds
    sockets     TCP connections per channel (NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD); left
                out: 2 over Amazon's adapters, 4 over Google's, else 1, as NCCL starts threads
    fitted      whether times use the fitted constants; without them, they are NCCL's estimates
    sharp       InfiniBand switches add: there is the plug-in, and NCCL_COLLNET_ENABLE=1 is set.
                NVLS then spans nodes (as nvls_sharp); groups inside a node go on without
    """

    version: Text = ""
    algorithm: Text = "auto"
    protocol: Text = "auto"
    launch: units.Seconds | None = None
    efficiency: units.Factor = 1.0
    channels: Natural = 0
    sockets: Sockets | None = None
    fitted: bool = True
    sharp: bool = False

    def __post_init__(self) -> None:
        check_settings(self.sharp, self.algorithm, version_of(self.version))
        if self.protocol not in ("auto", *tables.PROTOCOLS):
            known = ", ".join(("auto", *tables.PROTOCOLS))
            raise Refused(f"no protocol {self.protocol[:60]!r}; there are {known}", ("protocol",))
        if self.algorithm not in ("auto", *PLUGINS):
            try:
                plugins.find("collectives", self.algorithm)
            except Refused as error:
                raise Refused(f"{error.message}, tree and auto", ("algorithm",)) from None

    @property
    def by_place(self) -> bool:
        return self.algorithm in ("auto", *PLUGINS)  # other plug-ins may do what they like

    def bare(self) -> Nccl:
        """The same with NCCL's own estimates for times."""
        return replace(self, fitted=False)

    def plan(self, operation: str, ranks: Ranks, size: float, topology: Topology | None) -> Plan:
        if len(ranks) == 1:
            return Plan((), None, "none", 0.0)
        assert topology is not None
        require_gpus(topology)
        ranks = as_ranks(ranks)
        call = _Call(operation, ranks, size, topology)
        if self.sharp and (graph := graph_of(topology, ranks)).nodes > 1:
            check_network(graph, ranks, topology)
        if operation in messages.OPERATIONS and not self._overridden(operation):
            return self._messages(call)
        graph = self._graph(call)
        if self.algorithm not in ("auto", *PLUGINS):
            return self._on_plain_links(call, self.algorithm, graph)
        tuning = Tuning(graph, version_of(self.version), sharp=self.sharp)
        asked = self.algorithm
        if asked == "nvls" and self.sharp and graph.nodes > 1:
            asked = "nvls_sharp"
        choices = tuning.choices(operation, size, asked, self.protocol)
        choices = [c for c in choices if _plugin(c.algorithm).applies(ranks, topology)]
        if not choices:
            raise self._refusal(call)
        if graph.inside in UNKNOWN or graph.outside in UNKNOWN:
            return self._on_plain_links(call, PLUGINS[choices[0].algorithm], graph)
        return self._planned(call, tuning, choices)

    def _graph(self, call: _Call) -> NcclGraph:
        graph = graph_of(call.topology, call.ranks)
        if not self.channels or self.channels >= graph.channels:
            return graph
        return replace(graph, channels=self.channels)

    def _refusal(self, call: _Call) -> Refused:
        what = " ".join(w for w in (self.algorithm, self.protocol) if w != "auto")
        message = f"{what} cannot do {call.operation} over these {len(call.ranks)} ranks"
        return Refused(message, ("collective", "algorithm"))

    # -- NCCL's own algorithms ------------------------------------------------------------------

    def _planned(self, call: _Call, tuning: Tuning, choices: list[Choice]) -> Plan:
        choice = choices[0]
        name = PLUGINS[choice.algorithm]
        traffic = _traffic(call, choice)
        time = self._reconciled(call, tuning, choices, self._time(call, tuning, traffic, choice))
        loads = _loads(call, name, choice.protocol, traffic, time, self.efficiency)
        busy = time.transfer / self.efficiency
        phase = Phase(time.latency, busy, loads, loads.most * call.size, time.busiest)
        launch = time.floor if self.launch is None else self.launch
        stages = None
        if name == "ring" and call.operation not in ROOTED and call.size > 0:
            stages = _Rounds(call, time)
        label = f"{choice.algorithm} {choice.protocol}"
        return Plan((phase,), stages, label, _sent(call, choice.algorithm), launch)

    def _reconciled(self, call: _Call, tuning: Tuning, choices: list[Choice], time: Time) -> Time:
        """`time` of the first of `choices`; where the network's plug-in prefers it to what NCCL's
        own estimates choose, it is no slower.  If dpsim has it slower, one of the two is wrong, by
        as much as the other for all that is known, so the time is their mean, of logarithms."""
        own = min(choices, key=lambda choice: choice.seconds)
        if not self.fitted or own is choices[0] or tuning.version < tables.ESTIMATES:
            return time
        other = self._time(call, tuning, _traffic(call, own), own)
        taken, known = (t.latency + t.transfer / self.efficiency for t in (time, other))
        return time.divided(root(taken / known)) if taken > known else time

    def _time(self, call: _Call, tuning: Tuning, traffic: Traffic, choice: Choice) -> Time:
        pair = (choice.algorithm, choice.protocol)
        if self.fitted:
            return predicted(
                shipped(), tuning, traffic, call.operation, pair, call.size, self.sockets
            )
        latency = tuning.latency(call.operation, *pair) * 1e-6
        longer = longer_way(tuning, call.operation, pair)
        busiest = max(traffic.paces.values())[1]
        transfer = max(choice.seconds - latency, 0.0)
        # where NCCL thinks more of a kind of link than it has, the link is as fast as NCCL thinks
        per_second = call.size / (transfer or math.inf)
        share = {kind: max(pace * per_second, 1.0) for kind, (pace, _) in traffic.paces.items()}
        return Time(0.0, latency + longer, transfer, share, busiest)

    # -- messages -------------------------------------------------------------------------------

    def _overridden(self, operation: str) -> bool:
        """Whether a plug-in of dpsim/collectives is asked for that has `operation`."""
        if self.algorithm in ("auto", *PLUGINS):
            return False
        return operation in plugins.find("collectives", self.algorithm).operations

    def _messages(self, call: _Call) -> Plan:
        found = messages.messages_of(call.operation, call.ranks, call.topology)
        sent = ring_payload(call.operation, len(call.ranks), call.size)
        if found.unknown:
            make = _Posted(call)
            phases = tuple(phase_of(stage, call.topology, self.efficiency) for stage in make())
            return Plan(phases, make, "direct", sent, self.launch or 0.0)
        if not self.fitted:
            raise Refused(f"NCCL has no estimate of {call.operation}: its tuner knows no messages")
        own = tables.threads(call.topology.adapters, found.away, version_of(self.version))
        time = messages.predicted(shipped(), found, call.size, self.sockets or own)
        if found.between:
            longer = call.topology.crossing.added(time.latency)
            time = time._replace(latency=time.latency + longer)
        loads = _loads(call, "direct", "", found.traffic, time, self.efficiency)
        busy = time.transfer / self.efficiency
        phase = Phase(time.latency, busy, loads, loads.most * call.size, time.busiest)
        launch = time.floor if self.launch is None else self.launch
        return Plan((phase,), None, "direct", sent, launch)

    # -- any algorithm, round by round ----------------------------------------------------------

    def _on_plain_links(self, call: _Call, name: str, graph: NcclGraph) -> Plan:
        """Rounds on the links' own latencies, with the share of bandwidth that Simple reaches."""
        algorithm: Algorithm = plugins.find("collectives", name)()
        applies = algorithm.applies(call.ranks, call.topology)
        if call.operation not in algorithm.operations or not applies:
            raise self._refusal(call)
        share, launch = self.efficiency, self.launch or 0.0
        if graph.kind not in UNKNOWN and self.fitted:
            share *= reached(shipped(), graph.kind, "ring", "simple")
            launch = self.launch if self.launch is not None else shipped().of(graph.kind, "floor")
        shapes = shapes_of(algorithm, name, *call)
        phases = tuple(found.phase(call.size, share) for found in shapes)
        factor = self.efficiency / share
        stages = _Plain(call, algorithm, factor)
        sent = _sent_by(call, name, algorithm)
        return Plan(phases, None if algorithm.in_network else stages, name, sent, launch)


class _Call(NamedTuple):
    """What a collective is asked to do; the arguments of `Algorithm.stages`."""

    operation: str
    ranks: Ranks
    size: float
    topology: Topology


@dataclass(frozen=True)
class _Plain:
    """Makes the rounds of an algorithm, the bytes of each times `factor`."""

    call: _Call
    algorithm: Algorithm
    factor: float

    def __call__(self) -> Iterator[Stage]:
        for stage in self.algorithm.stages(*self.call):
            yield stage if self.factor == 1.0 else scaled(stage, self.factor, stage.latency)


@dataclass(frozen=True)
class _Rounds:
    """Makes the rounds of a ring that together take a fitted time on idle links."""

    call: _Call
    time: Time

    def __call__(self) -> Iterator[Stage]:
        (stage,) = _plugin("ring").stages(*self.call)
        round_ = shape(stage, self.call.topology).pace
        factor = self.time.transfer / (stage.repeats * round_)
        yield scaled(stage, factor, self.time.latency / stage.repeats)


@dataclass(frozen=True)
class _Posted:
    """Makes the one round of messages that are posted together."""

    call: _Call

    def __call__(self) -> Iterator[Stage]:
        if self.call.operation == "all_to_all":
            yield from Direct().stages(*self.call)
        else:
            yield Stage(1, onward(self.call.ranks, self.call.size))


def _traffic(call: _Call, choice: Choice) -> Traffic:
    name, algorithm = PLUGINS[choice.algorithm], _plugin(choice.algorithm)
    return traffic_of(algorithm, name, call.operation, call.ranks, call.topology)


def _plugin(algorithm: str) -> Algorithm:
    found: Algorithm = plugins.find("collectives", PLUGINS[algorithm])()
    return found


def _sent(call: _Call, algorithm: str) -> float:
    """Bytes that a rank sends (mean over ranks)."""
    if call.operation in ROOTED:
        n = len(call.ranks)
        return (n - 1) / n * call.size
    return _sent_by(call, PLUGINS[algorithm], _plugin(algorithm))


def _sent_by(call: _Call, name: str, algorithm: Algorithm) -> float:
    """The same for the plug-in `name`, some of which need to know how the ranks lie in nodes."""
    n = len(call.ranks)
    nodes = len(members_of(call.ranks, call.topology).nodes)
    if name in _SENT:
        return _SENT[name](call.operation, n // nodes, nodes, call.size)
    if name == "nvls_tree":
        return nvls_tree_sent(n // nodes, nodes, call.size)
    return algorithm.bytes_sent(call.operation, n, call.size)


def _loads(
    call: _Call, name: str, protocol: str, traffic: Traffic, time: Time, efficiency: float
) -> Loads:
    """What each link carries per byte of size, in bytes at its nominal bandwidth; worked out once
    for all sizes."""
    shares = tuple(sorted(time.share.items()))
    key = ("nccl loads", name, call.operation, call.ranks, protocol, shares, efficiency)
    return call.topology.once(key, lambda: _inflated(traffic.loads, time, efficiency))


def _inflated(loads: Loads, time: Time, efficiency: float) -> Loads:
    inflated = {kind: 1.0 / (share * efficiency) for kind, share in time.share.items()}
    return loads.of(loads.carried * np.array([inflated[c.kind] for c in loads.classes]))


def phase_of(stage: Stage, topology: Topology, efficiency: float = 1.0) -> Phase:
    """All rounds of `stage` as one phase, on the links as they are."""
    return shape(stage, topology).phase(1.0, efficiency)
