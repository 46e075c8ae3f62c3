"""Facts of several files, a device and a preset, made into one machine file.

A number is taken from the files first.  What they don't say comes from the preset that the user
names; without one it is refused by name.  Latencies of steps are NCCL's, as in every machine that
comes with dpsim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsim.core import plugins
from dpsim.core.record import Refused, dump
from dpsim.machines.devices import NicMaker
from dpsim.machines.machine import Machine, load_device
from dpsim.measurements.importing import agreement
from dpsim.measurements.importing.device import alike, device_of
from dpsim.measurements.importing.facts import Facts, Nic
from dpsim.measurements.importing.host import host_of
from dpsim.measurements.importing.ledger import Ledger, Told
from dpsim.measurements.importing.links import links_of
from dpsim.measurements.importing.wiring import STEP, Document, link, node_document

_TIMES = "NVIDIA/nccl 2.30.7 src/graph/tuning.cc"
_LATENCIES = (
    f"steps of NCCL's Simple protocol: 3.4 us over a direct link, half of it to a switch, half of "
    f"5.7 us from a GPU to PCIe, nothing on other wires inside the node: {_TIMES}"
)


@dataclass(frozen=True)
class Imported:
    """The machine file to write, where everything in it is from, and where files contradict each
    other on places: one sentence for each pair of devices."""

    document: Document
    told: tuple[Told, ...]
    facts: tuple[Facts, ...]
    findings: tuple[str, ...] = ()


def combine(
    facts: Sequence[Facts], device: str | None, like: Machine | None, name: str
) -> Imported:
    """One machine called `name` out of what the files, `device` and `like` say."""
    agreement.require(facts)
    ledger = Ledger(facts, like)
    chosen = device_of(ledger, device)
    gpus = _gpus(ledger)
    fast = links_of(ledger, load_device(chosen), gpus) if gpus else None
    nics = _nics(ledger)
    host = host_of(ledger, chosen, gpus, nics) if gpus and nics is not None else None
    network = _network(ledger, nics) if nics else None
    made = _adapters(ledger, nics or ())
    if ledger.missing:
        hint = f"name a machine like it with --like: {alike(gpus, chosen)}"
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
        **({"adapters": made} if made is not None else {}),
        "sources": _sources(ledger.told, node, network),
    }
    taken = next(t.source for t in ledger.told if t.path == "node.host.layout")
    findings = tuple(agreement.about_places(ledger.facts, taken))
    return Imported(document, tuple(ledger.told), tuple(facts), findings)


def _gpus(ledger: Ledger) -> int | None:
    if found := ledger.first(lambda f: f.gpus):
        ledger.note("gpus_per_node", str(found[0]), "file", found[1])
        return found[0]
    if ledger.like is not None:
        ledger.preset("gpus_per_node", str(ledger.like.gpus_per_node))
        return ledger.like.gpus_per_node
    ledger.lacks("gpus_per_node", "no GPU can be told as such")
    return None


def _nics(ledger: Ledger) -> tuple[Nic, ...] | None:
    """The NICs; those of the preset have neither place nor speed yet."""
    if found := ledger.first(lambda f: f.nics):
        ledger.note("nics_per_node", str(len(found[0])), "file", found[1])
        return found[0]
    if ledger.like is not None:
        ledger.preset("nics_per_node", str(ledger.like.nics_per_node))
        return tuple(Nic(f"nic{i}") for i in range(ledger.like.nics_per_node))
    ledger.lacks("nics_per_node", "no NIC can be told as such")
    return None


def _adapters(ledger: Ledger, nics: Sequence[Nic]) -> NicMaker | None:
    """Whose adapters the NICs are; the preset's where no file tells what they are."""
    made = next((nic.adapters for nic in nics if nic.adapters), None)
    if made is not None:
        ledger.note("adapters", made, "file", (ledger.first(lambda f: f.nics) or ((), ""))[1])
    elif ledger.like is not None and nics and all(nic.kind is None for nic in nics):
        made = ledger.like.adapters
        if made is not None:
            ledger.preset("adapters", made)
    return made


def _network(ledger: Ledger, nics: Sequence[Nic]) -> Document | None:
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
    ledger.preset("network.family", plugins.name_of(like), "network.nodes_per_leaf")
    shape = {key: value for key, value in dump(like).items() if key not in ("family", "link")}
    return {"family": plugins.name_of(like), "link": cable, **shape}


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
