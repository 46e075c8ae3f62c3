"""8-bit integers: gradients travel as one byte an element, with a scale for each bucket.

No library adds up 8-bit integers without overflow, so ranks exchange parts, add them up and gather
the sums (`all_to_all`), or gather everything, as torch's quantization_pertensor_hook does
(`all_gather`; pytorch/pytorch torch/distributed/algorithms/ddp_comm_hooks/quantization_hooks.py,
2.13).
"""

from __future__ import annotations

from typing import Literal

from dpsim.compile.compression import Payload, Transit, Work
from dpsim.compile.compression._codec import FP32, Codec, passes
from dpsim.core.record import record


@record
class Int8(Codec):
    """One byte an element.

    exchange  `all_to_all`: an all-to-all of parts, which every rank adds up and quantises again,
              and an all-gather of the sums; `all_gather`: torch's hook, everything to everybody
    """

    exchange: Literal["all_to_all", "all_gather"] = "all_to_all"

    def transits(self, payload: Payload, ranks: int) -> tuple[Transit, ...]:
        """Range (1 pass), quantising (read, write bytes); torch's hook runs 9 passes for that."""
        size = float(payload.elements)
        scales = Transit("all_gather", 2.0 * FP32 * ranks, passes(1, payload, 6), control=True)
        if self.exchange == "all_gather":
            quantise = passes(9, payload, 5, size)
            return (scales, Transit("all_gather", ranks * size, quantise, awaits=True))
        part = passes(2 / ranks, payload, 6, 2 * size)
        return (
            Transit("all_to_all", size, passes(2, payload, 6, size)),
            Transit("all_gather", FP32 * float(ranks), control=True),
            Transit("all_gather", size, part, awaits=True),
            Transit("all_gather", FP32 * float(ranks), control=True),
        )

    def decode(self, payload: Payload, ranks: int) -> Work:
        """Bytes to elements; torch's hook does so for every rank's, in 8 passes each."""
        size = float(payload.elements)
        if self.exchange == "all_gather":
            return passes(8 * ranks + 2, payload, 4 * ranks + 2, ranks * size)
        return passes(1, payload, 2, size)

    def memory(self, payload: Payload, ranks: int) -> dict[str, float]:
        copies = ranks if self.exchange == "all_gather" else 2
        return {"quantised buckets": float(copies * payload.elements)}

    def pushed(self, payload: Payload) -> float | None:
        return float(payload.elements)
