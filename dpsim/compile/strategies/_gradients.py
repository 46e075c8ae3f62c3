"""Gradients of a job: one per parameter tensor, and the order in which backward finishes them."""

from __future__ import annotations

from typing import NamedTuple

from dpsim.compile.strategies import Job
from dpsim.core.dtypes import DTYPE_BYTES


class Gradient(NamedTuple):
    """One parameter tensor: its layer, name, elements, bytes, dtype, and the layer whose backward
    ends it."""

    layer: int
    name: str
    elements: int
    bytes: int
    dtype: str
    ready: int


def gradients_of(job: Job) -> list[Gradient]:
    """Every parameter tensor in registration order."""
    final = job.model.ready_after()
    found = []
    for i, layer in enumerate(job.model.layers):
        dtype = job.parameter_dtype(i)
        for j, tensor in enumerate(layer.tensors):
            ready = final[i] if j == 0 else i
            size = tensor.elements * DTYPE_BYTES[dtype]
            name = f"{layer.name}.{tensor.name}"
            found.append(Gradient(i, name, tensor.elements, size, dtype, ready))
    return found


def arrival(found: list[Gradient], job: Job) -> list[int]:
    """Indices of gradients in the order in which autograd finishes them: as recorded, or by layer
    as backward visits them, inside a layer the last registered first."""
    if job.model.arrival:
        return list(job.model.arrival)
    position = {layer: place for place, layer in enumerate(job.model.backward_order())}
    return sorted(range(len(found)), key=lambda t: (position[found[t].ready], -t))
