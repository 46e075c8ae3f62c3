"""From the words on an accelerator to its board: an exact name or an unambiguous alias.

A name means a family ("V100"); its board is a module on NVLink (SXM, OAM) or a PCIe card, in a size
of memory.  The accelerator's own words decide which, then those on the inside of the node, then a
network that only such nodes have; else it is asked (`dpsim.accuracy.questions`).  A PCIe card never
gets the NVLink of its generation: NVLink beside one is a bridge over a pair.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from dpsim.accuracy.asking import answer
from dpsim.accuracy.denials import require_one
from dpsim.accuracy.questions import FULL, Inquiry, Option
from dpsim.accuracy.rules import first, meaning
from dpsim.accuracy.words import Board, Family, vocabulary
from dpsim.core.record import Refused
from dpsim.machines.devices import Device
from dpsim.machines.machine import load_device

#: how far a stated size of memory or power may be off a board's: makers round, and count in GiB
_ROUNDED = 0.08
_GIB = 2.0**30
#: the least share that is shown where boards of several sizes bear the name, which have HBM: 31.7
#: of 32 GiB of V100, 39.4 of 40 of A100, 93.6 of 94 of H100 (topologies/devices)
_CLOSE = 0.95
#: likeness in spelling from which on a device may be meant
_ALIKE = 0.7
#: how many accelerators there are, before their name; on each of several nodes too
_COUNTED = re.compile(r"^\s*(?:\d{1,3} ?[x×*] ?){1,2}(?=[A-Za-z])")
#: forms of a board
MODULE, CARD = "module", "card"


@dataclass(frozen=True)
class HardwareText:
    """What a table says of a machine, in lower case.

    accelerator  the GPU as the source writes it
    inside       all words on the inside of a node
    gpus         GPUs in use on each node; None: all
    ranks        GPUs in use together; None: not known
    modules      whether the network is one that only nodes of modules have
    denied       wirings that the node is said not to have
    """

    accelerator: str
    inside: str
    gpus: int | None
    ranks: int | None
    modules: bool = False
    denied: tuple[str, ...] = ()


def as_written(text: str) -> str:
    """`text` without how many there are, and with names as `words.yaml` has them: "NVIDIA_A100" and
    Google's of slices ("16x v5e-256") otherwise; without what was asked of Slurm ("mi250:8"), where
    another accelerator is named beside."""
    plain = _COUNTED.sub("", vocabulary().accelerators.several.sub(r"\1", text))
    try:
        require_one(plain.lower())
    except Refused:
        plain = vocabulary().accelerators.asked.sub(" ", plain)
    for read, written in vocabulary().accelerators.spellings.items():
        plain = re.sub(written.pattern, read, plain, flags=re.IGNORECASE)
    return plain


def family_of(text: str) -> Family:
    """The family that the accelerator's `text` names; one of `any_gpu` where it says that it isn't
    known.

    Raises Refused, with the nearest names, where a name is none that is known.
    """
    words = vocabulary().accelerators
    wrong = meaning(words.refused, text)
    if wrong is not None:
        raise Refused(f"{wrong} ({text[:60]!r})", ("accelerator",))
    known = first(words.families, text)
    if known is not None:
        require_one(text)
        return known
    if not text.strip():
        raise Refused("is empty", ("accelerator",))
    if not words.not_stated.search(text):
        raise Refused(_unknown(text), ("accelerator",))
    if words.geforce.words.search(text):
        return words.geforce
    return words.any_gpu


def as_sold(family: Family, text: str) -> str:
    """`text` with memory that is shown of a board of `family`, as it is sold: what nvidia-smi and
    CUDA call the total is less, by what the driver and error correction keep, and GiB are also
    counted in GB ("A10 22GB" of 24, "H100 93GB" of 94, "A100 39 GB" of 40).  What is said to be in
    use is left out."""
    words = vocabulary().accelerators
    text = words.memory_taken.sub("", text)
    text = words.memory_shown.sub(lambda told: f"{round(int(told[1]) / 1024)} gb", text)
    if family in (words.any_gpu, words.geforce) or words.hosts.search(text):
        return text
    devices = [load_device(board.device) for board in family.boards]
    least = _CLOSE if len({_size_sold(device) for device in devices}) > 1 else 0.0
    shown = sorted(
        (n * _size_sold(d), math.floor(n * _size_sold(d) * max(least, _share_shown(d))))
        for d in devices for n in _gpus_of(d)
    )  # fmt: skip

    def nearest(told: re.Match[str]) -> str:
        size = int(told[1])
        fitting = [own for own, low in shown if low <= size <= math.ceil(own * _GIB / 1e9)]
        if size in fitting or not fitting:
            return told[0]
        own = next((own for own in fitting if own >= size), fitting[-1])
        return told[0].replace(told[1], f"{own:g}", 1)

    return words.stated_memory.sub(nearest, text)


def _size_sold(device: Device) -> float:
    """The number of GB that `device` is sold with, as makers count them."""
    binary = device.memory / _GIB
    return binary if binary.is_integer() else round(device.memory / 1e9)


def _share_shown(device: Device) -> float:
    """The least share of it that is shown."""
    return min(1.0, device.room[0] / device.memory)


def _gpus_of(device: Device) -> tuple[int, ...]:
    """GPUs whose memory a text may state: of two on a board, one or both."""
    return (1, 2) if ", one " in device.name else (1,)


def board_of(family: Family, told: HardwareText, asked: Inquiry) -> Board:
    """The board of `family` that is meant; asked for where it is open.

    Raises Refused where a card is said to sit on NVSwitch, and where the name means a board in
    nodes of another size alone.
    """
    _require_size(family, told)
    words, own = vocabulary().accelerators, _form(told.accelerator)
    inner = _form_inside(told.inside)
    if (
        own == CARD
        and words.on_switch.search(told.inside)
        and not words.on_pairs.search(told.inside)
    ):
        what = told.accelerator[:60]
        raise Refused(f"{what!r} is a PCIe card, which no NVSwitch joins", ("accelerator",))
    form = own or inner or (MODULE if told.modules else None)
    if family is words.any_gpu:
        return _unstated(family, form, told, asked)
    forms = {board.form for board in family.boards if board.form}
    if len(forms) > 1 and form is None:
        form = _asked_form(told, asked)
    fitting = [b for b in family.boards if not b.form or form is None or b.form == form]
    boards = tuple(fitting) or family.boards
    return named_board(boards, told) or _guess(boards)


def _require_size(family: Family, told: HardwareText) -> None:
    """Raise Refused where `family` is known in nodes of some sizes alone, and these are others."""
    sizes = sorted({board.gpus for board in family.boards})
    if sizes and 0 not in sizes and told.gpus not in sizes:
        known = ", ".join(dict.fromkeys(board.device for board in family.boards))
        counts = " or ".join(map(str, sizes))
        message = f"{told.accelerator[:60]!r} is read in nodes of {counts} alone, as {known}"
        raise Refused(message, ("accelerator",))


def named_board(boards: Iterable[Board], told: HardwareText) -> Board | None:
    """The one of `boards` that the accelerator's words tell, else the one of a platform that is
    named; None where none is."""
    known = [b for b in boards if not b.guessed and b.gpus in (0, told.gpus)]
    said = f"{told.accelerator} ; {told.inside}"
    of_platform = (b for b in known if b.platforms.pattern and b.platforms.search(said))
    return first(known, told.accelerator) or next(of_platform, None)


def require_board(device: Device, family: Family, text: str) -> None:
    """Raise Refused where `text` states memory that the device hasn't, or less power."""
    words = vocabulary().accelerators
    if family in (words.any_gpu, words.geforce) or words.hosts.search(text):
        return
    sizes = [int(told[1]) for told in words.stated_memory.finditer(text)]
    own = [device.memory * n / unit for n in _gpus_of(device) for unit in (1e9, _GIB)]
    if sizes and not any(abs(size / each - 1) <= _ROUNDED for size in sizes for each in own):
        known = ", ".join(dict.fromkeys(board.device for board in family.boards))
        raise Refused(
            f"no board is known with the memory in {text[:60]!r}; the nearest are {known}",
            ("accelerator",),
        )
    powers = [int(told[1]) for told in words.stated_power.finditer(text)]
    if device.power and powers and max(powers) < (1 - _ROUNDED) * device.power:
        raise Refused(
            f"{text[:60]!r} states less than the {device.power:g} W of {device.name}, and a GPU "
            "below its usual power is not read; say PCIe if it is a card, or calibrate compute",
            ("accelerator",),
        )


