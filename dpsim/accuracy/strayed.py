"""Links that a table tells in a column of something else."""

from __future__ import annotations

import re

from dpsim.accuracy.grammar import networks, sides
from dpsim.accuracy.rules import first
from dpsim.accuracy.words import vocabulary

#: what is between what an accelerator is and what joins its nodes ("8x A100, 1x100GbE", "V100 with
#: EDR InfiniBand", "H100 2x200Gb HDR")
_BETWEEN = re.compile(
    r"\s*(?:[,;()+]|\b(?:with|over|via|and|on)\b|\s(?=\d{1,3}\s*[x×]\s*\d{1,4}\s*g))\s*", re.I
)


def from_inside(intra_node: str) -> tuple[str, ...]:
    """Parts of the column on the inside of a node that tell NICs of a network by their numbers."""
    parts = sides(intra_node)[0]
    return tuple(part for part in parts if any(p.kind and p.rate for p in networks((part,))))


def from_accelerator(accelerator: str, inter_node: str = "") -> tuple[str, str]:
    """The column on the accelerator without what it tells of a network between nodes, and the
    column on that with it."""
    strayed = [part for part in _BETWEEN.split(accelerator) if _joins_nodes(part)]
    for part in strayed:
        accelerator = accelerator.replace(part, " ", 1)
    return accelerator.strip(" ,;+"), " ; ".join(filter(None, (inter_node, *strayed)))


def _joins_nodes(part: str) -> bool:
    """Whether `part` tells a kind of network, and no accelerator."""
    if first(vocabulary().accelerators.families, part.lower()) is not None:
        return False
    return any(found.kind for found in networks((part,)))
