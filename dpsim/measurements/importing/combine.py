"""Facts of several files, a device and a preset, made into one machine file.

A number is taken from the files first.  What they don't say comes from the preset that the user
names; without one it is refused by name.  Latencies of steps are NCCL's, as in every machine that
comes with dpsim.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dpsim.core.plugins import name_of
from dpsim.core.record import Refused, dump, unknown
from dpsim.machines.devices import Device, Link
from dpsim.machines.machine import Machine, device_names, load_device
from dpsim.measurements.importing import agreement, nccl_xml
from dpsim.measurements.importing.facts import Facts, Nic, Place, Wires
from dpsim.measurements.importing.wiring import (
    STEP,
    Document,
    Fast,
    Host,
    fast_of,
    link,
    node_document,
    places_of,
    tree_of,
)

T = TypeVar("T")

#: one NVLink, one way [B/s], by the least compute capability; NVIDIA/nccl 2.30.7 src/graph/topo.h
_NVLINK = ((100, 40.1e9), (90, 20.6e9), (87, 20e9), (86, 12e9), (80, 20e9), (70, 20e9), (60, 18e9))
#: NVLinks that a GPU has at most: NVIDIA's whitepapers of P100, V100, TU102, A100, GA102 ("four x4
#: links"), H100 and B200; Orin, Ada and, from 11.0, Thor and the RTX cards of Blackwell have none
_MOST = ((110, 0), (90, 18), (87, 0), (86, 4), (80, 12), (75, 2), (70, 6), (60, 4))
#: one xGMI link, one way [B/s]: ROCm/rccl src/graph/topo.h (commit 08814b0a), ncclTopoXGMISpeed:
#: MI200_, GFX94X_ and GFX95X_XGMI_WIDTH, and VEGA_XGMI_WIDTH for all others
_XGMI = {"gfx908": 24e9, "gfx90a": 36e9, "gfx942": 48e9, "gfx950": 48e9}
#: AMD's devices by architecture: the LLVM AMDGPU backend guide's table of processors
_GCN = {
    "gfx908": ("mi100",),
    "gfx90a": ("mi210", "mi250x-gcd"),
    "gfx942": ("mi300x", "mi325x"),
    "gfx950": ("mi355x",),
}
#: GeForce since Turing: the driver offers no peer-to-peer access over PCIe (`pcie_tree`)
_STAGED = ("rtx2080ti", "rtx3080", "rtx3090", "rtx4090", "rtx5090", "titan-rtx")

_PCIE = "link_speed and link_width: width times lane speed over 80, as NVIDIA/nccl 2.30.7 " \
        "src/graph/topo.cc counts"  # fmt: skip
_TIMES = "NVIDIA/nccl 2.30.7 src/graph/tuning.cc"
_LATENCIES = (
    f"steps of NCCL's Simple protocol: 3.4 us over a direct link, half of it to a switch, half of "
    f"5.7 us from a GPU to PCIe, nothing on other wires inside the node: {_TIMES}"
)


@dataclass(frozen=True)
class Told:
    """Where one thing of the machine is from: `how` is file, preset, option, constant or
    assumption."""

    path: str
    value: str
    how: str
    source: str


@dataclass(frozen=True)
class Imported:
    """The machine file to write, where everything in it is from, and where files contradict each
    other on places: one sentence for each pair of devices."""

    document: Document
    told: tuple[Told, ...]
    facts: tuple[Facts, ...]
    findings: tuple[str, ...] = ()


class _Ledger:
    """Notes where each value is from, and what nobody says."""

    def __init__(self, facts: Sequence[Facts], like: Machine | None) -> None:
        self.facts = sorted(facts, key=lambda f: f.format != nccl_xml.FORMAT)
        self.like = like
        self.told: list[Told] = []
        self.missing: list[str] = []

    def first(self, get: Callable[[Facts], T | None]) -> tuple[T, str] | None:
        """What the first file that says it says, and that file's name."""
        for facts in self.facts:
            if (value := get(facts)) is not None:
                return value, facts.source
        return None

    def note(self, path: str, value: str, how: str, source: str) -> None:
        self.told.append(Told(path, value, how, source))

    def preset(self, path: str, value: str, *cited: str) -> None:
        assert self.like is not None
        sources = self.like.sources
        found = next((text for key in (path, *cited) if (text := sources.get(key))), "")
        self.note(path, value, "preset", f"as {self.like.name}" + (f": {found}" if found else ""))

    def lacks(self, path: str, what: str) -> None:
        self.missing.append(f"{path} ({what})")