def _guess(boards: tuple[Board, ...]) -> Board:
    return next((board for board in boards if board.guessed), boards[0])


def _form(text: str) -> str | None:
    """Module or card, as the accelerator's own words say."""
    words = vocabulary().accelerators
    if words.cards.search(text):
        return CARD
    return MODULE if words.modules.search(text) else None


def _form_inside(inside: str) -> str | None:
    words = vocabulary().accelerators
    if words.on_pairs.search(inside):
        return CARD
    if words.on_nvlink.search(inside):
        return MODULE
    return CARD if words.on_pcie.search(inside) else None


def _asked_form(told: HardwareText, asked: Inquiry) -> str:
    gpus, ranks = told.gpus or FULL, told.ranks or 1
    which = "fewer" if gpus < FULL else "several" if ranks > gpus else "eight"
    return answer("board", asked, which)


def _unstated(family: Family, form: str | None, told: HardwareText, asked: Inquiry) -> Board:
    """One of the boards that stand for a GPU that nobody names."""
    said = f"{told.accelerator} ; {told.inside}"
    fitting = [b for b in family.boards if b.guessed or b.words.search(said)]
    fitting = [b for b in fitting if form is None or b.form == form]
    fitting = [b for b in fitting if (told.gpus or 1) <= 8 or b.form == MODULE]
    if told.ranks is not None and told.gpus == 1:
        fitting = [b for b in fitting if b.form == CARD][:1]
    answers = [Option(b.device, 1.0, f"{b.device} for a GPU that isn't stated") for b in fitting]
    if not answers:
        raise Refused("the accelerator isn't stated", ("accelerator",))
    chosen = asked.ask("gpu", answers).name
    return next(board for board in fitting if board.device == chosen)


def _unknown(text: str) -> str:
    """That nothing is known of `text`, with what is spelt like one of its names."""
    known = {b.device for f in vocabulary().accelerators.families for b in f.boards}
    plain = {device.replace("-", ""): device for device in sorted(known)}
    said = re.sub(r"[(\[].*|[\s_-]|nvidia|amd|geforce|radeon|instinct|tesla|quadro", "", text)
    near = [plain[one] for one in difflib.get_close_matches(said, plain, 4, _ALIKE)]
    told = f"no accelerator known in {text[:60]!r}"
    return f"{told}; the nearest are {', '.join(near)}" if near else f"{told}, nor one like it"
