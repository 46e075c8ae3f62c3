"""What the compressions that come with dpsim have in common.

Work is counted in passes of memory, as the code that is named runs them: unfused kernels, each of
which reads its operands and writes its result.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dpsim.compile.compression import Compression, Payload, Stated, Work
from dpsim.core import units
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.record import record

FP32 = 4  # bytes
Seconds = Annotated[float, units.Unit("s", low=0.0, high=1e9)]


@record
class Codec(Compression):
    """Settings that all compressions have.

    encode, decode  what coding takes for all gradients of a step, where that is known; left out:
                    from traffic, FLOP and kernels of the device; nothing without a machine
    """

    encode_: Annotated[Seconds | None, Field(alias="encode")] = None
    decode_: Annotated[Seconds | None, Field(alias="decode")] = None

    @property
    def stated(self) -> Stated:
        return Stated(self.encode_, self.decode_)


def passes(count: float, payload: Payload, kernels: float = 0.0, more: float = 0.0) -> Work:
    """`count` times the gradients read or written, and `more` bytes; a Work's bytes are read and
    written."""
    return Work((count * payload.bytes + more) / 2, kernels=kernels)


def width(payload: Payload) -> int:
    """Bytes of an element."""
    return DTYPE_BYTES[payload.dtype]