def combine(
    facts: Sequence[Facts], device: str | None, like: Machine | None, name: str
) -> Imported:
    """One machine called `name` out of what the files, `device` and `like` say."""
    _require_agreement(facts)
    ledger = _Ledger(facts, like)
    chosen = _device(ledger, device)
    gpus = _gpus(ledger)
    fast = _fast(ledger, load_device(chosen), gpus) if gpus else None
    nics = _nics(ledger)
    host = _host(ledger, chosen, gpus, nics) if gpus and nics is not None else None
    network = _network(ledger, nics) if nics else None
    if ledger.missing:
        hint = "name a machine like it with --like (dpsim show machines lists them)"
        if like is not None:
            hint = f"{like.name} doesn't say it either, or not for such a node"
        raise Refused(f"the files don't say: {'; '.join(ledger.missing)}; {hint}")
    assert fast is not None
    assert host is not None
    assert nics is not None
    node = node_document(host, fast)
    ledger.note("node.latencies", "as in NCCL", "constant", _LATENCIES)
    document: Document = {
        "name": name,
        "description": f"Imported from {', '.join(f.source for f in facts)}"[:300],
        "device": chosen,
        "gpus_per_node": gpus,
        "nics_per_node": len(nics),
        "node": node,
        **({"network": network} if network is not None else {}),
        "sources": _sources(ledger.told, node, network),
    }
    taken = next(t.source for t in ledger.told if t.path == "node.host.layout")
    findings = tuple(agreement.about_places(ledger.facts, taken))
    return Imported(document, tuple(ledger.told), tuple(facts), findings)


def _require_agreement(facts: Sequence[Facts]) -> None:
    formats = [f.format for f in facts]
    for form in formats:
        if formats.count(form) > 1:
            named = ", ".join(f.source for f in facts if f.format == form)
            raise Refused(f"several files are {form} ({named}); give one, of one node")
    counts = {f.source: f.gpus for f in facts if f.gpus is not None}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{n} in {source}" for source, n in counts.items())
        raise Refused(f"the files disagree on the number of GPUs: {said}")
    if found := agreement.about_links(facts):
        files = " and ".join(f.source for f in facts if f.wires is not None)
        raise Refused(f"{files} disagree on NVLinks: {agreement.listed(found)}")


def _file_of(device: Device) -> str:
    """The name of the file that a device of a preset is from; "" where it isn't dpsim's."""
    return next((name for name in device_names() if load_device(name) == device), "")


def _device(ledger: _Ledger, name: str | None) -> str:
    """The device that is named, or the preset's where it has what the files state."""
    compute, gcn = ledger.first(lambda f: f.compute), ledger.first(lambda f: f.gcn)
    fitting = _fitting(compute[0] if compute else None, gcn[0] if gcn else None)
    said = (
        f"compute capability {compute[0] // 10}.{compute[0] % 10}"
        if compute
        else gcn[0]
        if gcn
        else ""
    )
    if name is not None:
        if name not in device_names():
            hint = unknown(name, list(device_names())).replace("unknown key", "no device")
            raise Refused(f"--device: {hint}")
        if name not in fitting:
            raise Refused(f"--device: {name} hasn't {said}, which the files state; devices that "
                          f"have: {', '.join(fitting) or 'none that dpsim knows'}")  # fmt: skip
        ledger.note("device", name, "option", "--device")
        return name
    if ledger.like is not None:
        own = _file_of(ledger.like.device)
        if own in fitting:
            ledger.preset("device", own)
            return own
        if not own:
            raise Refused(f"--like: the device of {ledger.like.name} isn't one of dpsim's; name "
                          "one with --device")  # fmt: skip
        choices = ", ".join(fitting) or "none that dpsim knows"
        raise Refused(f"--like: {ledger.like.name} has {ledger.like.device.name}, and the files "
                      f"state {said or 'none'}; name one with --device: {choices}")  # fmt: skip
    with_it = f" with {said}" if said else ""
    choices = ", ".join(fitting) or "none that dpsim knows"
    raise Refused(f"the files don't say which GPU it is; name it with --device, one of those"
                  f"{with_it}: {choices}")  # fmt: skip


