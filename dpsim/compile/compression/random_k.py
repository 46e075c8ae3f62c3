"""Random-k: elements drawn with a seed that all ranks share travel; sums need no places.

Stich, Cordonnier and Jaggi, NeurIPS 2018.
"""

from __future__ import annotations

from dpsim.compile.compression import Payload, Transit, Work
from dpsim.compile.compression._codec import Codec, passes, width
from dpsim.compile.compression._sparse import Density, share_of
from dpsim.core.record import Flag, record


@record
class RandomK(Codec):
    """The `density` of a bucket's elements, the same of all ranks: one all-reduce.

    density         the share of the elements that travels
    error_feedback  what did not travel is added to the next gradients
    """

    density: Density = 0.01
    error_feedback: Flag = True

    def transits(self, payload: Payload, ranks: int) -> tuple[Transit, ...]:
        """Left-over gradients are added (3 passes) and kept (2); elements are drawn and read."""
        size = float(self._count(payload) * width(payload))
        kept = 5 if self.error_feedback else 0
        return (Transit("all_reduce", size, passes(kept, payload, 5, 3 * size)),)

    def decode(self, payload: Payload, ranks: int) -> Work:
        """Zeros, and the elements at their places."""
        return passes(1, payload, 2, 3.0 * self._count(payload) * width(payload))

    def memory(self, payload: Payload, ranks: int) -> dict[str, float]:
        return {"error feedback": float(payload.bytes)} if self.error_feedback else {}

    def pushed(self, payload: Payload) -> float | None:
        return float(self._count(payload) * width(payload))

    def _count(self, payload: Payload) -> int:
        return share_of(payload.elements, self.density)

    def notes(self) -> tuple[str, ...]:
        return (
            "random-k varies more than top-k: 1/density times as much as the gradients themselves "
            "without error feedback (Stich et al., NeurIPS 2018)",
        )
