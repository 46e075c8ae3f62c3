"""Links that a table tells in a column of something else."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dpsim.accuracy.grammar import networks, sides
from dpsim.accuracy.rules import first
from dpsim.accuracy.words import vocabulary

#: what is between what an accelerator is and what joins its nodes ("8x A100, 1x100GbE", "V100 with
#: EDR InfiniBand", "H100 2x200Gb HDR", "P100 / FDR")
_BETWEEN = re.compile(
    r"\s*(?:[,;()+|]|\s/\s|\b(?:with|over|via|and|on)\b|\s(?=\d{1,3}\s*[x×]\s*\d{1,4}\s*g))\s*",
    re.I,
)
#: a rate in bits a second, or of so many of something ("8x400G"), as NICs are told in; words for
#: other rates, and for what is not there
_OF_NICS = re.compile(r"\d\s*(?:[GT]b/s|(?i:[gt]b?ps|[gt]bit))|\d\s*[x×]\s*\d+\s*[Gg]")
_OTHER = re.compile(
    r"gddr|hbm|memory|pcie|\bgen ?\d|nvlink|\b(?:no|not|without|w/o|off|disabled)\b", re.I
)
#: what belongs to an accelerator's name behind it: its memory, its board and what joins it inside
_NAMED = re.compile(
    r"\d\s*gi?b\b(?!/)"
    r"|\b(?:sxm\d*|oam|nvl|nvlink ?\d?|pcie(?: (?:gen ?)?\d(?:\.0)?)?(?: x\d+)?)(?!\S)",
    re.I,
)


def from_inside(intra_node: str) -> tuple[str, ...]:
    """Parts of the column on the inside of a node that tell NICs of a network by their numbers."""
    parts = sides(intra_node)[0]
    return tuple(part for part in parts if any(p.kind and p.rate for p in networks((part,))))


def from_accelerator(accelerator: str, inter_node: str = "") -> tuple[str, str]:
    """The column on the accelerator without what it tells of a network between nodes, and that as
    the column on it, where this is empty: what stands there is not added to."""
    if re.search(r"\w", inter_node):
        return accelerator, inter_node
    kept, strayed, at = "", [], 0
    for start, end in _parts(accelerator):
        low, high = (start + place for place in _link(accelerator[start:end]))
        if low < high:
            kept += f"{accelerator[at:low]} "
            strayed.append(accelerator[low:high].strip())
            at = high
    kept = (kept + accelerator[at:]).strip(" ,;+|")
    return (kept, " ; ".join(strayed)) if strayed else (accelerator, inter_node)


def _parts(text: str) -> Iterator[tuple[int, int]]:
    """Where the parts of `text` begin and end."""
    start = 0
    for between in _BETWEEN.finditer(text):
        yield start, between.start()
        start = between.end()
    yield start, len(text)


def _link(part: str) -> tuple[int, int]:
    """Where in `part` a network between nodes is told: in all of it, or before or behind an
    accelerator and its memory ("10GbE V100"); nowhere, in no letter of it."""
    own = first(vocabulary().accelerators.families, part.lower())
    named = own.words.search(part.lower()) if own else None
    if named is None:
        return (0, len(part)) if _joins_nodes(part) else (0, 0)
    start = part.rfind(" ", 0, named.start()) + 1
    end = part.find(" ", named.end())
    end = len(part) if end < 0 else end
    own_words = [found.end() for found in _NAMED.finditer(part, named.end())]
    beside = ((0, start), (max([end, *own_words]), len(part)))
    return next((span for span in beside if _joins_nodes(part[slice(*span)])), (0, 0))


def _joins_nodes(part: str) -> bool:
    """Whether `part` tells a network between nodes: its kind, its NICs, its sockets or a rate that
    NICs have."""
    if _OTHER.search(part):
        return False
    told, known = _OF_NICS.search(part), vocabulary().network.line_rates
    return any(
        p.kind or p.nominal or p.sockets or (told and p.rate and p.rate.gbits in known)
        for p in networks((part,))
    )
