"""ZeRO stages 1 to 3, as DeepSpeed ships them (`as_shipped`) or as in the paper.

Paper: Rajbhandari et al., ZeRO, arXiv:1910.02054.  Gradients are reduce-scattered while backward
runs, and the updated shards gathered after the step; stage 3 gathers every layer before its
forward and before its backward.

As shipped, read in deepspeedai/DeepSpeed deepspeed/runtime/zero/ (config.py, stage_1_and_2.py,
stage3.py, partitioned_param_coordinator.py; commit edaa7221):

* Buckets count elements.  A gradient that would overfill the bucket flushes it first, so the flush
  comes when that gradient is ready; what is left is flushed when backward has ended.
* Stages 1 and 2 all-reduce a bucket and copy out the owned slice.  Stage 2 does so in every
  micro-batch while backward runs, stage 1 in the last one, after backward unless `overlap_comm`.
  Without `overlap_comm` the reduction is on the compute stream; with it a flush first waits for the
  reduction before it.  After the step one all-gather per dtype brings the parameters.
* Stage 3 reduce-scatters, at most two at a time beside compute, and gathers what the module
  `_zero3` says.  Persistent parameters are gathered once after the step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

from dpsim.compute import LayerTime
from dpsim.hardware import DTYPE_BYTES
from dpsim.program import Program
from dpsim.record import Count, Flag, Refused, record
from dpsim.strategies import Issue, Job, Strategy, label, state_bytes
from dpsim.strategies._gradients import Gradient, arrival, gradients_of
from dpsim.strategies._zero3 import Limits, Trace, persistent, trace
from dpsim.units import Unit

COMM = "zero"
SHARD = "shard"
BUCKET = 500_000_000  # elements; config.py, reduce_bucket_size
PREFETCH = 50_000_000  # elements; config.py, stage3_prefetch_bucket_size
PERSISTENCE = 100_000  # elements; config.py, stage3_param_persistence_threshold
LIVE = REUSE = 1_000_000_000  # elements; config.py, max_live_parameters, max_reuse_distance
#: stage3.py: a flush waits until at most this many reduce-scatters are under way
REDUCTIONS = 2
Elements = Annotated[float, Unit("1", low=0.0, high=1e15)]


class Bucket(NamedTuple):
    """Gradients reduced together, in order of arrival, and the index of the gradient whose arrival
    flushes them (None: the end of backward)."""

    gradients: tuple[int, ...]
    flushed_by: int | None


@record
class Zero(Strategy):
    """Settings as DeepSpeed names them, sizes in elements; `as_shipped: false` is the paper's.

    `overlap_comm` left out is true for stage 3 and false otherwise, as in DeepSpeed.
    `partition_size` shards the optimizer states of stage 1 over groups of so many ranks
    (InternEvo's `zero1`).
    """

    stage: Literal[1, 2, 3] = 1
    as_shipped: Flag = True
    reduce_bucket_size: Annotated[float, Unit("1", low=0.0, high=1e15, above=True)] = BUCKET
    overlap_comm: Flag | None = None
    contiguous_gradients: Flag = True
    use_multi_rank_bucket_allreduce: Flag = True
    partition_size: Count | None = None
    stage3_prefetch_bucket_size: Elements | None = None
    stage3_param_persistence_threshold: Elements | None = None
    stage3_max_live_parameters: Elements | None = None
    stage3_max_reuse_distance: Elements | None = None

    def __post_init__(self) -> None:
        if not self.use_multi_rank_bucket_allreduce:
            raise Refused(
                "one reduce per owning rank is not modelled; true, one all-reduce per bucket, is",
                ("use_multi_rank_bucket_allreduce",),
            )
        given = [name for name in _STAGE_3 if getattr(self, name) is not None]
        if given and (self.stage != 3 or not self.as_shipped):
            where = f"stage {self.stage}" if self.stage != 3 else "the paper (as_shipped: false)"
            raise Refused(f"{where} has no such setting; only DeepSpeed's stage 3 has", (given[0],))
        if self.partition_size is not None and (self.stage != 1 or not self.as_shipped):
            raise Refused(
                "only stage 1 as shipped shards over groups of ranks", ("partition_size",)
            )
        if self.overlap_comm is False and not self.as_shipped:
            raise Refused("the paper overlaps reductions with backward", ("overlap_comm",))

    @property
    def overlaps(self) -> bool:
        if self.overlap_comm is None:
            return self.stage == 3 or not self.as_shipped
        return self.overlap_comm

    @property
    def limits(self) -> Limits:
        """What governs gathering in stage 3; the paper keeps and prefetches nothing."""
        if not self.as_shipped:
            return Limits(0, 0, 0, 0)
        defaults = (PREFETCH, PERSISTENCE, LIVE, REUSE)
        values = (getattr(self, name) for name in _STAGE_3)
        return Limits(*(int(d if v is None else v) for v, d in zip(values, defaults, strict=True)))

    def shards(self, ranks: int) -> int:
        """How many ranks share the optimizer states."""
        size = min(self.partition_size or ranks, ranks)
        if ranks % size:
            raise Refused(
                f"{ranks} ranks do not split into groups of {size}", ("strategy", "partition_size")
            )
        return size

    def groups(self, ranks: int) -> dict[str, tuple[tuple[int, ...], ...]]:
        """ "shard": consecutive ranks that share the optimizer states."""
        size = self.shards(ranks)
        if size == ranks:
            return {}
        return {SHARD: tuple(tuple(range(i, i + size)) for i in range(0, ranks, size))}

    # -- program ------------------------------------------------------------------------------

    def program(self, job: Job, iteration: int | None) -> Program:
        """Forward and backward of every micro-batch, reductions, optimizer, all-gather."""
        run = _Issued(self, job, iteration)
        for m, times in job.rounds(quiet=self.stage == 1):
            run.micro_batch(m, times)
        return run.finish()

    def memory(self, job: Job) -> dict[str, float]:
        """States by stage; DeepSpeed's fp32 copy of the gradients' shard and its buffers."""
        whole, shard = state_bytes(job, 1.0), state_bytes(job, 1.0 / self.shards(job.ranks))
        parts = {
            "parameters": (shard if self.stage == 3 else whole)["parameters"],
            "gradients": (shard if self.stage >= 2 else whole)["gradients"],
            "optimizer states": shard["optimizer states"],
        }
        if self.as_shipped:
            parts |= self._shipped_memory(job, parts)
        if self.stage == 3:
            peak = _traced(self, job, recorded=True).peak
            width = max(DTYPE_BYTES[job.parameter_dtype(i)] for i in range(len(job.model.layers)))
            parts["gathered parameters"] = float(width * peak)
        return parts

    def _shipped_memory(self, job: Job, parts: dict[str, float]) -> dict[str, float]:
        """The step needs the shard's gradients in fp32 where parameters are narrower (stage 3
        keeps them so); the contiguous buffer exists twice where stages 1 and 2 overlap.

        stage_1_and_2.py and stage3.py, the estimators of their memory: 2 and 0 + 18/N bytes a
        parameter with fp16 and Adam.
        """
        widths = [DTYPE_BYTES[job.parameter_dtype(i)] for i in range(len(job.model.layers))]
        found = {}
        fp32 = sum(
            4.0 * layer.parameters / self.shards(job.ranks)
            for width, layer in zip(widths, job.model.layers, strict=True)
            if width < 4
        )
        if self.stage == 3:
            narrow = sum(
                width * layer.parameters / job.ranks
                for width, layer in zip(widths, job.model.layers, strict=True)
                if width < 4
            )
            found["gradients"] = parts["gradients"] - narrow + fp32
        elif fp32:
            found["fp32 gradients"] = fp32
        if self.contiguous_gradients:
            buffers = 2 if self.overlaps and self.stage < 3 else 1
            found["gradient buffers"] = buffers * self.reduce_bucket_size * max(widths)
        return found


_STAGE_3 = (
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
)


class _Issued:
    """Issues the operations of one step."""

    def __init__(self, knobs: Zero, job: Job, iteration: int | None) -> None:
        self.knobs, self.job, self.iteration = knobs, job, iteration
        self.issue = Issue(job)
        self.gradients = gradients_of(job)
        self.reduced: list[int] = []
        self.waited = 0
        self.named: list[tuple[str, float, tuple[str, ...]]] = []

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
        recorded = self.knobs.as_shipped and not (self.iteration == 1 and m == 0)
        return _Gathers(self, _traced(self.knobs, self.job, recorded=recorded), m)

    def _forward(self, m: int, times: tuple[LayerTime, ...], gathers: _Gathers | None) -> None:
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
        scatter = self.knobs.stage == 3 or not self.knobs.as_shipped
        if self.knobs.as_shipped and self.knobs.overlaps:
            self._wait_until(REDUCTIONS if self.knobs.stage == 3 else 0)
        number = len(self.reduced)
        name = f"{'RS' if scatter else 'AR'}{number}"
        size = sum(_reduced_bytes(self.job, self.gradients[g]) for g in bucket.gradients)
        self.reduced.append(
            self.issue.collective(
                name,
                "reduce_scatter" if scatter else "all_reduce",
                COMM,
                size,
                after=(self.issue.last,) if self.issue.ops else (),
            )
        )
        self.named.append((name, size, tuple(self.gradients[g].name for g in bucket.gradients)))
        if not self.knobs.overlaps:
            self._wait_until(0)

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
        issue.add("O", "optimizer", seconds=job.update * job.model.parameters / shards)
        updated = issue.last
        group = "world" if shards == job.ranks else SHARD
        gathered = [
            issue.collective(f"AG.{dtype}", "all_gather", COMM, size, after=(updated,), group=group)
            for dtype, size in self._gathered_after()
        ]
        if gathered:
            issue.add("W.parameters", "wait", after=tuple(gathered))
        return issue.program(tuple(self.named))

    def _gathered_after(self) -> Iterable[tuple[str, float]]:
        """Bytes by dtype that are gathered when the shards have been updated."""
        small = set(range(len(self.gradients)))
        if self.knobs.stage == 3:
            small = persistent([g.elements for g in self.gradients], self.knobs.limits)
        sizes: dict[str, float] = {}
        for index, gradient in enumerate(self.gradients):
            if index in small:
                sizes[gradient.dtype] = sizes.get(gradient.dtype, 0.0) + gradient.bytes
        return sizes.items()


class _Gathers:
    """Issues the all-gathers of one forward and backward as modules are visited."""

    def __init__(self, run: _Issued, plan: Trace, m: int) -> None:
        self.run, self.visits, self.m = run, iter(plan.visits), m
        self.uses = _uses(run.job)
        self.by: dict[int, int] = {}  # parameter -> the gather that brought it
        self.count = 0

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
        size = sum(self.run.gradients[p].bytes for p in parameters)
        issue = self.run.issue
        first = self.m == 0 and self.count == 0
        name = label("AG", self.count, self.m, self.run.job.micro_batches)
        gathered = issue.collective(name, "all_gather", COMM, size, after_step=first)
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


def _reduced_bytes(job: Job, gradient: Gradient) -> float:
    """Gradients travel in `precision.reduce` (DeepSpeed: communication_data_type) or their own
    dtype."""
    dtype = job.precision.reduce or gradient.dtype
    return float(DTYPE_BYTES[dtype] * gradient.elements)


def _uses(job: Job) -> list[list[int]]:
    """Per layer, the indices of the parameters that it uses, tied ones included."""
    found: list[list[int]] = []
    first: dict[str, int] = {}
    index = 0
    for layer in job.model.layers:
        first[layer.name] = index
        own = list(range(index, index + len(layer.tensors)))
        found.append(([first[layer.tied]] if layer.tied is not None else []) + own)
        index += len(layer.tensors)
    return found


def _traced(knobs: Zero, job: Job, *, recorded: bool) -> Trace:
    order = [*job.model.forward_order, *job.model.backward_order()]
    elements = [g.elements for g in gradients_of(job)]
    return trace(order, _uses(job), elements, knobs.limits, recorded=recorded)
