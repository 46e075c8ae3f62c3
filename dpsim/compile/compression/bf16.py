"""torch's bf16_compress_hook: gradients travel as bf16."""

from __future__ import annotations

from dpsim.compile.compression._sixteen import SixteenBit
from dpsim.core.record import Refused, record


@record
class Bf16(SixteenBit):
    """Gradients are cast to bf16, all-reduced, and cast back."""

    def accept_backend(self, backend: str, where: tuple[str, ...]) -> None:
        if backend == "gloo":
            raise Refused(
                "torch takes its bf16 hook only with NCCL 2.10 or XCCL "
                "(torch/nn/parallel/distributed.py, _check_comm_hook); over gloo fp16 is accepted, "
                "and sends as much",
                where,
            )
