"""From the words of a table of measurements to the machine of a scenario.

Sources write hardware in words: "NVIDIA A100-SXM4-80GB", "8x ConnectX-6 IB HDR 200Gb/Sec",
"10GbE, TCP/IP (NCCL sockets)".  `platform` reads them with the words of `words.yaml`, says what
it had to assume, and refuses what it does not know.  What the words leave open has several
readings.  It looks at the words alone, never at where they come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpsim.accuracy.accelerators import (
    CARD,
    MODULE,
    HardwareText,
    as_sold,
    as_written,
    board_of,
    family_of,
    named_board,
    require_board,
)
from dpsim.accuracy.asking import answer
from dpsim.accuracy.denials import (
    require_gpudirect,
    require_plain,
    require_plain_words,
    told_inside,
)
from dpsim.accuracy.grammar import sides
from dpsim.accuracy.network_text import NetworkText
from dpsim.accuracy.nics import fabric_whole, nics_of
from dpsim.accuracy.questions import Inquiry, Option, explored
from dpsim.accuracy.rules import meaning
from dpsim.accuracy.slices import chips_of, joined, of_chips
from dpsim.accuracy.strayed import from_accelerator, from_inside
from dpsim.accuracy.wirings import (
    WHOLE,
    nodes_of,
    note_generation,
    require_form,
    require_own_links,
    staged,
    stated_generation,
)
from dpsim.accuracy.words import Board, Family, vocabulary
from dpsim.cases.case import Case
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.machines.fabrics.processors import Processors
from dpsim.machines.fabrics.torus import Torus
from dpsim.machines.machine import Machine, load_device, load_machine
from dpsim.machines.topology import LARGEST_SERVER, alike


@dataclass(frozen=True)
class MachineReading:
    """A cluster in the words of a scenario, as one way to read a text has it.

    cluster  keys of a scenario's `cluster:` without nodes and ranks
    notes    what was inferred and is not stated, one plain sentence each
    weight   how probable this reading is; those of a text add up to 1
    answers  to the questions that the text leaves open, by question
    cells    columns of a row that tell the run as this reading has it (`training.openings`)
    """

    cluster: dict[str, Any]
    notes: tuple[str, ...]
    weight: float = 1.0
    answers: Mapping[str, Option] = field(default_factory=dict)
    cells: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What tells it from the others, in words."""
        return ", ".join(answer.label for answer in self.answers.values())


@dataclass(frozen=True)
class Platform:
    """The readings of a text, the usual one first."""

    readings: tuple[MachineReading, ...]

    @property
    def cluster(self) -> dict[str, Any]:
        """The usual reading's."""
        return self.readings[0].cluster

    @property
    def notes(self) -> tuple[str, ...]:
        """The usual reading's, and what else it may be."""
        first, *others = self.readings
        if not others:
            return first.notes
        shown = "; ".join(f"{other.label} ({other.weight:.0%})" for other in others)
        return (*first.notes, f"Not stated: {first.label} ({first.weight:.0%}), or {shown}.")


@lru_cache(maxsize=256)  # rows of a series say the same
def platform(
    *,
    accelerator: str,
    gpus_per_node: int | None,
    intra_node: str = "",
    inter_node: str = "",
    inter_gbits_s: float | None = None,
    fabric: str = "",
    machine: str = "",
    nodes: int | None = None,
    ranks: int | None = None,
) -> Platform:
    """The machine that these words describe.

    accelerator    the GPU, as its source writes it, and what joins the nodes where it stands there
    gpus_per_node  GPUs in use on each node; None: all of the machine
    intra_node     what joins the GPUs of a node
    inter_node     what joins the nodes, and its speed
    inter_gbits_s  nominal line rate of all NICs of a node together, one way [Gbit/s]; None: as
                   `inter_node` says, else as the machine has
    fabric         one word for what the data crossed ("ib", "tcp_eth", "nvlink_nvswitch")
    machine        the platform's name, where it has one
    nodes, ranks   how many are in use; None: any, so that nothing is left open unasked

    An NVLink domain that spans nodes (GB200) is one node here, so count ranks.  Refused where the
    accelerator, or such a node, is not known, where words contradict or change each other.
    """
    accelerator, inter_node = from_accelerator(accelerator, inter_node)
    outer, inner = sides(inter_node)
    accelerator, intra_node = told_inside(accelerator, intra_node, inter_node)
    accelerator = as_written(accelerator)
    require_plain_words(accelerator, f"{intra_node} ; {machine}", fabric)
    inside = _plain(" ; ".join((intra_node, fabric, machine, *inner)))
    every, parts = f"{accelerator} ; {inside} ; {inter_node}", (*outer, *from_inside(intra_node))
    network = NetworkText(fabric, parts, every.lower(), inter_gbits_s, False, nodes != 1)
    family = family_of(accelerator.lower())
    told = HardwareText(as_sold(family, accelerator.lower()), inside, gpus_per_node, ranks)
    _require_read(network, family, inner, inter_node)
    told = _beside(told, family, network, (intra_node.lower(), " ; ".join(inner).lower()))
    return Platform(_distinct(explored(lambda asked: _reading(family, told, network, asked))))


