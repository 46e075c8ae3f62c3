"""Casts to 16 bit: what torch's two compressing hooks share.

Rules read in pytorch/pytorch torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py (2.13):
the bucket is cast, divided by the number of ranks in place, all-reduced and cast back; the futures
hold what was reduced until backward has ended.
"""

from __future__ import annotations

from dpsim.compile.compression import Payload, Transit, Work
from dpsim.compile.compression._codec import Codec
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.record import record

WIDTH = 2  # bytes of an element that travels


@record
class SixteenBit(Codec):
    """One all-reduce of 16-bit elements; what is as narrow already is only divided."""

    def transits(self, payload: Payload, ranks: int) -> tuple[Transit, ...]:
        """A cast from S bytes to H moves S + H, the division 2 H; half of what is moved counts as
        read and written once."""
        wire = wire_bytes(payload)
        return (Transit("all_reduce", wire, Work(cast_bytes(payload) + wire)),)

    def decode(self, payload: Payload, ranks: int) -> Work:
        """The cast back."""
        return Work(cast_bytes(payload))

    def memory(self, payload: Payload, ranks: int) -> dict[str, float]:
        """What was reduced, where it is no view of the bucket."""
        wire = wire_bytes(payload)
        return {"compressed buckets": wire if wire < payload.bytes else 0.0}

    @property
    def learns_alike(self) -> bool:
        return True

    def pushed(self, payload: Payload) -> float | None:
        return wire_bytes(payload)


def wire_bytes(payload: Payload) -> float:
    """What travels of a bucket [B]."""
    width = DTYPE_BYTES[payload.dtype]
    return payload.bytes * min(WIDTH, width) / width


def cast_bytes(payload: Payload) -> float:
    """What one cast of a bucket reads and writes once [B]; 0 where nothing is cast."""
    wire = wire_bytes(payload)
    return (payload.bytes + wire) / 2 if wire < payload.bytes else 0.0
