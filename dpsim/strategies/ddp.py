"""PyTorch DistributedDataParallel.

Rules read in pytorch/pytorch torch/csrc/distributed/c10d/reducer.{hpp,cpp} and
torch/nn/parallel/distributed.py (2.13-2.15):

* Buckets.  Walk the parameter tensors; per dtype one open bucket; append, then close it when its
  bytes reach the cap (so it overshoots, and a tensor is never split).  The first bucket of a dtype
  has the first cap, all others the second.
* Order.  The first iteration has one bucket per dtype and hence no overlap.  The buckets are
  rebuilt once, before iteration 2, in the order in which gradients arrived.  With
  find_unused_parameters they never are: registration order, then the list of buckets reversed.
  With static_graph they are rebuilt before iteration 3.
* Launch.  Bucket k launches when it is complete and bucket k-1 has launched; in a static graph's
  first iteration all launch when backward has ended.
* The optimizer runs after the last bucket has been reduced and copied back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, NamedTuple

from dpsim.hardware import DTYPE_BYTES
from dpsim.program import Program
from dpsim.record import Flag, record
from dpsim.strategies import TORCH, Issue, Job, Strategy, Torch, label, state_bytes
from dpsim.strategies._gradients import Gradient, arrival, gradients_of
from dpsim.units import Unit

FIRST_BUCKET = 1024 * 1024  # bytes; reducer.hpp, kDefaultFirstBucketBytes
DEFAULT_CAP_MB = 25.0  # MiB; reducer.hpp, kDefaultBucketBytesCap
#: since this version an explicit bucket_cap_mb is the first bucket's cap too (pytorch/pytorch
#: pull 121640, reviewed until mid-2024; 2.13 checked by running it)
EXPLICIT_CAP_IS_FIRST = (2, 5)
COMM = "ddp"
Megabytes = Annotated[float, Unit("1", low=0.0, high=1e6, above=True)]


class Bucket(NamedTuple):
    """Tensors reduced together: indices into the list of tensors, bytes, and dtype."""

    tensors: tuple[int, ...]
    bytes: int
    dtype: str


@record
class Ddp(Strategy):
    """Knobs as torch names them; `bucket_cap_mb` in MiB, None is the default [1, 25].

    `torch` is the version whose behaviour is played; `no_sync` accumulates locally over
    micro-batches and reduces in the last one only.
    """

    torch: Torch = TORCH
    bucket_cap_mb: Megabytes | None = None
    find_unused_parameters: Flag = False
    static_graph: Flag = False
    gradient_as_bucket_view: Flag = False
    broadcast_buffers: Flag = True
    no_sync: Flag = True

    def program(self, job: Job, iteration: int | None) -> Program:
        """Forward, backward with buckets launched in order, optimizer."""
        issue = Issue(job)
        self._prologue(issue, job, iteration)
        gradients = gradients_of(job)
        buckets = self.buckets(gradients, job, iteration)
        for m, times in job.rounds(self.no_sync):
            start = [self._buffers(issue, job)] if m == 0 or not self.no_sync else []
            for place, i in enumerate(job.model.forward_order):
                after = tuple(k for k in start if k is not None) if place == 0 else ()
                issue.add(
                    label("F", i, m, job.micro_batches),
                    "forward",
                    seconds=times[i].forward,
                    after=after,
                )
            reduces = not self.no_sync or m == job.micro_batches - 1
            late = self.static_graph and iteration == 1
            sent = buckets if reduces else ()
            self._backward(issue, replace(job, times=times), m, gradients, sent, late=late)
        issue.add("O", "optimizer", seconds=job.update * job.model.parameters)
        return issue.program(
            tuple(
                (f"AR{k} ({b.dtype})", float(b.bytes), tuple(gradients[t].name for t in b.tensors))
                for k, b in enumerate(buckets)
            )
        )

    def _prologue(self, issue: Issue, job: Job, iteration: int | None) -> None:
        """Rank 0 broadcasts the rebuilt assignment once: two small messages, the host waits."""
        rebuilt_in = 3 if self.static_graph else None if self.find_unused_parameters else 2
        if job.control and rebuilt_in is not None and iteration == rebuilt_in:
            for name in ("rebuild.sizes", "rebuild.indices"):
                count = sum(len(layer.tensors) for layer in job.model.layers)
                issue.collective(
                    name,
                    "broadcast",
                    COMM,
                    4.0 * count,
                    control=True,
                    blocks_host=True,
                    after=(issue.last,) if issue.ops else (),
                )

    def _buffers(self, issue: Issue, job: Job) -> int | None:
        """Rank 0's buffers are broadcast before forward, one message per dtype; forward waits."""
        if not (job.control and self.broadcast_buffers and job.model.buffers):
            return None
        after = (issue.last,) if issue.ops else ()
        for dtype, count in job.model.buffers:
            size = count * DTYPE_BYTES.get(dtype, 8)
            issue.collective(
                f"buffers.{dtype}",
                "broadcast",
                COMM,
                size,
                control=True,
                after=after,
                after_step=True,
            )
        return issue.last

    def _backward(
        self,
        issue: Issue,
        job: Job,
        m: int,
        gradients: list[Gradient],
        buckets: tuple[Bucket, ...],
        *,
        late: bool,
    ) -> None:
        """Backward passes; each bucket's all-reduce is issued by the hook that makes it ready, or
        (`late`) all of them when backward has ended."""
        position = {layer: place for place, layer in enumerate(job.model.backward_order())}
        due: dict[int, list[int]] = {}
        launch = 0
        for k, bucket in enumerate(buckets):
            launch = max(launch, *(position[gradients[t].ready] for t in bucket.tensors))
            if late:
                launch = len(position) - 1
            due.setdefault(launch, []).append(k)
        reduced: list[int] = []
        for place, i in enumerate(job.model.backward_order()):
            issue.add(
                label("B", i, m, job.micro_batches), "backward", seconds=job.times[i].backward
            )
            self._copy(
                issue, job, f"C{i}", [g for g in gradients if g.ready == i] if buckets else []
            )
            trigger = (issue.last,)
            for k in due.get(place, ()):
                size = buckets[k].bytes
                reduced.append(issue.collective(f"AR{k}", "all_reduce", COMM, size, after=trigger))
        if buckets:
            self._epilogue(issue, job, gradients, reduced)

    def _epilogue(
        self, issue: Issue, job: Job, gradients: list[Gradient], reduced: list[int]
    ) -> None:
        """The map of used parameters, the wait for every bucket, the copies back."""
        if self.find_unused_parameters and not self.static_graph:
            issue.collective("map", "all_reduce", COMM, 4.0 * len(gradients), control=True)
        issue.add("W", "wait", after=tuple(reduced))
        if not self.gradient_as_bucket_view:
            self._copy(issue, job, "copy.back", gradients)

    def _copy(self, issue: Issue, job: Job, name: str, gradients: list[Gradient]) -> None:
        seconds = job.copy_seconds(sum(g.bytes for g in gradients))
        if seconds:
            issue.add(name, "copy", seconds=seconds)

    def buckets(
        self, gradients: list[Gradient], job: Job, iteration: int | None
    ) -> tuple[Bucket, ...]:
        """The buckets of `iteration` in launch order."""
        sizes = [(g.dtype, g.bytes) for g in gradients]
        rebuilt_from = 3 if self.static_graph else 2
        rebuilds = self.static_graph or not self.find_unused_parameters
        if rebuilds and (iteration is None or iteration >= rebuilt_from):
            return assign_buckets(sizes, self.caps, arrival(gradients, job))
        caps = () if rebuilds else self.caps
        return assign_buckets(sizes, caps, None)[::-1]

    @property
    def caps(self) -> tuple[int, ...]:
        """Caps of the first and of all later buckets [B]."""
        cap = int((self.bucket_cap_mb or DEFAULT_CAP_MB) * 1024 * 1024)
        if self.bucket_cap_mb is not None and tuple(self.torch) >= EXPLICIT_CAP_IS_FIRST:
            return (cap,)
        return (FIRST_BUCKET, cap)

    def memory(self, job: Job) -> dict[str, float]:
        parts = state_bytes(job, 1.0)
        if not self.gradient_as_bucket_view:
            parts["DDP buckets"] = parts["gradients"]
        return parts


