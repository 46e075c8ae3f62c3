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
        other collectives; with sockets no more than a rate per TCP connection, two a peer

Not modelled: the order of rounds, and chunks (128 or 512 KiB), which fill a path in microseconds.
Constants as in `_nccl_time`; for kinds of links whose messages nobody published, they are those of
other collectives there (floor, share), or of other kinds, with the error that this has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, permutations, product

from dpsim.backends import Topology
from dpsim.backends._nccl_time import SOCKETS, UNKNOWN, Constants, Time
from dpsim.backends._nccl_traffic import RELAYED, Traffic, name_edges, summed
from dpsim.machines.fabrics import Edge, Vertex
from dpsim.machines.topology import moved

#: operations that are messages; NCCL's tuner has no entry for them
OPERATIONS = ("all_to_all", "send")
#: larger messages go by Simple [B]
_LL_LIMIT = 16384
#: what fits into the command that a Slingshot NIC takes instead of fetching it, unrestricted
#: delivery [B]: `inject_size` of ofiwg/libfabric prov/cxi/src/cxip_attr.c
_COMMAND = 192
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
    """

    traffic: Traffic
    inside: int
    between: int
    part: float
    kept: float
    home: str
    away: str
    nodes: int

    @property
    def kind(self) -> str:
        """What the farthest messages cross."""
        return self.away or self.home

    @property
    def unknown(self) -> bool:
        """Whether nothing is known of a link."""
        return any(kind in UNKNOWN for kind in self.traffic.paces)


def messages_of(operation: str, ranks: tuple[int, ...], topology: Topology) -> Messages:
    """The messages of `operation`; what they have in common is worked out once per machine."""
    if operation == "send" and len(ranks) == 2:
        return _alike(ranks[0], ranks[1], topology)
    make = _exchange if operation == "all_to_all" else _shift
    return topology.once(("nccl messages", operation, ranks), lambda: make(ranks, topology))


def predicted(fitted: Constants, messages: Messages, size: float, sockets: int = 1) -> Time:
    """The time of all `messages` of an operation on `size` bytes."""
    traffic, away = messages.traffic, messages.away
    share = {kind: _share(fitted, kind) for kind in traffic.paces}
    if messages.nodes > 2 and away in share:
        share[away] *= (messages.nodes / 2) ** -fitted.of(away, "crowding")
    slowest = max(traffic.paces, key=lambda kind: traffic.paces[kind][0] / share[kind])
    pace, busiest = traffic.paces[slowest]
    transfer = size * pace / share[slowest]
    if away in SOCKETS:
        flows = _CONNECTIONS * sockets * max(messages.between, 1)
        transfer = max(transfer, size * traffic.nic / (flows * fitted.of(away, "flow")))
    latency = _handling(fitted, messages, size * messages.part)
    if messages.kept:
        latency += size * messages.kept / fitted.of(messages.home, "message_copy")
    return Time(fitted.of(messages.kind, "message_floor"), latency, transfer, share, busiest)


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


# -- one message ----------------------------------------------------------------------------------


def _alike(source: int, target: int, topology: Topology) -> Messages:
    """The message from `source` to `target`: that of a pair with equal links, on its own."""
    route = topology.route(source, target)
    key = ("nccl message", *((edge[0][0], edge[1][0], topology.link(edge)) for edge in route))
    found = topology.once(key, lambda: _shift((source, target), topology))
    return found if tuple(found.traffic.loads) == route else _moved_to(route, found)


def _moved_to(route: tuple[Edge, ...], like: Messages) -> Messages:
    """`like`, of a route with the same links, on `route`."""
    there = dict(zip(like.traffic.loads, route, strict=True))
    traffic = Traffic(
        loads=dict.fromkeys(route, 1.0),
        kinds={there[edge]: kind for edge, kind in like.traffic.kinds.items()},
        paces={kind: (pace, there[edge]) for kind, (pace, edge) in like.traffic.paces.items()},
        nic=like.traffic.nic,
    )
    return Messages(
        traffic, like.inside, like.between, like.part, like.kept, like.home, like.away, like.nodes
    )


def _shift(ranks: tuple[int, ...], topology: Topology) -> Messages:
    """Every rank sends to the next, the last of more than two to the first."""
    after = ranks[1:] if len(ranks) == 2 else ranks[1:] + ranks[:1]
    traffic = _of_pairs(zip(ranks, after, strict=False), 1.0, topology)
    home, away = _kinds(traffic)
    nodes = len({topology.node_of(rank) for rank in ranks})
    return Messages(traffic, int(nodes == 1), int(nodes > 1), 1.0, 0.0, home, away, nodes)


def _of_pairs(pairs: Iterable[tuple[int, int]], part: float, topology: Topology) -> Traffic:
    loads: dict[Edge, float] = {}
    kinds: dict[Edge, str] = {}
    for source, target in pairs:
        route = topology.route(source, target)
        for edge in route:
            loads[edge] = loads.get(edge, 0.0) + part
        name_edges(kinds, route, topology)
    return summed(loads, kinds, topology)


def _kinds(traffic: Traffic) -> tuple[str, str]:
    """The kind of link that is slowest inside nodes, and that of the cables between them."""
    away = {traffic.kinds[edge] for edge in traffic.loads if edge[0][0] == "leaf"}
    paces = {kind: pace for kind, (pace, _) in traffic.paces.items() if kind not in away}
    home = max(paces, key=lambda kind: (kind in UNKNOWN, paces[kind]), default="")
    return ("nvlink" if home == RELAYED else home), next(iter(away), "")


# -- everybody to everybody -----------------------------------------------------------------------


def _exchange(ranks: tuple[int, ...], topology: Topology) -> Messages:
    """All ranks send a part to each other."""
    n = len(ranks)
    nodes = {
        node: tuple(rank % topology.gpus for rank in group)
        for node, group in groupby(sorted(ranks), key=topology.node_of)
    }
    if n > _ALL_PAIRS and len(nodes) > 1 and len(set(nodes.values())) == 1:
        traffic = _by_symmetry(tuple(nodes), next(iter(nodes.values())), 1.0 / n, topology)
    else:
        pairs = [(a, b) for a in ranks for b in ranks if a != b]
        pairs.sort(key=lambda pair: topology.node_of(pair[0]) != topology.node_of(pair[1]))
        traffic = _of_pairs(pairs, 1.0 / n, topology)
    home, away = _kinds(traffic)
    kept = 1.0 / n if len(nodes) == 1 else 0.0
    here = min(len(local) for local in nodes.values())
    return Messages(traffic, here - 1, n - here, 1.0 / n, kept, home, away, len(nodes))


def _by_symmetry(
    nodes: tuple[int, ...], local: tuple[int, ...], part: float, topology: Topology
) -> Traffic:
    """The same for GPUs `local` of many nodes: what happens inside one node happens in all.

    Cables are looked at for every pair of nodes, or beyond a number of nodes for evenly spread
    shifts of them, which stand for all; the cables of the NICs then still carry what they carry.
    """
    near: dict[Edge, float] = defaultdict(float)
    loads: dict[Edge, float] = {}
    kinds: dict[Edge, str] = {}
    lanes = _lanes(nodes, local, part, near, kinds, topology)
    for node in nodes:
        for edge, load in near.items():
            there = moved(edge, node)
            loads[there] = load
            kinds[there] = kinds[edge]
    shifts = _shifts(len(nodes))
    scale = (len(nodes) - 1) / len(shifts)
    for (i, j), bytes_ in lanes.items():
        for place, node in enumerate(nodes):
            for shift in shifts:
                other = nodes[(place + shift) % len(nodes)]
                route = topology.route(node * topology.gpus + i, other * topology.gpus + j)
                for edge in _cables(route)[1]:
                    loads[edge] = loads.get(edge, 0.0) + bytes_ * scale
    return summed(loads, kinds, topology)


def _lanes(
    nodes: tuple[int, ...],
    local: tuple[int, ...],
    part: float,
    near: dict[Edge, float],
    kinds: dict[Edge, str],
    topology: Topology,
) -> dict[tuple[int, int], float]:
    """Add to `near` what the edges of the first node carry; bytes from a node to another by a
    pair of GPUs that stands for all whose routes leave and arrive through the same NICs."""
    first, second = (node * topology.gpus for node in nodes[:2])
    by_nics: dict[tuple[Vertex, Vertex], tuple[int, int]] = {}
    lanes: dict[tuple[int, int], float] = defaultdict(float)
    for i, j in permutations(local, 2):
        route = topology.route(first + i, first + j)
        name_edges(kinds, route, topology)
        for edge in route:
            near[edge] += part
    for i, j in product(local, local):
        route = topology.route(first + i, second + j)
        name_edges(kinds, route, topology)
        out, cables, into = _cables(route)
        back = [moved(edge, nodes[0]) for edge in into]
        for edge, there in zip(back, into, strict=True):
            kinds.setdefault(edge, kinds[there])
        for edge in (*out, *back):
            near[edge] += part * (len(nodes) - 1)
        lanes[by_nics.setdefault((cables[0][0], cables[-1][1]), (i, j))] += part
    return lanes


def _cables(route: tuple[Edge, ...]) -> tuple[tuple[Edge, ...], tuple[Edge, ...], tuple[Edge, ...]]:
    """A route between nodes in three: out of the node, from NIC to NIC, and into the other."""
    begin = next(k for k, (a, _) in enumerate(route) if a[0] == "nic")
    end = max(k for k, (_, b) in enumerate(route) if b[0] == "nic") + 1
    return route[:begin], route[begin:end], route[end:]


def _shifts(nodes: int) -> list[int]:
    """By how many nodes messages go on: 1 … nodes - 1, or so many of these, evenly spread."""
    count = min(max(_NODE_PAIRS // nodes, _FEWEST), _SHIFTS)
    if nodes - 1 <= count:
        return list(range(1, nodes))
    return [1 + (2 * k + 1) * (nodes - 1) // (2 * count) for k in range(count)]
