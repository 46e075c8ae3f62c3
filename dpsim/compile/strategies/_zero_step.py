"""The operations of one step of ZeRO: reductions, gathers, copies to the host (see `zero`)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from dpsim.compile.program import BARRIER, Program
from dpsim.compile.strategies import Issue, Job, label
from dpsim.compile.strategies._gradients import Gradient, arrival, gradients_of
from dpsim.compile.strategies._offload import MASTER_BYTES
from dpsim.compile.strategies._zero3 import Limits, Trace, persistent, trace
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.record import Refused
from dpsim.models.compute import LayerTime

if TYPE_CHECKING:
    from dpsim.compile.strategies.zero import Zero

COMM, OFFLOAD = "zero", "zero.offload"
SHARD, SECONDARY, NODE, ACROSS, SELF = "shard", "hpz", "node", "across nodes", "self"
INT4, INT8 = 0.5, 1.0  # bytes an element; scales are left out
#: stage3.py: a flush waits until at most this many reduce-scatters are under way
REDUCTIONS = 2
#: stage_1_and_2.py, nccl_start_alignment_factor: a rank's part has a multiple of so many elements
ALIGNMENT = 2


class Bucket(NamedTuple):
    """Gradients reduced together, in order of arrival, and the index of the gradient whose arrival
    flushes them (None: the end of backward)."""

    gradients: tuple[int, ...]
    flushed_by: int | None


def consecutive(ranks: int, size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(i, i + size)) for i in range(0, ranks, size))


class ZeroStep:
    """Issues the operations of one step."""

    def __init__(self, knobs: Zero, job: Job, iteration: int | None) -> None:
        self.knobs, self.job, self.iteration = knobs, job, iteration
        self.issue = Issue(job)
        self.gradients = gradients_of(job)
        self.host = knobs.host(job) if job.control else None
        self._check_node()
        self.reduced: list[int] = []
        self.waited = 0
        self.named: list[tuple[str, float, tuple[str, ...]]] = []

    def _check_node(self) -> None:
        """On a machine the ranks of a node are known."""
        knobs, job = self.knobs, self.job
        if not knobs.zero_quantized_gradients or job.local_size is None:
            return
        if (size := knobs.node(job.ranks)) != job.local_size:
            raise Refused(
                f"a node has {job.local_size} ranks here, not {size}",
                ("strategy", "local_world_size"),
            )

    def micro_batch(self, m: int, times: tuple[LayerTime, ...]) -> None:
        knobs, job = self.knobs, self.job
        last = m == job.micro_batches - 1
        gathers = self._gathers(m)
        self._forward(m, times, gathers)
        if not (last or knobs.stage >= 2):
            self._backward(m, times, gathers, ())
        elif knobs.stage == 1 and not knobs.overlaps:
            self._backward(m, times, gathers, ())
            order = list(range(len(self.gradients)))
            for bucket in assign_buckets(self.gradients, order, knobs.reduce_bucket_size):
                self._reduce(bucket)
        else:
            order = arrival(self.gradients, job)
            buckets = assign_buckets(self.gradients, order, knobs.reduce_bucket_size)
            self._backward(m, times, gathers, buckets)

    # -- gathering (stage 3) ------------------------------------------------------------------

    def _gathers(self, m: int) -> _Gathers | None:
        if self.knobs.stage != 3:
            return None
        first = self.iteration == 1
        recorded = self.knobs.as_shipped and not (first and m == 0)
        resident = not (first and m <= 1)
        found = traced(self.knobs.limits, self.job, recorded=recorded, resident=resident)
        return _Gathers(self, found, m)

    def _forward(self, m: int, times: tuple[LayerTime, ...], gathers: _Gathers | None) -> None:
        if gathers:
            gathers.visit()  # the root module
        for i in self.job.model.forward_order:
            after = gathers.visit() if gathers else ()
            name = label("F", i, m, self.job.micro_batches)
            self.issue.add(name, "forward", seconds=times[i].forward, after=after)

    # -- reducing -----------------------------------------------------------------------------

    def _backward(
        self,
        m: int,
        times: tuple[LayerTime, ...],
        gathers: _Gathers | None,
        buckets: tuple[Bucket, ...],
    ) -> None:
        """Backward passes; a bucket is flushed by the backward that makes the gradient ready
        which does not fit any more, the rest at the end."""
        layers = list(self.job.model.backward_order())
        due: dict[int | None, list[Bucket]] = {}
        for bucket in buckets:
            by = bucket.flushed_by
            due.setdefault(None if by is None else self.gradients[by].ready, []).append(bucket)
        if gathers:
            gathers.backward()
            gathers.visit()  # the root module
        for i in layers:
            after = gathers.visit() if gathers else ()
            name = label("B", i, m, self.job.micro_batches)
            self.issue.add(name, "backward", seconds=times[i].backward, after=after)
            if buckets and self.knobs.as_shipped and self.knobs.contiguous_gradients:
                size = sum(g.bytes for g in self.gradients if g.ready == i)
                if seconds := self.job.copy_seconds(size):
                    self.issue.add(f"C{i}", "copy", seconds=seconds)
            for bucket in due.get(i, ()):
                self._reduce(bucket)
        for bucket in due.get(None, ()):
            self._reduce(bucket)

    def _reduce(self, bucket: Bucket) -> None:
        """One reduction, and what the compute stream waits for around it."""
        if self.knobs.as_shipped and self.knobs.overlaps:
            self._wait_until(REDUCTIONS if self.knobs.stage == 3 else 0)
        name, done = self._collectives(bucket)
        size = sum(reduced_bytes(self.job, self.gradients[g]) for g in bucket.gradients)
        self.named.append((name, size, tuple(self.gradients[g].name for g in bucket.gradients)))
        self.reduced.append(self._to_host(bucket, done) if self.host else done)
        if not self.knobs.overlaps:
            self._wait_until(0)

    def _collectives(self, bucket: Bucket) -> tuple[str, int]:
        """Issue what reduces a bucket; the name of the first collective and the last one."""
        number, after = len(self.reduced), (self.issue.last,) if self.issue.ops else ()
        if self.host and self.reduced:
            after = (*after, self.reduced[-1])  # the copy before it is on the same stream
        if not self.knobs.use_multi_rank_bucket_allreduce:
            return self._reduces(bucket, after)
        scatter = self.knobs.stage == 3 or not self.knobs.as_shipped
        quantised = [g for g in bucket.gradients if self._quantised(g)]
        plain = [g for g in bucket.gradients if g not in quantised]
        names: list[str] = []
        if plain:
            size = sum(reduced_bytes(self.job, self.gradients[g]) for g in plain)
            names.append(f"{'RS' if scatter else 'AR'}{number}")
            operation = "reduce_scatter" if scatter else "all_reduce"
            done = self.issue.collective(names[-1], operation, COMM, size, after=after)
            after = (done,)
        if quantised:
            size = INT4 * sum(self.gradients[g].elements for g in quantised)
            nodes = ((NODE, 1), (ACROSS, self.knobs.node(self.job.ranks)))
            for group, share in nodes:
                names.append(f"A2A{number}.{group}")
                done = self.issue.collective(
                    names[-1], "all_to_all", COMM, size / share, after=after, group=group
                )
                after = (done,)
        return names[0], done

    def _reduces(self, bucket: Bucket, after: tuple[int, ...]) -> tuple[str, int]:
        """One reduce per rank that owns a part of the bucket, in the order of their parts."""
        first = len(self.issue.ops)
        width = reduced_bytes(self.job, self.gradients[bucket.gradients[0]])
        width /= self.gradients[bucket.gradients[0]].elements
        for owner, elements in self._owned(bucket).items():
            name = f"R{len(self.reduced)}.{owner}"
            self.issue.collective(name, "reduce", COMM, width * elements, after=after)
        return self.issue.ops[first].name, self.issue.last

    def _owned(self, bucket: Bucket) -> dict[int, int]:
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

    def _quantised(self, g: int) -> bool:
        """Whether a gradient goes in int4: that of a matrix which all ranks can share evenly."""
        if not self.knobs.zero_quantized_gradients:
            return False
        layer, gradient = self.job.model.layers[self.gradients[g].layer], self.gradients[g]
        shapes = {f"{layer.name}.{tensor.name}": tensor.shape for tensor in layer.tensors}
        return len(shapes[gradient.name]) > 1 and not (
            prod(shapes[gradient.name]) % (2 * self.job.ranks)
        )

    def _to_host(self, bucket: Bucket, done: int) -> int:
        """Copy the rank's slice of a reduced bucket to the host, after the copy before it."""
        assert self.host is not None
        elements = sum(self.gradients[g].elements for g in bucket.gradients)
        seconds = self.host.copy(MASTER_BYTES * elements / self.knobs.shards(self.job.ranks))
        name = f"D2H{len(self.reduced)}"
        if not self.knobs.overlaps:  # everything is on the compute stream
            self.issue.add(f"W.{name}", "wait", after=(done,))
            return self.issue.add(name, "copy", seconds=seconds)
        return self.issue.collective(
            name, BARRIER, OFFLOAD, 0.0, after=(done,), delay=seconds, group=SELF
        )

    def _wait_until(self, under_way: int) -> None:
        """The compute stream waits until at most so many reductions are under way."""
        done = len(self.reduced) - under_way
        if done > self.waited:
            self.waited = done
            self.issue.add(f"W{done - 1}", "wait", after=(self.reduced[done - 1],))

    # -- the step -----------------------------------------------------------------------------

    def finish(self) -> Program:
        """Wait for all reductions, agree on overflow and norm, update the shard, gather."""
        knobs, job, issue = self.knobs, self.job, self.issue
        if self.reduced:
            issue.add("W", "wait", after=(self.reduced[-1],))
        if knobs.as_shipped and job.control:
            for name, size in (("overflow", 1.0), ("norm", 4.0)):
                agreed = issue.collective(
                    name, "all_reduce", COMM, size, control=True, after=(issue.last,)
                )
                issue.add(f"W.{name}", "wait", after=(agreed,))
        shards = knobs.shards(job.ranks)
        self._update(job.model.parameters / shards)
        updated = issue.last
        group = "world" if shards == job.ranks else SHARD
        gathered = [
            issue.collective(f"AG.{name}", "all_gather", COMM, size, after=(updated,), group=group)
            for name, size in self._gathered_after()
        ]
        if gathered:
            issue.add("W.parameters", "wait", after=tuple(gathered))
        return issue.program(tuple(self.named))

    def _update(self, parameters: float) -> None:
        """Update a shard: on the device, or on the host and copy the parameters back."""
        job, issue = self.job, self.issue
        if self.host is None:
            seconds = job.update * parameters if not self.knobs.offloads else 0.0
            issue.add("O", "optimizer", seconds=seconds)
            return
        issue.add("O", "optimizer", seconds=self.host.update(job.optimizer.kind, parameters))
        share = parameters / max(job.model.parameters, 1)
        size = sum(gradient.bytes for gradient in self.gradients) * share
        issue.add("H2D", "copy", seconds=self.host.copy(size))

    def _gathered_after(self) -> Iterable[tuple[str, float]]:
        """What is gathered when the shards have been updated, by name [B]: in stages 1 and 2 all
        parameters, by dtype; in stage 3 the persistent ones, one by one."""
        if self.knobs.stage == 3:
            small = persistent([g.elements for g in self.gradients], self.knobs.limits)
            return [(self.gradients[p].name, float(self.gradients[p].bytes)) for p in sorted(small)]
        return gathered_after(self.gradients)


