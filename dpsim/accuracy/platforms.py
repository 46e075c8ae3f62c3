"""From the words of a table of measurements to the machine of a scenario.

Sources write hardware in words: "NVIDIA A100-SXM4-80GB", "8x ConnectX-6 IB HDR 200Gb/Sec",
"10GbE, TCP/IP (NCCL sockets)".  `platform` reads them with the tables of `_vocabulary`, says what
it had to assume, and refuses what it does not know.  It looks at the words alone, never at where
they come from.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from dpsim.accuracy import _vocabulary as words
from dpsim.accuracy._vocabulary import Accelerator, Board, Node
from dpsim.core.record import Refused
from dpsim.machines.devices import NetworkKind
from dpsim.machines.fabrics.explicit import Explicit
from dpsim.machines.machine import Machine, load_device, load_machine

#: GPUs in the largest single server (DGX-2); more are an NVLink domain over several
_LARGEST_BOX = 16


@dataclass(frozen=True)
class Platform:
    """A cluster in the words of a scenario.

    cluster  keys of a scenario's `cluster:` without nodes and ranks
    notes    what was inferred and is not stated, one plain sentence each
    """

    cluster: dict[str, Any]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Nics:
    """The NICs of one node: how many, the line rate of each [Gbit/s], what they are."""

    count: int
    gbits: float
    kind: NetworkKind

    def cluster(self) -> dict[str, Any]:
        """The keys of a scenario's cluster."""
        return {
            "nics_per_node": self.count,
            "inter_node_bandwidth": f"{self.gbits:.6g} Gbit/s",
            "inter_node_kind": self.kind,
        }


@dataclass(frozen=True)
class _Read:
    """What a text on the network states: NICs per node or per GPU, and line rates [Gbit/s].

    rate   of one NIC, `total` of all NICs of a node
    bare   the rate is a number alone, and may be that of all NICs as well
    """

    count: int | None
    rate: float | None
    total: float | None
    per_gpu: bool
    bare: bool

    @property
    def empty(self) -> bool:
        return self.count is None and self.rate is None and self.total is None


def platform(
    *,
    accelerator: str,
    gpus_per_node: int | None,
    intra_node: str = "",
    inter_node: str = "",
    inter_gbits_s: float | None = None,
    fabric: str = "",
    machine: str = "",
) -> Platform:
    """The machine that these words describe.

    accelerator    the GPU, as its source writes it
    gpus_per_node  GPUs in use on each node; None: all of the machine
    intra_node     what joins the GPUs of a node
    inter_node     what joins the nodes, and its speed
    inter_gbits_s  nominal line rate of all NICs of a node together, one way [Gbit/s]; None: as
                   `inter_node` says, else as the machine has
    fabric         one word for what the data crossed ("ib", "tcp_eth", "nvlink_nvswitch")
    machine        the platform's name, where it has one

    Several GPUs of an NVLink domain that spans nodes (GB200) are one node here, so count ranks
    and not nodes.  Refused where the accelerator, or a node with so many of them, is not known.
    """
    notes: list[str] = []
    _require_gpus(fabric)
    outer, inner = _clauses(inter_node)
    inside = " ; ".join((intra_node, fabric, machine, *inner)).lower()
    every = " ; ".join((accelerator, inside, inter_node)).lower()
    family = _family(accelerator.lower(), inside, gpus_per_node)
    board = _board(family, accelerator.lower(), inside)
    name, named = _machine(board, gpus_per_node, inside, every, notes)
    chosen = load_machine(name)
    device = _device(family, board, chosen, notes)
    gpus, share = _in_a_node(chosen, gpus_per_node, notes)
    total = None if inter_gbits_s is None else inter_gbits_s * share
    nics = _network(chosen, named, family.nic, (fabric, outer, every), total, notes)
    cluster = {"machine": name, "device": device, "gpus_per_node": gpus}
    cluster |= nics.cluster() if nics else {}
    return Platform({k: v for k, v in cluster.items() if v is not None}, tuple(notes))


# -- the accelerator and its node -----------------------------------------------------------------


def _require_gpus(fabric: str) -> None:
    if re.match(r"cpu_|.*_cpu$", fabric.lower()):
        raise Refused(f"fabric {fabric!r} moves host memory; only GPUs are modelled", ("fabric",))


def _board(family: Accelerator, text: str, inside: str) -> Board:
    """The form of the accelerator: on PCIe where the node is, or where bridges join pairs."""
    bus = re.search(words.PCIE, inside) and not re.search(r"nvlink|nvswitch", inside)
    slots = (bus or re.search(words.PAIRS, inside)) and "sxm" not in text
    wanted = f"{text} pcie" if slots else text
    return next(board for board in family.boards if re.search(board.words, wanted))