def _fitting(compute: int | None, gcn: str | None) -> tuple[str, ...]:
    """The devices that have what the files state."""
    if gcn is not None:
        return _GCN.get(gcn, ())
    names = device_names()
    if compute is None:
        return names
    return tuple(n for n in names if load_device(n).compute_capability == compute)


def _gpus(ledger: _Ledger) -> int | None:
    if found := ledger.first(lambda f: f.gpus):
        ledger.note("gpus_per_node", str(found[0]), "file", found[1])
        return found[0]
    if ledger.like is not None:
        ledger.preset("gpus_per_node", str(ledger.like.gpus_per_node))
        return ledger.like.gpus_per_node
    ledger.lacks("gpus_per_node", "no GPU can be told as such")
    return None


def _fast(ledger: _Ledger, device: Device, gpus: int) -> Fast | None:
    """Links between GPUs: counted in a file, or the preset's."""
    if found := ledger.first(lambda f: f.wires):
        wires, source = found
        if not wires.to_switch and not wires.pairs:
            ledger.note("node.family", "no NVLink", "file", source)
            return Fast()
        rate = _rate(wires, device, ledger)
        switched = _switched(wires, device, gpus)
        if not all(switched.to_switch):
            raise Refused(f"{source}: some GPUs have links to the switch and some have none")
        fast = Fast(
            tuple(rate * count for count in switched.to_switch),
            {pair: rate * count for pair, count in switched.pairs.items()},
            wires.kind,
        )
        counted = "src/graph/topo.h of " + (
            "ROCm/rccl" if wires.kind == "xgmi" else "NVIDIA/nccl 2.30.7"
        )
        text = f"{source} counts the links; {rate / 1e9:g} GB/s each: {counted}"
        ledger.note("node.links", _shown(switched, wires.kind), "file", text)
        return fast
    like = ledger.like
    if like is None:
        ledger.lacks("node.nvlink", "the files don't list NVLinks")
        return None
    fast = fast_of(like.node, gpus)
    if fast.pairs and gpus > like.gpus_per_node:
        ledger.lacks("node.nvlink", f"wires between {gpus} GPUs")
        return None
    cited = [f"node.{key}.bandwidth" for key in ("nvlink", "pair", "bridge")]
    ledger.preset("node.links", _shown_rates(fast), *cited, "node.links")
    return fast


def _rate(wires: Wires, device: Device, ledger: _Ledger) -> float:
    """One link of `device`, one way [B/s]."""
    if wires.kind == "xgmi":
        gcn = ledger.first(lambda f: f.gcn)
        if gcn is None or gcn[0] not in _XGMI:
            raise Refused(f"no bandwidth is known for xGMI links of {gcn[0] if gcn else 'this'}; "
                          f"known: {', '.join(_XGMI)}")  # fmt: skip
        return _XGMI[gcn[0]]
    for low, rate in _NVLINK:
        if device.compute_capability >= low and _most(device):
            return rate
    raise Refused(f"the files list NVLinks, and {device.name} has none; name another --device")


def _most(device: Device) -> int:
    """NVLinks that `device` has at most."""
    return next((count for low, count in _MOST if device.compute_capability >= low), 0)


def _switched(wires: Wires, device: Device, gpus: int) -> Wires:
    """`wires`, seen as links to a switch where a GPU would have more than it can have: nvidia-smi
    counts all links of a GPU towards each of its peers then."""
    if wires.kind == "xgmi" or wires.to_switch:
        return wires
    most = _most(device)
    own = [sum(n for pair, n in wires.pairs.items() if gpu in pair) for gpu in range(gpus)]
    counts = set(wires.pairs.values())
    if max(own) <= most:
        return wires
    complete = len(wires.pairs) == gpus * (gpus - 1) // 2
    if len(counts) > 1 or not complete or max(counts) > most:
        raise Refused(f"GPU {own.index(max(own))} has {max(own)} NVLinks, and {device.name} has at "
                      f"most {most}; a switch would join all pairs equally")  # fmt: skip
    return Wires(wires.kind, (counts.pop(),) * gpus)


def _shown(wires: Wires, kind: str) -> str:
    name = "xGMI" if kind == "xgmi" else "NVLink"
    if wires.to_switch:
        return f"{wires.to_switch[0]} {name} per GPU to a switch"
    counts = "/".join(str(n) for n in sorted(set(wires.pairs.values())))
    return f"{counts} {name} in each of {len(wires.pairs)} pairs"


