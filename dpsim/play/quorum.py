"""Backup workers: a step ends when the first n - b gradients are there.

Synchronous SGD with b backup workers (Chen et al., Revisiting Distributed Synchronous SGD,
arXiv:1604.00981, section 3): the update takes the n - b gradients that come first; the others are
dropped.  A late rank goes on until its gradient is done, finds that nobody wants it, and starts
anew from the newest parameters.  Its next gradient counts if it is among the first n - b.

Ranks that are not among them stand in the play as if they computed until the last of the first
n - b is done, so that the engines need not know of any of this.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpsim.core.arrays import Array


class Quorum:
    """Compute factors of steps in which the first `ranks` - `backup` ranks count.

    `seconds` is what a rank of factor 1 computes in a step [s], `rest` what every rank's step takes
    beside that [s].  Call it with a step's number; steps are worked out in turn.
    """

    def __init__(
        self,
        factors: Callable[[int], Array | float],
        backup: int,
        seconds: float,
        rest: float = 0.0,
    ) -> None:
        self.factors, self.backup = factors, backup
        self.seconds, self.rest = seconds, rest
        self._now = 0.0
        self._busy: Array | None = None
        self._known: list[Array] = []

    def __call__(self, step: int) -> Array:
        while len(self._known) <= step:
            self._known.append(self._next(len(self._known)))
        return self._known[step]

    def _next(self, step: int) -> Array:
        """The factors of this step, with the time that a late rank joins it too late added."""
        factors = np.asarray(self.factors(step))
        if self.seconds <= 0:
            return factors
        busy = np.full(len(factors), self._now) if self._busy is None else self._busy
        begin = np.maximum(busy, self._now)
        done = begin + factors * self.seconds + self.rest
        wanted = len(factors) - self.backup
        end = float(np.partition(done, wanted - 1)[wanted - 1])
        late = begin - self._now
        self._busy = np.where(begin < end, done, busy)
        self._now = end
        played = factors + late / self.seconds
        first = done <= end
        return np.asarray(np.where(first, played, played[first].max()))