class _Gathers:
    """Issues the all-gathers of one forward and backward as modules are visited."""

    def __init__(self, run: ZeroStep, plan: Trace, m: int) -> None:
        self.run, self.visits, self.m = run, iter(plan.visits), m
        self.uses = _uses(run.job)
        self.by: dict[int, int] = {}  # parameter -> the gather that brought it
        self.count = 0
        self.group = "world"

    def backward(self) -> None:
        """From here on gathers are of the secondary copy, if there is one."""
        if self.run.knobs.zero_hpz_partition_size > 1:
            self.group = SECONDARY

    def visit(self) -> tuple[int, ...]:
        """The gathers that the next module of the trace waits for."""
        visit = next(self.visits)
        self._gather(visit.fetch)
        needed = {self.by[p] for p in self.uses[visit.module] if p in self.by}
        self._gather(visit.prefetch)
        return tuple(sorted(needed))

    def _gather(self, parameters: tuple[int, ...]) -> None:
        if not parameters:
            return
        found = [self.run.gradients[p] for p in parameters]
        quantised = self.run.knobs.zero_quantized_weights
        size = sum(min(g.bytes, INT8 * g.elements) if quantised else g.bytes for g in found)
        issue = self.run.issue
        first = self.m == 0 and self.count == 0
        name = label("AG", self.count, self.m, self.run.job.micro_batches)
        gathered = issue.collective(
            name, "all_gather", COMM, size, after_step=first, group=self.group
        )
        self.by.update(dict.fromkeys(parameters, gathered))
        self.count += 1


