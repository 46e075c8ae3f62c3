"""Sends and receives of NCCL, one or a group of them: no tuner, no ring, a message a peer.

An all-to-all is n-1 sends and n-1 receives of a rank in one group, S/n bytes each.  With

T = floor + m c + h + X

floor   one launch [s]
m c     messages of a rank to its node and to other nodes, each with a fitted cost per message
        (`message`); on Slingshot more for messages that fit into the command of its NIC
h       a fitted time for the handshakes of Simple inside a node, once messages are larger than
        those that go by LL (NCCL_P2P_LL_THRESHOLD, 16384: NVIDIA/nccl src/enqueue.cc); and the copy
        of the part that stays on its rank, at a fitted rate, where all ranks are on one node
X       bytes over the busiest link at its nominal bandwidth, over the fitted share of it that
        messages reach on that kind of link, which between nodes falls with their number as for
        other collectives; with sockets no more than a rate per TCP connection, two a peer; of
        ranks on one NVSwitch that all send to the next no more than the channels carry that NCCL
        gives a message of that size in a group of so many

Not modelled: the order of rounds, and chunks (128 or 512 KiB), which fill a path in microseconds.
Constants as in `_nccl_time`; for kinds of links whose messages nobody published, they are those of
other collectives there (floor, share), or of other kinds, with the error that this has.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import permutations, product

import numpy as np

from dpsim.backends import Topology
from dpsim.backends._nccl_time import REMOTE, UNKNOWN, Constants, Time
from dpsim.backends._nccl_traffic import RELAYED, Traffic, names_of, summed, tallied
from dpsim.collectives import (
    Members,
    Ranks,
    TransferList,
    Transfers,
    convoys_of,
    members_of,
    onward,
    rank_array,
)
from dpsim.core.arrays import IntArray
from dpsim.core.lean import dataclass
from dpsim.machines.devices import SOCKETS
from dpsim.machines.tally import Convoy, Tally

#: operations that are messages; NCCL's tuner has no entry for them
OPERATIONS = ("all_to_all", "send")
#: larger messages go by Simple [B]
_LL_LIMIT = 16384
#: what fits into the command that a Slingshot NIC takes instead of fetching it, unrestricted
#: delivery [B]: `inject_size` of ofiwg/libfabric prov/cxi/src/cxip_attr.c
_COMMAND = 192
#: channels that a group has for its messages on NVSwitches, and the largest part of a message [B]
#: that does not go by twice as many (NVIDIA/nccl 2.30.7 src/enqueue.cc, scheduleP2pTasksToPlan and
#: addP2pToPlan: 32 chunks of 512 KiB)
_CHANNELS, _PART = 32, 16 << 20
#: what such a channel carries [B/s], by compute capability: sendrecv_perf of four and eight H100 at
#: 64 MiB (xxrjun/nccl-tests-cluster at 455de4f8: 157.4 GB/s over 8, 81.8 over 4), and of eight A100
#: at 128 MiB (li-plus/playground cuda/bw.md: 110.8 GB/s over 8)
_CARRIED = {80: 13.9e9, 90: 20.4e9}
#: connections to a peer over the network (NVIDIA/nccl 2.30.7 src/graph/paths.cc)
_CONNECTIONS = 2
#: ranks up to which every pair of an exchange is looked at; beyond, how many shifts of the nodes
#: are, at most and at least, and how many pairs of nodes in all
_ALL_PAIRS, _SHIFTS, _FEWEST, _NODE_PAIRS = 64, 64, 8, 32_768


@dataclass(frozen=True)
class Messages:
    """What every rank sends at once, per byte of the operation's size.

    inside, between   messages of a rank to ranks of its node, and to others
    part              bytes of one message
    kept              bytes that a rank copies to itself, where that takes time
    home, away        kinds of links that join ranks of a node, and nodes; "": none
    hosted            NICs don't reach the GPUs' memory
    channels          that carry a message at least, of `carried` [B/s] each; 0: not known
    """

    traffic: Traffic
    inside: int
    between: int
    part: float
    kept: float
    home: str
    away: str
    nodes: int
    hosted: bool = False
    channels: int = 0
    carried: float = 0.0

    @property
    def kind(self) -> str:
        """What the farthest messages cross."""
        return self.away or self.home

    @property
    def unknown(self) -> bool:
        """Whether nothing is known of a link."""
        return any(kind in UNKNOWN for kind in self.traffic.paces)


def messages_of(operation: str, ranks: Ranks, topology: Topology) -> Messages:
    """The messages of `operation`; what they have in common is worked out once per machine."""
    make = _exchange if operation == "all_to_all" else _shift
    return topology.once(("nccl messages", operation, ranks), lambda: make(ranks, topology))


def predicted(fitted: Constants, messages: Messages, size: float, sockets: int) -> Time:
    """The time of all `messages` of an operation on `size` bytes; `sockets`: TCP connections for
    each of a pair."""
    traffic, away = messages.traffic, messages.away
    share = {kind: _share(fitted, kind) for kind in traffic.paces}
    if messages.hosted and away in REMOTE:
        share[away] *= fitted.of(away, "hosted")
    if messages.nodes > 2 and away in share:
        share[away] *= (messages.nodes / 2) ** -fitted.of(away, "crowding")
    slowest = max(traffic.paces, key=lambda kind: traffic.paces[kind][0] / share[kind])
    pace, busiest = traffic.paces[slowest]
    transfer = size * pace / share[slowest]
    if away in SOCKETS:
        flows = _CONNECTIONS * sockets * max(messages.between, 1)
        transfer = max(transfer, size * traffic.nic / (flows * fitted.of(away, "flow")))
    if messages.carried:
        transfer = max(transfer, size / (_spread(messages.channels, size) * messages.carried))
    latency = _handling(fitted, messages, size * messages.part)
    if messages.kept:
        latency += size * messages.kept / fitted.of(messages.home, "message_copy")
    return Time(fitted.of(messages.kind, "message_floor"), latency, transfer, share, busiest)


def _spread(channels: int, size: float) -> int:
    """By how many channels a message of `size` bytes goes, at least so many."""
    while channels < _CHANNELS and size > channels * _PART:
        channels *= 2
    return channels


def _handling(fitted: Constants, messages: Messages, part: float) -> float:
    """Time of a rank's messages of `part` bytes each apart from moving them [s]."""
    found = 0.0
    if messages.inside:
        found += messages.inside * fitted.of(messages.home, "message")
    if messages.between:
        found += messages.between * fitted.of(messages.away, "message")
        if messages.away == "slingshot" and part <= _COMMAND:
            found += messages.between * fitted.of("slingshot", "message_small")
    elif part > _LL_LIMIT:
        found += fitted.of(messages.home, "message_handshake")
    return found