def _device(family: Accelerator, board: Board, machine: Machine, notes: list[str]) -> str | None:
    """The device that replaces the machine's, None where the machine's is right."""
    own = {load_device(b.device).name for b in family.boards}
    guessed = not board.words and len(family.boards) > 1
    fits = machine.device.name in own if guessed else _same(machine, board)
    if guessed:
        name = machine.device.name if fits else load_device(board.device).name
        notes.append(f"The text doesn't say which board the accelerator is; {name} is taken.")
    elif board.note:
        notes.append(board.note)
    return None if fits else board.device


def _same(machine: Machine, board: Board) -> bool:
    return machine.device.name == load_device(board.device).name


def _family(text: str, inside: str, gpus: int | None) -> Accelerator:
    for family in words.ACCELERATORS:
        if re.search(family.words, text):
            return family
    unknown = not text.strip() or re.search(words.NOT_STATED, text)
    if unknown and re.search(words.GEFORCE.words, text):
        return words.GEFORCE
    if unknown and (gpus == 1 or re.search(words.PCIE, f"{text} {inside}")):
        return words.ANY_GPU
    if unknown:
        raise Refused(
            "the accelerator isn't stated, nor that it sits on PCIe; state one of the two",
            ("accelerator",),
        )
    known = sorted({board.device for f in words.ACCELERATORS for board in f.boards})
    message = f"no accelerator known in {text[:60]!r}; known: {', '.join(known)}"
    raise Refused(message, ("accelerator",))


def _machine(
    board: Board, gpus: int | None, inside: str, every: str, notes: list[str]
) -> tuple[str, bool]:
    """The bundled machine whose node is meant, and whether the text names that very platform."""
    nodes = words.NODES[board.fitted]
    for pattern, fitted, name in (*words.PLATFORMS, *words.KIND_MACHINES):
        fits = board.fitted == fitted if isinstance(fitted, str) else board.fitted in fitted
        if fits and re.search(pattern, every) and (gpus or 1) <= load_machine(name).gpus_per_node:
            return name, True
    fitting = [node for node in nodes if (gpus or 1) <= node.gpus]
    if not fitting:
        most = max(node.gpus for node in nodes)
        message = f"no machine known with {gpus} of {board.device} in a node; at most {most}"
        raise Refused(message, ("gpus_per_node",))
    wanted = _wiring(inside, board, gpus)
    if wanted is not None:
        for node in fitting:
            if node.wiring == wanted:
                return node.machine, False
    node = next((n for n in fitting if n.gpus == gpus), fitting[0])
    if len({n.wiring for n in fitting}) > 1:
        notes.append(_assumed_node(node, wanted))
    return node.machine, False


def _in_a_node(machine: Machine, gpus: int | None, notes: list[str]) -> tuple[int, float]:
    """GPUs of a node, and how many nodes of the table's are one of the machine's."""
    whole = machine.gpus_per_node
    if gpus is None or whole <= _LARGEST_BOX:
        return gpus or whole, 1.0
    notes.append(f"{machine.name} has one NVLink domain of {whole} GPUs.")
    return whole, whole / gpus


def _assumed_node(node: Node, wanted: str | None) -> str:
    why = f"is {wanted}, and no such machine is known" if wanted else "isn't stated"
    return f"The wiring inside the node {why}; that of {node.machine} is taken."


def _wiring(inside: str, board: Board, gpus: int | None) -> str | None:
    """The way of wiring (see `Node`) that the text names."""
    for pattern, wiring in words.WIRING:
        if re.search(pattern, inside):
            full = "mesh" if board.fitted.startswith("mi") or (gpus or 8) <= 4 else "switch"
            return full if wiring == "full" else wiring
    usual = words.NODES[board.fitted][0].wiring
    if usual[:-1] not in ("pcie", "staged"):
        return None
    found = re.search(rf"(?:{words.PCIE})\s*(?:gen)?\s*([345])(?:\.0)?", inside)
    staged = re.search(words.NO_P2P, inside)
    direct = re.search(words.P2P, inside) and not staged
    way = "staged" if staged else "pcie" if direct else usual[:-1]
    generation = found[1] if found else usual[-1]
    return f"{way}{min(int(generation), 4) if way == 'staged' else generation}"


# -- the network between nodes --------------------------------------------------------------------


