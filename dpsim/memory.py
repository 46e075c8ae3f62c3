"""Memory of one device, and what would make a model fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dpsim.hardware import DTYPE_BYTES, Device
from dpsim.models import Model

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


def activation_bytes(
    model: Model, samples: float, dtype: str, recompute: Literal["none", "selective", "full"]
) -> float:
    """Bytes kept from forward to backward for one micro-batch of `samples` samples.

    With full recomputation the largest single layer is rematerialised beside the kept inputs.
    """
    if recompute == "full":
        kept = sum(layer.activations_full for layer in model.layers)
        kept += max((layer.activations for layer in model.layers), default=0.0)
    elif recompute == "selective":
        kept = sum(layer.activations_selective or layer.activations for layer in model.layers)
    else:
        kept = sum(layer.activations for layer in model.layers)
    return kept * samples * DTYPE_BYTES[dtype]


def memory_use(states: dict[str, float], activations: float, device: Device | None) -> MemoryUse:
    """The sum of what a strategy keeps, the activations, and on a real device the runtime."""
    parts = {name: size for name, size in states.items() if size > 0}
    if activations > 0:
        parts["activations"] = activations
    if device is not None:
        parts["runtime"] = RUNTIME_BYTES
    return MemoryUse(parts, device.memory if device else None)
