"""What frameworks and libraries do with kernels unasked, and what it would bring to ask them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dpsim.cases.case import Case
from dpsim.cases.variant import Variant
from dpsim.core.plugins import name_of
from dpsim.machines.devices import Device
from dpsim.models.convolutions import gains_by_tensor_float, has_shares, is_network
from dpsim.models.execution import Brought


def of_kernels(case: Case) -> Iterator[str]:
    """A warning for what is taken of `case` and may be otherwise, by a factor."""
    own, brought = case.scenario.execution, case.scenario.strategy.channels_last
    work, device = case.work, case.machine and case.machine.device
    if work.lies and own.channels_last is None and not (own.compile or brought):
        yield (
            "images lie with channels first, as torch has them unless told; "
            "execution.channels_last: true says that yours lie last"
        )
    if device and not has_shares(device) and device.peak and is_network(case.model):
        yield (
            f"no published step of an image network on {device.name} or one like it was compared: "
            "its libraries' convolutions may reach far less than language models' products"
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
    own, strategy = case.scenario.execution, case.scenario.strategy
    if case.work.lies and not own.lays_last(Brought(channels_last=strategy.channels_last)):
        yield Variant("channels last", {"execution": replace(own, channels_last=True)})
    torch = not strategy.channels_last and name_of(strategy) not in ("pmap", "megatron")
    if own.compile is False and own.code == "transformers" and torch and not case.work.convolves:
        yield Variant("torch.compile", {"execution": replace(own, compile=True)})


def quicker_layout(case: Case) -> str:
    """That images of `case`, of whose layout nothing is said, may lie otherwise; "" else."""
    if not case.work.lies or case.scenario.execution.channels_last is not None:
        return ""
    return "  Images that lie with channels last (execution.channels_last: true) take less"


def has_already(case: Case, ratio: float) -> bool:
    """Whether the calibrated level of `case` lies nearer to what better kernels take, `ratio` of
    its step, than to its own: what was measured then had them."""
    return case.compute_scale < 1.0 and case.compute_scale**2 < ratio


def _gains(case: Case, device: Device) -> bool:
    """Whether products in tf32 on `device` are faster than in fp32, by their peaks."""
    if case.work.convolves:
        return gains_by_tensor_float(device)
    return device.peak["tf32"] > device.peak.get("fp32", 0.0)