def _shown_rates(fast: Fast) -> str:
    if fast.to_switch:
        return f"{fast.to_switch[0] / 1e9:g} GB/s per GPU to a switch"
    if fast.pairs:
        rates = "/".join(f"{r / 1e9:g}" for r in sorted(set(fast.pairs.values())))
        return f"{rates} GB/s in each of {len(fast.pairs)} pairs"
    return "none"


def _nics(ledger: _Ledger) -> tuple[Nic, ...] | None:
    """The NICs; those of the preset have neither place nor speed yet."""
    if found := ledger.first(lambda f: f.nics):
        ledger.note("nics_per_node", str(len(found[0])), "file", found[1])
        return found[0]
    if ledger.like is not None:
        ledger.preset("nics_per_node", str(ledger.like.nics_per_node))
        return tuple(Nic(f"nic{i}") for i in range(ledger.like.nics_per_node))
    ledger.lacks("nics_per_node", "no NIC can be told as such")
    return None


def _host(ledger: _Ledger, device: str, gpus: int, nics: Sequence[Nic]) -> Host | None:
    """Places with all their bandwidths."""
    laid = _layout(ledger, gpus, nics)
    if laid is None:
        return None
    places, beside, source = laid
    tree = tree_of(ledger.like.node) if ledger.like is not None else None
    rates: dict[str, Link | None] = {
        part: getattr(tree, part, None) for part in ("gpu", "nic", "uplink", "inter_socket")
    }

    def fill(part: str, known: list[float | None], what: str) -> list[float | None]:
        path, wire = f"node.host.{part}.bandwidth", rates[part]
        if not known:
            return known
        if any(known):
            ledger.note(path, _spread(known), "file", f"{source}: {_PCIE}")
        if None in known and wire is None:
            ledger.lacks(path, what)
        elif None in known and wire is not None:
            ledger.preset(path, _spread([wire.bandwidth]))
        return [b if b is not None or wire is None else wire.bandwidth for b in known]

    staged = device in _STAGED
    if staged and (ledger.like is None or _file_of(ledger.like.device) not in _STAGED):
        rates["gpu"] = None
    kept = [None if staged else place.bandwidth for place in places]
    why = "GeForce has no peer access over PCIe, so the slot's speed isn't the GPU's; --like a " \
          "machine with GeForce" if staged else "PCIe speed of the GPUs"  # fmt: skip
    own = fill("gpu", kept, why)
    cards = fill("nic", [place.bandwidth for place in beside], "PCIe speed of the NICs")
    switches = list(dict.fromkeys(p.switch for p in (*places, *beside) if p.switch is not None))
    known = (ledger.first(lambda f: f.uplinks or None) or ({}, ""))[0]
    up = fill("uplink", [known.get(name) for name in switches], "PCIe speed of the switches")
    between = _between(ledger, {p.socket for p in (*places, *beside)}, rates["inter_socket"])
    preset = rates["gpu"] if None in kept else None
    return Host(
        _with(places, own),
        _with(beside, cards),
        {name: rate for name, rate in zip(switches, up, strict=True) if rate is not None},
        between,
        preset.kind if preset is not None else "pcie",
    )


def _with(places: Sequence[Place], rates: Sequence[float | None]) -> tuple[Place, ...]:
    return tuple(dataclasses.replace(p, bandwidth=b) for p, b in zip(places, rates, strict=True))


def _spread(rates: Sequence[float | None]) -> str:
    return " or ".join(f"{r / 1e9:g} GB/s" for r in sorted({r for r in rates if r is not None}))


def _layout(
    ledger: _Ledger, gpus: int, nics: Sequence[Nic]
) -> tuple[tuple[Place, ...], tuple[Place, ...], str] | None:
    """Where GPUs and NICs hang, and the file that says so; both from one place, for the names of
    sockets and switches differ from file to file."""
    for facts in ledger.facts:
        own = facts.nics if facts.nics is not None else ()
        if facts.places is None or len(own) != len(nics):
            continue
        beside = tuple(nic.place for nic in own if nic.place is not None)
        if len(beside) == len(nics):
            sockets = len({place.socket for place in facts.places})
            ledger.note("node.host.layout", f"{sockets} NUMA nodes with GPUs, seen as sockets",
                        "file", facts.source)  # fmt: skip
            return facts.places, beside, facts.source
    tree = tree_of(ledger.like.node) if ledger.like is not None else None
    if tree is None or ledger.like is None:
        ledger.lacks("node.host", "where GPUs and NICs hang on PCIe")
        return None
    places, beside = places_of(tree, gpus, len(nics))
    shown = f"{tree.sockets} sockets, {tree.gpus_per_switch or 'no'} GPUs per PCIe switch"
    ledger.preset("node.host.layout", shown, "node.host.sockets")
    return places, beside, ""


