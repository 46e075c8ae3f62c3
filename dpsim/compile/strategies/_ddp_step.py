"""One step of DistributedDataParallel: the operations of a rank in issue order.

The rules are those of `dpsim/compile/strategies/ddp.py`.  What goes before every forward, in
torch's order (torch/nn/parallel/distributed.py, `_pre_forward`, 2.13): Join's message, the
broadcast of a rebuilt assignment, the broadcast of buffers, Join's second message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpsim.compile.exchange import Exchange, Work
from dpsim.compile.job import Job, gradients_of
from dpsim.compile.step import ExchangeStep
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.models.compute import LayerTime

if TYPE_CHECKING:
    from dpsim.compile.strategies.ddp import Ddp

STATISTICS_BYTES = 4  # batch statistics are fp32 whatever the layer computes in


class DdpStep(ExchangeStep):
    """Issues the operations of one step.

    start   what the first layer's forward waits for
    """

    encoding, copied_back = "H", "copy.back"

    def __init__(self, knobs: Ddp, job: Job, iteration: int | None) -> None:
        super().__init__(job, Exchange(), quiet=knobs.no_sync)
        self.knobs, self.iteration = knobs, iteration
        self.gradients = gradients_of(job)
        self.start: tuple[int, ...] = ()

    @property
    def backward_number(self) -> int | None:
        """The how-manieth backward that reduces this micro-batch belongs to; None: a later one."""
        if self.iteration is None or self.knobs.no_sync:
            return self.iteration
        return (self.iteration - 1) * self.job.micro_batches + self.m + 1

    # -- before forward -----------------------------------------------------------------------

    def forward(self, times: Sequence[LayerTime]) -> None:
        number = self.backward_number
        self.exchange = self.knobs.exchange(self.job, number)
        self.start = self._messages(number) if self.job.control else ()
        super().forward(times)

    def _messages(self, number: int | None) -> tuple[int, ...]:
        """Messages before a forward; returns what the forward waits for."""
        follows = not self.knobs.no_sync or self.m == 0  # a backward that reduced
        after = self.issue.computed
        if self.knobs.join:
            self._message("join", "all_reduce", 4.0, after)
        if follows and number is not None and number == self.knobs.rebuilt_in:
            self._rebuild(after)
        buffers = self._buffers(after) if follows else ()
        if self.knobs.join:
            self._message("join.sync", "all_reduce", 4.0, after)
        return buffers

    def _message(
        self, name: str, operation: str, size: float, after: tuple[int, ...], **rest: Any
    ) -> int:
        rest = {"after_step": not after, **rest}
        stream = self.exchange.stream
        return self.issue.collective(
            name, operation, stream, size, control=True, after=after, **rest
        )

    def _rebuild(self, after: tuple[int, ...]) -> None:
        """Rank 0 broadcasts the rebuilt assignment, two messages of int32: the bucket of every
        parameter with their number, and the buckets' sizes.  The host waits."""
        counts = (len(self.gradients) + 1, len(self.exchange.messages))
        for name, count in zip(("rebuild.indices", "rebuild.sizes"), counts, strict=True):
            self._message(name, "broadcast", 4.0 * count, after, blocks_host=True)

    def _buffers(self, after: tuple[int, ...]) -> tuple[int, ...]:
        """Rank 0's buffers are broadcast, one message per dtype; forward waits.  With Join the
        ranks first agree on whose (an int64)."""
        if not (self.knobs.broadcast_buffers and self.job.model.buffers):
            return ()
        if self.knobs.join:
            after = (self._message("join.rank", "all_reduce", 8.0, after),)
        for dtype, count in self.job.model.buffers:
            size = count * DTYPE_BYTES.get(dtype, 8)
            self._message(f"buffers.{dtype}", "broadcast", size, after, after_step=True)
        return (self.issue.last,)

    # -- passes -------------------------------------------------------------------------------

    def before_forward(self, layer: int) -> tuple[int, ...]:
        return self.start if layer == self.job.model.forward_order[0] else ()

    def after_forward(self, layer: int) -> None:
        if channels := self._synchronised(layer):
            size = self.job.ranks * (2 * channels + 1) * STATISTICS_BYTES
            self._statistics(f"SN{layer}", "all_gather", size)

    def before_backward(self, layer: int) -> tuple[int, ...]:
        if channels := self._synchronised(layer):
            self._statistics(f"SN{layer}'", "all_reduce", 2 * channels * STATISTICS_BYTES)
        return ()

    def _synchronised(self, layer: int) -> int:
        """Channels whose statistics the ranks share."""
        return self.job.model.layers[layer].batch_norm if self.knobs.sync_batchnorm else 0

    def _statistics(self, name: str, operation: str, size: float) -> None:
        """A synchronous collective in the middle of a pass, behind the buckets already issued.

        In forward torch makes the host wait too; all that follows waits for it on the compute
        stream in any case.
        """
        name = name if self.job.micro_batches == 1 else f"{name}.{self.m}"
        stream, after = self.exchange.stream, (self.issue.last,)
        done = self.issue.collective(name, operation, stream, size, after=after)
        self.issue.add(f"W.{name}", "wait", after=(done,))

    # -- buckets ------------------------------------------------------------------------------

    def send(self, k: int) -> None:
        """Before the first bucket of a static graph's first backward goes the map of what is
        used."""
        if k == 0 and self.knobs.static_graph and self.backward_number == 1 and self.job.control:
            self._message("map", "all_reduce", 4.0 * len(self.gradients), self.issue.computed)
        super().send(k)

    def arrive(self) -> None:
        """The map of used parameters, the wait for every bucket, the copies back."""
        if self.knobs.find_unused_parameters and not self.knobs.static_graph:
            self._message("map", "all_reduce", 4.0 * len(self.gradients), ())
        if self.knobs.optimizer_in_backward:
            self._optimize()
        else:
            super().arrive()

    def _optimize(self) -> None:
        """Each bucket is divided by the number of ranks and its parameters updated as soon as it
        has been reduced and backward leaves the device free (docs/assumptions.md, A54)."""
        for k, (message, sent) in enumerate(zip(self.exchange.messages, self.sent, strict=True)):
            self.copy(f"D{k}", Work(message.bytes), after=(sent,))
            elements = sum(self.gradients[t].elements for t in message.gradients)
            seconds = self.job.update * elements
            self.issue.add(f"O{k}", "optimizer", seconds=seconds, after=(sent,))
        self.sent = []

    def update(self) -> None:
        if not self.knobs.optimizer_in_backward:
            super().update()
