"""Memory of one device, and what would make a model fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from dpsim.core import units
from dpsim.core.dtypes import working_bytes
from dpsim.core.lean import dataclass
from dpsim.core.record import record
from dpsim.machines.devices import Device
from dpsim.models import Layer, Model
from dpsim.models.few_bits import saved_bytes
from dpsim.models.recomputing import WHOLE_BLOCKS, Recompute

#: CUDA context with its kernels, workspaces of cuBLAS and cuDNN, NCCL's buffers (4 MiB a channel
#: and connection, src/include/comm.h): what nvidia-smi shows beside the allocator's; the point, and
#: between what it usually lies
RUNTIME_BYTES = 1e9
RUNTIME_LOW, RUNTIME_HIGH = 0.5e9, 2.0e9
#: bytes that the caching allocator has reserved and nobody uses, as a share of what is allocated at
#: the peak: least, point and most.  Where gradients and states are a system's own buffers, made
#: once before the first step, 1 to 6 % was measured (64 ranks, SimuMax's B200 runs of Megatron);
#: where torch makes them in the first step, in what its forward and backward had left, 8 to 14 %
#: (nine runs of torchtitan).  validation/memory.py, validation/published/memory.csv
FRAGMENTATION = (0.0, 0.03, 0.08)
FRAGMENTATION_LAZY = (0.0, 0.10, 0.16)
#: relative error of what is counted as allocated, within which nine in ten measured rows lie
#: (validation/memory.py)
ALLOCATED_ERROR = 0.05

Fits = Literal["yes", "likely", "unlikely", "no"]
#: answers with which a step is taken to fit, and those with which it is not
FITTING, UNFIT = ("yes", "likely"), ("unlikely", "no")
#: what is said of a step with the former
FITS_WORDS = {"yes": "fits", "likely": "likely fits"}
#: what is said of a step with the latter
UNFIT_WORDS = {"unlikely": "is unlikely to fit", "no": "does not fit"}
#: parts that are not allocated by tensors
BESIDE = ("fragmentation", "runtime")


@record
class MemorySection:
    """What is known of how memory is used.

    kernels        `fused`: a transformer's layers and loss are computed by fused kernels, as in
                   Megatron or compiled by torch.compile; `eager`: by torch's modules one by one,
                   which keep more; left out: what the strategy's system does, and the interval
                   spans both
    loss           the same of the loss alone; left out: as `kernels`
    fragmentation  what the allocator has reserved beside what is allocated, as a share of it; left
                   out: what was measured elsewhere, and the interval spans it
    runtime        context, libraries and NCCL's buffers; left out: 1 GB, and the interval spans
                   0.5 to 2 GB
    """

    kernels: Literal["fused", "eager"] | None = None
    loss: Literal["fused", "eager"] | None = None
    fragmentation: Annotated[float, units.Unit("1", low=0.0, high=1.0)] | None = None
    runtime: units.Bytes | None = None


@dataclass(frozen=True)
class MemoryUse:
    """Bytes on one device by what they are for at the fullest moment, what of the device's memory
    programs have (None: unknown), between what the sum lies in nine of ten runs, and by how much
    less and more the device may have."""

    parts: dict[str, float]
    capacity: float | None
    low: float
    high: float
    less: float = 0.0
    more: float = 0.0

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def allocated(self) -> float:
        """What tensors take, without what the allocator and the runtime take beside it."""
        return sum(size for name, size in self.parts.items() if name not in BESIDE)

    @property
    def fits(self) -> Fits | None:
        """`yes`: even the high end fits into the least that the device has; `likely`: the point
        does; `unlikely`: the low end fits into the most; `no`: not even that.  None where the
        capacity is unknown."""
        if self.capacity is None:
            return None
        if self.high <= self.capacity - self.less:
            return "yes"
        if self.total <= self.capacity:
            return "likely"
        return "unlikely" if self.low <= self.capacity + self.more else "no"

    @property
    def holds(self) -> bool:
        """Whether the step is taken to fit."""
        return self.fits in FITTING

    @property
    def shortfall(self) -> float:
        """Bytes that are missing; 0 where it fits or the capacity is unknown."""
        return max(0.0, self.total - self.capacity) if self.capacity is not None else 0.0


@dataclass(frozen=True)
class Footprint:
    """Bytes of one layer for one micro-batch on one rank.

    kind      which activations they are
    inputs    whether what is kept are inputs of a block that is computed again, and no layer's own
    kept      from its forward until its backward
    rebuilt   beside them in its backward, of the block that is computed again
    forward, backward  what it has beside that at most while a pass runs
    """

    kind: str
    kept: float
    rebuilt: float
    forward: float
    backward: float
    inputs: bool = False

    @property
    def keeps(self) -> str:
        """What it keeps, as parts of memory are called."""
        return "activations at block inputs" if self.inputs else self.kind


def footprints(
    model: Model,
    samples: float,
    dtype: str,
    recompute: Recompute,
    *,
    eager: bool,
    loss: bool | None = None,
) -> list[Footprint]:
    """What every layer keeps and takes for a micro-batch of `samples` samples, in the order of
    `model.layers`; `eager`: computed by torch's modules one by one, `loss`: the loss too (as the
    layers if left out).

    The loss widens logits to 32 bit.  Fused, its softmax is made in their place and its gradient
    in the softmax's (megatron/core/tensor_parallel/cross_entropy.py); by torch's modules forward
    has the logits, their wide copy and its log-softmax at once, and backward the gradients of the
    loss and of the log-softmax beside the log-softmax (tests/data/memory).
    """
    rebuilt = _rebuilt(model, dtype, recompute, eager)
    wide = eager if loss is None else loss
    width = working_bytes(dtype)
    found = []
    for i, layer in enumerate(model.layers):
        narrow = width * layer.logits if width < 4 else 0.0
        forward = narrow + 4.0 * layer.logits * wide
        backward = 8.0 * layer.logits if wide else narrow
        backward += width * layer.inside + layer.inside_bytes
        kept = kept_bytes(layer, dtype, recompute, eager=eager) * samples
        unpacked = width * float(layer.unpacked)
        forward = forward * samples + unpacked + width * layer.scratch
        backward = backward * samples + unpacked * (not layer.detached)
        again = recompute in WHOLE_BLOCKS and bool(layer.unit)
        own = Footprint(_kind(layer), kept, rebuilt[i] * samples, forward, backward, again)
        found.append(own)
    return found


def _kind(layer: Layer) -> str:
    """Which activations a layer's are, as parts of memory are called."""
    if layer.logits:
        return "activations of the loss"
    for end, kind in (("attention", "attention"), ("mlp", "feed-forward")):
        if layer.unit and layer.name.endswith(f".{end}"):
            return f"activations of {kind}"
    return "activations"


