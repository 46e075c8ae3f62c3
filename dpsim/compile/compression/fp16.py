"""torch's fp16_compress_hook, and Horovod's Compression.fp16: gradients travel as fp16."""

from __future__ import annotations

from dpsim.compile.compression._sixteen import SixteenBit
from dpsim.core.record import record


@record
class Fp16(SixteenBit):
    """Gradients are cast to fp16, all-reduced, and cast back."""

    def notes(self) -> tuple[str, ...]:
        return (
            "fp16: gradients above 65,504 overflow and those below 6e-8 vanish; losses are scaled "
            "for that (Micikevicius et al., arXiv:1710.03740, section 3.2)",
        )
