"""Gradients that are all-reduced in packs: what TensorFlow's and JAX's systems share.

A micro-batch runs forward and backward; in the last one every pack is all-reduced once its last
gradient is there and the packs before it in launch order have been launched; the optimizer waits
for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dpsim.compile.exchange import Exchange, Leg, Message, Work
from dpsim.compile.job import Gradient, Job, due_after


class Pack(NamedTuple):
    """Gradients reduced together: their indices, the bytes that travel, and how many bytes are
    copied to make it contiguous, and as many to take it apart.

    A tensor that is cut belongs to all packs that hold a part of it.
    """

    gradients: tuple[int, ...]
    bytes: float
    copied: float = 0.0


def packed(
    job: Job, gradients: Sequence[Gradient], packs: Sequence[Pack], stream: str, *, late: bool
) -> Exchange:
    """The exchange of `packs`, none on a single rank; with `late` all are launched when backward
    has ended."""
    packs = packs if job.ranks > 1 else ()
    layers = due_after(job, gradients, [pack.gradients for pack in packs], late=late)
    messages = []
    for k, (pack, layer) in enumerate(zip(packs, layers, strict=True)):
        legs, copy = (Leg("AR", "all_reduce", pack.bytes),), Work(pack.copied)
        messages.append(Message(layer, legs, pack.gradients, f"AR{k}", pack.bytes, encode=copy))
    return Exchange(tuple(messages), stream, copy_back=sum(pack.copied for pack in packs))


def one_dtype(gradients: Sequence[Gradient]) -> bool:
    """Whether all gradients could be concatenated."""
    return len({gradient.dtype for gradient in gradients}) <= 1
