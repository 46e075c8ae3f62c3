"""Horovod's DistributedOptimizer.

Rules read in horovod/horovod horovod/common/ (operations.cc, controller.cc, global_state.h,
fusion_buffer_manager.cc; commit 2626dc87, after 0.28) and in its CHANGELOG.md:

* Cycles.  A background thread wakes every `cycle_time` ms.  A tensor takes part in the first cycle
  at whose start its gradient was there on all ranks, so the slowest rank decides.
* Negotiation.  A tensor that is not in the response cache is negotiated: every rank sends its
  requests to rank 0, which counts them and broadcasts the responses.  Cached ones cost one
  bit-vector all-reduce between the hosts.  A negotiation longer than the cycle delays the next.
* Fusion.  Walk a cycle's tensors in order; a tensor joins the response if dtypes are equal and the
  sum stays within the threshold.  One that does not fit is skipped over, as long as the response
  and all that was skipped stay within the threshold; otherwise the response is closed.
* A response of several tensors is copied into the fusion buffer and out of it; a single tensor is
  reduced in place.  All-reduces run in order on one communicator.
* `compression: fp16` casts a gradient when it is ready, before it is enqueued, and back after the
  wait (horovod/torch/compression.py, optimizer.py).
* `optimizer.step()` waits for all of them.  One process alone registers no hooks.
* A hierarchical all-reduce (nccl_operations.cc, NCCLHierarchicalAllreduce) reduce-scatters inside
  the node, copies a rank's part to the host, all-reduces it across the nodes with all ranks of the
  same local rank, copies it back and gathers inside the node; the next response comes after it.

The cycles are computed ahead, from the durations on the slowest rank (docs/assumptions.md, A31).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import ceil, log2
from typing import Annotated, Literal, NamedTuple

from dpsim.compile.compression import Compression
from dpsim.compile.exchange import Exchange, Leg, Message, Work
from dpsim.compile.groups import Partition, consecutive, fitting, strided
from dpsim.compile.job import Gradient, Job, arrival, due_after, gradients_of, state_bytes
from dpsim.compile.program import Program
from dpsim.compile.step import ExchangeStep, StepWalk
from dpsim.compile.strategies import Strategy, TorchVersion
from dpsim.compile.strategies._offload import LINK
from dpsim.core import units
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.record import Check, Count, Flag, Refused, record

#: CHANGELOG.md, 0.21.0: cycle time from 5 ms to 1 ms, fusion threshold from 64 MB to 128 MB, and
#: the batched copy kernel, which pads every tensor of a response to 16 bytes
SINCE_0_21 = (0, 21)
CYCLE_TIME, CYCLE_TIME_BEFORE = 1.0, 5.0  # ms
THRESHOLD, THRESHOLD_BEFORE = 128 * 1024 * 1024, 64 * 1024 * 1024  # bytes
PADDING = 16  # bytes; gpu_operations.h, BATCHED_D2D_PADDING
#: fusion_buffer_manager.h, FUSION_BUFFER_ATOMIC_UNIT, times 8 bytes of an fp64
THRESHOLD_UNIT = 64 * 8
#: times closer than this, relatively, are one moment
SAME = 1e-9
COMM = "horovod"
LOCAL, CROSS = "local", "cross"
Milliseconds = Annotated[float, units.Unit("1", low=0.0, high=1e6)]
Release = Annotated[TorchVersion, "Horovod version"]


class Response(NamedTuple):
    """Tensors reduced together: indices of gradients, bytes, padding within them, and dtype."""

    tensors: tuple[int, ...]
    bytes: int
    padding: int
    dtype: str

    @property
    def copied(self) -> int:
        """Bytes that are copied into the fusion buffer, and out of it."""
        return self.bytes if len(self.tensors) > 1 else 0


class Launch(NamedTuple):
    """A response, the cycle's launch and when its last tensor was ready, from the step's start
    on the slowest rank [s]."""

    response: Response
    time: float
    ready: float


@record
class Horovod(Strategy):
    """Knobs as Horovod names them; `cycle_time` in ms and `fusion_threshold` in bytes.

    `horovod` is the version whose defaults are played; `host_latency` and `request_cost` say what
    negotiation costs, which toys (A14) leave out.  A hierarchical all-reduce needs `local_size`,
    the ranks of a node, and copies through hosts at `pcie_bandwidth` (of a device, one way).
    """

    own_launches = True

    horovod: Release = TorchVersion((0, 28))
    cycle_time: Milliseconds | None = None
    fusion_threshold: Annotated[int, Check(0, 10**12)] | None = None
    cache_capacity: Annotated[int, Check(0, 10**9)] = 1024
    hierarchical_allreduce: Flag = False
    local_size: Count | None = None
    op: Literal["average", "sum", "adasum"] = "average"
    host_latency: units.Seconds = 20e-6
    request_cost: units.Seconds = 1e-6
    pcie_bandwidth: units.BytesPerSecond | None = None

    def accept_compression(self, compression: Compression) -> None:
        if compression.kind != "fp16":
            raise Refused(
                f"Horovod has no {compression.kind}; its hvd.Compression has none and fp16",
                ("compression",),
            )

    def __post_init__(self) -> None:
        if self.op == "adasum":
            raise Refused(
                "Adasum combines gradients pair by pair with dot products at every level, which is "
                "not modelled; average and sum are",
                ("op",),
            )
        if self.hierarchical_allreduce and self.local_size is None:
            raise Refused(
                "a hierarchical all-reduce needs the ranks of a node (horovodrun -H host:slots)",
                ("local_size",),
            )
        if self.pcie_bandwidth is not None and not self.hierarchical_allreduce:
            raise Refused("only hierarchical_allreduce: true needs it", ("pcie_bandwidth",))

    # -- knobs with their defaults ------------------------------------------------------------

    @property
    def cycle(self) -> float:
        """The cycle time [s]."""
        default = CYCLE_TIME if tuple(self.horovod) >= SINCE_0_21 else CYCLE_TIME_BEFORE
        return (default if self.cycle_time is None else self.cycle_time) * 1e-3

    def threshold(self, local_size: int) -> int:
        """The fusion threshold [B], rounded up to a multiple of 512 bytes a rank of the node."""
        default = THRESHOLD if tuple(self.horovod) >= SINCE_0_21 else THRESHOLD_BEFORE
        given = default if self.fusion_threshold is None else self.fusion_threshold
        unit = local_size * THRESHOLD_UNIT
        return -(-given // unit) * unit

    def node(self, ranks: int) -> int:
        """Ranks of a node for hierarchical all-reduces."""
        return fitting(self.local_size, ranks, "local_size", "nodes")

    def groups(self, ranks: int) -> dict[str, Partition]:
        """ "local": the ranks of a node; "cross": those with the same place in all nodes."""
        if not self.hierarchical_allreduce:
            return {}
        size = self.node(ranks)
        return {LOCAL: consecutive(size, ranks), CROSS: strided(size, ranks)}

    def _local(self, job: Job) -> int:
        """Ranks of a node; the setting and the machine must agree."""
        if self.local_size is None:
            return job.local_size or job.ranks
        size = min(self.local_size, job.ranks)
        if job.local_size not in (None, size):
            raise Refused(
                f"a node has {job.local_size} ranks here, not {size}", ("strategy", "local_size")
            )
        return size

    # -- the step -----------------------------------------------------------------------------

    def program(self, job: Job, iteration: int | None) -> Program:
        """Forward, backward with responses launched by the cycles, optimizer."""
        return _Step(job, self.exchange(job, iteration)).play()

    def exchange(self, job: Job, iteration: int | None) -> Exchange:
        """The responses: each is delayed after the backward that makes it ready by what is left of
        the cycle, the negotiation, and the copies into the fusion buffer."""
        launches = self.launches(job, iteration)
        groups = [launch.response.tensors for launch in launches]
        layers = due_after(job, gradients_of(job), groups)
        casts = _casts(job) if launches else {}
        return Exchange(
            tuple(self._message(k, x, layers[k], job) for k, x in enumerate(launches)),
            COMM,
            casts,
            copy_back=sum(x.response.copied for x in launches) + sum(casts.values()),
        )

    def _message(self, k: int, launch: Launch, layer: int, job: Job) -> Message:
        response = launch.response
        delay = max(launch.time - launch.ready, 0.0) + job.copy_seconds(response.copied)
        size, padding = float(response.bytes), float(response.padding)
        legs: tuple[Leg, ...] = (Leg("AR", "all_reduce", size, padding, delay=delay),)
        if self.hierarchical_allreduce:
            n = self.node(job.ranks)
            copy = size / n / (self.pcie_bandwidth or LINK) if job.control else 0.0
            legs = (
                Leg("RS", "reduce_scatter", size, padding, group=LOCAL, delay=delay),
                Leg("AR", "all_reduce", size / n, padding / n, group=CROSS, delay=copy),
                Leg("AG", "all_gather", size, padding, group=LOCAL, delay=copy),
            )
        return Message(layer, legs, response.tensors, f"AR{k} ({response.dtype})", size)

    def stage_walk(self, job: Job) -> StepWalk | None:
        """Where there is no pipeline, a response counts its delay from its last gradient."""
        return None if job.stages > 1 else _Step(job, self.exchange(job, None))

    def accept_stage(self, job: Job) -> None:
        """Replicas are a process set of their own (`hvd.ProcessSet`), whose responses are fused and
        launched apart."""
        if self.hierarchical_allreduce:
            raise Refused(
                "is not modelled with tensor, pipeline, context or expert parallelism; "
                "false is accepted",
                ("strategy", "hierarchical_allreduce"),
            )

    # -- cycles -------------------------------------------------------------------------------

    def launches(self, job: Job, iteration: int | None) -> tuple[Launch, ...]:
        """The responses of a step in launch order; none on a single rank.

        In iteration 1 the first cycle starts with the step.  Later the phase of the cycles is the
        one at which the last gradient waits for half a cycle: the mean over all phases.
        """
        if job.ranks == 1:
            return ()
        gradients = _sent(job)
        ready = _ready_times(gradients, job)
        order = arrival(gradients, job)
        if not order:
            return ()
        cost = self._negotiation(job, len(gradients), iteration)
        period = max(self.cycle, cost(0))
        phase = 0.0
        if iteration != 1 and period > 0:
            phase = (ready[order[-1]] + period / 2) % period
        limit = self.threshold(self._local(job))
        pad = PADDING if job.control and tuple(self.horovod) >= SINCE_0_21 else 1
        found = []
        for time, tensors in cycles([ready[t] for t in order], phase, self.cycle, cost):
            waiting = [order[t] for t in tensors]
            for response in fuse(gradients, waiting, limit, pad):
                found.append(Launch(response, time, max(ready[t] for t in response.tensors)))
        return tuple(found)

    def _negotiation(self, job: Job, tensors: int, iteration: int | None) -> Callable[[int], float]:
        """Seconds that a cycle negotiates, by the number of tensors that are waiting.

        Hosts exchange small messages in log2 N rounds.  Uncached requests are gathered on rank 0,
        which looks at each tensor of each other rank, and answered by a broadcast.  A model of more
        tensors than the cache holds never finds one there: they come in the same order every
        step, and the least recently used is thrown out.
        """
        rounds = ceil(log2(job.ranks)) * self.host_latency if job.control else 0.0
        each = (job.ranks - 1) * self.request_cost if job.control else 0.0
        cached = iteration != 1 and tensors <= self.cache_capacity
        vector = rounds if self.cache_capacity else 0.0

        def seconds(waiting: int) -> float:
            if cached or (waiting == 0 and self.cache_capacity):
                return vector
            return vector + 2 * rounds + waiting * each

        return seconds

    def memory(self, job: Job) -> dict[str, float]:
        """States, and one fusion buffer as large as the threshold if anything is fused."""
        parts = state_bytes(job, 1.0)
        if any(len(x.response.tensors) > 1 for x in self.launches(job, None)):
            parts["fusion buffer"] = float(self.threshold(self._local(job)))
        return parts


class _Step(ExchangeStep):
    """Issues the operations of one step: delays count from the backward that readies a response,
    though one before it may hold up its launch."""

    def __init__(self, job: Job, exchange: Exchange) -> None:
        super().__init__(job, exchange)
        self.gradients = gradients_of(job)
        self.place = {layer: place for place, layer in enumerate(job.model.backward_order())}
        self.ended: dict[int, int] = {}  # layer -> its backward

    def after_backward(self, layer: int) -> None:
        self.ended[layer] = self.issue.computed[0]
        super().after_backward(layer)

    def copy(self, name: str, work: Work, after: tuple[int, ...] = ()) -> None:
        """A cast puts off when the layer's gradients are there."""
        super().copy(name, work, after)
        if self.ended and not after:
            self.ended[next(reversed(self.ended))] = self.issue.last

    def trigger(self, message: Message) -> tuple[int, ...]:
        """The backward that ends the last gradient of a response."""
        last = max((self.gradients[t].ready for t in message.gradients), key=self.place.__getitem__)
        return (self.ended[last],)


