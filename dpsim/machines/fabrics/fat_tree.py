"""Leaf and spine: all NICs of a node on one leaf switch."""

from __future__ import annotations

from dpsim.core.record import record
from dpsim.machines.clos import Clos


@record
class FatTree(Clos):
    """A two-level fat tree (Leiserson, "Fat-trees", IEEE Trans. Computers C-34, 1985).

    Fields: see :class:`dpsim.machines.clos.Clos`.  The bisection bandwidth, one way, is
    half of the NICs times `link.bandwidth` over `oversubscription`.
    """

    def ports(self, nics: int) -> int:
        return self.nodes_per_leaf * nics
