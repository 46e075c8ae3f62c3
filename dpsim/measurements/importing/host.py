"""Where the GPUs and NICs of an imported machine hang on PCIe, with all bandwidths."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dpsim.machines.devices import Link
from dpsim.measurements.importing.device import STAGED, file_of
from dpsim.measurements.importing.facts import Nic, Place
from dpsim.measurements.importing.ledger import Ledger
from dpsim.measurements.importing.wiring import Host, places_of, tree_of

_PCIE = "link_speed and link_width: width times lane speed over 80, as NVIDIA/nccl 2.30.7 " \
        "src/graph/topo.cc counts"  # fmt: skip


def host_of(ledger: Ledger, device: str, gpus: int, nics: Sequence[Nic]) -> Host | None:
    """Places with all their bandwidths; None where the ledger now lacks where things hang."""
    laid = _layout(ledger, gpus, nics)
    if laid is None:
        return None
    places, beside, source = laid
    wires = _preset_wires(ledger, device)

    def fill(part: str, known: list[float | None], what: str) -> list[float | None]:
        return _filled(ledger, (part, wires[part]), known, source, what)

    staged = device in STAGED
    kept = [None if staged else place.bandwidth for place in places]
    why = "GeForce has no peer access over PCIe, so the slot's speed isn't the GPU's; --like a " \
          "machine with GeForce" if staged else "PCIe speed of the GPUs"  # fmt: skip
    own = fill("gpu", kept, why)
    cards = fill("nic", [place.bandwidth for place in beside], "PCIe speed of the NICs")
    switches = list(dict.fromkeys(p.switch for p in (*places, *beside) if p.switch is not None))
    known = (ledger.first(lambda f: f.uplinks or None) or ({}, ""))[0]
    up = fill("uplink", [known.get(name) for name in switches], "PCIe speed of the switches")
    between = _between(ledger, {p.socket for p in (*places, *beside)}, wires["inter_socket"])
    preset = wires["gpu"] if None in kept else None
    return Host(
        _with(places, own),
        _with(beside, cards),
        {name: rate for name, rate in zip(switches, up, strict=True) if rate is not None},
        between,
        preset.kind if preset is not None else "pcie",
    )


def _preset_wires(ledger: Ledger, device: str) -> dict[str, Link | None]:
    """The wires of the preset's host by part; a GeForce's own counts for GeForce only."""
    like = ledger.like
    tree = tree_of(like.node) if like is not None else None
    parts = ("gpu", "nic", "uplink", "inter_socket")
    wires: dict[str, Link | None] = {part: getattr(tree, part, None) for part in parts}
    if device in STAGED and (like is None or file_of(like.device) not in STAGED):
        wires["gpu"] = None
    return wires


def _filled(
    ledger: Ledger,
    preset: tuple[str, Link | None],
    known: list[float | None],
    source: str,
    what: str,
) -> list[float | None]:
    """The bandwidths of a part of the host: those `known` from file `source`, for others the
    wire that the preset has for that part; the ledger lacks `what` where it has none."""
    part, wire = preset
    path = f"node.host.{part}.bandwidth"
    if any(known):
        ledger.note(path, _spread(known), "file", f"{source}: {_PCIE}")
    if None not in known:
        return known
    if wire is None:
        ledger.lacks(path, what)
        return known
    ledger.preset(path, _spread([wire.bandwidth]))
    return [wire.bandwidth if b is None else b for b in known]


def _with(places: Sequence[Place], rates: Sequence[float | None]) -> tuple[Place, ...]:
    return tuple(dataclasses.replace(p, bandwidth=b) for p, b in zip(places, rates, strict=True))


def _spread(rates: Sequence[float | None]) -> str:
    return " or ".join(f"{r / 1e9:g} GB/s" for r in sorted({r for r in rates if r is not None}))


def _layout(
    ledger: Ledger, gpus: int, nics: Sequence[Nic]
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


def _between(ledger: Ledger, sockets: set[int], wire: Link | None) -> float | None:
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