def _share(fitted: Constants, kind: str) -> float:
    if kind == RELAYED:
        return _share(fitted, "nvlink") * fitted.of("nvlink", "relay")
    return fitted.of(kind, "message_efficiency")


def _kinds(traffic: Traffic) -> tuple[str, str]:
    """The kind of link that is slowest inside nodes, and that of the cables between them."""
    layout = traffic.loads.layout
    away = {which.kind for which in layout.classes if layout.edge(which)[0][0] == "leaf"}
    paces = {kind: pace for kind, (pace, _) in traffic.paces.items() if kind not in away}
    home = max(paces, key=lambda kind: (kind in UNKNOWN, paces[kind]), default="")
    return ("nvlink" if home == RELAYED else home), next(iter(away), "")


# -- to the next rank -----------------------------------------------------------------------------


def _shift(ranks: Ranks, topology: Topology) -> Messages:
    """Every rank sends to the next, the last of more than two to the first."""
    traffic = summed(tallied(onward(ranks, 1.0), ranks, topology))
    home, away = _kinds(traffic)
    nodes = len(members_of(ranks, topology).nodes)
    apart = int(nodes > 1)
    hosted = not topology.gpudirect
    sent = Messages(traffic, 1 - apart, apart, 1.0, 0.0, home, away, nodes, hosted)
    carried = _CARRIED.get(topology.compute_capability, 0.0) if home == "nvswitch" else 0.0
    if apart or len(ranks) == 2:
        return sent
    return replace(sent, channels=_least(len(ranks)), carried=carried)