def _plain(inside: str) -> str:
    """Words on the inside of a node; NVLink that is said not to be there is PCIe."""
    words = vocabulary().nodes
    return words.no_switch.sub("", words.no_nvlink.sub("pcie", inside.lower()))


def _denied(intra_node: str, inner: str, family: Family) -> tuple[str, ...]:
    """Wirings (see `WiredNode`) that the node is said not to have, in either column; a module that
    has no card beside it is on none of them where PCIe alone is told."""
    words, alike = vocabulary().nodes, {board.form for board in family.boards}
    plain = _plain(intra_node)
    told = vocabulary().accelerators
    alone = told.on_pcie.search(plain) and not told.on_nvlink.search(plain)
    said = f"{intra_node} ; {inner}"
    if words.no_nvlink.search(said) or (alone and alike == {""}):
        return ("switch", "mesh", "cube")
    return ("switch",) if words.no_switch.search(said) else ()


def _beside(
    told: HardwareText, family: Family, network: NetworkText, inside: tuple[str, str]
) -> HardwareText:
    """`told` with what the network and the inside of the node say of the board."""
    crowded = _crowded(network, family, told.gpus or 8)
    return replace(told, modules=crowded, denied=_denied(*inside, family))


def _crowded(network: NetworkText, family: Family, gpus: int) -> bool:
    """Whether the network is one that only nodes of modules have."""
    whole = fabric_whole(network, gpus)
    least = vocabulary().open.modules_from * family.nic * gpus
    return whole is not None and whole >= least and gpus >= 4


def _distinct(
    found: list[tuple[tuple[dict[str, Any], tuple[str, ...]], float, dict[str, Option]]],
) -> tuple[MachineReading, ...]:
    """The readings; those of the same cluster are one."""
    readings: list[MachineReading] = []
    for (cluster, notes), weight, given in found:
        same = next((k for k, other in enumerate(readings) if other.cluster == cluster), None)
        if same is None:
            readings.append(MachineReading(cluster, notes, weight, given))
        else:
            whole = readings[same].weight + weight
            readings[same] = replace(readings[same], weight=whole)
    return tuple(readings)