def _clauses(text: str) -> tuple[str, tuple[str, ...]]:
    """The clauses of `text` on the network, joined, and those on the inside of the node.

    Clauses on benchmarks are neither: what was measured is not the line rate.
    """
    outer, inner = [], []
    for clause in re.split(r"[;\n]", text):
        low = clause.lower()
        if re.search(r"bench|measured|iperf|\balgo\b|\bosu\b|p2pbandwidth|data bandwidth", low):
            continue
        if re.search(rf"{words.PCIE}|nvlink|nvswitch|\bplx\b|single[- ]root", low) and not (
            re.search(r"\bnics?\b|adapter|rdma|hca", low)
        ):
            inner.append(clause)
        elif "pcie-nic" not in low:
            outer.append(clause)
    return " ; ".join(outer), tuple(inner)


def _network(
    machine: Machine,
    named: bool,
    usual: float,
    texts: tuple[str, str, str],
    total: float | None,
    notes: list[str],
) -> _Nics | None:
    """The NICs of a node, None where nothing is said and the machine's own are taken.

    `named` tells that the text names the platform; `usual` is the line rate of one NIC beside
    such an accelerator [Gbit/s].
    """
    fabric, outer, every = texts
    own = _own(machine)
    read, kind = _read(outer), _kind(fabric, outer, notes)
    if read.empty and total is None:
        known = _known_nics(every, own, kind, notes)
        if known is not None:
            return known
        slow = kind in ("ethernet", "gvnic") and not named and not re.search(words.FAST, every)
        if outer and not re.search(words.SILENT, outer.lower()) and kind is None:
            notes.append(f"{outer.strip()[:60]!r} names no network that is known.")
        return _untold(machine, own, kind, slow, notes)
    if kind is None:
        kind = _usual_kind(machine, own, total or read.rate or read.total, notes)
    stated = total is not None
    whole = total if total is not None else _whole(read, own, machine, kind)
    nics = _split(whole, read, usual, _limit(machine), notes)
    rate = whole / nics
    if not stated and rate not in words.LINE_RATES:
        rate = max((r for r in words.LINE_RATES if r < rate), default=rate)
        notes.append(f"{whole:g} Gbit/s over {nics} NICs is no line rate; {rate:g} each is taken.")
    return _Nics(nics, rate, kind)


def _usual_kind(machine: Machine, own: _Nics, gbits: float | None, notes: list[str]) -> NetworkKind:
    """The kind where the text names none: Ethernet's by its line rate, else the machine's."""
    if gbits in words.ETHERNET_RATES and own.kind != "ethernet":
        notes.append(f"What the network is isn't stated; {gbits:g} Gbit/s is taken for Ethernet.")
        return "ethernet"
    notes.append(f"What the network is isn't stated; {own.kind} as in {machine.name}.")
    return own.kind


def _own(machine: Machine) -> _Nics:
    network = machine.network
    if network is None:
        raise Refused(f"{machine.name} has no network", ("machine",))
    link = network.link  # type: ignore[attr-defined]
    return _Nics(machine.nics_per_node, link.bandwidth * 8e-9, link.kind)


def _limit(machine: Machine) -> int:
    """Most NICs that a node of this machine can have: one per GPU, several are bundled."""
    own = machine.nics_per_node
    return own if isinstance(machine.node, Explicit) else max(machine.gpus_per_node, own)


def _untold(
    machine: Machine, own: _Nics, kind: NetworkKind | None, slow: bool, notes: list[str]
) -> _Nics | None:
    """The machine's NICs where a text gives no number; one slow NIC where it is just Ethernet."""
    if kind is None:
        notes.append(f"The network between nodes isn't stated; that of {machine.name} is taken.")
        return None
    if slow:
        notes.append(f"The speed of the network isn't stated; {words.SLOW:g} Gbit/s is taken.")
        return _Nics(1, words.SLOW, kind)
    notes.append(
        f"The speed of the network isn't stated; {own.count} x {own.gbits:g} Gbit/s as in "
        f"{machine.name}."
    )
    return _Nics(own.count, own.gbits, kind)


def _known_nics(every: str, own: _Nics, kind: NetworkKind | None, notes: list[str]) -> _Nics | None:
    for pattern, count, gbits, source in words.NIC_PLATFORMS:
        if re.search(pattern, every):
            notes.append(f"{count} x {gbits:g} Gbit/s per node: {source}.")
            return _Nics(count, gbits, kind or own.kind)
    return None


def _whole(read: _Read, own: _Nics, machine: Machine, kind: NetworkKind) -> float:
    """All NICs of a node together [Gbit/s], where the text alone tells."""
    if read.total is not None:
        return read.total
    by_kind = {"efa": 100.0, "slingshot": 200.0, "omni_path": 100.0}
    rate = read.rate or by_kind.get(kind, own.gbits)
    count = machine.gpus_per_node if read.per_gpu else read.count
    if count is None:
        count = own.count if math.isclose(rate, own.gbits) else 1
    return count * rate


