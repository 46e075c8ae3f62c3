"""What frameworks and libraries do with kernels unasked, and what it would bring to ask them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dpsim.cases.case import Case
from dpsim.cases.variant import Variant
from dpsim.machines.devices import Device
from dpsim.models.convolutions import gains_by_tensor_float


def of_kernels(case: Case) -> Iterator[str]:
    """A warning for what is taken of `case` and may be otherwise, by a factor."""
    own, brought = case.scenario.execution, case.scenario.strategy.channels_last
    work, device = case.work, case.machine and case.machine.device
    if work.lies and own.channels_last is None and not (own.compile or brought):
        yield (
            "images lie with channels first, as torch has them unless told; "
            "execution.channels_last: true says that yours lie last"
        )
    dtype = case.precision.compute
    if dtype == "fp32" and work.convolves and device and gains_by_tensor_float(device):
        yield (
            "precision.compute: fp32 is strict fp32; cuDNN convolves in TF32 unless told "
            "(torch.backends.cudnn.allow_tf32), which precision.compute: tf32 is"
        )
    if dtype == "tf32" and device and not _gains(case, device):
        yield (
            f"precision.compute: tf32 may be slower than fp32 on {device.name}: libraries that may "
            "use either run what is faster, which precision.compute: fp32 is"
        )


def better_kernels(case: Case) -> Iterator[Variant]:
    """`case` with kernels that a word in its code asks for: images laid out with channels last, and
    a model that runs operation by operation compiled."""
    own = case.scenario.execution
    lays_last = own.channels_last or own.compile or case.scenario.strategy.channels_last
    if case.work.lies and not lays_last:
        yield Variant("channels last", {"execution": replace(own, channels_last=True)})
    if own.compile is False and not case.work.lies:
        made = replace(own, compile=True, code="transformers")
        yield Variant("torch.compile", {"execution": made})


def _gains(case: Case, device: Device) -> bool:
    """Whether products in tf32 on `device` are faster than in fp32, by their peaks."""
    if case.work.convolves:
        return gains_by_tensor_float(device)
    return device.peak["tf32"] > device.peak.get("fp32", 0.0)