def kept_bytes(layer: Layer, dtype: str, recompute: Recompute, *, eager: bool = False) -> float:
    """Bytes per sample that `layer` keeps from its forward to its backward."""
    width = working_bytes(dtype)
    wide = 4.0 * layer.logits
    inputs = 4.0 - width if width < 4 else 0.0  # in 32 bit in place of the dtype
    copies = layer.rms * (inputs + 4.0 * (not layer.unscaled)) * eager
    if recompute in WHOLE_BLOCKS:
        outside = copies * (not layer.unit)
        return (layer.activations_full - 2 * layer.logits) * width + wide + outside
    elements = layer.activations + layer.eager * eager
    if recompute == "moe" and layer.activations_moe is not None:
        return layer.activations_moe * width
    if recompute == "selective":
        elements = (layer.activations_selective or layer.activations) + layer.eager * eager
    elif recompute == "selective_op" and layer.op_flop:
        return (layer.activations_op + layer.eager_op * eager) * width
    saved = saved_bytes(layer, dtype)
    return (elements - 2 * layer.logits) * width + wide + copies - saved


def _rebuilt(model: Model, dtype: str, recompute: Recompute, eager: bool) -> list[float]:
    """Bytes per sample that the backward of each layer has beside what is kept: of the layers that
    are computed again together, all that they did not keep; attention, whose backward follows that
    of a half with experts, has none of what was computed again for that half alone."""
    all_ = [kept_bytes(layer, dtype, "none", eager=eager) for layer in model.layers]
    least = [kept_bytes(layer, dtype, recompute, eager=eager) for layer in model.layers]
    more = [max(0.0, a - b) for a, b in zip(all_, least, strict=True)]
    if recompute == "selective":
        return more
    found, whole = [0.0] * len(more), recompute != "moe"
    for block in _blocks(model):
        for index in block:
            found[index] = sum(more[i] for i in block) if whole or more[index] else 0.0
    return found


def _blocks(model: Model) -> list[list[int]]:
    """What is recomputed at once: a layer that keeps its input, and the layers of the same unit
    behind it that keep none."""
    found: list[list[int]] = []
    unit = ""
    for index in model.forward_order:
        layer = model.layers[index]
        if found and layer.unit and layer.unit == unit and not layer.activations_full:
            found[-1].append(index)
        else:
            found.append([index])
        unit = layer.unit
    return found


def memory_use(
    parts: Mapping[str, float],
    device: Device | None,
    asked: MemorySection | None = None,
    least: float | None = None,
    most: float | None = None,
    *,
    lazy: bool = True,
    unusable: float = 0.0,
) -> MemoryUse:
    """What is allocated, by its parts, and on a real device what allocator and runtime have beside
    it; `least` and `most` are what may be allocated at least and at most (`parts` if left out).

    `lazy`: gradients and states are allocated in the first step, not before it.  `unusable`: a
    block that was freed and in which nothing later finds room."""
    told = {name: float(size) for name, size in parts.items() if size > 0}
    point = sum(told.values())
    if device is None:
        return MemoryUse(told, None, point, point)
    asked = asked or MemorySection()
    lost = FRAGMENTATION_LAZY if lazy else FRAGMENTATION
    if asked.fragmentation is not None:
        lost = (asked.fragmentation,) * 3
    around = (RUNTIME_LOW, RUNTIME_BYTES, RUNTIME_HIGH)
    if asked.runtime is not None:
        around = (asked.runtime,) * 3
    told["fragmentation"], told["runtime"] = point * lost[1] + unusable, around[1]
    least, most = min(point, least or point), max(point, most or point)
    low = least * (1 - ALLOCATED_ERROR) * (1 + lost[0]) + around[0]
    high = most * (1 + ALLOCATED_ERROR) * (1 + lost[2]) + unusable + around[2]
    lowest, room, highest = device.room
    return MemoryUse(told, room, low, high, less=room - lowest, more=highest - room)
