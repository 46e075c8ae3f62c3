"""Megatron-LM's DistributedDataParallel and distributed optimizer.

Rules read in NVIDIA/Megatron-LM megatron/core/distributed/ (distributed_data_parallel.py,
param_and_grad_buffer.py, d98e8a64) and docs/source/api-guide/dist_optimizer.md:

* Buckets.  Parameters of one dtype fill a buffer in reverse order of registration.  With
  `overlap_grad_reduce` a bucket is closed once it holds `bucket_size` elements (default
  max(40e6, 1e6 x ranks)); otherwise a buffer is one bucket.  With the distributed optimizer a
  parameter starts at a multiple of 64 elements, and a bucket ends at one of lcm(ranks, 128), or of
  lcm(ranks, 128, 65536) with `pad_buckets_for_high_nccl_busbw`.
* Gradients are scaled by 1/ranks, then all-reduced, or reduce-scattered with the distributed
  optimizer; only in the last micro-batch.  With `overlap_grad_reduce` a bucket is launched when its
  last gradient is there (in the very first batch when backward has ended), otherwise all buckets
  when backward has ended.  Several optimizer instances scatter inside an instance and all-reduce
  the shards across instances, one bucket after the other.
* The distributed optimizer updates its shard and gathers the parameters: all buckets after the
  update, or with `overlap_param_gather` in the next forward, where the first module that needs a
  bucket waits for it and then dispatches the next bucket; the first one is exposed.  The first
  iteration has nothing to gather.
* Of a pipeline only the first stage has several buckets: on pipeline ranks > 0 and in further
  chunks of rank 0 (bucketing is disabled there) a buffer is one bucket, which `overlap_grad_reduce`
  launches when the stage's backward has ended.
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm
from typing import Annotated, NamedTuple

from dpsim.compile.program import Program
from dpsim.compile.strategies import (
    Issue,
    Job,
    Message,
    Strategy,
    Synchronisation,
    label,
    state_bytes,
)
from dpsim.compile.strategies._gradients import Gradient, gradients_of
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.record import Check, Count, Flag, Refused, record
from dpsim.models.compute import LayerTime

#: distributed_data_parallel.py: default bucket_size in elements
LEAST_BUCKET, PER_RANK = 40_000_000, 1_000_000
#: param_and_grad_buffer.py, in elements
START_OF_PARAMETER, END_OF_BUCKET, HIGH_BANDWIDTH = 64, 128, 2**16
COMM, ACROSS = "megatron", "megatron.instances"
INSIDE_GROUP, ACROSS_GROUP = "instance", "across instances"


class Bucket(NamedTuple):
    """A stretch of the buffer of one dtype: indices of gradients, elements, and those that are
    padding."""

    gradients: tuple[int, ...]
    elements: int
    padding: int
    dtype: str


@record
class Megatron(Strategy):
    """Settings as Megatron's DistributedDataParallelConfig names them; sizes in elements."""

    use_distributed_optimizer: Flag = False
    overlap_grad_reduce: Flag = False
    overlap_param_gather: Flag = False
    bucket_size: Annotated[int, Check(1, 10**15)] | None = None
    grad_reduce_in_fp32: Flag = False
    num_distributed_optimizer_instances: Count = 1
    pad_buckets_for_high_nccl_busbw: Flag = False

    def __post_init__(self) -> None:
        needs = {
            "overlap_param_gather": self.overlap_param_gather,
            "num_distributed_optimizer_instances": self.num_distributed_optimizer_instances > 1,
            "pad_buckets_for_high_nccl_busbw": self.pad_buckets_for_high_nccl_busbw,
        }
        for name, given in needs.items():
            if given and not self.use_distributed_optimizer:
                raise Refused("needs use_distributed_optimizer: true", (name,))
        if self.overlap_param_gather and not self.overlap_grad_reduce:
            raise Refused("needs overlap_grad_reduce: true", ("overlap_param_gather",))

    # -- who shares what ----------------------------------------------------------------------

    def shards(self, ranks: int) -> int:
        """How many ranks share the optimizer states."""
        if not self.use_distributed_optimizer:
            return 1
        instances = min(self.num_distributed_optimizer_instances, ranks)
        if ranks % instances:
            raise Refused(
                f"{ranks} ranks do not split into {instances} instances",
                ("strategy", "num_distributed_optimizer_instances"),
            )
        return ranks // instances

    def groups(self, ranks: int) -> dict[str, tuple[tuple[int, ...], ...]]:
        """An optimizer instance is consecutive ranks; its n-th ranks reduce with all other n-th."""
        size = self.shards(ranks)
        if size in (1, ranks) and self.num_distributed_optimizer_instances == 1:
            return {}
        inside = tuple(tuple(range(i, i + size)) for i in range(0, ranks, size))
        across = tuple(tuple(range(i, ranks, size)) for i in range(size))
        return {INSIDE_GROUP: inside, ACROSS_GROUP: across}

    def capacity(self, ranks: int, stage: int = 0) -> int | None:
        """Elements at which a bucket of a pipeline's `stage` is closed; None: never."""
        if not self.overlap_grad_reduce or stage > 0:
            return None
        return self.bucket_size or max(LEAST_BUCKET, PER_RANK * ranks)

    def gradient_dtype(self, dtype: str) -> str:
        return "fp32" if self.grad_reduce_in_fp32 else dtype

    def buckets(self, job: Job, gradients: list[Gradient]) -> tuple[Bucket, ...]:
        """The buckets of all dtypes, those of the dtype that is registered first in front."""
        pads = self.use_distributed_optimizer and job.control
        end = lcm(job.ranks, END_OF_BUCKET)
        if self.pad_buckets_for_high_nccl_busbw:
            end = lcm(end, HIGH_BANDWIDTH)
        alignment = (START_OF_PARAMETER, end) if pads else (1, 1)
        found: list[Bucket] = []
        for dtype in dict.fromkeys(g.dtype for g in gradients):
            own = [i for i, g in enumerate(gradients) if g.dtype == dtype]
            sizes = [(i, gradients[i].elements) for i in reversed(own)]
            found += fill(sizes, self.capacity(job.ranks, job.stage), alignment, dtype)
        return tuple(found)

    # -- program ------------------------------------------------------------------------------

    def program(self, job: Job, iteration: int | None) -> Program:
        """Forward and backward, buckets in the last micro-batch, optimizer, gathers."""
        run = _Issued(self, job, iteration)
        for m, times in job.rounds(quiet=True):
            run.micro_batch(m, times)
        return run.finish()

    def synchronisation(self, job: Job) -> Synchronisation:
        """Buckets of one stage; the distributed optimizer gathers them after the update."""
        self._accept_stage()
        gradients, order = gradients_of(job), list(job.model.backward_order())
        position = {layer: place for place, layer in enumerate(order)}
        scatter, copies = self.use_distributed_optimizer, [0.0] * len(job.model.layers)
        messages, gathers = [], []
        for k, bucket in enumerate(self.buckets(job, gradients)):
            last = max(position[gradients[g].ready] for g in bucket.gradients)
            layer = order[last if self.overlap_grad_reduce else -1]
            width = float(DTYPE_BYTES[self.gradient_dtype(bucket.dtype)])
            size, padding = width * bucket.elements, width * bucket.padding
            copies[layer] += job.copy_seconds(size)
            name, operation = ("RS", "reduce_scatter") if scatter else ("AR", "all_reduce")
            messages.append(Message(f"{name}{k}", operation, size, layer, padding))
            width = float(DTYPE_BYTES[bucket.dtype])
            size, padding = width * bucket.elements, width * bucket.padding
            gathers.append(Message(f"AG{k}", "all_gather", size, layer, padding))
        return Synchronisation(
            tuple(messages),
            overlap=self.overlap_grad_reduce,
            copies=tuple(copies),
            gathers=tuple(gathers) if scatter else (),
            share=1.0 / self.shards(job.ranks),
        )

    def _accept_stage(self) -> None:
        """Refuse what is not modelled where layers are split over ranks."""
        where = "is not modelled together with tensor or pipeline parallelism"
        if self.overlap_param_gather:
            message = f"gathering parameters beside the next forward {where}; false is accepted"
            raise Refused(message, ("strategy", "overlap_param_gather"))
        if self.num_distributed_optimizer_instances > 1:
            message = f"more than one optimizer instance {where}; 1 is accepted"
            raise Refused(message, ("strategy", "num_distributed_optimizer_instances"))

    def memory(self, job: Job) -> dict[str, float]:
        """Parameters and the gradient buffer whole, optimizer states of the shard; an fp32 copy of
        the shard's gradients where the buffer is in 16 bit.

        With Adam: 4 + 16/d bytes a parameter in 16 bit, 6 + 12/d with gradients in fp32, 8 + 8/d
        in fp32 (dist_optimizer.md).
        """
        share = 1.0 / self.shards(job.ranks)
        parts = state_bytes(job, 1.0)
        buffer = copies = 0.0
        for i, layer in enumerate(job.model.layers):
            width = DTYPE_BYTES[self.gradient_dtype(job.parameter_dtype(i))]
            buffer += width * layer.parameters
            copies += 4.0 * layer.parameters if width < 4 else 0.0
        return {
            "parameters": parts["parameters"],
            "gradients": buffer,
            "optimizer states": parts["optimizer states"] * share,
            "fp32 gradients": copies * share,
        }