def _split(whole: float, read: _Read, usual: float, limit: int, notes: list[str]) -> int:
    """How many NICs carry `whole` [Gbit/s] together."""
    times = 0.0 if not read.rate or (read.bare and whole > usual) else whole / read.rate
    if read.rate and whole < 0.99 * read.rate:
        notes.append(f"{whole:g} of nominal {read.rate:g} Gbit/s: the effective rate is taken.")
    if times >= 0.99 and abs(times - round(times)) < 0.01 * times:
        count = round(times)
        if read.count is not None and read.count != count and not read.per_gpu:
            notes.append(f"The text counts {read.count}, the total makes {count} NICs.")
    elif read.count is not None:
        count = read.count
    else:
        count = max(1, math.ceil(whole / usual - 1e-9))
        if count > 1:
            notes.append(f"The number of NICs isn't stated; {count} per node is taken.")
    if count > limit:
        notes.append(f"{count} NICs per node are bundled into {limit}.")
    return min(count, limit)


def _kind(fabric: str, outer: str, notes: list[str]) -> NetworkKind | None:
    """What the nodes are joined by; `fabric` is asked first, then the text."""
    for text in (fabric.lower(), outer.lower()):
        if "tcpx" not in text and re.search(words.TCP, text):
            over_ib = re.search(rf"ipoib|slingshot|{words.NAMES_OF_IB}", f"{text} {outer.lower()}")
            if re.search(r"gvnic", f"{text} {outer.lower()}"):
                return "gvnic"
            return "ipoib" if over_ib else "ethernet"
        for pattern, kind in words.KINDS:
            if re.search(pattern, text):
                if pattern == "rdma":
                    notes.append("RDMA may be InfiniBand or RoCE; InfiniBand is taken.")
                return kind
    return None


_NUMBER = r"(\d+(?:\.\d+)?)"
_RATE = re.compile(
    rf"(?<![\d.])(?<![A-WY-Za-wy-z]){_NUMBER} ?"
    r"(?:(T|G)(?:b|bit|bits) ?(?:/ ?[Ss](?:ec)?\b|ps\b|\b(?!/))|G(?:b?E|BE)?\b)"
)
_TOTAL = re.compile(
    r"^[^,;]*?(?:per|/|a) ?(?:node|vm|server|host|instance|machine)\b|^ ?(?:node[- ]node|cross|"
    r"between nodes|inter-?node|total|aggregate)",
    re.IGNORECASE,
)
_PIECES = r"(?:nics?|links?|adapters?|hcas?|ports?|rails?|virtual functions?|vfs?)\b"
_COUNT_BEHIND = re.compile(
    r"(?:gb/s|gbps|gbit/s|\bgb?e?|[henfqx]dr(?:\d+)?|\)) ?[x×] ?(\d{1,2})\b(?! ?[gt]b)|"
    r"\((\d{1,2}) (?:per|a|/) ?(?:node|server|host|vm)\b",
    re.IGNORECASE,
)
_COUNT = re.compile(
    r"(?<![\w.])(\d{1,2}) ?[x×] ?(?=[A-Za-z]|\d)|"
    rf"(?<!slingshot )(?<![\w.])(\d{{1,2}}) (?:[\w+./-]+ ){{0,3}}?{_PIECES}",
    re.IGNORECASE,
)


def _read(text: str) -> _Read:
    """What the clauses on the network state."""
    text = re.sub(r"(?i)(?:\b(\d+) ?)?gigabit", lambda m: f"{m[1] or 1} GbE", text)
    low = text.lower()
    found = _RATE.search(text)
    named = next((rate for pattern, rate in words.RATES if re.search(pattern, low)), None)
    count = _count(text)
    rate, total = named, None
    if found:
        value = float(found[1]) * (1000.0 if found[2] == "T" else 1.0)
        whole = named is not None and value > named and math.isclose(value / named % 1.0, 0.0)
        if whole and (count is None or math.isclose(value, count * (named or 0.0))):
            total = value
        elif count is None and named is None and _TOTAL.match(text[found.end() :]):
            rate, total = None, value
        elif found[2] == "T":
            rate, total = named, value
        else:
            rate = value
    per_gpu = bool(re.search(r"(?:per|each|/) ?gpu\b", low))
    bare = count is None and named is None and not per_gpu
    return _Read(count, rate, total, per_gpu, bare)


def _count(text: str) -> int | None:
    for word, number in words.COUNTS.items():
        if re.search(rf"\b{word}(?:-rail| (?:[\w+./-]+ ){{0,3}}?{_PIECES})", text.lower()):
            return number
    found = _COUNT_BEHIND.search(text) or _COUNT.search(text)
    return int(found[1] or found[2]) if found else None
