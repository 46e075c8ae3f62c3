"""From the words of a table of measurements to the machine of a scenario.

Sources write hardware in words: "NVIDIA A100-SXM4-80GB", "8x ConnectX-6 IB HDR 200Gb/Sec",
"10GbE, TCP/IP (NCCL sockets)".  `platform` reads them with the words of `words.yaml`, says what
it had to assume, and refuses what it does not know.  It looks at the words alone, never at where
they come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsim.accuracy.nics import NetworkText, nics_of
from dpsim.accuracy.words import Board, Family, WiredNode, first, meaning, vocabulary
from dpsim.cases.case import Case
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
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
    _check_fabric(fabric)
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
    nics = nics_of(NetworkText(fabric, outer, every, total, named), chosen, family.nic, notes)
    cluster = {"machine": name, "device": device, "gpus_per_node": gpus}
    cluster |= nics.cluster() if nics else {}
    return Platform({k: v for k, v in cluster.items() if v is not None}, tuple(notes))


def _check_fabric(fabric: str) -> None:
    if vocabulary().network.host_memory.search(fabric.lower()):
        message = f"fabric {fabric!r} moves host memory; only GPUs are modelled"
        raise Refused(message, ("fabric",))


def _clauses(text: str) -> tuple[str, tuple[str, ...]]:
    """The clauses of `text` on the network, joined, and those on the inside of the node.

    Clauses on benchmarks are neither: what was measured is not the line rate.
    """
    words = vocabulary().network
    outer, inner = [], []
    for clause in re.split(r"[;\n]", text):
        low = clause.lower()
        if words.benchmark.search(low):
            continue
        if words.inside.search(low) and not words.outside.search(low):
            inner.append(clause)
        elif not words.to_host.search(low):
            outer.append(clause)
    return " ; ".join(outer), tuple(inner)


# -- the accelerator ------------------------------------------------------------------------------


def _family(text: str, inside: str, gpus: int | None) -> Family:
    words = vocabulary().accelerators
    known = first(words.families, text)
    if known is not None:
        return known
    if text.strip() and not words.not_stated.search(text):
        boards = sorted({board.device for f in words.families for board in f.boards})
        message = f"no accelerator known in {text[:60]!r}; known: {', '.join(boards)}"
        raise Refused(message, ("accelerator",))
    if words.geforce.words.search(text):
        return words.geforce
    if gpus == 1 or words.on_pcie.search(f"{text} {inside}"):
        return words.any_gpu
    raise Refused(
        "the accelerator isn't stated, nor that it sits on PCIe; state one of the two",
        ("accelerator",),
    )


def _board(family: Family, text: str, inside: str) -> Board:
    """The form of the accelerator: on PCIe where the node is, or where bridges join pairs."""
    words = vocabulary().accelerators
    bus = words.on_pcie.search(inside) and not words.on_nvlink.search(inside)
    slots = (bus or words.on_pairs.search(inside)) and "sxm" not in text
    return first(family.boards, f"{text} pcie" if slots else text) or family.boards[-1]


def _device(family: Family, board: Board, machine: Machine, notes: list[str]) -> str | None:
    """The device that replaces the machine's, None where the machine's is right."""
    guessed = board.guessed and len(family.boards) > 1
    fitting = family.boards if guessed else (board,)
    fits = machine.device.name in {load_device(b.device).name for b in fitting}
    if guessed:
        name = machine.device.name if fits else load_device(board.device).name
        notes.append(f"The text doesn't say which board the accelerator is; {name} is taken.")
    elif board.note:
        notes.append(board.note)
    return None if fits else board.device


# -- its node -------------------------------------------------------------------------------------


def _machine(
    board: Board, gpus: int | None, inside: str, every: str, notes: list[str]
) -> tuple[str, bool]:
    """The bundled machine whose node is meant, and whether the text names that very platform."""
    for named in vocabulary().nodes.platforms:
        fits = board.fitted in named.fitted and named.words.search(every)
        if fits and (gpus or 1) <= load_machine(named.machine).gpus_per_node:
            return named.machine, True
    nodes = _nodes(board)
    fitting = {name: node for name, node in nodes.items() if (gpus or 1) <= node.gpus}
    if not fitting:
        most = max(node.gpus for node in nodes.values())
        message = f"no machine known with {gpus} of {board.device} in a node; at most {most}"
        raise Refused(message, ("gpus_per_node",))
    wanted = _wiring(inside, board, gpus)
    for name, node in fitting.items():
        if node.wiring == wanted:
            return name, False
    usual = next((n for n, node in fitting.items() if node.gpus == gpus), next(iter(fitting)))
    if len({node.wiring for node in fitting.values()}) > 1:
        why = f"is {wanted}, and no such machine is known" if wanted else "isn't stated"
        notes.append(f"The wiring inside the node {why}; that of {usual} is taken.")
    return usual, False


def _nodes(board: Board) -> dict[str, WiredNode]:
    """The machines whose nodes may hold `board`, the usual one first."""
    words = vocabulary().nodes
    return {name: words.machines[name] for name in words.fitted[board.fitted]}


def _wiring(inside: str, board: Board, gpus: int | None) -> str | None:
    """The way of wiring (see `WiredNode`) that the text names."""
    words = vocabulary().nodes
    named = meaning(words.wiring, inside)
    if named is not None:
        full = "mesh" if board.fitted.startswith("mi") or (gpus or 8) <= 4 else "switch"
        return full if named == "full" else named
    usual = next(iter(_nodes(board).values())).wiring
    if usual[:-1] not in ("pcie", "staged"):
        return None
    stated = words.pcie_generation.search(inside)
    generation = stated[1] if stated else usual[-1]
    staged = words.no_peers.search(inside)
    way = "staged" if staged else "pcie" if words.peers.search(inside) else usual[:-1]
    return f"{way}{min(int(generation), 4) if way == 'staged' else generation}"


def _in_a_node(machine: Machine, gpus: int | None, notes: list[str]) -> tuple[int, float]:
    """GPUs of a node, and how many nodes of the table's are one of the machine's."""
    whole = machine.gpus_per_node
    if gpus is None or whole <= _LARGEST_BOX:
        return gpus or whole, 1.0
    notes.append(f"{machine.name} has one NVLink domain of {whole} GPUs.")
    return whole, whole / gpus


def bare_case(cluster: Mapping[str, Any], collective: Mapping[str, Any] | None = None) -> Case:
    """A case that has nothing but its cluster and the library of its collectives."""
    data = {
        "model": {"layers": [{"name": "none", "forward": "0 s", "backward": "0 s"}]},
        "cluster": dict(cluster),
        "strategy": {"kind": "ddp"},
        **({"collective": dict(collective)} if collective else {}),
    }
    return Case(load(data, Path(), "table").scenario, Path())
