"""From links and places to one of dpsim's node families, or to a node given wire by wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from dpsim.core.deferred import nx
from dpsim.core.record import Refused
from dpsim.machines.fabrics import NodeFabric, Vertex
from dpsim.machines.fabrics.hybrid_cube_mesh import NVLINKS as CUBE
from dpsim.machines.host import HostedNode, HostTree
from dpsim.measurements.importing.facts import Pair, Place

Document = dict[str, Any]
#: time of one step over each kind of link [s], with its source
STEP = {"pair": "3.4 us", "switch": "1.7 us", "gpu": "2.85 us", "cable": "4.15 us"}


@dataclass(frozen=True)
class Fast:
    """Links between GPUs, one way [B/s]: all of each GPU to a switch, and all of each pair."""

    to_switch: tuple[float, ...] = ()
    pairs: dict[Pair, float] = field(default_factory=dict)
    kind: str = "nvlink"


@dataclass(frozen=True)
class HostWiring:
    """GPUs and NICs in their places, all bandwidths known [B/s]; `kind` is that of GPUs' links."""

    gpus: tuple[Place, ...]
    nics: tuple[Place, ...]
    uplinks: dict[str, float]
    between: float | None
    kind: str = "pcie"


def link(bandwidth: float | None, latency: str, kind: str) -> Document:
    """A link of a machine file."""
    assert bandwidth is not None
    return {"bandwidth": f"{bandwidth / 1e9:.12g} GB/s", "latency": latency, "kind": kind}


def fast_of(node: NodeFabric, gpus: int) -> Fast:
    """The links between the first `gpus` GPUs of a machine's `node`."""
    graph: nx.DiGraph[Vertex] = nx.DiGraph()
    try:
        node.build(graph, 0, gpus, 0)
    except ValueError as error:
        raise Refused(f"--like: {error}") from None
    pairs: dict[Pair, float] = {}
    up: dict[int, float] = {}
    kind = "nvlink"
    for a, b, attributes in graph.edges(data=True):
        wire = attributes["link"]
        if a[0] == "gpu" and b[0] in ("gpu", "nvswitch"):
            kind = wire.kind
            if b[0] == "nvswitch":
                up[a[2]] = wire.bandwidth
            elif a[2] < b[2]:
                pairs[a[2], b[2]] = wire.bandwidth
    switch = tuple(up[gpu] for gpu in range(gpus)) if len(up) == gpus else ()
    return Fast(switch, dict(sorted(pairs.items())), kind)


