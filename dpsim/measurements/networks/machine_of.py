"""A cabling and the node of a known machine, made into one machine file.

dpsim's networks are one switch, or leaves below a spine (`fat_tree`, with rails
`rail_optimized`); tiers above the leaves become that spine, their oversubscriptions multiplied into
one: what crosses all of them gets the least of them all.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import Any

from dpsim.core import plugins, units
from dpsim.core.record import Refused, dump
from dpsim.core.yamlfile import dump_yaml
from dpsim.machines.machine import Machine, load_machine
from dpsim.measurements.importing import require_machine
from dpsim.measurements.importing.device import file_of
from dpsim.measurements.importing.facts import many
from dpsim.measurements.kinds import Account, Entry, How, Wishes, capped
from dpsim.measurements.networks.cabling import Cabling, Tier, usual

#: leaf switches may be cabled better than one to one; dpsim's oversubscription starts at 1
_LEAST = 1.0
_NETWORK = (
    "dpsim import FILE --machine MACHINE -o cluster.yaml: a machine with these cables and the "
    "nodes of MACHINE (dpsim show machines)"
)
_DOMAINS = (
    "cluster: {machine: gb200-nvl72, nodes: N}, or another machine that has an NVLink domain as "
    "one node: the file names domains and no switches between them"
)


def account(file: str, kind: str, cabling: Cabling, told: list[Entry], wanted: Wishes) -> Account:
    """What the cabling says, and the machine that follows where a node is known."""
    tiers = cabling.tiers()
    entries = [*_said(cabling, tiers), *told]
    findings = _apart(cabling)
    if not wanted.machine:
        advice = _DOMAINS if not cabling.leaves and cabling.domains else _NETWORK
        return Account(file, kind, capped(entries), findings=findings, advice=advice)
    if findings:
        raise Refused(f"{findings[0]}, and dpsim needs a way between all nodes")
    machine = load_machine(wanted.machine)
    network, more = _network(cabling, tiers, machine)
    document, nics = _document(file, cabling, machine, network, wanted.name)
    require_machine(dump_yaml(document), nodes=2)
    count = len(cabling.nodes)
    used = f"cluster: {{machine: FILE, nodes: {count or 'N'}}}"
    return Account(file, kind, capped([*entries, *nics, *more]), "machine", document, advice=used)


def _apart(cabling: Cabling) -> tuple[str, ...]:
    """What says that some nodes cannot reach others."""
    parts = cabling.parts()
    if parts < 2:
        return ()
    return (f"the nodes are in {parts} groups of switches that nothing in the file joins",)


def _said(cabling: Cabling, tiers: tuple[Tier, ...]) -> list[Entry]:
    """What the file says, as sentences."""
    alike = "flat: every node is as near to every other one; none is named"
    found = [Entry("taken", alike if cabling.flat else f"{many(len(cabling.nodes), 'node')}")]
    for tier in tiers:
        place = "nodes are plugged into" if tier.number == 0 else f"tier {tier.number} above them"
        text = f"{many(len(tier.switches), 'switch')}: {place}"
        if tier.number == 0:
            text += f", {_spread(_sizes(cabling), 'node')} each"
        if cabling.counted:
            text += f"; {many(tier.below, 'cable')} below"
            ratio = tier.oversubscription(_faster(cabling))
            text += f", {tier.up} above: oversubscription {ratio:.3g}" if ratio else ", none above"
        found.append(Entry("taken", text))
    for name, counts in (("of nodes", cabling.speeds), ("between switches", cabling.trunks)):
        for rate, number in sorted(counts.items(), reverse=True):
            found.append(Entry("taken", f"cables {name}: {number} of {rate * 8 / 1e9:g} Gbit/s"))
    if cabling.domains:
        sizes = [len(nodes) for nodes in cabling.domains.values()]
        text = f"{many(len(sizes), 'NVLink domain')} of {_spread(sizes, 'node')}"
        found.append(Entry("taken", text))
    return found


def _sizes(cabling: Cabling) -> list[int]:
    return [len(set(nodes)) for nodes in cabling.leaves.values()]


def _spread(sizes: list[int], noun: str) -> str:
    low, high = min(sizes, default=0), max(sizes, default=0)
    return many(low, noun) if low == high else f"{low} to {high} {noun}s (mostly {usual(sizes)})"


def _faster(cabling: Cabling) -> float:
    """How many times as fast a cable between switches is as one of a node."""
    if not (cabling.speeds and cabling.trunks):
        return 1.0
    return usual(cabling.trunks) / usual(cabling.speeds)


def _network(
    cabling: Cabling, tiers: tuple[Tier, ...], like: Machine
) -> tuple[dict[str, Any], list[Entry]]:
    """The `network` of the machine file."""
    link, told = _cable(cabling, like)
    if not cabling.leaves and not cabling.flat:
        raise Refused(
            "names NVLink domains (blocks) and no switch, so no network follows: dpsim has such a "
            "domain as one node of a machine, as gb200-nvl72 is; name that one as cluster.machine, "
            f"with nodes: {len(cabling.domains)}"
        )
    if len(tiers) < 2:
        told.append(Entry("assumed", "one switch without oversubscription joins all nodes"))
        return {"family": "star", "link": link}, told
    rails = _rails(cabling)
    family = "rail_optimized" if rails else "fat_tree"
    how = "each cable of a node goes to a switch of its own" if rails else "one switch for a node"
    sure: How = "taken" if cabling.counted else "assumed"
    told.append(Entry(sure, f"network.family: {family} ({how})"))
    per_leaf = int(usual(_sizes(cabling)))
    told.append(Entry("taken", f"network.nodes_per_leaf: {per_leaf}"))
    ratio, said = _ratio(cabling, tiers)
    told += said
    shape = {"nodes_per_leaf": per_leaf, "oversubscription": ratio}
    return {"family": family, "link": link, **shape}, told


def _ratio(cabling: Cabling, tiers: tuple[Tier, ...]) -> tuple[float, list[Entry]]:
    """The oversubscription of all tiers together, and why."""
    if not cabling.counted:
        text = "network.oversubscription: 1 (the file doesn't count cables between switches)"
        return 1.0, [Entry("assumed", text)]
    found = [tier.oversubscription(_faster(cabling)) for tier in tiers]
    ratios = [max(ratio, _LEAST) for ratio in found if ratio is not None]
    ratio = float(f"{math.prod(ratios):.4g}")
    told = [Entry("taken", f"network.oversubscription: {ratio:g}")]
    if len(ratios) > 1:
        parts = " x ".join(f"{one:.3g}" for one in ratios)
        text = f"{len(tiers)} tiers become leaves and one spine: {parts} for what crosses them all"
        told.append(Entry("assumed", text))
    return ratio, told


def _rails(cabling: Cabling) -> bool:
    """Whether most nodes with several cables have each in another switch."""
    plugs: dict[str, list[str]] = {}
    for switch, nodes in cabling.leaves.items():
        for node in nodes:
            plugs.setdefault(node, []).append(switch)
    several = [found for found in plugs.values() if len(found) > 1]
    apart = sum(len(set(found)) == len(found) for found in several)
    return bool(several) and 2 * apart > len(several)


def _cable(cabling: Cabling, like: Machine) -> tuple[dict[str, Any], list[Entry]]:
    """A NIC's cable: its rate and kind as the file says, else as the machine's."""
    own = getattr(like.network, "link", None)
    if own is None:
        raise Refused(f"--machine: {like.name} has no network: name one with NICs")
    told, changes = [], dict[str, Any]()
    if cabling.speeds:
        rate = usual(cabling.speeds)
        changes["bandwidth"] = rate
        told.append(Entry("taken", f"network.link.bandwidth: {units.show(rate, 'B/s')}"))
    else:
        text = f"network.link.bandwidth: {units.show(own.bandwidth, 'B/s')}, as {like.name}"
        told.append(Entry("assumed", text))
    if cabling.kind and cabling.kind != own.kind:
        changes |= {"kind": cabling.kind, "generation": 0}
        told.append(Entry("taken", f"network.link.kind: {cabling.kind}"))
    return dump(dataclasses.replace(own, **changes)), told


def _document(
    file: str, cabling: Cabling, like: Machine, network: dict[str, Any], name: str
) -> tuple[dict[str, Any], list[Entry]]:
    """The machine file: the node of `like` with as many NICs as nodes have cables, the network of
    the file."""
    told = [Entry("assumed", f"nodes: as {like.name}")]
    nics = _cables(cabling) or like.nics_per_node
    if nics != like.nics_per_node:
        said = f"nics_per_node: {nics} ({many(nics, 'cable')} a node; {like.name} has "
        told.append(Entry("taken", f"{said}{like.nics_per_node})"))
    data = {key: value for key, value in dump(like).items() if key not in ("node", "network")}
    data |= {
        "name": name or "imported",
        "description": f"Network imported from {file}; nodes as {like.name}"[:300],
        "node": {"family": plugins.name_of(like.node), **dump(like.node)},
        "nics_per_node": nics,
        "network": network,
    }
    own = file_of(like.device)
    data["device"] = own or dump(like.device)
    kept = {
        key: text
        for key, text in like.sources.items()
        if not key.startswith("network") and not (own and key.startswith("device"))
    }
    source = f"{file} ({cabling.format}), {like.name} where it is silent"
    data["sources"] = {**kept, "network": source}
    if nics != like.nics_per_node:
        data["sources"]["nics_per_node"] = f"{file} ({cabling.format}): cables of most nodes"
    return data, told


def _cables(cabling: Cabling) -> int:
    """How many cables most nodes have; 0 where the file doesn't count them, or names no node."""
    if not cabling.counted:
        return 0
    plugs = Counter(
        node for nodes in cabling.leaves.values() for node in nodes if node not in cabling.nameless
    )
    return int(usual(plugs.values())) if plugs else 0
