"""Reader of NCCL's topology XML: what ``NCCL_TOPO_DUMP_FILE`` writes and ``NCCL_TOPO_FILE`` reads.

Layout (NVIDIA/nccl 2.30.7 src/graph/xml.cc): ``system`` > ``cpu`` (a NUMA node) > nested ``pci``
> ``gpu`` > ``nvlink``, and ``nic`` > ``net``.  RCCL adds ``gcn`` and ``xgmi``.  Files that clouds
ship hold PCI slots only: no GPUs' names, no NVLinks, no speeds of NICs.

Bandwidths are those that NCCL counts with: link_width times the lane's rate over 80 for PCIe
(src/graph/topo.cc), speed in Mbit/s over 8 for NICs, and src/graph/topo.h between NUMA nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from dpsim.core.record import Refused
from dpsim.machines.devices import NetworkKind, NicMaker
from dpsim.measurements.importing.facts import Facts, Nic, Pair, Place, Wires, many
from dpsim.measurements.importing.pci_ids import maker_of, of_all
from dpsim.measurements.readers import text_content

FORMAT = "NCCL topology XML"
#: NCCL's own limits: src/graph/topo.h (nodes) and src/graph/xml.h (attributes, text)
MAX_NODES, MAX_ATTRIBUTES, MAX_TEXT = 256, 16, 255
#: PCI bridges are nested a few levels deep; RCCL's deepest model file has 8
MAX_DEPTH, MAX_CHARACTERS = 32, 1_000_000
#: one PCIe lane by its transfer rate, in units of 100 Mbit/s: src/graph/topo.cc, kvDictPciGen
_LANES = {"2.5": 15, "5": 30, "8": 60, "16": 120, "32": 240, "64": 480}
#: elements of the format; others are refused, for a file with them is not what NCCL reads
_KNOWN = frozenset(("system", "cpu", "pci", "gpu", "nvlink", "xgmi", "c2c", "nic", "net"))
#: by PCI class; GPUs are display (VGA, 3D, other) and AMD's processing accelerators
_SWITCH_CLASS, _NIC_CLASS, _GPU_CLASSES = "0x0680", "0x02", ("0x03", "0x12")


@dataclass
class Element:
    """One element of the file, with the line it is on."""

    name: str
    attributes: dict[str, str]
    line: int
    parent: Element | None
    children: list[Element] = field(default_factory=list)

    def get(self, key: str) -> str:
        return self.attributes.get(key, "").strip()

    @property
    def adapters(self) -> NicMaker | None:
        """Whose network card it is, where libraries ask."""
        return maker_of(self.get("vendor")) if self.get("class").startswith(_NIC_CLASS) else None

    def named(self, *names: str) -> list[Element]:
        return [child for child in self.children if child.name in names]

    def refuse(self, message: str) -> Refused:
        return Refused(f"line {self.line}: <{self.name}>: {message}")


def claims(text: str) -> bool:
    return text.lstrip().startswith("<") and "<graphml" not in text[:4096]


def read(path: Path) -> Facts:
    """The node that the file describes."""
    root = parse(text_content(path))
    if root.name == "graphs":
        raise Refused("is NCCL's graph XML (channels of rings and trees), not a topology; dump one "
                      "with NCCL_TOPO_DUMP_FILE")  # fmt: skip
    if root.name != "system":
        raise Refused(f"starts with <{root.name[:40]}>; a topology starts with <system>")
    return _Reading(path.name, root).facts()


def parse(text: str) -> Element:
    """`text` as elements, within NCCL's limits; no DOCTYPE, so no entities either."""
    if len(text) > MAX_CHARACTERS:
        raise Refused(f"is larger than {MAX_CHARACTERS // 10**6} MB, too long for a topology")
    parser = expat.ParserCreate("utf-8")
    builder = _Builder(parser)
    parser.StartDoctypeDeclHandler = builder.doctype
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        what = expat.errors.messages.get(error.code, "syntax error")
        cut = "was cut short or " if builder.root is not None and builder.open is not None else ""
        raise Refused(f"{cut}is not well-formed XML: {what} on line {error.lineno}") from None
    if builder.root is None:
        raise Refused("holds no element")
    return builder.root


