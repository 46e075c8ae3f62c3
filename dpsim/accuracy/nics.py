"""From words on the network between nodes to the NICs of a node: how many, how fast, which kind."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dpsim.accuracy.words import first, meaning, vocabulary
from dpsim.core.record import Refused
from dpsim.machines.devices import NetworkKind
from dpsim.machines.fabrics.explicit import Explicit
from dpsim.machines.machine import Machine


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


@dataclass(frozen=True)
class NetworkText:
    """What a table says of the network.

    fabric  one word for what the data crossed
    text    the clauses on the network; `every` is all that is said of the machine
    total   line rate of all NICs of a node together [Gbit/s]; None: not stated as a number
    named   whether the text names the platform
    """

    fabric: str
    text: str
    every: str
    total: float | None
    named: bool


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


def nics_of(told: NetworkText, machine: Machine, usual: float, notes: list[str]) -> Nics | None:
    """The NICs of a node, None where nothing is said and the machine's own are taken.

    `usual` is the line rate of one NIC beside such an accelerator [Gbit/s]; `notes` grow by what
    is assumed.
    """
    own = _own(machine)
    read, kind = _read(told.text), _kind(told, notes)
    if read.empty and told.total is None:
        return _untold(told, machine, own, kind, notes)
    if kind is None:
        kind = _usual_kind(machine, own, told.total or read.rate or read.total, notes)
    whole = told.total if told.total is not None else _whole(read, own, machine, kind)
    nics = _split(whole, read, usual, _limit(machine), notes)
    rate, known = whole / nics, vocabulary().network.line_rates
    if told.total is None and rate not in known:
        rate = max((r for r in known if r < rate), default=rate)
        notes.append(f"{whole:g} Gbit/s over {nics} NICs is no line rate; {rate:g} each is taken.")
    return Nics(nics, rate, kind)


def _kind(told: NetworkText, notes: list[str]) -> NetworkKind | None:
    """What the nodes are joined by; `fabric` is asked first, then the text."""
    words = vocabulary().network
    fabric, outer = told.fabric.lower(), told.text.lower()
    for text in (fabric, outer):
        if not words.tcpx.search(text) and words.tcp.search(text):
            both = f"{text} {outer}"
            if words.gvnic.search(both):
                return "gvnic"
            return "ipoib" if words.over_infiniband.search(both) else "ethernet"
        found = first(words.kinds, text)
        if found is not None:
            notes += [found.note] if found.note else []
            return found.kind
    return None


def _usual_kind(machine: Machine, own: Nics, gbits: float | None, notes: list[str]) -> NetworkKind:
    """The kind where the text names none: Ethernet's by its line rate, else the machine's."""
    if gbits in vocabulary().network.ethernet_rates and own.kind != "ethernet":
        notes.append(f"What the network is isn't stated; {gbits:g} Gbit/s is taken for Ethernet.")
        return "ethernet"
    notes.append(f"What the network is isn't stated; {own.kind} as in {machine.name}.")
    return own.kind


def _own(machine: Machine) -> Nics:
    network = machine.network
    if network is None:
        raise Refused(f"{machine.name} has no network", ("machine",))
    link = network.link  # type: ignore[attr-defined]
    return Nics(machine.nics_per_node, link.bandwidth * 8e-9, link.kind)


def _limit(machine: Machine) -> int:
    """Most NICs that a node of this machine can have: one per GPU, several are bundled."""
    own = machine.nics_per_node
    return own if isinstance(machine.node, Explicit) else max(machine.gpus_per_node, own)


def _untold(
    told: NetworkText, machine: Machine, own: Nics, kind: NetworkKind | None, notes: list[str]
) -> Nics | None:
    """NICs where a text gives no number: those of the platform, one slow NIC where it is just
    Ethernet, else the machine's."""
    words = vocabulary().network
    known = first(words.platforms, told.every)
    if known is not None:
        notes.append(f"{known.nics} x {known.gbits:g} Gbit/s per node: {known.source}.")
        return Nics(known.nics, known.gbits, kind or own.kind)
    if kind is None:
        if told.text and not words.silent.search(told.text.lower()):
            notes.append(f"{told.text.strip()[:60]!r} names no network that is known.")
        notes.append(f"The network between nodes isn't stated; that of {machine.name} is taken.")
        return None
    unstated = "The speed of the network isn't stated;"
    if kind in ("ethernet", "gvnic") and not told.named and not words.fast.search(told.every):
        notes.append(f"{unstated} {words.slow:g} Gbit/s is taken.")
        return Nics(1, words.slow, kind)
    notes.append(f"{unstated} {own.count} x {own.gbits:g} Gbit/s as in {machine.name}.")
    return Nics(own.count, own.gbits, kind)


def _whole(read: _Read, own: Nics, machine: Machine, kind: NetworkKind) -> float:
    """All NICs of a node together [Gbit/s], where the text alone tells."""
    if read.total is not None:
        return read.total
    rate = read.rate or vocabulary().network.usual.get(kind, own.gbits)
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


def _read(text: str) -> _Read:
    """What the clauses on the network state."""
    words = vocabulary().network
    text = words.gigabit.sub(lambda m: f"{m[1] or 1} GbE", text)
    found, count = words.rate.search(text), _count(text)
    known = first(words.generations, text.lower())
    named = known.gbits if known else None
    rate, total = named, None
    if found:
        value = float(found[1]) * (1000.0 if found[2] == "T" else 1.0)
        whole = named is not None and value > named and math.isclose(value / named % 1.0, 0.0)
        if whole and (count is None or math.isclose(value, count * (named or 0.0))):
            total = value
        elif count is None and named is None and words.total.search(text[found.end() :]):
            rate, total = None, value
        elif found[2] == "T":
            total = value
        else:
            rate = value
    per_gpu = bool(words.per_gpu.search(text.lower()))
    bare = count is None and named is None and not per_gpu
    return _Read(count, rate, total, per_gpu, bare)


def _count(text: str) -> int | None:
    words = vocabulary().network
    spelled = meaning(words.counts, text.lower())
    if spelled is not None:
        return spelled
    found = words.count_behind.search(text) or words.count.search(text)
    return int(found[1] or found[2]) if found else None
