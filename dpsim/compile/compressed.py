"""Compressed messages: what a compression makes of gradients that travel together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dpsim.compile.compression import Compression, Payload, Transit, Work
from dpsim.compile.exchange import Leg
from dpsim.compile.job import Gradient, Job
from dpsim.core.plugins import name_of
from dpsim.core.record import Refused

#: how traces call collectives
LETTERS = {
    "all_reduce": "AR", "all_gather": "AG", "reduce_scatter": "RS", "all_to_all": "A2A",
    "broadcast": "BC", "reduce": "R",
}  # fmt: skip


class Coded(NamedTuple):
    """The legs of a message, what the device does before and after, and whether it stands still
    until that is done."""

    legs: tuple[Leg, ...]
    encode: Work = Work()
    decode: Work = Work()
    blocks: bool = False


def payload_of(gradients: Sequence[Gradient], tensors: Sequence[int]) -> Payload:
    """What a compression sees of these `tensors`, of one dtype, out of all `gradients`."""
    chosen = [gradients[t] for t in tensors]
    shaped = any(len(gradient.shape) > 1 for gradient in gradients)
    size = sum(gradient.bytes for gradient in chosen)
    return Payload(tuple(g.shape for g in chosen), chosen[0].dtype, size, shaped)


def coded(codec: Compression | None, payload: Payload, job: Job, elements: int) -> Coded:
    """What travels in place of an all-reduce of `payload`; the model has so many `elements`.  Of an
    exchange that comes once in several steps, what a step has of it on average.

    Raises Refused where gradients go through parameter servers that cannot add it up.
    """
    if codec is None:
        return Coded(_legs((Transit("all_reduce", float(payload.bytes)),), job))
    transits = tuple(t for t in codec.transits(payload, job.ranks) if job.control or not t.control)
    decode = codec.decode(payload, job.ranks)
    if job.servers:
        transits = (_pushed(codec, payload, transits),)
    stated, share, often = codec.stated, payload.elements / max(elements, 1), 1 / codec.period
    encode = sum((t.encode for t in transits if not t.awaits), Work())
    if stated.encode is not None:
        encode = Work(seconds=stated.encode * share)
        transits = tuple(t._replace(encode=Work()) for t in transits)
    if stated.decode is not None:
        decode = Work(seconds=stated.decode * share)
    before, after = (Work(seconds=job.coding_seconds(one) * often) for one in (encode, decode))
    return Coded(_legs(transits, job, often), before, after, codec.blocks and job.gpu)


def _pushed(codec: Compression, payload: Payload, transits: tuple[Transit, ...]) -> Transit:
    """A push of what is compressed, and a pull of as much: servers add up, and compress again."""
    size = codec.pushed(payload)
    if size is None:
        raise Refused(
            f"parameter servers cannot add up what {name_of(codec)} sends; fp16, bf16, int8, top_k "
            "and one_bit are accepted there",
            ("compression",),
        )
    return Transit("all_reduce", size, sum((t.encode for t in transits), Work()))


def _legs(transits: Sequence[Transit], job: Job, often: float = 1) -> tuple[Leg, ...]:
    legs: list[Leg] = []
    for transit in transits:
        again = "'" * sum(leg.operation == transit.operation for leg in legs)
        delay = job.coding_seconds(transit.encode) * often if transit.awaits else None
        name, size = LETTERS[transit.operation], transit.bytes
        legs.append(Leg(name, transit.operation, size, tail=again, delay=delay, repeats=often))
    return tuple(legs)