def _sent(job: Job) -> list[Gradient]:
    """The gradients as they are enqueued."""
    found = gradients_of(job)
    if job.compression is None:
        return found
    return [_narrowed(gradient) for gradient in found]


def _narrowed(gradient: Gradient) -> Gradient:
    size = min(gradient.bytes, gradient.elements * DTYPE_BYTES["fp16"])
    return gradient if size == gradient.bytes else gradient._replace(bytes=size, dtype="fp16")


def _casts(job: Job) -> dict[int, float]:
    """What casting reads and writes once after each layer's backward [B]."""
    found: dict[int, float] = {}
    for gradient, sent in zip(gradients_of(job), _sent(job), strict=True):
        if sent.bytes < gradient.bytes:
            moved = (gradient.bytes + sent.bytes) / 2
            found[gradient.ready] = found.get(gradient.ready, 0.0) + moved
    return found


def _ready_times(gradients: list[Gradient], job: Job) -> list[float]:
    """When each gradient is ready on the slowest rank, from the step's start [s]."""
    times = job.slowest or job.times
    one = sum(times[i].forward + times[i].backward for i in job.model.forward_order)
    now = job.serial + (job.micro_batches - 1) * one
    now += sum(times[i].forward for i in job.model.forward_order)
    ended = {}
    for i in job.model.backward_order():
        now += times[i].backward
        ended[i] = now
    return [ended[gradient.ready] for gradient in gradients]