class _Issued:
    """Issues the operations of one step."""

    def __init__(self, knobs: Megatron, job: Job, iteration: int | None) -> None:
        self.knobs, self.job, self.issue = knobs, job, Issue(job)
        self.gradients = gradients_of(job)
        alone = job.ranks == 1
        self.buckets = () if alone else knobs.buckets(job, self.gradients)
        self.shards = knobs.shards(job.ranks)
        several = knobs.num_distributed_optimizer_instances > 1
        self.group = INSIDE_GROUP if several else "world"
        self.late = iteration == 1 or not knobs.overlap_grad_reduce
        self.gathers = knobs.overlap_param_gather and iteration != 1
        self.gathered: dict[int, int] = {}  # bucket -> its all-gather
        self.waited: set[int] = set()
        self.reduced: list[int] = []

    def micro_batch(self, m: int, times: tuple[LayerTime, ...]) -> None:
        job = self.job
        for i in job.model.forward_order:
            if self.gathers and m == 0:
                self._need(i)
            name = label("F", i, m, job.micro_batches)
            self.issue.add(name, "forward", seconds=times[i].forward)
        due = self._due() if m == job.micro_batches - 1 else {}
        for place, i in enumerate(replace(job, times=times).model.backward_order()):
            name = label("B", i, m, job.micro_batches)
            self.issue.add(name, "backward", seconds=times[i].backward)
            for k in due.get(place, ()):
                self._reduce(k)

    def _due(self) -> dict[int, list[int]]:
        """The buckets that are launched after each place of backward, as they get ready."""
        position = {layer: k for k, layer in enumerate(self.job.model.backward_order())}
        end = len(position) - 1
        found: dict[int, list[int]] = {}
        for k, bucket in enumerate(self.buckets):
            place = max(position[self.gradients[g].ready] for g in bucket.gradients)
            found.setdefault(end if self.late else place, []).append(k)
        return found

    # -- parameters ---------------------------------------------------------------------------

    def _need(self, layer: int) -> None:
        """Before a layer's forward: wait for the buckets of its parameters, dispatch the next."""
        needed = {
            k
            for k, bucket in enumerate(self.buckets)
            if any(self.gradients[g].layer == layer for g in bucket.gradients)
        }
        for k in sorted(needed - self.waited, reverse=True):
            self._gather(k)
            self.waited.add(k)
            self.issue.add(f"W.AG{k}", "wait", after=(self.gathered[k],))
            if k > 0:
                self._gather(k - 1)

    def _gather(self, k: int) -> None:
        if k in self.gathered:
            return
        first = not self.gathered
        after = () if first or not self.issue.ops else (self.issue.last,)
        self.gathered[k] = self._all_gather(k, after, first=first)

    def _all_gather(self, k: int, after: tuple[int, ...], *, first: bool = False) -> int:
        bucket = self.buckets[k]
        width = DTYPE_BYTES[bucket.dtype]
        return self.issue.collective(
            f"AG{k}",
            "all_gather",
            COMM,
            width * bucket.elements,
            padding=float(width * bucket.padding),
            after=after,
            after_step=first,
            group=self.group,
        )

    # -- gradients ----------------------------------------------------------------------------

    def _reduce(self, k: int) -> None:
        bucket, job = self.buckets[k], self.job
        width = DTYPE_BYTES[self.knobs.gradient_dtype(bucket.dtype)]
        size, padding = float(width * bucket.elements), float(width * bucket.padding)
        if seconds := job.copy_seconds(size):
            self.issue.add(f"S{k}", "copy", seconds=seconds)
        scatter = self.knobs.use_distributed_optimizer
        several = self.group != "world"
        after = (self.issue.last, *self.reduced[-1:]) if several else (self.issue.last,)
        done = self.issue.collective(
            f"{'RS' if scatter else 'AR'}{k}",
            "reduce_scatter" if scatter else "all_reduce",
            COMM,
            size,
            padding=padding,
            after=after,
            group=self.group,
        )
        if several:
            done = self.issue.collective(
                f"AR{k}",
                "all_reduce",
                ACROSS,
                size / self.shards,
                padding=padding / self.shards,
                after=(done,),
                group=ACROSS_GROUP,
            )
        self.reduced.append(done)

    def finish(self) -> Program:
        """Wait for the gradients, agree on their norm, update, gather unless forward does."""
        knobs, job, issue = self.knobs, self.job, self.issue
        if self.reduced:
            issue.add("W", "wait", after=tuple(self.reduced))
        if self.reduced and knobs.use_distributed_optimizer and job.control:
            agreed = issue.collective(
                "norm", "all_reduce", COMM + ".norm", 4.0, control=True, after=(issue.last,)
            )
            issue.add("W.norm", "wait", after=(agreed,))
        issue.add("O", "optimizer", seconds=job.update * job.model.parameters / self.shards)
        if knobs.use_distributed_optimizer and not knobs.overlap_param_gather:
            updated = (issue.last,)
            gathers = tuple(self._all_gather(k, updated) for k in range(len(self.buckets)))
            if gathers:
                issue.add("W.parameters", "wait", after=gathers)
        names = [g.name for g in self.gradients]
        return issue.program(
            tuple(
                (
                    f"bucket {k} ({knobs.gradient_dtype(b.dtype)})",
                    float(b.elements * DTYPE_BYTES[knobs.gradient_dtype(b.dtype)]),
                    tuple(names[g] for g in b.gradients),
                )
                for k, b in enumerate(self.buckets)
            )
        )


def fill(
    sizes: list[tuple[int, int]], capacity: int | None, alignment: tuple[int, int], dtype: str
) -> list[Bucket]:
    """Buckets over (index, elements) in order, closed at `capacity`; parameters start and buckets
    end at multiples of `alignment`."""
    start_unit, end_unit = alignment
    found: list[Bucket] = []
    begin = end = kept = 0
    members: list[int] = []

    def close() -> None:
        nonlocal begin, end, kept
        end = _up(end, end_unit)
        found.append(Bucket(tuple(members), end - begin, end - begin - kept, dtype))
        begin, kept = end, 0
        members.clear()

    for index, elements in sizes:
        end = _up(end, start_unit) + elements
        kept += elements
        members.append(index)
        if capacity is not None and end - begin >= capacity:
            close()
    if members:
        close()
    return found


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
