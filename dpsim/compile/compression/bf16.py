"""torch's bf16_compress_hook: gradients travel as bf16."""

from __future__ import annotations

from dpsim.compile.compression._sixteen import SixteenBit
from dpsim.core.record import record


@record
class Bf16(SixteenBit):
    """Gradients are cast to bf16, all-reduced, and cast back."""