def assign_buckets(
    gradients: list[Gradient], order: list[int], capacity: float
) -> tuple[Bucket, ...]:
    """Buckets over `gradients` arriving in `order`, one open per dtype.

    A gradient that does not fit into `capacity` elements flushes the bucket before it is added; one
    larger than that is alone.
    """
    open_: dict[str, list[int]] = {}
    filled: dict[str, int] = {}
    found = []
    for index in order:
        gradient = gradients[index]
        members = open_.setdefault(gradient.dtype, [])
        if members and filled[gradient.dtype] + gradient.elements > capacity:
            found.append(Bucket(tuple(members), index))
            members.clear()
        filled[gradient.dtype] = gradient.elements + (filled[gradient.dtype] if members else 0)
        members.append(index)
    return (*found, *(Bucket(tuple(members), None) for members in open_.values()))


def gathered_after(gradients: list[Gradient]) -> Iterable[tuple[str, float]]:
    """Bytes of all parameters, by dtype [B]: what stages 1 and 2 gather."""
    sizes: dict[str, float] = {}
    for gradient in gradients:
        sizes[gradient.dtype] = sizes.get(gradient.dtype, 0.0) + gradient.bytes
    return sizes.items()


def reduced_bytes(job: Job, gradient: Gradient) -> float:
    """Gradients travel in `precision.reduce` (DeepSpeed: communication_data_type) or their own
    dtype."""
    dtype = job.precision.reduce or gradient.dtype
    return float(DTYPE_BYTES[dtype] * gradient.elements)


def _uses(job: Job) -> list[list[int]]:
    """Per layer, the indices of the parameters that it uses, tied ones included; last the root
    module, which has none of its own."""
    found: list[list[int]] = []
    first: dict[str, int] = {}
    index = 0
    for layer in job.model.layers:
        first[layer.name] = index
        own = list(range(index, index + len(layer.tensors)))
        found.append(([first[layer.tied]] if layer.tied is not None else []) + own)
        index += len(layer.tensors)
    return [*found, []]


def traced(limits: Limits, job: Job, *, recorded: bool, resident: bool = True) -> Trace:
    root = len(job.model.layers)
    order = [root, *job.model.forward_order, root, *job.model.backward_order()]
    elements = [g.elements for g in gradients_of(job)]
    return trace(order, _uses(job), elements, limits, recorded=recorded, resident=resident)