def cycles(
    ready: Sequence[float], phase: float, cycle: float, cost: Callable[[int], float]
) -> list[tuple[float, range]]:
    """When each cycle that finds tensors launches them, and which [s].

    ready   sorted times at which tensors are ready on all ranks
    phase   a moment at which a cycle starts
    cycle   from the start of one cycle to the next, unless negotiation takes longer
    cost    seconds that a cycle negotiates with so many tensors waiting
    """
    found, now, first = [], phase, 0
    while first < len(ready):
        if ready[first] > now * (1 + SAME):
            period = max(cycle, cost(0))
            idle = ceil((ready[first] - now) / period * (1 - SAME)) if period else 0
            now = now + idle * period if period else ready[first]
        last = first
        while last < len(ready) and ready[last] <= now * (1 + SAME):
            last += 1
        negotiation = cost(last - first)
        found.append((now + negotiation, range(first, last)))
        now += max(cycle, negotiation)
        first = last
    return found


def fuse(
    gradients: Sequence[Gradient], waiting: Sequence[int], threshold: int, pad: int = 1
) -> list[Response]:
    """The responses over `waiting` gradients; each tensor of a fused one is padded to a multiple
    of `pad` bytes."""
    left = deque(waiting)
    found = []
    while left:
        chosen = [left.popleft()]
        dtype = gradients[chosen[0]].dtype
        size = _padded(gradients[chosen[0]].bytes, pad)
        skipped: list[int] = []
        passed = 0
        while left:
            more = _padded(gradients[left[0]].bytes, pad)
            if gradients[left[0]].dtype == dtype and size + more <= threshold:
                size += more
                chosen.append(left.popleft())
                continue
            passed += more
            if size + passed > threshold:
                break
            skipped.append(left.popleft())
        left.extendleft(reversed(skipped))
        exact = sum(gradients[t].bytes for t in chosen)
        size = size if len(chosen) > 1 else exact
        found.append(Response(tuple(chosen), size, size - exact, dtype))
    return found


def _padded(size: int, unit: int) -> int:
    return -(-size // unit) * unit
