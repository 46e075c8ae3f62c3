"""Leaf and spine by rail: NIC j of every node on the leaf switch of rail j."""

from __future__ import annotations

from dpsim.core.record import record
from dpsim.machines.clos import Clos


@record
class RailOptimized(Clos):
    """The compute fabric of DGX SuperPOD (NVIDIA reference architecture RA-11333).

    Fields: see :class:`dpsim.machines.clos.Clos`.  A group of `nodes_per_leaf` nodes has
    one leaf per NIC number, ``("leaf", group, rail)``.  Traffic between rails, and between groups,
    goes over the spine.
    """

    rails = True

    def ports(self, nics: int) -> int:
        return self.nodes_per_leaf