class _Builder:
    """Collects elements, and refuses what NCCL's own parser has no room for."""

    def __init__(self, parser: expat.XMLParserType) -> None:
        self.parser = parser
        self.root: Element | None = None
        self.open: Element | None = None
        self.count = self.depth = 0

    def doctype(self, *unused: object) -> None:
        raise Refused("has a DOCTYPE, which a topology never has; entities are not read")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        self.count, self.depth = self.count + 1, self.depth + 1
        if self.count > MAX_NODES:
            raise Refused(f"line {line}: more than {MAX_NODES} elements, NCCL's limit")
        if self.depth > MAX_DEPTH:
            raise Refused(f"line {line}: nested more than {MAX_DEPTH} deep")
        if len(attributes) > MAX_ATTRIBUTES:
            raise Refused(f"line {line}: more than {MAX_ATTRIBUTES} attributes, NCCL's limit")
        if any(len(text) > MAX_TEXT for item in attributes.items() for text in (name, *item)):
            raise Refused(f"line {line}: a text of more than {MAX_TEXT} characters, NCCL's limit")
        element = Element(name, attributes, line, self.open)
        if self.open is None:
            self.root = element
        else:
            if name not in _KNOWN and self.root is not None and self.root.name == "system":
                raise Refused(f"line {line}: <{name[:40]}> is no element of a topology")
            self.open.children.append(element)
        self.open = element

    def end(self, name: str) -> None:
        assert self.open is not None
        self.open, self.depth = self.open.parent, self.depth - 1

    def characters(self, text: str) -> None:
        if text.strip():
            raise Refused(f"line {self.parser.CurrentLineNumber}: text where elements are expected")


@dataclass
class _Slot:
    """A leaf of the PCI tree: its element, place and number in the file."""

    pci: Element
    place: Place


