"""1-bit Adam: after a warm-up with Adam, signs of the momentum travel.

Tang et al., ICML 2021 (arXiv:2102.02888).  Rules read in deepspeedai/DeepSpeed
deepspeed/runtime/comm/nccl.py (compressed_allreduce; commit 84be8319) and
deepspeed/runtime/fp16/onebit/adam.py: nothing travels while backward runs; the optimizer sends the
momentum, in fp32 whatever gradients are in, in one piece: an all-to-all of signs and an all-gather
of scales, every rank averages its part and takes its sign, an all-gather of these signs and one of
their scales.  Both sides keep what the signs leave out.
"""

from __future__ import annotations

from typing import Annotated

from dpsim.compile.compression import Payload, Prelude, Transit, Work
from dpsim.compile.compression._codec import FP32, Codec
from dpsim.core import units
from dpsim.core.record import Check, Refused, record

#: onebit/adam.py, the default of freeze_step
FREEZE_STEP = 100_000
#: passes over fp32 momentum as compressed_allreduce runs them: 24 before the first exchange, 8 over
#: what came in between the two, with a rank's own part another 15, 9 after the second
ENCODE, SERVER, OWN, DECODE = 24, 8, 15, 9
#: kernels of each of the three
KERNELS = (18, 20, 8)


@record
class OneBit(Codec):
    """Signs and a scale, of all gradients together, when backward has ended.

    freeze_step  steps of the warm-up, in which Adam runs as it is (DeepSpeed's setting and default)
    warm_up      the same as a share of the run, in place of it
    """

    freeze_step: Annotated[int, Check(0, 10**9)] | None = None
    warm_up: Annotated[float, units.Unit("1", low=0.0, high=1.0)] | None = None

    whole = True
    part_of = "adam"

    def __post_init__(self) -> None:
        if self.freeze_step is not None and self.warm_up is not None:
            raise Refused("says the same as freeze_step; give one of the two", ("warm_up",))

    def phases(self, steps: float) -> tuple[Prelude, ...]:
        if self.warm_up is not None:
            return (Prelude(self.warm_up * steps if self.warm_up else 0.0, None),)
        frozen = FREEZE_STEP if self.freeze_step is None else self.freeze_step
        return (Prelude(min(frozen, steps), None),)

    def transits(self, payload: Payload, ranks: int) -> tuple[Transit, ...]:
        if ranks == 1:  # onebit/adam.py compresses where there is somebody to send to
            return ()
        signs, momentum = float(-(-payload.elements // 8)), FP32 * payload.elements
        encode, server, _ = KERNELS
        scales = Transit("all_gather", FP32 * float(ranks), control=True)
        own = Work(momentum * (SERVER + OWN / ranks) / 2, kernels=server)
        return (
            Transit("all_to_all", signs, Work(ENCODE * momentum / 2, kernels=encode)),
            scales,
            Transit("all_gather", signs, own, awaits=True),
            scales,
        )

    def decode(self, payload: Payload, ranks: int) -> Work:
        if ranks == 1:
            return Work()
        return Work(DECODE * FP32 * payload.elements / 2, kernels=KERNELS[2])

    def memory(self, payload: Payload, ranks: int) -> dict[str, float]:
        """What the signs leave out, of a rank's own momentum and of the part that it averages."""
        momentum = FP32 * payload.elements
        return {"error feedback": momentum * (1 + 1 / ranks)}

    def pushed(self, payload: Payload) -> float | None:
        return float(-(-payload.elements // 8))

    @property
    def learns_alike(self) -> bool:
        return True

    def notes(self) -> tuple[str, ...]:
        return (
            "1-bit Adam: BERT is published to converge as with Adam after a warm-up of 15 to 25 % "
            "of the steps (Tang et al., arXiv:2102.02888)",
        )
