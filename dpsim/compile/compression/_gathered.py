"""A few bits of every element, of every rank to every other: what signs and levels share.

Such codes cannot be added up on the way, so they are gathered, as in GRACE (Xu et al., ICDCS 2021):
(N-1) b/8 bytes an element arrive.
"""

from __future__ import annotations

from typing import ClassVar

from dpsim.compile.compression import Payload, Transit, Work
from dpsim.compile.compression._codec import FP32, Codec, passes
from dpsim.core.record import record


@record
class FewBits(Codec):
    """`width` bits an element, and a scale for each bucket where there is one."""

    scaled: ClassVar[bool] = True

    @property
    def width(self) -> float:
        """Bits of an element."""
        raise NotImplementedError

    def transits(self, payload: Payload, ranks: int) -> tuple[Transit, ...]:
        """Scale (1 pass), codes (1 pass, and their bytes)."""
        size = self.size(payload)
        sent = Transit("all_gather", ranks * size, passes(2, payload, 6, size))
        scales = Transit("all_gather", FP32 * float(ranks), control=True)
        return (sent, scales) if self.scaled else (sent,)

    def decode(self, payload: Payload, ranks: int) -> Work:
        """Every rank's codes are read, and added up (2 passes each)."""
        return passes(2 * ranks, payload, 3 * ranks, ranks * self.size(payload))

    def memory(self, payload: Payload, ranks: int) -> dict[str, float]:
        return {"gathered codes": ranks * self.size(payload)}

    def pushed(self, payload: Payload) -> float | None:
        return self.size(payload)

    def size(self, payload: Payload) -> float:
        """What one rank sends of a bucket [B]."""
        return float(-(-payload.elements * self.width // 8))
