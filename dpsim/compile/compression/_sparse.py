"""Sparse gradients: a few elements travel, each rank's own, with their places.

Index sets differ between ranks, so they are gathered, not summed: every rank receives (N-1) k
elements of a value and an index.  Against a dense ring of 2 (N-1)/N S bytes, in fp32 and with int32
indices, a density of 1/N is where both send the same.
"""

from __future__ import annotations

from typing import Annotated, Literal

from dpsim.compile.compression import Payload, Transit, Work
from dpsim.compile.compression._codec import FP32, Codec, passes, width
from dpsim.core import units
from dpsim.core.record import record

INDEX_BYTES = {"int32": 4, "int64": 8}
Density = Annotated[float, units.Unit("1", low=0.0, high=1.0, above=True)]
#: what a share of the elements amounts to, as floats have it, is a whole number within so much
_ROUNDING = 1e-9


@record
class SparseCodec(Codec):
    """What sparse compressions have in common.

    density  the share of the elements that travels
    index    the dtype of their places
    """

    density: Density = 0.01
    index: Literal["int32", "int64"] = "int32"

    def gathers(self, payload: Payload, ranks: int, count: int, first: Work) -> tuple[Transit, ...]:
        """The values of `count` elements of every rank, and then their places."""
        return (
            Transit("all_gather", float(ranks * count * width(payload)), first),
            Transit("all_gather", float(ranks * count * INDEX_BYTES[self.index])),
        )

    def scattered(self, payload: Payload, ranks: int, count: int) -> Work:
        """Zeros, to which every rank's elements are added where they belong: values and places are
        read, and the sums read and written."""
        each = 3 * width(payload) + INDEX_BYTES[self.index]
        return passes(1, payload, 1 + ranks, ranks * count * each)

    def break_even_density(self, ranks: int) -> float | None:
        """2 (N-1)/N S of a ring against (N-1) d S (4 + index)/4, in fp32."""
        return 2 * FP32 / ((FP32 + INDEX_BYTES[self.index]) * ranks)

    def sent(self, payload: Payload, count: int) -> float:
        """What one rank sends of `count` elements to a server [B]."""
        return float(count * (width(payload) + INDEX_BYTES[self.index]))


def share_of(elements: int, density: float) -> int:
    """How many of so many elements travel: their share, rounded down, and one at least."""
    return max(1, int(density * elements * (1 + _ROUNDING))) if elements else 0
