"""Gradients that are all-reduced in packs: what TensorFlow's and JAX's programs share.

A micro-batch runs forward and backward; in the last one every pack is all-reduced once its last
gradient is there and the packs before it in launch order have been launched; the optimizer waits
for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from dpsim.compile.program import Program
from dpsim.compile.strategies import Issue, Job, label
from dpsim.compile.strategies._gradients import Gradient


class Pack(NamedTuple):
    """Gradients reduced together: their indices, the bytes that travel, and how many bytes are
    copied to make it contiguous, and as many to take it apart.

    A tensor that is cut belongs to all packs that hold a part of it.
    """

    gradients: tuple[int, ...]
    bytes: float
    copied: float = 0.0


def packed_program(
    job: Job, gradients: Sequence[Gradient], packs: Sequence[Pack], stream: str, *, late: bool
) -> Program:
    """The program of a step; with `late` all packs are launched when backward has ended."""
    issue = Issue(job)
    packs = packs if job.ranks > 1 else ()
    due = launches(job, gradients, packs, late=late)
    reduced: list[int] = []
    for m, times in job.rounds(quiet=True):
        last = m == job.micro_batches - 1
        for i in job.model.forward_order:
            name = label("F", i, m, job.micro_batches)
            issue.add(name, "forward", seconds=times[i].forward)
        part = replace(job, times=times)
        for place, i in enumerate(part.model.backward_order()):
            name = label("B", i, m, job.micro_batches)
            issue.add(name, "backward", seconds=times[i].backward)
            for k in due.get(place, ()) if last else ():
                reduced.append(_reduce(issue, job, k, packs[k], stream))
    if reduced:
        issue.add("W", "wait", after=tuple(reduced))
    if seconds := job.copy_seconds(sum(pack.copied for pack in packs)):
        issue.add("copy.out", "copy", seconds=seconds)
    issue.add("O", "optimizer", seconds=job.update * job.model.parameters)
    names = [g.name for g in gradients]
    return issue.program(
        tuple(
            (f"AR{k}", float(pack.bytes), tuple(names[g] for g in pack.gradients))
            for k, pack in enumerate(packs)
        )
    )


def _reduce(issue: Issue, job: Job, k: int, pack: Pack, stream: str) -> int:
    if seconds := job.copy_seconds(pack.copied):
        issue.add(f"C{k}", "copy", seconds=seconds)
    return issue.collective(f"AR{k}", "all_reduce", stream, pack.bytes, after=(issue.last,))


def launches(
    job: Job, gradients: Sequence[Gradient], packs: Sequence[Pack], *, late: bool
) -> dict[int, list[int]]:
    """The packs launched after each place of backward, in launch order."""
    position = {layer: place for place, layer in enumerate(job.model.backward_order())}
    due: dict[int, list[int]] = {}
    place = len(position) - 1 if late else 0
    for k, pack in enumerate(packs):
        place = max(place, *(position[gradients[g].ready] for g in pack.gradients))
        due.setdefault(place, []).append(k)
    return due


def one_dtype(gradients: Sequence[Gradient]) -> bool:
    """Whether all gradients could be concatenated."""
    return len(list(groupby(gradients, key=lambda g: g.dtype))) <= 1


def elements(gradients: Sequence[Gradient]) -> Iterator[int]:
    """Where each gradient begins in the concatenation of all of them [elements]."""
    begin = 0
    for gradient in gradients:
        yield begin
        begin += gradient.elements
