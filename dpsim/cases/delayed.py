"""Delayed: which operations of a cast are late, and on which of its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np

from dpsim.compile.program import Cast
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.play import Late
from dpsim.variability.delays import DrawnDelays, ListedDelays


@dataclass(frozen=True)
class Delayed:
    """`delays` on the operations of casts, worked out once for each of them."""

    delays: ListedDelays | DrawnDelays
    _known: dict[int, tuple[Cast, Late]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that are named."""
        return self.delays.ranks

    def of_ranks(self, cast: Cast) -> Array:
        """What every rank is late in a step, all its operations together [s]."""
        found = np.zeros(cast.ranks)
        for role, late in enumerate(self(cast)):
            found[list(cast.members(role))] = sum(late.values())
        return found

    def __call__(self, cast: Cast) -> Late:
        """For every role, operation -> seconds that its ranks take longer for it.

        Computations are delayed, and no copies or what the host does.  Refused where a rank that
        is named has no operation of that name.
        """
        if id(cast) not in self._known:
            late = [self._of_role(cast, role) for role in range(len(cast.programs))]
            self._known[id(cast)] = cast, late
        return self._known[id(cast)][1]

    def _of_role(self, cast: Cast, role: int) -> Mapping[int, Array]:
        ops, members = cast.programs[role].ops, cast.members(role)
        computing = [k for k, op in enumerate(ops) if op.scales]
        names = [ops[k].name for k in computing]
        busy = [ops[k].seconds > 0 for k in computing]
        each = self.delays.seconds(names, busy, members)
        return {k: row for k, row in zip(computing, each, strict=True) if row.any()}