class _Reading:
    """One file on its way to facts."""

    def __init__(self, source: str, root: Element) -> None:
        self.source, self.root = source, root
        self.gpus: list[_Slot] = []
        self.cards: list[_Slot] = []
        self.nets: list[Nic] = []
        self.unknown = 0
        self.listed: list[Element] = []  # <gpu> elements, which tell that NVLinks are listed too
        self.uplinks: dict[str, float | None] = {}
        self.notes: list[str] = []

    def facts(self) -> Facts:
        cpus = self.root.named("cpu")
        if not cpus:
            raise Refused("has no <cpu>, so nothing hangs anywhere")
        numbers = [_whole(cpu, "numaid", 0, 1023) for cpu in cpus]
        if len(set(numbers)) < len(numbers):
            raise Refused("two <cpu> have one numaid: a file of several nodes is not read")
        for cpu, number in zip(cpus, numbers, strict=True):
            self._walk(cpu, number, None, [])
        self.gpus.sort(key=_number)
        _require_distinct(self.gpus)
        nics = self._nics()
        compute, gcn = self._architecture()
        known = bool(self.gpus)
        return Facts(
            source=self.source,
            format=FORMAT,
            gpus=len(self.gpus) if known else None,
            places=tuple(slot.place for slot in self.gpus) if known else None,
            compute=compute,
            gcn=gcn,
            chip=of_all((gpu.pci.get("vendor"), gpu.pci.get("device")) for gpu in self.gpus),
            wires=self._wires(),
            nics=nics,
            uplinks=self.uplinks,
            between=_between(cpus),
            notes=(*self._summary(len(cpus), nics), *self.notes),
        )

    def _walk(self, element: Element, socket: int, top: str | None, path: list[Element]) -> None:
        """Collect what hangs below `element`; `path` holds the PCI devices down to it, `top` is
        the outermost switch."""
        for child in element.children:
            if child.name == "pci":
                self._pci(child, socket, top, [*path, child])
            elif child.name == "nic":
                self._nic(child, socket, top, path)
            elif child.name == "gpu" and element.name != "pci":
                raise child.refuse("a GPU needs a <pci> around it")

    def _pci(self, pci: Element, socket: int, top: str | None, path: list[Element]) -> None:
        bus = pci.get("busid").lower()
        if not re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", bus):
            raise pci.refuse(f"busid {bus[:30]!r} is not like 0000:0f:00.0")
        kind = pci.get("class").lower()
        if kind and not re.fullmatch(r"0x[0-9a-f]{4,6}", kind):
            raise pci.refuse(f"class {kind[:30]!r} is not like 0x030200")
        pcie_bandwidth(pci)
        inside = pci.named("gpu")
        if len(inside) > 1:
            raise pci.refuse("more than one GPU")
        if inside or kind.startswith(_GPU_CLASSES):
            self.gpus.append(_Slot(pci, Place(socket, top, _narrowest(path, top))))
            self.listed += inside
        elif pci.named("pci") or kind.startswith("0x0604"):
            if top is None:
                self.uplinks[bus] = pcie_bandwidth(pci)
            self._walk(pci, socket, top or bus, path)
        elif pci.named("nic"):
            self._walk(pci, socket, top, path)
        elif kind.startswith(_NIC_CLASS):
            self.cards.append(_Slot(pci, Place(socket, top, _narrowest(path, top))))
        elif not kind:
            self.unknown += 1

    def _nic(self, nic: Element, socket: int, top: str | None, path: list[Element]) -> None:
        place = Place(socket, top, _narrowest(path, top) if path else None)
        card = path[-1] if path else None
        for net in nic.named("net"):
            name = net.get("name")
            if not name:
                raise net.refuse("has no name")
            megabits = _whole(net, "speed", 1, 10**8)
            direct = net.get("gdr")
            self.nets.append(
                Nic(name, place, megabits * 1e6 / 8, _kind(name, card),
                    direct == "1" if direct in ("0", "1") else None,
                    _whole(net, "port", 0, 1023) if net.get("port") else None,
                    card.adapters if card else None)
            )  # fmt: skip

    def _nics(self) -> tuple[Nic, ...] | None:
        """The fastest ports: slower ones are for storage and management."""
        if self.nets:
            best = max(nic.speed or 0.0 for nic in self.nets)
            left = [nic.name for nic in self.nets if nic.speed != best]
            if left:
                self.notes.append(f"slower NICs are left out: {', '.join(left)[:200]}")
            return tuple(nic for nic in self.nets if nic.speed == best)
        if self.cards:
            return tuple(
                Nic(slot.pci.get("busid"), slot.place, None, _kind("", slot.pci),
                    adapters=slot.pci.adapters)
                for slot in self.cards
            )  # fmt: skip
        return () if self.listed else None

    def _architecture(self) -> tuple[int | None, str | None]:
        gcns = {gpu.get("gcn") for gpu in self.listed}
        if gcns - {""}:
            if len(gcns) > 1:
                raise Refused(f"has GPUs of several kinds: gcn {', '.join(sorted(gcns))[:80]}")
            name = gcns.pop()
            return None, name if name.startswith("gfx") else f"gfx{name}"
        found = {_whole(gpu, "sm", 10, 999) for gpu in self.listed}
        if len(found) > 1:
            raise Refused(f"has GPUs of several kinds: sm {', '.join(map(str, sorted(found)))}")
        return (found.pop() if found else None), None

    def _wires(self) -> Wires | None:
        """The links between GPUs; None where the file doesn't list them."""
        if not self.listed or len(self.listed) < len(self.gpus):
            return None
        index = {slot.pci.get("busid").lower(): i for i, slot in enumerate(self.gpus)}
        to_switch, pairs, kind = [0] * len(self.gpus), dict[Pair, int](), "nvlink"
        for own, slot in enumerate(self.gpus):
            for link in slot.pci.named("gpu")[0].named("nvlink", "xgmi"):
                kind = "xgmi" if link.name == "xgmi" else kind
                count, target = _whole(link, "count", 1, 64), link.get("target").lower()
                if not target:
                    raise link.refuse("has no target")
                if target in index and index[target] == own:
                    self.notes.append("NVLinks that lead back to their own GPU tell nothing")
                    return None
                if target in index:
                    _add(pairs, own, index[target], count, link)
                elif link.get("tclass").lower().startswith(_SWITCH_CLASS):
                    to_switch[own] += count
                else:
                    self.notes.append("links to GPUs outside this file are left out")
        self.notes = list(dict.fromkeys(self.notes))
        return Wires(kind, tuple(to_switch) if any(to_switch) else (), _symmetric(pairs))

    def _summary(self, cpus: int, nics: tuple[Nic, ...] | None) -> list[str]:
        said = many(len(self.gpus), "GPU") if self.gpus else "no GPU that can be told as such"
        ports = many(len(nics), "NIC") if nics is not None else "no NIC that can be told as such"
        lines = [
            f"{said}, {ports}, {many(len(self.uplinks), 'PCIe switch')}, {many(cpus, 'NUMA node')}"
        ]
        if nics and nics[0].speed:
            direct = sum(bool(nic.gpudirect) for nic in nics)
            lines.append(f"NICs of {nics[0].speed * 8 / 1e9:g} Gbit/s, {direct} with GPUDirect")
        if self.unknown:
            lines.append(f"{self.unknown} PCI devices without class: GPU or NIC, it isn't said")
        return lines


def _number(slot: _Slot) -> tuple[int, str]:
    """GPUs by their number, and by PCI address where the file has none, as the driver counts."""
    gpus = slot.pci.named("gpu")
    number = _whole(gpus[0], "dev", 0, 1023) if gpus else 0
    domain, _, rest = slot.pci.get("busid").lower().partition(":")
    return number, f"{domain:>8}:{rest}"


