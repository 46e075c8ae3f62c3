"""torch's batched_powerSGD_hook: a bucket as one square matrix, as two thin factors.

In 2.13 the hook itself stops at its first compressed step (`_orthogonalize` takes batches of
matrices only); what is played is what it says.
"""

from __future__ import annotations

from math import isqrt

from dpsim.compile.compression import Payload, Transit, Work
from dpsim.compile.compression._codec import width
from dpsim.compile.compression._low_rank import LowRank
from dpsim.core.record import record


@record
class BatchedPowerSgd(LowRank):
    """A bucket, padded to a square, as two factors of `rank` columns: faster than `powersgd`, and
    usually much less accurate (torch's own documentation of the hook)."""

    def transits(self, payload: Payload, ranks: int) -> tuple[Transit, ...]:
        side = self.side(payload)
        size = float(width(payload) * side * self.rank)
        feedback = 5 * width(payload) * side**2 / 2 if self.error_feedback else 0.0
        first = self._product(payload) + Work(feedback, kernels=2)
        return (
            Transit("all_reduce", size, first),
            Transit("all_reduce", size, self._product(payload), awaits=True),
        )

    def decode(self, payload: Payload, ranks: int) -> Work:
        """M = P Q^T, and the left-over gradients."""
        left = 3 * width(payload) * self.side(payload) ** 2 / 2 if self.error_feedback else 0.0
        return self._product(payload) + Work(left, kernels=1)

    def memory(self, payload: Payload, ranks: int) -> dict[str, float]:
        side, size = self.side(payload), width(payload)
        kept = {"low-rank factors": 2.0 * size * side * self.rank}
        if self.error_feedback:
            whole = float(size * side**2)
            kept |= {"error feedback": whole, "copies of buckets": whole}
        return kept

    def side(self, payload: Payload) -> int:
        """Rows and columns of the square: the root of the bucket's elements, rounded up."""
        return isqrt(max(payload.elements - 1, 0)) + 1

    def _product(self, payload: Payload) -> Work:
        elements = self.side(payload) ** 2
        kernels = self.orthogonal(self.rank) + 1
        return Work(width(payload) * elements / 2, flop=2.0 * elements * self.rank, kernels=kernels)
