"""What a table says of the network between nodes, and the kind of network that this names."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsim.accuracy.grammar import networks
from dpsim.accuracy.link_phrase import LinkPhrase
from dpsim.accuracy.rules import first
from dpsim.accuracy.words import vocabulary
from dpsim.machines.devices import NetworkKind


@dataclass(frozen=True)
class NetworkText:
    """What a table says of the network.

    fabric  one word for what the data crossed
    parts   the parts of the text on the network; `every` is all that is said of the machine
    total   line rate of all NICs of a node together [Gbit/s]; None: not stated as a number
    named   whether the text names the platform
    asked   whether the network is in use, so that what is open about it matters
    share   nodes of the table's in one of the machine's, whose NICs the text counts
    """

    fabric: str
    parts: tuple[str, ...]
    every: str
    total: float | None
    named: bool
    asked: bool = True
    share: float = 1.0

    def of_a_node(self, share: float, named: bool) -> NetworkText:
        """The same for a machine of which one node is `share` of the table's."""
        total = None if self.total is None else self.total * share
        return replace(self, total=total, named=named, share=share)

    @property
    def text(self) -> str:
        return " ; ".join(part.strip() for part in self.parts)


def told_kind(told: NetworkText, read: LinkPhrase) -> NetworkKind | None:
    """What the nodes are joined by, as the text or the platform that it names has it."""
    known = first(vocabulary().network.platforms, told.every)
    its = known.kind if known else None
    found = _by_fabric(told, read)
    broad = read.broad and found == read.kind and its in ("infiniband", "roce")
    beside = its == "infiniband" or (known and known.ethernet)  # RoCE alone is called Ethernet too
    broad = broad and not (found == "ethernet" and beside)
    return its if broad and not of_fabric(told).kind else found or its


def of_fabric(told: NetworkText) -> LinkPhrase:
    """What the column `fabric` tells."""
    return next(iter(networks((told.fabric,))), LinkPhrase())


def _by_fabric(told: NetworkText, read: LinkPhrase) -> NetworkKind | None:
    """What the nodes are joined by; the column `fabric` is asked first, then the text."""
    own = of_fabric(told)
    if own.sockets:
        return replace(own.filled(replace(read, count=None)), sockets=True).joined_by
    return own.joined_by or read.joined_by
