"""Deep gradient compression: the largest elements of momentum that is kept apart.

Lin et al., ICLR 2018 (arXiv:1712.01887).  Rules read in synxlin/deep-gradient-compression dgc/
(compression.py, memory.py): vectors are all-reduced as they are; of every other tensor the elements
above a threshold, found on a sample of 1 %, are gathered, values and int64 places apart; in warm-up
the density falls from step to step, ratio^(k/6) for k = 1 … 5.
"""

from __future__ import annotations

from math import ceil, prod
from typing import Annotated, Literal

from dpsim.compile.compression import Payload, Prelude, Transit, Work
from dpsim.compile.compression._codec import passes, width
from dpsim.compile.compression._sparse import Density, SparseCodec
from dpsim.core.record import Check, record

#: of the warm-up, and the root of the final density that the first of them has
STAGES, ROOT = 5, 6
_ROUNDING = 1e-9


@record
class Dgc(SparseCodec):
    """The `density` of every matrix's elements; vectors travel whole.

    warm_up_steps  in which the density falls to it, in five stages of equal length
    """

    density: Density = 0.001
    index: Literal["int32", "int64"] = "int64"
    warm_up_steps: Annotated[int, Check(0, 10**9)] = 0

    def phases(self, steps: float) -> tuple[Prelude, ...]:
        if not self.warm_up_steps:
            return ()
        length = self.warm_up_steps / STAGES
        return tuple(
            Prelude(min(k * length, steps), self._with(self.density ** (k / ROOT)))
            for k in range(1, STAGES + 1)
        )

    def _with(self, density: float) -> Dgc:
        return Dgc(density=density, index=self.index, encode_=self.encode_, decode_=self.decode_)

    def transits(self, payload: Payload, ranks: int) -> tuple[Transit, ...]:
        """Momentum and velocity are brought up to date (6 passes), elements compared with the
        threshold and found (3), and both masked where they went (4)."""
        vectors, count = self._split(payload)
        work = passes(13, payload, 20)
        dense = (Transit("all_reduce", float(vectors * width(payload)), work),) if vectors else ()
        if not count:
            return dense
        return (*dense, *self.gathers(payload, ranks, count, Work() if dense else work))

    def decode(self, payload: Payload, ranks: int) -> Work:
        return self.scattered(payload, ranks, self._split(payload)[1])

    def memory(self, payload: Payload, ranks: int) -> dict[str, float]:
        """Gathered elements are most in the first stage of the warm-up."""
        most = self._with(self.density ** (1 / ROOT)) if self.warm_up_steps else self
        gathered = ranks * self.sent(payload, most._split(payload)[1])
        return {"momentum and velocity": 2.0 * payload.bytes, "gathered elements": gathered}

    def pushed(self, payload: Payload) -> float | None:
        vectors, count = self._split(payload)
        return vectors * width(payload) + self.sent(payload, count)

    def _split(self, payload: Payload) -> tuple[int, int]:
        """Elements of vectors, and how many elements of the other tensors travel."""
        vectors = count = 0
        for shape in payload.shapes:
            if len(shape) < 2 and payload.shaped:
                vectors += prod(shape)
            else:
                count += ceil(prod(shape) * self.density * (1 - _ROUNDING))
        return vectors, count

    def notes(self) -> tuple[str, ...]:
        return (
            "DGC: ResNet-50 on ImageNet is published to reach 75.96 % without and 76.15 % with a "
            "density of 0.1 % and a warm-up of 4 epochs (Lin et al., arXiv:1712.01887)",
        )