def _between(ledger: _Ledger, sockets: set[int], wire: Link | None) -> float | None:
    if len(sockets) < 2:
        return None
    path = "node.host.inter_socket.bandwidth"
    if found := ledger.first(lambda f: f.between):
        (rate, source), file = found
        ledger.note(path, f"{rate / 1e9:g} GB/s", "file", f"{file} names the CPU; {source}")
        return rate
    if wire is None:
        ledger.lacks(path, "the kind of CPU")
        return None
    ledger.preset(path, f"{wire.bandwidth / 1e9:g} GB/s")
    return wire.bandwidth


def _network(ledger: _Ledger, nics: Sequence[Nic]) -> Document | None:
    """What joins the nodes: the preset's shape, or one switch; cables as the NICs are."""
    like = ledger.like.network if ledger.like is not None else None
    wire = getattr(like, "link", None)
    source = (ledger.first(lambda f: f.nics) or ((), ""))[1]
    speed, kind = nics[0].speed, nics[0].kind if len({nic.kind for nic in nics}) == 1 else None
    if speed is not None:
        text = f"{source}: net speed of {speed * 8 / 1e9:g} Gbit/s, 8 bits a byte"
        ledger.note("network.link.bandwidth", f"{speed / 1e9:g} GB/s", "file", text)
    elif wire is not None:
        speed = wire.bandwidth
        ledger.preset("network.link.bandwidth", f"{speed / 1e9:g} GB/s")
    else:
        ledger.lacks("network.link.bandwidth", "speed of the NICs")
    if kind is not None:
        ledger.note("network.link.kind", kind, "file", f"{source}: PCI class, vendor or name")
    elif wire is not None:
        kind = wire.kind
        ledger.preset("network.link.kind", kind)
    else:
        ledger.lacks("network.link.kind", "InfiniBand, RoCE or another kind of NIC")
    if speed is None or kind is None:
        return None
    step = f"half of (14 - 5.7) us: a NET step, Simple, less the GPUs' PCIe links: {_TIMES}"
    ledger.note("network.link.latency", STEP["cable"], "constant", step)
    cable = link(speed, STEP["cable"], kind)
    if like is None:
        ledger.note("network.family", "star", "assumption",
                    "assumption: one switch without oversubscription; a node's files don't tell "
                    "what joins nodes")  # fmt: skip
        return {"family": "star", "link": cable}
    ledger.preset("network.family", name_of(like), "network.nodes_per_leaf")
    shape = {key: value for key, value in dump(like).items() if key not in ("family", "link")}
    return {"family": name_of(like), "link": cable, **shape}


def _sources(told: Sequence[Told], node: Document, network: Document | None) -> dict[str, str]:
    """The `sources` of the machine file: where a family has other fields, under their names."""
    found = {item.path: item.source for item in told}
    latencies = found.pop("node.latencies")
    links = found.pop("node.links", None)
    layout = found.pop("node.host.layout", "")
    sources = {key: text for key, text in found.items() if key != "device"}
    if node["family"] == "explicit":
        inside = [key for key in sources if key.startswith("node.")]
        parts = dict.fromkeys(sources.pop(key) for key in inside)
        said = [text for text in (links, layout, *parts, latencies) if text]
        return {**sources, "node.links": "; ".join(dict.fromkeys(said))}
    for key in ("nvlink", "pair", "bridge"):
        if key in node and links is not None:
            sources |= {f"node.{key}.bandwidth": links, f"node.{key}.latency": latencies}
    if node.get("bridges") and links is not None:
        sources["node.bridges"] = links
    for key, value in node["host"].items():
        if isinstance(value, dict):
            sources[f"node.host.{key}.latency"] = latencies
        else:
            sources[f"node.host.{key}"] = layout
    if network is not None and len(network) > 2:
        for key in set(network) - {"family", "link"}:
            sources[f"network.{key}"] = found["network.family"]
    return {key: sources[key] for key in sorted(sources)}
