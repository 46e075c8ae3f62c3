"""One step of DistributedDataParallel: the operations of a rank in issue order.

The rules are those of `dpsim/compile/strategies/ddp.py`.  What goes before every forward, in
torch's order (torch/nn/parallel/distributed.py, `_pre_forward`, 2.13): Join's message, the
broadcast of a rebuilt assignment, the broadcast of buffers, Join's second message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsim.compile.program import Program
from dpsim.compile.strategies import Issue, Job, label
from dpsim.compile.strategies._gradients import gradients_of
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.models.compute import LayerTime

if TYPE_CHECKING:
    from dpsim.compile.strategies.ddp import Bucket, Ddp

COMM = "ddp"
HOOK_BYTES = 2  # of an element behind either compressing hook
STATISTICS_BYTES = 4  # batch statistics are fp32 whatever the layer computes in


class DdpStep:
    """Issues the operations of one step."""

    def __init__(self, knobs: Ddp, job: Job, iteration: int | None) -> None:
        self.knobs, self.job, self.iteration = knobs, job, iteration
        self.issue = Issue(job)
        self.gradients = gradients_of(job)
        self.buckets: tuple[Bucket, ...] = ()

    def play(self) -> Program:
        for m, times in self.job.rounds(self.knobs.no_sync):
            number = self.backward_number(m)
            self.buckets = self.knobs.buckets(self.gradients, self.job, number)
            self._forward(m, times, self._before_forward(m, number))
            reduces = not self.knobs.no_sync or m == self.job.micro_batches - 1
            self._backward(m, times, number, self.buckets if reduces else ())
        if not self.knobs.optimizer_in_backward:
            seconds = self.job.update * self.job.model.parameters
            self.issue.add("O", "optimizer", seconds=seconds)
        return self.issue.program(
            tuple(
                (
                    f"AR{k} ({b.dtype})",
                    float(b.bytes),
                    tuple(self.gradients[t].name for t in b.tensors),
                )
                for k, b in enumerate(self.buckets)
            )
        )

    def backward_number(self, m: int) -> int | None:
        """The how-manieth backward that reduces micro-batch `m` belongs to; None: a later one."""
        if self.iteration is None or self.knobs.no_sync:
            return self.iteration
        return (self.iteration - 1) * self.job.micro_batches + m + 1

    # -- before forward -----------------------------------------------------------------------

    def _before_forward(self, m: int, number: int | None) -> tuple[int, ...]:
        """Messages before a forward; returns what the forward waits for."""
        if not self.job.control:
            return ()
        follows = not self.knobs.no_sync or m == 0  # a backward that reduced
        after = (self.issue.last,) if self.issue.ops else ()
        if self.knobs.join:
            self._message("join", "all_reduce", 4.0, after)
        if follows and number is not None and number == self.knobs.rebuilt_in:
            self._rebuild(after)
        buffers = self._buffers(after) if follows else ()
        if self.knobs.join:
            self._message("join.sync", "all_reduce", 4.0, after)
        return buffers

    def _message(self, name: str, operation: str, size: float, after: tuple[int, ...]) -> int:
        return self.issue.collective(
            name, operation, COMM, size, control=True, after=after, after_step=not after
        )

    def _rebuild(self, after: tuple[int, ...]) -> None:
        """Rank 0 broadcasts the rebuilt assignment, two messages of int32: the bucket of every
        parameter with their number, and the buckets' sizes.  The host waits."""
        counts = (len(self.gradients) + 1, len(self.buckets))
        for name, count in zip(("rebuild.indices", "rebuild.sizes"), counts, strict=True):
            self.issue.collective(
                name,
                "broadcast",
                COMM,
                4.0 * count,
                control=True,
                blocks_host=True,
                after=after,
                after_step=not after,
            )

    def _buffers(self, after: tuple[int, ...]) -> tuple[int, ...]:
        """Rank 0's buffers are broadcast, one message per dtype; forward waits.  With Join the
        ranks first agree on whose (an int64)."""
        if not (self.knobs.broadcast_buffers and self.job.model.buffers):
            return ()
        if self.knobs.join:
            after = (self._message("join.rank", "all_reduce", 8.0, after),)
        for dtype, count in self.job.model.buffers:
            self.issue.collective(
                f"buffers.{dtype}",
                "broadcast",
                COMM,
                count * DTYPE_BYTES.get(dtype, 8),
                control=True,
                after=after,
                after_step=True,
            )
        return (self.issue.last,)

    # -- passes -------------------------------------------------------------------------------

    def _forward(self, m: int, times: tuple[LayerTime, ...], start: tuple[int, ...]) -> None:
        for place, i in enumerate(self.job.model.forward_order):
            self.issue.add(
                label("F", i, m, self.job.micro_batches),
                "forward",
                seconds=times[i].forward,
                after=start if place == 0 else (),
            )
            if channels := self._synchronised(i):
                size = self.job.ranks * (2 * channels + 1) * STATISTICS_BYTES
                self._statistics(f"SN{i}", "all_gather", size, m)

    def _synchronised(self, layer: int) -> int:
        """Channels whose statistics the ranks share."""
        return self.job.model.layers[layer].batch_norm if self.knobs.sync_batchnorm else 0

    def _statistics(self, name: str, operation: str, size: float, m: int) -> None:
        """A synchronous collective in the middle of a pass, behind the buckets already issued.

        In forward torch makes the host wait too; all that follows waits for it on the compute
        stream in any case.
        """
        name = name if self.job.micro_batches == 1 else f"{name}.{m}"
        done = self.issue.collective(name, operation, COMM, size, after=(self.issue.last,))
        self.issue.add(f"W.{name}", "wait", after=(done,))

    def _backward(
        self,
        m: int,
        times: tuple[LayerTime, ...],
        number: int | None,
        buckets: tuple[Bucket, ...],
    ) -> None:
        """Backward passes; each bucket's all-reduce is issued by the hook that makes it ready, or
        all of them when a static graph's first backward has ended."""
        late = self.knobs.static_graph and number == 1
        due = self._due(buckets, late=late)
        reduced: list[int] = []
        for place, i in enumerate(self.job.model.backward_order()):
            if channels := self._synchronised(i):
                self._statistics(f"SN{i}'", "all_reduce", 2 * channels * STATISTICS_BYTES, m)
            name = label("B", i, m, self.job.micro_batches)
            self.issue.add(name, "backward", seconds=times[i].backward)
            if buckets:
                self._copy(f"C{i}", sum(g.bytes for g in self.gradients if g.ready == i))
            trigger = self.issue.last
            if late and place in due and self.job.control:
                self._message("map", "all_reduce", 4.0 * len(self.gradients), (trigger,))
            reduced += [self._reduce(k, buckets[k], trigger) for k in due.get(place, ())]
        if buckets:
            self._epilogue(buckets, reduced)

    def _due(self, buckets: tuple[Bucket, ...], *, late: bool) -> dict[int, list[int]]:
        """Buckets by the place in backward at which they launch: none before an earlier one."""
        order = list(self.job.model.backward_order())
        position = {layer: place for place, layer in enumerate(order)}
        due: dict[int, list[int]] = {}
        launch = 0
        for k, bucket in enumerate(buckets):
            launch = max(launch, *(position[self.gradients[t].ready] for t in bucket.tensors))
            due.setdefault(len(order) - 1 if late else launch, []).append(k)
        return due

    def _reduce(self, k: int, bucket: Bucket, trigger: int) -> int:
        """A bucket's all-reduce, compressed first where a hook does so."""
        before, _ = self.knobs.cast_bytes(bucket)
        if before:
            self._copy(f"H{k}", before)
            trigger = max(trigger, self.issue.last)
        wire = self.knobs.wire_bytes(bucket)
        return self.issue.collective(f"AR{k}", "all_reduce", COMM, wire, after=(trigger,))

    def _epilogue(self, buckets: tuple[Bucket, ...], reduced: list[int]) -> None:
        """The map of used parameters, the wait for every bucket, the copies back."""
        if self.knobs.find_unused_parameters and not self.knobs.static_graph:
            self._message("map", "all_reduce", 4.0 * len(self.gradients), ())
        if self.knobs.optimizer_in_backward:
            self._optimize(buckets, reduced)
            return
        for k, bucket in enumerate(buckets):
            self._copy(f"D{k}", self.knobs.cast_bytes(bucket)[1], after=(reduced[k],))
        self.issue.add("W", "wait", after=tuple(reduced))
        if not self.knobs.gradient_as_bucket_view:
            self._copy("copy.back", sum(g.bytes for g in self.gradients))

    def _optimize(self, buckets: tuple[Bucket, ...], reduced: list[int]) -> None:
        """Each bucket is divided by the number of ranks and its parameters updated as soon as it
        has been reduced and backward leaves the device free (docs/assumptions.md, A54)."""
        for k, bucket in enumerate(buckets):
            self._copy(f"D{k}", bucket.bytes, after=(reduced[k],))
            elements = sum(self.gradients[t].elements for t in bucket.tensors)
            seconds = self.job.update * elements
            self.issue.add(f"O{k}", "optimizer", seconds=seconds, after=(reduced[k],))

    def _copy(self, name: str, size: float, after: tuple[int, ...] = ()) -> None:
        seconds = self.job.copy_seconds(size)
        if seconds:
            self.issue.add(name, "copy", seconds=seconds, after=after)
