"""Memory of one device, and what would make a model fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dpsim.core.dtypes import working_bytes
from dpsim.machines.devices import Device
from dpsim.models import Layer, Model
from dpsim.models.compute import Recompute

#: CUDA context, cuBLAS and cuDNN workspaces, NCCL buffers: 0.5-1 GB on NVIDIA data-centre cards
RUNTIME_BYTES = 1e9


@dataclass(frozen=True)
class MemoryUse:
    """Bytes on one device by what they are for, and the device's memory (None: unknown)."""

    parts: dict[str, float]
    capacity: float | None

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def fits(self) -> bool | None:
        return None if self.capacity is None else self.total <= self.capacity

    @property
    def shortfall(self) -> float:
        """Bytes that are missing; 0 where it fits or the capacity is unknown."""
        return max(0.0, self.total - self.capacity) if self.capacity is not None else 0.0


@dataclass(frozen=True)
class Activations:
    """Bytes of activations of one micro-batch on one rank.

    kept      from its forward until its backward
    rebuilt   the most that backward has beside them at one time, of what it computes again
    whole     kept and everything computed again: what is there between the two halves of a backward
              that is split, for both halves need it
    """

    kept: float
    rebuilt: float = 0.0
    whole: float = 0.0

    @property
    def peak(self) -> float:
        """With one micro-batch at a time."""
        return self.kept + self.rebuilt


def activations(model: Model, samples: float, dtype: str, recompute: Recompute) -> Activations:
    """What a micro-batch of `samples` samples keeps.

    Full recomputation keeps the inputs of blocks and rebuilds one block after the other
    (Korthikanti et al., arXiv:2205.05198, section 5: 2 s b h bytes a block at 16 bit).  The largest
    one counts in full beside all kept inputs; where that is the head, which is not recomputed, its
    logits count twice and so stand for their gradients.  Selective recomputation rebuilds the
    scores of one attention at a time.
    """
    all_ = [kept_bytes(layer, dtype, "none") for layer in model.layers]
    least = [kept_bytes(layer, dtype, recompute) for layer in model.layers]
    rebuilt = 0.0
    if recompute == "full":
        rebuilt = max(_blocks(model, all_))
    elif recompute == "selective":
        rebuilt = max(a - b for a, b in zip(all_, least, strict=True))
    kept = sum(least)
    return Activations(kept * samples, rebuilt * samples, max(sum(all_), kept) * samples)


def kept_bytes(layer: Layer, dtype: str, recompute: Recompute) -> float:
    """Bytes per sample that `layer` keeps from its forward to its backward."""
    width = working_bytes(dtype)
    if recompute == "full":
        return layer.activations_full * width
    elements = layer.activations
    if recompute == "selective":
        elements = layer.activations_selective or elements
    return elements * width - (layer.fp8_saves if dtype == "fp8" else 0.0)


def _blocks(model: Model, activations: list[float]) -> list[float]:
    """`activations` of what is recomputed at once: a layer that keeps its input, and the layers of
    the same unit behind it that keep none."""
    found: list[float] = []
    unit = ""
    for index in model.forward_order:
        layer = model.layers[index]
        if found and layer.unit and layer.unit == unit and not layer.activations_full:
            found[-1] += activations[index]
        else:
            found.append(activations[index])
        unit = layer.unit
    return found


def in_flight_bytes(
    acts: Iterable[tuple[int, str, int]], stages: Mapping[int, Activations]
) -> float:
    """The most activations that a pipeline rank has at once [B].

    `acts` are its operations (stage, kind, micro-batch) in order, `stages` what one micro-batch has
    in each of its stages: its forward keeps them until its backward has run, or W where that is
    split; what backward computes again is there once, not for every micro-batch in flight.
    """
    now = most = 0.0
    for stage, kind, _ in acts:
        own = stages[stage]
        if kind == "F":
            now += own.kept
        elif kind == "B":
            most = max(most, now + own.rebuilt)
            now -= own.kept
        elif kind == "I":
            most = max(most, now + own.rebuilt)
            now += own.whole - own.kept
        elif kind == "W":
            now -= own.whole
        most = max(most, now)
    return most


def memory_use(states: dict[str, float], activations: float, device: Device | None) -> MemoryUse:
    """The sum of what a strategy keeps, the activations, and on a real device the runtime."""
    parts = {name: float(size) for name, size in states.items() if size > 0}
    if activations > 0:
        parts["activations"] = activations
    if device is not None:
        parts["runtime"] = RUNTIME_BYTES
    return MemoryUse(parts, device.memory if device else None)