def _require_distinct(gpus: list[_Slot]) -> None:
    seen: set[str] = set()
    for slot in gpus:
        bus = slot.pci.get("busid").lower()
        if bus in seen:
            raise slot.pci.refuse(f"a second GPU at {bus}")
        seen.add(bus)


def _add(pairs: dict[Pair, int], a: int, b: int, count: int, link: Element) -> None:
    if (a, b) in pairs:
        raise link.refuse("a second entry for the same two GPUs")
    pairs[a, b] = count


def _symmetric(pairs: dict[Pair, int]) -> dict[Pair, int]:
    for (a, b), count in pairs.items():
        if pairs.get((b, a)) != count:
            raise Refused(f"GPU {a} has {count} links to GPU {b}, which has "
                          f"{pairs.get((b, a), 0)} back")  # fmt: skip
    return {(a, b): count for (a, b), count in sorted(pairs.items()) if a < b}


def _whole(element: Element, key: str, low: int, high: int) -> int:
    text = element.get(key)
    if not text:
        raise element.refuse(f"has no {key}")
    if not re.fullmatch(r"-?\d{1,12}", text) or not low <= int(text) <= high:
        raise element.refuse(f"{key} {text[:30]!r} is not a whole number in {low} … {high}")
    return int(text)


def pcie_bandwidth(pci: Element) -> float | None:
    """The slot's bandwidth one way [B/s]; None where speed or width is empty or 0."""
    speed, width = pci.get("link_speed"), pci.get("link_width")
    if not speed or width in ("", "0"):
        return None
    lanes = _whole(pci, "link_width", 1, 32)
    found = re.fullmatch(r"(\d{1,2}(?:\.\d)?) GT/s(?: PCIe)?(?:/s)?", speed)
    rate = _LANES.get(found[1].removesuffix(".0")) if found else None
    if rate is None:
        raise pci.refuse(f"link_speed {speed[:30]!r} is not one of "
                         f"{', '.join(f'{name} GT/s' for name in _LANES)}")  # fmt: skip
    return lanes * rate / 80 * 1e9


def _narrowest(path: list[Element], top: str | None) -> float | None:
    """The least bandwidth from a device up to its outermost switch, or to its NUMA node."""
    known = [pcie_bandwidth(pci) for pci in path[top is not None :]]
    return None if not known or None in known else min(b for b in known if b is not None)


def _kind(name: str, card: Element | None) -> NetworkKind | None:
    """What a NIC is, where its PCI class, vendor, device or name tells; rdma-core names RoCE
    devices roce… and InfiniBand devices ib…."""
    kind = card.get("class").lower() if card is not None else ""
    if kind.startswith("0x0207") or re.match(r"ib[pso]\d", name):
        return "infiniband"
    if card is not None and card.adapters:
        known = card.get("device").lower()
        return ("efa" if known.startswith("0xefa") else "ethernet") if known else None
    if name.startswith("roce") or (kind.startswith("0x0200") and name.startswith("mlx5")):
        return "roce"
    return "ethernet" if re.match(r"(?:eth|en[pso])\d", name) else None


def _between(cpus: list[Element]) -> tuple[float, str] | None:
    """Bandwidth between NUMA nodes as NCCL counts it (2.30.7 src/graph/topo.h), where all are of
    one kind that it knows."""
    found = {_between_of(cpu) for cpu in cpus}
    return found.pop() if len(found) == 1 else None


def _between_of(cpu: Element) -> tuple[float, str] | None:
    arch, vendor = cpu.get("arch"), cpu.get("vendor")
    if arch == "x86_64" and vendor == "AuthenticAMD":
        return 16e9, "AMD, 16 GB/s: NVIDIA/nccl 2.30.7 src/graph/topo.h"
    if arch == "arm64":
        return 6e9, "Arm, 6 GB/s: NVIDIA/nccl 2.30.7 src/graph/topo.h"
    stated = cpu.get("familyid") == "6" and cpu.get("modelid")
    if arch != "x86_64" or vendor != "GenuineIntel" or not stated:
        return None
    model = _whole(cpu, "modelid", 0, 1023)
    steps = ((207, 40, "Emerald Rapids"), (143, 22, "Sapphire Rapids"), (85, 10, "Skylake"))
    rate, name = next(((r, n) for low, r, n in steps if model >= low), (6, "Broadwell"))
    return rate * 1e9, f"Intel {name}, {rate} GB/s: NVIDIA/nccl 2.30.7 src/graph/topo.h"
