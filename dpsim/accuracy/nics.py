"""From words on the network between nodes to the NICs of a node: how many, how fast, which kind."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from dpsim.accuracy.asides import ASIDE_USES
from dpsim.accuracy.asking import answer
from dpsim.accuracy.grammar import chosen, networks
from dpsim.accuracy.link_phrase import LinkPhrase
from dpsim.accuracy.link_rates import NIC, NODE, LinkRate
from dpsim.accuracy.network_text import NetworkText, of_fabric, told_kind
from dpsim.accuracy.nic_places import of_nodes, one_each, situation
from dpsim.accuracy.questions import Inquiry
from dpsim.accuracy.rules import first, meaning
from dpsim.accuracy.words import NamedNics, vocabulary
from dpsim.core.record import Refused
from dpsim.machines.devices import NetworkKind
from dpsim.machines.fabrics.explicit import ExplicitNode
from dpsim.machines.fabrics.torus import Torus
from dpsim.machines.machine import Machine
from dpsim.machines.topology import LARGEST_SERVER

#: line rate [Gbit/s] from which on NICs beside a total are a possible reading of it
_LEAST_OPEN = 100
#: what share of its line rate a NIC is said to reach, at least, where that is what a text tells
_EFFECTIVE = 0.9
#: no GPU has more NICs beside it, and no node fewer places for them
_NICS_EACH, _FEWEST = 2, 4
#: rate of the slowest network [Gbit/s] (10BASE5, IEEE 802.3-1983)
_SLOWEST = 0.01
#: adapters that NCCL is told to use: one by its name, or several, which are counted by now
_CHOSEN = re.compile(r"\bnccl_ib_hca ?= ?=?(?:mlx5_\d|(\d+)x)", re.IGNORECASE)


@dataclass(frozen=True)
class Nics:
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


def fabric_whole(told: NetworkText, gpus: int) -> float | None:
    """What the NICs of a node carry together [Gbit/s], as far as the words alone tell."""
    if told.total is not None:
        return told.total
    read = chosen(networks(told.parts), None, gpus, [])
    if not read.numbers or (read.rate is None and read.count is None):
        return None
    each = read.rate.gbits if read.rate else read.nominal or 0.0
    return _whole(read, Usual(Nics(1, each, "ethernet"), each), gpus, "ethernet", False, Inquiry())


def nics_of(
    told: NetworkText, machine: Machine, usual: float, notes: list[str], asked: Inquiry
) -> Nics | None:
    """The NICs of a node, None where nothing is said and the machine's own are taken.

    `usual` is the line rate of one NIC beside such an accelerator [Gbit/s]; `notes` grow by what
    is assumed.  Slices of TPUs are joined by their data centre's network, whatever it is called.
    """
    own, gpus = _own(machine), machine.gpus_per_node
    read = _settled(_read(told, gpus, notes), told, asked)
    kind = told_kind(told, read)
    notes += [read.note] if read.note and kind == read.kind != of_fabric(told).joined_by else []
    if not read.numbers and told.total is None:
        found = _untold(told, machine, Usual(own, usual), kind, notes, asked)
        if found is None or not (one_each(machine, own.count) or of_nodes(machine)):
            return found
        joined_by = _rdma(found.kind, read, told, found.count * found.gbits, notes, own)
        return replace(found, kind=joined_by)
    if (bare := _bare(told, machine, read, kind, notes)) is not None:
        return bare
    if isinstance(machine.node, Torus):
        kind = own.kind
    elif kind is None:
        each = read.rate.gbits if read.rate else None
        beside = told.total or (each and each * (read.count or 1))
        kind = _usual_kind(told, machine, own, (told.total or each, beside), notes, asked)
    whole = told.total
    if whole is None:
        whole = _whole(read, Usual(own, usual), gpus, kind, told.asked and not told.named, asked)
    _require_possible(whole, kind, read, told, machine)
    if not (isinstance(machine.node, Torus) or own.kind == "efa"):  # which is Amazon's only RDMA
        kind = _rdma(kind, read, told, whole, notes, own)
    platform = told.named and kind == own.kind and read.count is None
    each, most = (own.gbits, own.count) if platform else (usual, _limit(machine))
    counted = replace(read, count=read.count * gpus) if read.count and read.each_gpu else read
    nics = _split(whole, counted, each, most, notes)
    _require_all(nics, told.text)
    rate = whole / nics if told.total is not None else _line_rate(whole, nics, notes)
    return Nics(nics, rate, kind)


def _line_rate(whole: float, nics: int, notes: list[str]) -> float:
    """What each of `nics` has of `whole` [Gbit/s]: a line rate, or nearly one that a single NIC is
    said to reach."""
    rate, known = whole / nics, vocabulary().network.line_rates
    slowest = rate < min(known)  # of which there are more rates than are listed
    effective = nics == 1 and any(_EFFECTIVE <= rate / each < 1 for each in known)
    if slowest or effective or any(math.isclose(rate, each) for each in known):
        return rate
    least = max((r for r in known if r < rate), default=rate)
    notes.append(f"{whole:g} Gbit/s over {nics} NICs is no line rate; {least:g} each is taken.")
    return least


def _bare(
    told: NetworkText, machine: Machine, read: LinkPhrase, kind: NetworkKind | None,
    notes: list[str],
) -> Nics | None:  # fmt: skip
    """The NICs that a platform or `machine` has, where no count and no rate is told."""
    words, own = vocabulary().network, _own(machine)
    listed = first(words.platforms, told.every)
    if told.total is not None or (read.rate is not None and not _own_rate(read, listed)):
        return None
    if read.count is not None and not (listed and _ports_of(listed.nics, read, told.every)):
        return None
    if listed is not None:
        port = min(read.nominal or listed.gbits, listed.gbits)
        notes.append(f"{listed.nics} x {port:g} Gbit/s per node: {listed.source}.")
        its = _rdma(kind or listed.kind or own.kind, read, told, listed.nics * port, notes, own)
        return Nics(listed.nics, port, its)
    own_rate = read.nominal in (None, own.gbits, words.usual.get(own.kind))
    if own_rate and told.named and kind in (None, own.kind):
        notes.append(f"The speed of the network isn't stated; {machine.name}'s is taken.")
        return own
    return None


def _own_rate(read: LinkPhrase, listed: NamedNics | None) -> bool:
    """Whether the rate that is told is that of each NIC of the platform that is `listed`."""
    rate = read.rate
    alone = rate is not None and listed is not None and rate.of in ("", NIC)
    return bool(alone and rate and listed and math.isclose(rate.gbits, listed.gbits))


def _ports_of(nics: int, read: LinkPhrase, text: str) -> bool:
    """Whether what is counted are the two ports that each of so many NICs has: 16 of 8."""
    counted = vocabulary().network.ports.search(text.lower()) is not None
    return counted and not read.each_gpu and read.count == 2 * nics


def _require_possible(
    whole: float, kind: NetworkKind, read: LinkPhrase, told: NetworkText, machine: Machine
) -> None:
    """Raise Refused where no node has `whole` [Gbit/s], or no network of this kind."""
    words = vocabulary().network
    most = _NICS_EACH * max(words.line_rates) * max(machine.gpus_per_node, _FEWEST)
    if whole > most:
        raise Refused(f"{whole:g} Gbit/s a node is more than the {most:g} any has", ("inter_node",))
    if whole < _SLOWEST:
        slow = f"less than the {_SLOWEST:g} of the slowest Ethernet; of one node it may be left out"
        raise Refused(f"{whole:g} Gbit/s a node is {slow}", ("inter_node",))
    if told.total is not None or not told.asked:
        return
    if read.wrong:
        raise Refused(f"{told.text[:60]!r} contradicts itself: {read.wrong}", ("inter_node",))
    if kind == "infiniband" and read.rate and whole < words.infiniband_from:
        least = words.infiniband_from
        message = f"InfiniBand of {whole:g} Gbit/s does not exist; it has {least:g} or more"
        raise Refused(message, ("inter_node",))


def _require_all(nics: int, text: str) -> None:
    """Raise Refused where NCCL is told to use fewer adapters than there are `nics`."""
    chosen = _CHOSEN.search(text)
    used = int(chosen[1] or 1) if chosen else nics
    if used < nics:
        raise Refused(f"{text[:60]!r} has {nics} NICs, of which {used} are used", ("inter_node",))


def _rdma(
    kind: NetworkKind, read: LinkPhrase, told: NetworkText, whole: float, notes: list[str],
    own: Nics,
) -> NetworkKind:  # fmt: skip
    """RoCE where Ethernet is told that is faster than a host's sockets, or the machine's `own`, as
    fast, is RoCE, and no TCP."""
    sockets = read.sockets or vocabulary().network.tcp.search(told.fabric.lower())
    alike = own.kind == "roce" and own.count * own.gbits == whole
    if kind != "ethernet" or sockets or (whole < vocabulary().network.rdma_from and not alike):
        return kind
    notes.append(f"Ethernet of {whole:g} Gbit/s a node is taken for RoCE.")
    return "roce"


def _read(told: NetworkText, gpus: int, notes: list[str]) -> LinkPhrase:
    """The network that carries what GPUs exchange, as the text tells it."""
    phrases = networks(told.parts)
    found = chosen(phrases, told.total, gpus, notes)
    each_gpu = found.each_gpu or (found.per_gpu and found.times)
    if told.share > 1 and found.count is not None and found.count < gpus and not each_gpu:
        found = replace(found, count=round(found.count * told.share))
    rate, nominal = found.rate, found.nominal
    if told.share > 1 and rate and rate.of == NODE:
        found = replace(found, rate=replace(rate, gbits=rate.gbits * told.share))
    if rate and rate.bytes and _bits(rate, nominal, found):
        notes.append(f"Bytes per second are taken for bits: a NIC has {rate.gbits / 8:g} Gbit/s.")
        return replace(found, rate=replace(rate, gbits=rate.gbits / 8, bytes=False))
    return found


def _bits(rate: LinkRate, nominal: float | None, read: LinkPhrase) -> bool:
    """Whether a rate in bytes is eight times that of the generation named, or, as one of several
    NICs, eight times a line rate and beyond every one, or eight times one that is none in bytes."""
    each, words = rate.gbits / 8, vocabulary().network
    if nominal:
        return math.isclose(each, nominal, rel_tol=0.05)
    if each in words.never_bytes and not rate.of and read.kind:
        return True
    return read.times and rate.gbits > max(words.line_rates) and each in words.line_rates


def _settled(read: LinkPhrase, told: NetworkText, asked: Inquiry) -> LinkPhrase:
    """`read` with what its count and its rate leave open asked for."""
    rate, count, words = read.rate, read.count, vocabulary().network
    if not told.asked or told.named or told.total is not None or not read.numbers:
        return read
    parts = [part.lower() for part in told.parts]
    ports = [part for part in parts if words.two_ports.search(part)]
    ports = [part for part in ports if (meaning(words.uses, part) or "") not in ASIDE_USES]
    if ports and answer("ports", asked) == "two":
        return replace(read, count=2 * (count or 1))
    if not count or read.each_gpu:
        return read
    beside = rate is not None and not rate.of and not (read.times or read.nominal or rate.bytes)
    each = rate.gbits / count if rate else 0.0
    open_ = beside and count > 1 and each >= _LEAST_OPEN and each in words.line_rates
    if rate and open_ and answer("together", asked) == "all":
        return replace(read, rate=replace(rate, of=NODE))
    return read


def _usual_kind(
    told: NetworkText,
    machine: Machine,
    own: Nics,
    rates: tuple[float | None, float | None],
    notes: list[str],
    asked: Inquiry,
) -> NetworkKind:
    """The kind where the text names none: Ethernet's by its line rate, RDMA where sockets are too
    slow for what all NICs that are counted have, else asked for; a platform's own where it is
    named.  `rates` are of a NIC and of all that are counted [Gbit/s]."""
    words, (gbits, beside) = vocabulary().network, rates
    slow = gbits is not None and gbits < words.infiniband_from
    if gbits is not None and (gbits in words.ethernet_rates or slow) and own.kind != "ethernet":
        notes.append(f"What the network is isn't stated; {gbits:g} Gbit/s is taken for Ethernet.")
        return "ethernet"
    rdma: NetworkKind = "infiniband" if own.kind == "ethernet" else own.kind
    cloud = own.kind == "ethernet" and first(words.platforms, told.every) is not None
    if gbits in words.ethernet_rates or told.named or cloud:
        rdma = own.kind
    elif beside is not None and beside < words.rdma_from and told.asked:
        rdma = "ethernet" if answer("kind", asked) == "tcp" else rdma
    where = f" as in {machine.name}" if rdma == own.kind else " is taken"
    notes.append(f"What the network is isn't stated; {rdma}{where}.")
    return rdma


def _own(machine: Machine) -> Nics:
    network = machine.network
    if network is None:
        raise Refused(f"{machine.name} has no network", ("machine",))
    link = network.link  # type: ignore[attr-defined]
    return Nics(machine.nics_per_node, link.bandwidth * 8e-9, link.kind)


def _limit(machine: Machine) -> int:
    """Most NICs that a node of this machine can have: one per GPU, several are bundled."""
    own = machine.nics_per_node
    return own if isinstance(machine.node, ExplicitNode) else max(machine.gpus_per_node, own)


@dataclass(frozen=True)
class Usual:
    """What a node usually has: the machine's own NICs, and the line rate of one NIC beside such a
    GPU [Gbit/s]."""

    own: Nics
    rate: float


def _untold(
    told: NetworkText,
    machine: Machine,
    usual: Usual,
    kind: NetworkKind | None,
    notes: list[str],
    asked: Inquiry,
) -> Nics | None:
    """NICs where a text gives no number: those of the platform, else asked for."""
    words, own = vocabulary().network, usual.own
    known = first(words.platforms, told.every)
    if known is not None and kind == "ethernet" and known.ethernet:
        notes.append(f"Ethernet of {known.ethernet:g} Gbit/s per node: {known.source}.")
        return Nics(1, known.ethernet, kind)
    unknown = kind is None and bool(told.text) and not words.silent.search(told.text.lower())
    sockets = known is not None and {kind, known.kind} == {"ethernet", "gvnic"}
    if known is not None and (known.kind is None or kind in (None, known.kind) or sockets):
        notes.append(f"{known.nics} x {known.gbits:g} Gbit/s per node: {known.source}.")
        return Nics(known.nics, known.gbits, "gvnic" if sockets else known.kind or kind or own.kind)
    if kind is None:
        if unknown:
            notes.append(f"{told.text.strip()[:60]!r} names no network that is known.")
        notes.append(f"The network between nodes isn't stated; that of {machine.name} is taken.")
        return None if of_nodes(machine) else _asked_network(told, machine, usual, asked)
    unstated = "The speed of the network isn't stated;"
    listed = known.kind if known else None
    sells = told.named and own.kind != "infiniband" and listed in (None, "ethernet", "gvnic")
    slow = not sells and not words.fast.search(told.every) and not of_nodes(machine)
    if kind in ("ethernet", "gvnic") and slow:
        gbits = float(answer("ethernet", asked)) if told.asked else words.slow
        notes.append(f"{unstated} {gbits:g} Gbit/s is taken.")
        return Nics(1, gbits, kind)
    its = told.named or own.kind not in ("ethernet", "gvnic")
    nics = own if its else Nics(1, usual.rate, kind)
    open_ = told.asked and not told.named and nics.count > 1 and not one_each(machine, own.count)
    if open_ and answer("speed", asked, situation(machine)) == "one":
        nics = Nics(1, own.gbits, own.kind)
    where = f"as in {machine.name}" if nics.gbits == own.gbits else "is taken"
    notes.append(f"{unstated} {nics.count} x {nics.gbits:g} Gbit/s {where}.")
    return Nics(nics.count, nics.gbits, kind)


def _asked_network(
    told: NetworkText, machine: Machine, usual: Usual, asked: Inquiry
) -> Nics | None:
    """NICs of a network of which nothing is told; the machine's where a platform is named, or
    where nothing crosses it."""
    if told.named or not told.asked:
        return None
    use = answer("network", asked, situation(machine))
    if use == "tcp":
        return Nics(1, min(usual.rate, 100.0), "ethernet")
    return Nics(1, usual.rate, usual.own.kind) if use == "one" else None


def _whole(
    read: LinkPhrase, usual: Usual, gpus: int, kind: NetworkKind, asking: bool, asked: Inquiry
) -> float:
    """All NICs of a node together [Gbit/s], where the text alone tells."""
    rate, nominal, own = read.rate, read.nominal, usual.own
    if rate and rate.of == NODE and (read.count is None or not nominal or rate.gbits > nominal):
        return rate.gbits
    each = nominal if rate is None else rate.gbits
    if each is None:
        plain = own.gbits if own.kind == kind or kind in ("ethernet", "gvnic") else usual.rate
        each = vocabulary().network.usual.get(kind, plain)
    if rate and read.several(each):
        return each
    if read.per_gpu:  # a count that is no factor of the rate is the node's
        factor = read.count if read.each_gpu or read.times else 1
        return gpus * (factor or 1) * each
    count = read.count
    its = math.isclose(each, own.gbits) or (rate is None and not asking and each < own.gbits)
    if count is None and its and own.count > 1 and kind != "ethernet":
        many = not asking or answer("count", asked) == "own"
        whole = rate is None or asking or own.count > LARGEST_SERVER  # a rack has no NIC for all
        count = own.count if many and whole else 1
    return (count or 1) * each


def _split(whole: float, read: LinkPhrase, usual: float, limit: int, notes: list[str]) -> int:
    """How many NICs carry `whole` [Gbit/s] together."""
    rate = read.rate.gbits if read.rate and read.rate.of != NODE else None
    if rate is None or (read.nominal and read.several(rate)):
        rate = read.nominal
    bare = read.count is None and read.nominal is None and not read.per_gpu
    if rate and whole < 0.99 * rate:
        notes.append(f"{whole:g} of nominal {rate:g} Gbit/s: the effective rate is taken.")
    times = 0.0 if not rate or (bare and whole > usual) else whole / rate
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
