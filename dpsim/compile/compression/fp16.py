"""torch's fp16_compress_hook: gradients travel as fp16."""

from __future__ import annotations

from dpsim.compile.compression._sixteen import SixteenBit
from dpsim.core.record import record


@record
class Fp16(SixteenBit):
    """Gradients are cast to fp16, all-reduced, and cast back."""
