"""What families of models are read into, and how torch registers their tensors."""

from __future__ import annotations

from dpsim.models import Layer, Tensor

#: layers in registration order, and the forward order (empty: the same)
Parts = tuple[tuple[Layer, ...], tuple[int, ...]]


def linear(name: str, outputs: int, inputs: int, *, bias: bool = True) -> tuple[Tensor, ...]:
    """A linear layer's."""
    weight = Tensor(f"{name}.weight", (outputs, inputs))
    return (weight, Tensor(f"{name}.bias", (outputs,))) if bias else (weight,)


def norm(name: str, width: int, *, bias: bool = True) -> tuple[Tensor, ...]:
    """A norm's."""
    return tuple(Tensor(f"{name}.{end}", (width,)) for end in ("weight", "bias")[: 1 + bias])