def assign_buckets(
    sizes: list[tuple[str, int]], caps: tuple[int, ...], order: list[int] | None
) -> tuple[Bucket, ...]:
    """Buckets over tensors of (dtype, bytes), walked in `order` (registration order if None).

    `caps` are the caps of a dtype's first, second, … bucket, the last one for all further ones;
    without caps a dtype has one bucket.  Buckets still open at the end follow the closed ones, the
    dtype met last first.  In registration order the buckets are sorted by their first tensor.
    """
    open_: dict[str, list[int]] = {}
    filled: dict[str, int] = {}
    place: dict[str, int] = {}
    closed: list[Bucket] = []
    for index in order if order is not None else range(len(sizes)):
        dtype, size = sizes[index]
        if dtype not in open_:
            open_[dtype], filled[dtype], place[dtype] = [], 0, 0
        open_[dtype].append(index)
        filled[dtype] += size
        if caps and filled[dtype] >= caps[min(place[dtype], len(caps) - 1)]:
            closed.append(Bucket(tuple(open_[dtype]), filled[dtype], dtype))
            open_[dtype], filled[dtype] = [], 0
            place[dtype] += 1
    for dtype in reversed(open_):
        if open_[dtype]:
            closed.append(Bucket(tuple(open_[dtype]), filled[dtype], dtype))
    if order is None:
        closed.sort(key=lambda bucket: min(bucket.tensors))
    return tuple(closed)
