"""Processors of a node: how much work its cores do for so many threads."""

from __future__ import annotations

from typing import Annotated

from dpsim.core import units
from dpsim.core.record import Check, record


@record
class Cores:
    """Physical cores of a node.

    A second thread of a core adds `gain` of a core: Intel measured 16 to 28 % on servers (Marr et
    al., Hyper-Threading Technology Architecture and Microarchitecture, Intel Technology Journal
    6(1), 2002); 25 % is taken.

    physical          how many there are
    threads_per_core  hardware threads of each
    gain              what the other threads of a core add to the first, as a share of a core
    """

    physical: Annotated[int, Check(1, 65_536)]
    threads_per_core: Annotated[int, Check(1, 8)] = 2
    gain: Annotated[float, units.Unit("1", low=0.0, high=7.0)] = 0.25

    def work(self, busy: float) -> float:
        """Seconds of work of a core alone that `busy` running threads get done in a second.

        Threads take whole cores first; then they double up, each adding its part of `gain`.

        >>> [Cores(physical=4).work(n) for n in (2, 4, 6, 8, 80)]
        [2.0, 4.0, 4.5, 5.0, 5.0]
        """
        others = self.physical * (self.threads_per_core - 1)
        doubled = min(max(busy - self.physical, 0.0), others)
        extra = self.gain * self.physical * doubled / others if others else 0.0
        return min(busy, float(self.physical)) + extra
