"""What a system keeps on a device in the course of a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import accumulate

from dpsim.compile.job import Job, summed
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.lean import dataclass

Line = Sequence[float]
#: parts that all stages of a rank share
ONCE = ("dummy gradients",)


@dataclass(frozen=True)
class Held:
    """Bytes on one device, by what they are for.

    always    throughout the step
    forward, backward  per layer of the model, beside `always` while its pass runs
    update    beside `always` while the optimizer runs
    made      of `backward`, what a layer's own makes; by then gradients of activations are gone
    """

    always: Mapping[str, float]
    forward: Mapping[str, Line] = field(default_factory=dict)
    backward: Mapping[str, Line] = field(default_factory=dict)
    update: Mapping[str, float] = field(default_factory=dict)
    made: Line = ()


def constant(parts: dict[str, float]) -> Held:
    """The same at all times: what is not known better."""
    return Held(dict(parts))


def together(parts: Sequence[Held]) -> Held:
    """All `parts`, each of which has a line entry for every layer of one model: what is outside
    experts and the experts.  Of what is there `ONCE` the largest."""
    if len(parts) == 1:
        return parts[0]
    always: dict[str, float] = {}
    for part in parts:
        for name, size in part.always.items():
            before = always.get(name, 0.0)
            always[name] = max(before, size) if name in ONCE else before + size
    return Held(
        always,
        _lines(part.forward for part in parts),
        _lines(part.backward for part in parts),
        summed(part.update for part in parts),
        _sum([part.made for part in parts if part.made]),
    )


def _lines(parts: Iterable[Mapping[str, Line]]) -> dict[str, Line]:
    found: dict[str, list[Line]] = {}
    for part in parts:
        for name, line in part.items():
            found.setdefault(name, []).append(line)
    return {name: _sum(lines) for name, lines in found.items()}


def _sum(lines: Sequence[Line]) -> list[float]:
    return [sum(column) for column in zip(*lines, strict=True)]


def gradient_bytes(job: Job) -> list[float]:
    """Bytes of each layer's gradients, as wide as its parameters."""
    return [job.gradient_bytes(i) for i in range(len(job.model.layers))]


def so_far(job: Job, sizes: Line, *, tied: bool = True) -> list[float]:
    """Of `sizes` per layer, what backward has made when each layer's own is done; the loss is
    fullest before the head's.  With `tied` a tied tensor's gradient is there when the first of its
    users is done."""
    order = list(job.model.backward_order())
    frozen = [layer.detached for layer in job.model.layers]
    index = {layer.name: i for i, layer in enumerate(job.model.layers)}
    early = list(sizes)
    for i in order if tied else ():
        if (owner := job.model.layers[i].tied) is not None and not frozen[index[owner]]:
            early[i], early[index[owner]] = early[i] + early[index[owner]], 0.0
    found = [0.0] * len(frozen)
    for i, total in zip(order, accumulate(early[i] for i in order), strict=True):
        found[i] = total - early[i] if job.model.layers[i].logits else total
    return found


def temporaries(job: Job, share: float) -> float:
    """What torch's multi-tensor Adam, its default on GPUs, allocates for the elements it updates:
    the roots of the second moments, as wide as the states (torch/optim/adam.py, _multi_tensor_adam;
    tests/data/memory)."""
    if job.optimizer.kind != "adam":
        return 0.0
    wide = job.optimizer.master_weights is not False
    return share * sum(
        (4.0 if wide else DTYPE_BYTES[dtype]) * elements
        for i in range(len(job.model.layers))
        for dtype, elements in job.trained(i)
    )
