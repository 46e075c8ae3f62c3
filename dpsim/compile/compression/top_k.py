"""Top-k: the largest elements of every bucket travel, with their places; the rest is kept.

Aji and Heafield, EMNLP 2017; Stich, Cordonnier and Jaggi, NeurIPS 2018 (error feedback).
"""

from __future__ import annotations

from dpsim.compile.compression import Payload, Transit, Work
from dpsim.compile.compression._codec import passes
from dpsim.compile.compression._sparse import SparseCodec, share_of
from dpsim.core.record import Flag, record

#: passes over the elements by which a GPU selects the k-th largest: a radix select of 8 bits at a
#: time on 32 bits, and one that gathers (pytorch/pytorch aten/src/ATen/native/cuda/TensorTopK.cu)
SELECT = 5


@record
class TopK(SparseCodec):
    """The `density` of a bucket's elements that are largest in magnitude: an all-gather of values
    and one of places.

    error_feedback  what did not travel is added to the next gradients
    """

    error_feedback: Flag = True

    def transits(self, payload: Payload, ranks: int) -> tuple[Transit, ...]:
        """Left-over gradients are added (3 passes) and kept (2); magnitudes (2), selection."""
        kept = 5 if self.error_feedback else 0
        work = passes(kept + 2 + SELECT, payload, 4 + SELECT)
        return self.gathers(payload, ranks, share_of(payload.elements, self.density), work)

    def decode(self, payload: Payload, ranks: int) -> Work:
        return self.scattered(payload, ranks, share_of(payload.elements, self.density))

    def memory(self, payload: Payload, ranks: int) -> dict[str, float]:
        kept = {"error feedback": float(payload.bytes)} if self.error_feedback else {}
        count = share_of(payload.elements, self.density)
        return {**kept, "gathered elements": ranks * self.sent(payload, count)}

    def pushed(self, payload: Payload) -> float | None:
        return self.sent(payload, share_of(payload.elements, self.density))

    def notes(self) -> tuple[str, ...]:
        if self.error_feedback:
            return (
                "top-k with error feedback converges as SGD does in the long run, later by a term "
                "that grows as 1/density^2 (Stich et al., NeurIPS 2018)",
            )
        return ("top-k without error feedback need not converge (Karimireddy et al., ICML 2019)",)
