"""Links that a table tells in a column of something else."""

from __future__ import annotations

import re

from dpsim.accuracy.grammar import networks, sides
from dpsim.accuracy.rules import first
from dpsim.accuracy.words import vocabulary

#: what is between what an accelerator is and what joins its nodes ("8x A100, 1x100GbE", "V100 with
#: EDR InfiniBand", "H100 2x200Gb HDR", "P100 / FDR")
_BETWEEN = re.compile(
    r"\s*(?:[,;()+|]|\s/\s|\b(?:with|over|via|and|on)\b|\s(?=\d{1,3}\s*[x×]\s*\d{1,4}\s*g))\s*",
    re.I,
)
#: a rate in bits a second, which no memory and no link inside a node is told in
_IN_BITS = re.compile(r"\d\s*[GT](?:b/s|b?ps|bit)")
#: what ends with a size of memory
_MEMORY = re.compile(r"\d\s*gi?b\b(?!/)", re.I)


def from_inside(intra_node: str) -> tuple[str, ...]:
    """Parts of the column on the inside of a node that tell NICs of a network by their numbers."""
    parts = sides(intra_node)[0]
    return tuple(part for part in parts if any(p.kind and p.rate for p in networks((part,))))


def from_accelerator(accelerator: str, inter_node: str = "") -> tuple[str, str]:
    """The column on the accelerator without what it tells of a network between nodes, and the
    column on that with it."""
    strayed = [link for part in _BETWEEN.split(accelerator) if (link := _link(part))]
    for link in strayed:
        accelerator = accelerator.replace(link, " ", 1)
    return accelerator.strip(" ,;+|"), " ; ".join(filter(None, (inter_node, *strayed)))


def _link(part: str) -> str:
    """What `part` tells of a network between nodes: all of it, or what stands before or behind an
    accelerator and its memory ("10GbE V100"); "" where it tells nothing of one."""
    own = first(vocabulary().accelerators.families, part.lower())
    if own is None:
        return part if _joins_nodes(part) else ""
    named = own.words.search(part.lower())
    start, end = named.span() if named else (0, len(part))
    start, end = part.rfind(" ", 0, start) + 1, part.find(" ", end) % (len(part) + 1)
    beside = (part[:start], _MEMORY.split(part[end:])[-1])
    return next((text.strip() for text in beside if _joins_nodes(text)), "")


def _joins_nodes(part: str) -> bool:
    """Whether `part` tells a network between nodes: its kind, its NICs, its sockets or its rate."""
    found = networks((part,))
    return any(
        p.kind or p.nominal or p.sockets or (p.rate and _IN_BITS.search(part)) for p in found
    )
