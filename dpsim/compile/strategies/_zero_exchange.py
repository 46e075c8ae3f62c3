"""What ZeRO reduces, in which buckets and with which collectives, and what it gathers (`zero`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from dpsim.compile.exchange import Leg, Message
from dpsim.compile.job import Gradient, Job, arrival, copied, gradients_of
from dpsim.compile.routing import EXPERT_DATA
from dpsim.compile.strategies._zero3 import persistent
from dpsim.core.dtypes import DTYPE_BYTES

if TYPE_CHECKING:
    from dpsim.compile.strategies.zero import Zero

COMM = "zero"
SHARD, NODE, ACROSS = "shard", "node", "across nodes"
INT4 = 0.5  # bytes an element; scales are left out
#: stage_1_and_2.py, nccl_start_alignment_factor: a rank's part has a multiple of so many elements
ALIGNMENT = 2


class ZeroBucket(NamedTuple):
    """Gradients reduced together, in order of arrival, and the index of the gradient whose arrival
    flushes them (None: the end of backward)."""

    gradients: tuple[int, ...]
    flushed_by: int | None


class Reductions:
    """The reductions of one micro-batch."""

    def __init__(self, knobs: Zero, job: Job) -> None:
        self.knobs, self.job = knobs, job
        self.gradients = gradients_of(job)
        #: stage 1 without overlap walks the gradients when backward has ended
        self.late = knobs.stage == 1 and not knobs.overlaps

    def messages(self) -> tuple[Message, ...]:
        """A bucket is due with the gradient that does not fit any more, the rest at the end."""
        gradients, last = self.gradients, list(self.job.model.backward_order())[-1]
        order = range(len(gradients)) if self.late else arrival(gradients, self.job)
        found = []
        for bucket in assign_buckets(gradients, order, self.knobs.reduce_bucket_size, self.apart):
            by = None if self.late else bucket.flushed_by
            size = sum(reduced_bytes(self.job, gradients[g]) for g in bucket.gradients)
            layer = last if by is None else gradients[by].ready
            legs = tuple(self._legs(bucket))
            found.append(Message(layer, legs, bucket.gradients, bytes=size))
        return tuple(found)

    @property
    def apart(self) -> set[int]:
        """Gradients that fill buckets of their own: in stage 3 those of experts that other ranks do
        not have (stage3.py, reduce_independent_p_g_buckets_and_remove_grads)."""
        if self.knobs.stage < 3:
            return set()
        return {g for g, one in enumerate(self.gradients) if self.job.elsewhere_held(one.layer)}

    def copies(self) -> dict[int, float]:
        """Gradients copied into a contiguous buffer after each layer's backward [B]."""
        copies = self.knobs.as_shipped and self.knobs.contiguous_gradients and not self.late
        return copied(self.gradients) if copies else {}

    def _legs(self, bucket: ZeroBucket) -> Iterator[Leg]:
        """What reduces a bucket: one collective, or one per owner, or quantised in two more."""
        if not self.knobs.use_multi_rank_bucket_allreduce:
            yield from self._reduces(bucket)
            return
        scatter = self.knobs.stage == 3 or not self.knobs.as_shipped
        quantised = [g for g in bucket.gradients if self._quantised(self.gradients[g])]
        plain = [g for g in bucket.gradients if g not in quantised]
        name, operation = ("RS", "reduce_scatter") if scatter else ("AR", "all_reduce")
        for group, members in self._by_group(plain).items():
            size = sum(reduced_bytes(self.job, self.gradients[g]) for g in members)
            yield Leg(name, operation, size, group=group, tail=".experts" if group else "")
        if quantised:
            size = INT4 * sum(self.gradients[g].elements for g in quantised)
            for group, share in ((NODE, 1), (ACROSS, self.knobs.node(self.job.ranks))):
                yield Leg("A2A", "all_to_all", size / share, tail=f".{group}", group=group)

    def _by_group(self, members: Iterable[int]) -> dict[str, list[int]]:
        """Gradients of a bucket by the ranks that reduce them, as they come (stage_1_and_2.py,
        average_tensor)."""
        found: dict[str, list[int]] = {}
        for g in members:
            experts = self.job.elsewhere_held(self.gradients[g].layer)
            found.setdefault(EXPERT_DATA if experts else "", []).append(g)
        return found

    def _reduces(self, bucket: ZeroBucket) -> Iterator[Leg]:
        """One reduce per rank that owns a part of the bucket, in the order of their parts."""
        first = self.gradients[bucket.gradients[0]]
        width = reduced_bytes(self.job, first) / first.elements
        for owner, elements in self._owned(bucket).items():
            yield Leg("R", "reduce", width * elements, tail=f".{owner}", delay=None)

    def _owned(self, bucket: ZeroBucket) -> dict[int, int]:
        """Elements of a bucket by the rank that owns them: the parameters of a dtype are laid end
        to end in the order of registration and cut into equal parts of even size."""
        dtype = self.gradients[bucket.gradients[0]].dtype
        own = [i for i, g in enumerate(self.gradients) if g.dtype == dtype]
        ends = list(accumulate(self.gradients[i].elements for i in own))
        begins = dict(zip(own, [0, *ends[:-1]], strict=True))
        total = ends[-1]
        part = ALIGNMENT * -(-total // (ALIGNMENT * self.job.ranks))
        found: dict[int, int] = {}
        for g in bucket.gradients:
            begin, end = begins[g], begins[g] + self.gradients[g].elements
            while begin < end:
                owner, stop = begin // part, min(end, (begin // part + 1) * part)
                found[owner] = found.get(owner, 0) + stop - begin
                begin = stop
        return found

    def _quantised(self, gradient: Gradient) -> bool:
        """Whether a gradient goes in int4: that of a matrix which all ranks can share evenly."""
        even = prod(gradient.shape) % (2 * self.job.ranks) == 0
        return self.knobs.zero_quantized_gradients and len(gradient.shape) > 1 and even


def assign_buckets(
    gradients: Sequence[Gradient],
    order: Iterable[int],
    capacity: float,
    apart: Collection[int] = (),
) -> tuple[ZeroBucket, ...]:
    """Buckets over `gradients` arriving in `order`, one open per dtype.

    A gradient that does not fit into `capacity` elements flushes the bucket before it is added; one
    larger than that is alone.  So does one that is `apart` where the bucket's are not, and the
    other way round.
    """
    open_: dict[str, list[int]] = {}
    filled: dict[str, int] = {}
    found = []
    for index in order:
        gradient = gradients[index]
        members = open_.setdefault(gradient.dtype, [])
        full = members and filled[gradient.dtype] + gradient.elements > capacity
        if full or (members and (members[-1] in apart) != (index in apart)):
            found.append(ZeroBucket(tuple(members), index))
            members.clear()
        filled[gradient.dtype] = gradient.elements + (filled[gradient.dtype] if members else 0)
        members.append(index)
    return (*found, *(ZeroBucket(tuple(members), None) for members in open_.values()))


def gathered(knobs: Zero, gradients: Sequence[Gradient]) -> Iterable[tuple[str, float]]:
    """What is gathered when the shards have been updated, by name [B]: in stages 1 and 2 all
    parameters, by dtype; in stage 3 the persistent ones, one by one."""
    if knobs.stage == 3:
        small = persistent([g.elements for g in gradients], knobs.limits)
        return [(gradients[p].name, float(gradients[p].bytes)) for p in sorted(small)]
    sizes: dict[str, float] = {}
    for gradient in gradients:
        sizes[gradient.dtype] = sizes.get(gradient.dtype, 0.0) + gradient.bytes
    return sizes.items()


def reduced_bytes(job: Job, gradient: Gradient) -> float:
    """Gradients travel in `precision.reduce` or as `compression` has it (DeepSpeed:
    communication_data_type), or in their own dtype."""
    cast = job.compression.kind if job.compression else None
    dtype = job.precision.reduce or cast or gradient.dtype
    return float(DTYPE_BYTES[dtype] * gradient.elements)
