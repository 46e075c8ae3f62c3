"""What joins the GPUs of a node, where machines are known with some wirings of a board alone."""

from __future__ import annotations

from dpsim.accuracy.accelerators import HardwareText
from dpsim.accuracy.words import Board, Family, WiredNode, vocabulary
from dpsim.core.record import Refused

#: ways of wiring that are NVLink's, but of AMD's devices
_NVLINKED = {"switch", "mesh", "cube", "pairs", "single"}
#: those that join all GPUs of a node
WHOLE = {"switch", "mesh", "cube"}


def nodes_of(board: Board) -> dict[str, WiredNode]:
    """The machines whose nodes may hold `board`, the usual one first."""
    words = vocabulary().nodes
    return {name: words.machines[name] for name in words.fitted[board.fitted]}


def staged(board: Board, generation: str) -> str:
    """The way of wiring through the host's memory over PCIe of a `generation`, or the last one of
    which such a node is known."""
    ways = [node.wiring for node in nodes_of(board).values() if node.wiring.startswith("staged")]
    return f"staged{min(int(generation), max((int(way[-1]) for way in ways), default=4))}"


def require_own_links(family: Family, board: Board, told: HardwareText) -> None:
    """Refuse links that no machine known with this `board` has between its GPUs; a card that has
    modules beside it gets a note instead (see `_machine`)."""
    words, amd = vocabulary().nodes, board.device.startswith("mi")
    joined = {node.wiring for node in nodes_of(board).values()} & _NVLINKED and not amd
    stands_in = family in (vocabulary().accelerators.any_gpu, vocabulary().accelerators.geforce)
    link = ""
    if words.nvlink.search(told.inside) and not (joined or board.form or stands_in):
        link = "NVLink"
    elif words.xgmi.search(told.inside) and not (amd or stands_in):
        link = "XGMI"
    if link:
        message = f"no machine known with {link} between {board.device}; say PCIe, or nothing"
        raise Refused(message, ("intra_node",))


def require_form(board: Board, told: HardwareText) -> None:
    """Refuse PCIe cards of what is known as a module alone."""
    wirings = {node.wiring for node in nodes_of(board).values()}
    card = vocabulary().accelerators.cards.search(told.accelerator)
    if card and not board.form and wirings <= WHOLE:
        message = (
            f"no PCIe card is known of {told.accelerator[:60]!r}; the nearest is {board.device}"
        )
        raise Refused(message, ("accelerator",))


def stated_generation(told: HardwareText) -> str:
    """PCIe's generation as the text says it; "" where it doesn't."""
    stated = vocabulary().nodes.pcie_generation.search(f"{told.accelerator} ; {told.inside}")
    return (stated[1] or stated[2]) if stated else ""


def note_generation(name: str, node: WiredNode, told: HardwareText, notes: list[str]) -> None:
    """Tell that the machine `name` has PCIe of another generation than is stated."""
    own = "3" if node.wiring == "root" else node.wiring[-1]
    stated = stated_generation(told)
    if stated and own.isdigit() and own != stated and (told.gpus or 2) > 1:
        notes.append(f"PCIe {stated} is stated, and {name} has PCIe {own}, which is taken.")
