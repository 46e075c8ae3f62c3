"""Groups that lie alike: the same places in nodes so many further on, with equal surroundings.

What is worked out for one of them holds for all; only the names of links and ranks differ.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property

import numpy as np

from dpsim.core.arrays import IntArray
from dpsim.core.lean import dataclass
from dpsim.machines.fabrics import Edge, Vertex
from dpsim.machines.loads import LinkColumn, LinkLayout, Loads
from dpsim.machines.members import Ranks, rank_array
from dpsim.machines.topology import Topology, moved


def lying(ranks: Ranks, topology: Topology) -> tuple[Hashable, int] | None:
    """How `ranks` lie, and on which node the first of them is: groups lie alike where the former is
    equal.  None where nothing is known to be like them."""
    low, high = (ranks[0], ranks[-1]) if isinstance(ranks, range) else (min(ranks), max(ranks))
    first = min(low, high) // topology.gpus
    form = _shifted(ranks, -first * topology.gpus)
    if first == max(low, high) // topology.gpus:
        return (form, ()), first
    cables = topology.cables
    around = None if cables is None else cables.surroundings(_nodes(ranks, topology))
    return None if around is None else ((form, around), first)


def _shifted(ranks: Ranks, by: int) -> Ranks:
    if isinstance(ranks, range):
        return range(ranks.start + by, ranks.stop + by, ranks.step)
    return tuple(rank + by for rank in ranks)


def _nodes(ranks: Ranks, topology: Topology) -> IntArray:
    nodes = rank_array(ranks) // topology.gpus
    if not isinstance(ranks, range) or ranks.step < 0:
        nodes.sort()
    return nodes[np.flatnonzero(np.diff(nodes, prepend=-1))]


@dataclass(frozen=True, eq=False)
class Relocation:
    """From the group `ranks` to one that lies alike, `by` nodes further on."""

    topology: Topology
    ranks: Ranks
    by: int

    @cached_property
    def _nodes(self) -> IntArray:
        return _nodes(self.ranks, self.topology)

    def loads(self, loads: Mapping[Edge, float]) -> Mapping[Edge, float]:
        """The same on the links of the other nodes."""
        if not isinstance(loads, Loads):
            return {self.edge(edge): load for edge, load in loads.items()}
        layout = loads.layout

        def columns() -> tuple[LinkColumn, ...]:
            return tuple(self._column(column) for column in layout.columns)

        return Loads(LinkLayout(self.topology, columns, layout.classes), loads.carried)

    def _column(self, column: LinkColumn) -> LinkColumn:
        between = column.edge is None
        numbers = self._trunks(column.numbers) if between else column.numbers + self.by
        return LinkColumn(column.edge, numbers, column.classes, column.single)

    def _trunks(self, numbers: IntArray) -> IntArray:
        cables = self.topology.cables
        assert cables is not None
        return cables.moved(numbers, self._nodes, self._nodes + self.by)

    def ends(self, ends: IntArray) -> IntArray:
        """Where ranks go to."""
        return ends + self.by * self.topology.gpus

    def edge(self, edge: Edge) -> Edge:
        """Where a link goes to."""
        nics = [end for end in edge if end[0] == "nic"]
        outside = sum(end[0] in ("leaf", "spine") for end in edge)
        if not outside:
            return moved(edge, edge[0][1] + self.by)
        cables = self.topology.cables
        assert cables is not None
        if outside == 2:
            number = np.array([cables.trunk_number(edge)])
            return cables.trunk_edge(int(self._trunks(number)[0]))
        nic: Vertex = ("nic", nics[0][1] + self.by, nics[0][2])
        leaf = cables.leaf_of(nic)
        return (nic, leaf) if edge[0][0] == "nic" else (leaf, nic)
