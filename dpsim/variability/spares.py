"""Spare nodes: what varies from node to node for a whole run, without the slowest nodes.

A spare takes the place of a node that is slow throughout: the slow one is found, drained and
replaced before the steps that are looked at.  What changes from step to step (jitter, pauses,
co-tenants) stays, for no exchange of nodes mends it.  This says what a run would gain, and nothing
of how long finding and exchanging take.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsim.core.arrays import Array
from dpsim.variability import Variation


def lasting(variation: Variation, step: int) -> Array:
    """Factor of every rank in `step` from causes that last for the run: slow ranks, slow nodes,
    and what is drawn once."""
    factors = np.ones(variation.crew.ranks)
    for number, cause in enumerate(variation.variability.slow):
        if cause.drawn_once:
            name = "random_slow" if number == 0 else f"random_slow.{number}"
            factors *= cause.factors(name, variation.crew, variation.seed, step)
    for rank, factor in variation.fixed.items():
        factors[rank] *= factor
    return factors


def slowest_nodes(factors: Array, per_node: int, count: int) -> tuple[int, ...]:
    """The `count` nodes whose slowest rank is slowest, of those slower than a quiet one."""
    nodes = -(-len(factors) // per_node)
    worst = [float(factors[n * per_node : (n + 1) * per_node].max()) for n in range(nodes)]
    order = sorted(range(nodes), key=lambda n: (-worst[n], n))
    return tuple(n for n in order[:count] if worst[n] > 1.0)


@dataclass
class Spared(Variation):
    """Variation in which `spares` nodes (ranks where there are no nodes), the slowest of the run,
    have been replaced by quiet ones."""

    spares: int = 0

    @property
    def fixed(self) -> dict[int, float]:
        """Without replaced nodes, where nothing that is drawn decides which are replaced."""
        found, size = super().fixed, self.crew.gpus or 1
        if self.variability.drawn_once or not found:
            return found
        factors = np.ones(self.crew.ranks)
        for rank, factor in found.items():
            factors[rank] = factor
        gone = set(slowest_nodes(factors, size, self.spares))
        return {rank: factor for rank, factor in found.items() if rank // size not in gone}

    def factors(self, step: int, scale: float = 1.0, busy: Array | None = None) -> Array:
        """Multiplier of every rank's compute; pauses of a replaced node shrink with its factor."""
        factors = super().factors(step, scale, busy)
        if not self.variability.drawn_once:
            return factors
        slow, size = lasting(self, step), self.crew.gpus or 1
        for node in slowest_nodes(slow, size, self.spares):
            ranks = slice(node * size, (node + 1) * size)
            factors[ranks] /= slow[ranks]
        return factors
