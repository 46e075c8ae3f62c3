"""What a text says not to be there, and what in it would be read wrongly.

A network that is named only to say that it is not in use must not be taken for the one that is;
words that change what the others mean (a fraction, sharing, alternatives) and that the grammar
does not know are refused by name.  The words are in `words.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dpsim.accuracy.rules import meaning
from dpsim.accuracy.words import Family, vocabulary
from dpsim.core.record import Refused

#: what is left where RDMA, or RoCE, is said not to be in use
_TCP, _ETHERNET = " tcp ", " ethernet tcp "
_ASIDE = r"[([][^()\[\]]*[)\]]"


def affirmed(text: str) -> str:
    """`text` on the network with numbers in figures, and without the kinds that it denies."""
    words, low = vocabulary().network, text
    for read, written in words.spellings.items():
        low = _swapped(written.pattern, read, low)
    for spelled in sorted(words.spoken, key=len, reverse=True):
        number = words.spoken[spelled]
        low = _swapped(rf"\b{spelled}{words.counted.pattern}", f"{number}x ", low)
        low = _swapped(rf"\b{spelled}(?=[- ]gig)", str(number), low)
    low = _swapped(words.no_rdma.pattern, _TCP, low)
    other = any(k.kind == "infiniband" and k.words.search(text.lower()) for k in words.kinds)
    low = _swapped(words.no_roce.pattern, " " if other else _ETHERNET, low)
    return _swapped(words.no_kind.pattern, " ", low)


def _swapped(pattern: str, by: str, text: str) -> str:
    return re.sub(pattern, by, text, flags=re.IGNORECASE)


def in_use(parts: Iterable[str]) -> tuple[str, ...]:
    """The parts, and what they have in brackets, that don't tell a network that is not in use."""
    words = vocabulary().network

    def kept(aside: re.Match[str]) -> str:
        return "" if words.unused.search(aside[0].lower()) else aside[0]

    shown = (re.sub(_ASIDE, kept, part) for part in parts)
    return tuple(
        part for part in shown if not words.unused.search(re.sub(_ASIDE, " ", part).lower())
    )


def require_plain(parts: Sequence[str], inter_node: str) -> None:
    """Raise Refused where the `parts` on the network say what the grammar does not know, or
    nothing but what the network is not."""
    text = " ; ".join(parts).lower()
    wrong = meaning(vocabulary().network.refused, text)
    if vocabulary().network.slashed.search(inter_node.lower()):
        wrong = "alternatives"
    if vocabulary().network.unused_beside.search(inter_node.lower()):
        wrong = "a network that is not used"
    if wrong is not None:
        message = f"{inter_node[:60]!r} tells {wrong}, which is not read from words"
        raise Refused(message, ("inter_node",))
    if re.search(r"\w", inter_node) and not re.search(r"\w", text):
        raise Refused(f"{inter_node[:60]!r} only says what the network is not", ("inter_node",))


def require_gpudirect(said: str) -> None:
    """Raise Refused where `said` of a network that is in use has NICs not reach GPUs' memory."""
    if vocabulary().network.no_gpudirect.search(said.lower()):
        raise Refused(
            f"{said.strip(' ;')[:60]!r} tells a network without GPUDirect, which is not "
            "modelled of RDMA; TCP is",
            ("inter_node",),
        )


def told_inside(accelerator: str, intra_node: str, inter_node: str) -> tuple[str, str]:
    """The accelerator without what it says not to be there, and the inside of the node with that,
    and with what the network's text says of peer-to-peer."""
    words, plain, found = vocabulary().nodes, accelerator, []
    for denied in (words.no_nvlink, words.no_switch, words.no_peers):
        found += [told[0] for told in denied.finditer(plain.lower())]
        plain = _swapped(denied.pattern, " ", plain) if found else plain
    found += [told[0] for told in words.no_peers.finditer(inter_node.lower())]
    return plain.strip() or accelerator, " ; ".join((intra_node, *found)) if found else intra_node


def require_one(text: str) -> None:
    """Raise Refused where `text` names more than one accelerator."""
    found: list[tuple[tuple[int, int], Family]] = []
    for family in vocabulary().accelerators.families:
        told = family.words.search(text)
        if told and re.search(r"\d", told[0]):
            apart = all(told.end() <= a or told.start() >= b for (a, b), _ in found)
            found += [(told.span(), family)] if apart else []
    if len(found) > 1:
        names = " and ".join(sorted(text[a:b] for (a, b), _ in found))
        raise Refused(f"{text[:60]!r} names several accelerators: {names}", ("accelerator",))


def require_plain_words(accelerator: str, intra_node: str, fabric: str) -> None:
    """Refuse memory of hosts where devices have their own, and links that are not whole."""
    _require_memory_of_devices(fabric, accelerator)
    wrong = meaning(vocabulary().nodes.refused, intra_node.lower())
    if wrong is not None:
        message = f"{intra_node.strip(' ;')[:60]!r} tells {wrong}, which is not modelled"
        raise Refused(message, ("intra_node",))


def _require_memory_of_devices(fabric: str, accelerator: str) -> None:
    words = vocabulary()
    moves_hosts = words.network.host_memory.search(fabric.lower())
    if moves_hosts and not words.accelerators.hosts.search(accelerator.lower()):
        message = f"fabric {fabric!r} moves host memory, and {accelerator[:60]!r} has its own"
        raise Refused(message, ("fabric",))