def _least(ranks: int) -> int:
    """Channels of a message in a group of so many that have them all together."""
    found = _CHANNELS
    while found * ranks > _CHANNELS and found > 1:
        found //= 2
    return found


# -- everybody to everybody -----------------------------------------------------------------------


def _exchange(ranks: Ranks, topology: Topology) -> Messages:
    """All ranks send a part to each other."""
    n, group = len(ranks), members_of(ranks, topology)
    if n > _ALL_PAIRS and len(group.nodes) > 1 and group.alike:
        traffic = _by_symmetry(group, 1.0 / n, topology)
    else:
        traffic = summed(tallied(TransferList([_all_pairs(ranks, topology)]), ranks, topology))
    home, away = _kinds(traffic)
    kept = 1.0 / n if len(group.nodes) == 1 else 0.0
    here = min(group.sizes)
    nodes, hosted = len(group.nodes), not topology.gpudirect
    return Messages(traffic, here - 1, n - here, 1.0 / n, kept, home, away, nodes, hosted)


def _all_pairs(ranks: Ranks, topology: Topology) -> Transfers:
    """A part from everybody to everybody, those inside nodes first."""
    found = rank_array(ranks)
    n = len(found)
    flow = Transfers(np.repeat(found, n), np.tile(found, n), 1.0 / n, np.arange(n * n))
    crossing = flow.sources // topology.gpus != flow.targets // topology.gpus
    return flow._replace(order=flow.order + n * n * crossing).some(flow.sources != flow.targets)


def _by_symmetry(group: Members, part: float, topology: Topology) -> Traffic:
    """The same for equal GPUs of many nodes: what happens inside one node happens in all.

    Cables are looked at for every pair of nodes, or beyond a number of nodes for evenly spread
    shifts of them, which stand for all; the cables of the NICs then still carry what they carry.
    """
    local, count = group.shapes[0], len(group.nodes)
    tally = Tally(topology, group.nodes, partial(names_of, topology))
    order = np.zeros(count, dtype=np.int64)
    for i, j in permutations(local, 2):
        convoy = Convoy(topology.way(i, j, same=True), group.nodes, group.nodes)
        tally.add(convoy, part, order)
    brought: dict[tuple[int, int], float] = {}
    by_nics: dict[object, tuple[int, int]] = {}
    after = np.roll(group.nodes, -1)
    for i, j in product(local, local):
        for convoy, flow in convoys_of(_between(group.nodes, i, after, j, topology), topology):
            tally.add(convoy, part * (count - 1), flow.order + 1, inside=True)
        pair = by_nics.setdefault(topology.way(i, j, same=False).nics, (i, j))
        brought[pair] = brought.get(pair, 0.0) + part
    shifts = _shifts(count)
    scale = (count - 1) / len(shifts)
    for (i, j), bytes_ in brought.items():
        for shift in shifts:
            to = np.roll(group.nodes, -shift)
            for convoy, flow in convoys_of(_between(group.nodes, i, to, j, topology), topology):
                way = convoy.way._replace(out=(), into=())
                tally.add(convoy._replace(way=way), bytes_ * scale, flow.order + 2)
    return summed(tally)


def _between(a: IntArray, i: int, b: IntArray, j: int, topology: Topology) -> Transfers:
    """From GPU `i` of each of the nodes `a` to GPU `j` of the one of `b` at the same place."""
    return Transfers(
        a * topology.gpus + i, b * topology.gpus + j, 1.0, np.zeros(len(a), dtype=np.int64)
    )


def _shifts(nodes: int) -> list[int]:
    """By how many nodes messages go on: 1 … nodes - 1, or so many of these, evenly spread."""
    count = min(max(_NODE_PAIRS // nodes, _FEWEST), _SHIFTS)
    if nodes - 1 <= count:
        return list(range(1, nodes))
    return [1 + (2 * k + 1) * (nodes - 1) // (2 * count) for k in range(count)]