def _reading(
    family: Family, told: HardwareText, network: NetworkText, asked: Inquiry
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Keys of the cluster, and notes, with the answers of `asked`."""
    notes: list[str] = []
    known = _platform_of(family, told, network.every)
    board = board_of(family, told, asked) if known is None else known[0]
    name, named = _machine(board, told, network.every, notes, asked)
    require_own_links(family, board, told)
    require_form(board, told)
    _require_told_wiring(name, told)
    chosen = load_machine(name)
    device = _device(family, board, chosen, notes)
    if not (board.note and board.platforms.pattern):  # one that stands in for a platform's own
        require_board(load_device(device) if device else chosen.device, family, told.accelerator)
    gpus, share = _in_a_node(chosen, told, notes)
    if told.ranks is not None and LARGEST_SERVER < gpus >= told.ranks:
        network = replace(network, asked=False)
    outside: list[str] = []
    nics = None
    if network.total is not None or not joined(chosen, told.ranks, gpus, network.parts, outside):
        node, told_of = of_chips(chosen, gpus), network.of_a_node(share, named)
        nics = nics_of(told_of, node, family.nic, outside, asked)
    notes += outside if network.asked else []  # a network that nothing crosses needs no assumption
    cluster = {"machine": name, "device": device, "gpus_per_node": gpus}
    cluster |= nics.cluster() if nics else {}
    if isinstance(chosen.node, Torus) and nics and nics.count == gpus:
        del cluster["nics_per_node"]  # one for every chip, as slices have
    if isinstance(chosen.node, Processors):
        kind = str(cluster.get("inter_node_kind", "ethernet"))
        cluster["inter_node_latency"] = vocabulary().network.host_latency.get(kind)
    return {k: v for k, v in cluster.items() if v is not None}, tuple(dict.fromkeys(notes))


def _require_told_wiring(name: str, told: HardwareText) -> None:
    node = vocabulary().nodes.machines.get(name)
    if node is not None and node.wiring in told.denied and (told.gpus or 2) > 1:
        message = f"no machine known with {told.accelerator[:60]!r} in a node wired like this"
        raise Refused(message, ("intra_node",))
    alone = (told.gpus or 2) == 1 or told.ranks == 1
    by_host = node is not None and node.wiring.startswith("staged")
    if vocabulary().nodes.no_peers.search(told.inside) and not (by_host or alone):
        raise Refused(
            "GPUs without peer-to-peer are modelled as cards on PCIe alone, and "
            f"{told.accelerator[:60]!r} is wired as in {name}; say PCIe if it is a card",
            ("intra_node",),
        )


def _require_read(
    network: NetworkText, family: Family, inner: tuple[str, ...], inter_node: str
) -> None:
    """Refuse words that change what the others mean, where nothing but words tells the network; and
    always that NICs don't reach the memory of devices that they do reach."""
    if network.asked and any(load_device(board.device).gpudirect for board in family.boards):
        require_gpudirect(inter_node)
    if network.asked and network.total is None:
        require_plain((*network.parts, *inner), inter_node)


def _platform_of(family: Family, told: HardwareText, every: str) -> tuple[Board, str] | None:
    """The board that a platform with a name has, where the accelerator's words leave it open."""
    forms = {board.form for board in family.boards}
    if len(forms) < 2 or vocabulary().accelerators.cards_alone.search(told.accelerator):
        return None
    for named in vocabulary().nodes.platforms:
        if not named.words.search(every):
            continue
        boards = [b for b in family.boards if b.fitted in named.fitted]
        if boards and (told.gpus or 1) <= load_machine(named.machine).gpus_per_node:
            guess = next((b for b in boards if b.guessed), boards[0])
            return named_board(boards, told) or guess, named.machine
    return None


def _device(family: Family, board: Board, machine: Machine, notes: list[str]) -> str | None:
    """The device that replaces the machine's, None where the machine's is right."""
    alike = tuple(other for other in family.boards if other.form == board.form)
    guessed = board.guessed and not board.note and len({other.device for other in alike}) > 1
    fitting = alike if guessed else (board,)
    fits = machine.device.name in {load_device(b.device).name for b in fitting}
    if guessed:
        name = machine.device.name if fits else load_device(board.device).name
        notes.append(f"The text doesn't say which board the accelerator is; {name} is taken.")
    if board.note and not guessed:
        notes.append(board.note)
    return None if fits else board.device


# -- its node -------------------------------------------------------------------------------------


def _machine(
    board: Board, told: HardwareText, every: str, notes: list[str], asked: Inquiry
) -> tuple[str, bool]:
    """The bundled machine whose node is meant, and whether the text names that very platform."""
    gpus = told.gpus
    for named in vocabulary().nodes.platforms:
        fits = board.fitted in named.fitted and named.words.search(every)
        if fits and (gpus or 1) <= load_machine(named.machine).gpus_per_node:
            notes += [named.note] if named.note else []
            return named.machine, True
    nodes = nodes_of(board)
    fitting = {name: node for name, node in nodes.items() if (gpus or 1) <= node.gpus}
    if not fitting:
        most = max(node.gpus for node in nodes.values())
        message = f"no machine known with {gpus} of {board.device} in a node; at most {most}"
        raise Refused(message, ("gpus_per_node",))
    wanted = _wiring(told, board, asked)
    for name, node in fitting.items():
        if node.wiring == wanted:
            note_generation(name, node, told, notes)
            return name, False
    usual = next((n for n, node in fitting.items() if node.gpus == gpus), next(iter(fitting)))
    bridged = wanted == "pairs" and vocabulary().nodes.bridges.search(told.inside)
    if bridged and nodes[usual].wiring in WHOLE and (gpus or 2) > 1 and told.ranks != 1:
        message = f"no machine known with NVLink over pairs of {board.device}"
        raise Refused(message, ("intra_node",))
    if len({node.wiring for node in fitting.values()}) > 1 and told.ranks != 1:
        why = f"is {wanted}, and no such machine is known" if wanted else "isn't stated"
        notes.append(f"The wiring inside the node {why}; that of {usual} is taken.")
    note_generation(usual, nodes[usual], told, notes)
    return usual, False


def _named_wiring(told: HardwareText, board: Board) -> str | None:
    """The way of wiring that the text names; cards without peer-to-peer are on none other."""
    words, inside, generation = vocabulary().nodes, told.inside, _generation(told, board)
    named = meaning(words.wiring, inside) or meaning(words.wiring, told.accelerator)
    can_stage = any(node.wiring.startswith("staged") for node in nodes_of(board).values())
    if board.form != MODULE and can_stage and words.no_peers.search(inside):
        return staged(board, generation)
    if named == "dual":
        return f"dual{min(int(generation), 4)}"
    if named == "full":
        return "mesh" if board.fitted.startswith("mi") or (told.gpus or 8) <= 4 else "switch"
    return named


def _wiring(told: HardwareText, board: Board, asked: Inquiry) -> str | None:
    """The way of wiring (see `WiredNode`) that the text names, or that is asked for."""
    words, inside, gpus = vocabulary().nodes, told.inside, told.gpus
    named, generation = _named_wiring(told, board), _generation(told, board)
    if named is not None:
        return named
    bridged = any(node.wiring == "pairs" for node in nodes_of(board).values())
    cards = board.form == CARD or (board.form != MODULE and bridged)
    if cards and (
        vocabulary().accelerators.on_nvlink.search(inside) or words.nvlink.search(told.accelerator)
    ):
        return "pairs"
    alone = (gpus or 2) == 1 or told.ranks == 1
    if board.fitted == "h100-nvl" and not alone and answer("bridges", asked) == "pairs":
        return "pairs"
    usual = next(iter(nodes_of(board).values())).wiring
    if usual[:-1] not in ("pcie", "staged") and board.form != CARD:
        return None
    way = usual[:-1] if usual[:-1] in ("pcie", "staged") else "pcie"
    if words.peers.search(f"{told.accelerator} ; {inside}"):
        way = "pcie"
    elif way == "pcie" and not alone and board.form != MODULE:
        way = "staged" if answer("peers", asked) == "staged" else "pcie"
    return staged(board, generation) if way == "staged" else f"{way}{generation}"


def _generation(told: HardwareText, board: Board) -> str:
    """PCIe's, as stated, else the usual node's."""
    if stated := stated_generation(told):
        return stated
    wirings = (node.wiring[-1] for node in nodes_of(board).values())
    return next((last for last in wirings if last.isdigit()), "4")


def _in_a_node(machine: Machine, told: HardwareText, notes: list[str]) -> tuple[int, float]:
    """GPUs of a node, and how many nodes of the table's are one of the machine's."""
    whole, gpus = machine.gpus_per_node, told.gpus
    if isinstance(machine.node, Torus):
        chips = chips_of(machine.node, told.ranks or whole, told.accelerator, notes)
        return chips, chips / (gpus or chips)
    if gpus is None or whole <= LARGEST_SERVER:
        return gpus or whole, 1.0
    notes.append(f"{machine.name} has one NVLink domain of {whole} GPUs.")
    used = whole
    if told.ranks is not None and told.ranks > whole:
        used = alike(told.ranks, whole, gpus) or whole
    if used != whole:
        notes.append(f"{used} GPUs of each domain are assumed, so that all have as many")
    return used, used / gpus


def bare_case(cluster: Mapping[str, Any], collective: Mapping[str, Any] | None = None) -> Case:
    """A case that has nothing but its cluster and the library of its collectives."""
    data = {
        "model": {"layers": [{"name": "none", "forward": "0 s", "backward": "0 s"}]},
        "cluster": dict(cluster),
        "strategy": {"kind": "ddp"},
        **({"collective": dict(collective)} if collective else {}),
    }
    return Case(load(data, Path(), "table").scenario, Path())