def places_of(tree: HostTree, gpus: int, nics: int) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """Where `gpus` GPUs and `nics` NICs hang on `tree`; bandwidths are left open."""
    if gpus > tree.slots:
        raise Refused(f"--like: {gpus} GPUs do not fit into its {tree.slots} slots")

    def place(slot: int) -> Place:
        per = tree.gpus_per_switch
        return Place(slot // tree.gpus_per_socket, f"switch {slot // per}" if per else None)

    beside = tuple(place(tree.slot_of(nic, nics, gpus)) for nic in range(nics))
    return tuple(place(gpu) for gpu in range(gpus)), beside


def tree_of(node: NodeFabric) -> HostTree | None:
    """The host of a node that has one."""
    return node.host if isinstance(node, HostedNode) else None


def node_document(host: HostWiring, fast: Fast) -> Document:
    """The node as a machine file says it: a family where one fits, else wire by wire."""
    family, tree = _family(fast, len(host.gpus)), _tree(host)
    if family is None or tree is None:
        return _explicit(host, fast)
    return {**family, "host": tree}


def _family(fast: Fast, gpus: int) -> Document | None:
    """The family of nodes whose links between GPUs are `fast`, without its host; None: none."""
    if fast.to_switch:
        if fast.pairs or len(set(fast.to_switch)) > 1 or fast.kind != "nvlink":
            return None
        up = link(fast.to_switch[0], STEP["switch"], "nvlink")
        return {"family": "nvswitch", "nvlink": up}
    return _joined(fast, gpus) if fast.pairs else {"family": "pcie_tree"}


def _joined(fast: Fast, gpus: int) -> Document | None:
    """The same where links join pairs of GPUs."""
    rates = set(fast.pairs.values())
    least = min(rates)
    if gpus == 8 and fast.pairs == {pair: n * least for pair, n in CUBE.items()}:
        return {"family": "hybrid_cube_mesh", "nvlink": link(least, STEP["pair"], fast.kind)}
    if len(rates) > 1:
        return None
    joined = [gpu for pair in fast.pairs for gpu in pair]
    if len(set(joined)) == len(joined) and fast.kind == "nvlink":
        bridge = link(least, STEP["pair"], "nvlink")
        return {"family": "pcie_tree", "bridge": bridge, "bridges": [list(p) for p in fast.pairs]}
    if len(fast.pairs) == gpus * (gpus - 1) // 2:
        return {"family": "full_mesh", "pair": link(least, STEP["pair"], fast.kind)}
    return None


def _tree(host: HostWiring) -> Document | None:
    """`host` as equal sockets and switches, numbered by GPUs; None where it isn't so."""
    per_socket = _blocks([place.socket for place in host.gpus])
    names = [place.switch for place in host.gpus]
    per_switch = 0 if set(names) == {None} else None if None in names else _blocks(names)
    slots = [_slots(nic, host) for nic in host.nics]
    rates = ({p.bandwidth for p in host.gpus}, {p.bandwidth for p in host.nics},
             {host.uplinks[name] for name in names if name is not None})  # fmt: skip
    if per_socket is None or per_switch is None or not all(slots):
        return None
    if any(len(found) > 1 for found in rates):
        return None
    tree: Document = {"gpu": link(host.gpus[0].bandwidth, STEP["gpu"], host.kind)}
    if host.nics:
        tree["nic"] = link(host.nics[0].bandwidth, "0 us", "pcie")
    if per_switch:
        tree["uplink"] = link(rates[2].pop(), "0 us", "pcie")
    sockets = len(host.gpus) // per_socket
    if sockets > 1:
        tree["inter_socket"] = link(host.between, "0 us", "inter_socket")
    tree |= {"sockets": sockets, "gpus_per_socket": per_socket}
    if per_switch:
        tree["gpus_per_switch"] = per_switch
    if host.nics:
        tree["nics_beside"] = _beside(slots)
    return tree


def _blocks(names: Sequence[object]) -> int | None:
    """The size of the blocks of equal names, where all are equally long and none comes back."""
    size = sum(name == names[0] for name in names)
    starts = names[::size]
    regular = len(set(starts)) == len(starts) and len(names) % size == 0
    same = all(name == starts[i // size] for i, name in enumerate(names))
    return size if regular and same else None


def _slots(nic: Place, host: HostWiring) -> list[int]:
    """The GPUs that hang where `nic` does; where GPUs have switches, a NIC needs one of theirs."""
    return [
        slot
        for slot, gpu in enumerate(host.gpus)
        if gpu.switch == nic.switch and gpu.socket == nic.socket
    ]


def _beside(slots: list[list[int]]) -> list[int]:
    """One slot per NIC: NICs of one place take its slots in turn."""
    turn: dict[int, int] = {}
    chosen = []
    for near in slots:
        number = turn.get(near[0], 0)
        turn[near[0]] = number + 1
        chosen.append(near[number % len(near)])
    return chosen


def _explicit(host: HostWiring, fast: Fast) -> Document:
    """Every wire by itself; sockets and switches are numbered as they come."""
    places = (*host.gpus, *host.nics)
    sockets = {s: f"socket{i}" for i, s in enumerate(dict.fromkeys(p.socket for p in places))}
    owners = {p.switch: p.socket for p in places if p.switch is not None}
    switches = {name: f"pcie{i}" for i, name in enumerate(owners)}
    gpus = [f"gpu{i}" for i in range(len(host.gpus))]
    nics = [f"nic{i}" for i in range(len(host.nics))]
    links: list[Document] = []

    def wire(a: str, b: str, bandwidth: float | None, latency: str, kind: str) -> None:
        links.append({"from": a, "to": b, **link(bandwidth, latency, kind)})

    for (a, b), rate in fast.pairs.items():
        wire(gpus[a], gpus[b], rate, STEP["pair"], fast.kind)
    for gpu, rate in enumerate(fast.to_switch):
        wire(gpus[gpu], "nvswitch0", rate, STEP["switch"], fast.kind)
    for name, place in zip([*gpus, *nics], places, strict=True):
        above = switches[place.switch] if place.switch is not None else sockets[place.socket]
        latency, kind = (STEP["gpu"], host.kind) if name in gpus else ("0 us", "pcie")
        wire(name, above, place.bandwidth, latency, kind)
    for switch, socket in owners.items():
        wire(switches[switch], sockets[socket], host.uplinks[switch], "0 us", "pcie")
    for one, other in combinations(sockets.values(), 2):
        wire(one, other, host.between, "0 us", "inter_socket")
    hub = ["nvswitch0"] if fast.to_switch else []
    vertices = [*gpus, *nics, *hub, *switches.values(), *sockets.values()]
    return {"family": "explicit", "vertices": vertices, "links": links}
