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
  launches when the stage's backward has ended.  `overlap_param_gather` gathers a stage's buckets
  in its first forward, behind what that receives (the hook of its first module); where a rank holds
  several stages all of them begin with the step, in turn, and a stage waits for all of its own
  (schedules.py, param_sync_func; `align_param_gather`).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm
from typing import Annotated, NamedTuple

from dpsim.compile.exchange import Exchange, Leg, Message, Work
from dpsim.compile.gathers import Gathers
from dpsim.compile.groups import Partition, consecutive, strided
from dpsim.compile.job import Gradient, Job, due_after, gradients_of, state_bytes
from dpsim.compile.program import Program
from dpsim.compile.step import ExchangeStep
from dpsim.compile.strategies import Lighter, Strategy
from dpsim.core.dtypes import DTYPE_BYTES, working_bytes
from dpsim.core.record import Check, Count, Flag, Refused, record
from dpsim.models.few_bits import copied_bytes
from dpsim.models.sums import GradientSums

#: distributed_data_parallel.py: default bucket_size in elements
LEAST_BUCKET, PER_RANK = 40_000_000, 1_000_000
#: param_and_grad_buffer.py, in elements
START_OF_PARAMETER, END_OF_BUCKET, HIGH_BANDWIDTH = 64, 128, 2**16
COMM, ACROSS = "megatron", "megatron.instances"
INSIDE_GROUP, ACROSS_GROUP = "instance", "across instances"


class MegatronBucket(NamedTuple):
    """A stretch of the buffer of one dtype: indices of gradients, elements, and those that are
    padding."""

    gradients: tuple[int, ...]
    elements: int
    padding: int
    dtype: str


@record
class Megatron(Strategy):
    """Settings as Megatron's DistributedDataParallelConfig names them; sizes in elements."""

    library_attention = True
    channels_last = True
    copies_weights = True  # megatron/core/optimizer/optimizer.py, Float16OptimizerWithFloat16Params
    overlaps_tensors = True  # megatron/core/tensor_parallel/layers.py
    use_distributed_optimizer: Flag = False
    overlap_grad_reduce: Flag = False
    overlap_param_gather: Flag = False
    bucket_size: Annotated[int, Check(1, 10**15)] | None = None
    grad_reduce_in_fp32: Flag | None = None
    num_distributed_optimizer_instances: Count = 1
    pad_buckets_for_high_nccl_busbw: Flag = False
    gradient_accumulation_fusion: Flag = True

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

    def groups(self, ranks: int) -> dict[str, Partition]:
        """An optimizer instance is consecutive ranks; its n-th ranks reduce with all other n-th."""
        size = self.shards(ranks)
        if size in (1, ranks) and self.num_distributed_optimizer_instances == 1:
            return {}
        return {INSIDE_GROUP: consecutive(size, ranks), ACROSS_GROUP: strided(size, ranks)}

    def capacity(self, ranks: int, stage: int = 0) -> int | None:
        """Elements at which a bucket of a pipeline's `stage` is closed; None: never."""
        if not self.overlap_grad_reduce or stage > 0:
            return None
        return self.bucket_size or max(LEAST_BUCKET, PER_RANK * ranks)

    def sums(self, *, piped: bool) -> GradientSums | None:
        """Products add to the buffer themselves, unless told not to."""
        if self.gradient_accumulation_fusion:
            return None
        wide = self.grad_reduce_in_fp32
        total, of = ("fp32", "bf16") if wide is None else ("fp32" if wide else "", "")
        return GradientSums(total=total, of=of, zeroed=True)

    def gradient_dtype(self, dtype: str) -> str:
        """What gradients of parameters in `dtype` are kept and reduced in: of bf16 fp32, unless
        told not to (`--grad-reduce-in-bf16`; megatron/training/arguments.py, validate_args,
        000c4ac2)."""
        wide = self.grad_reduce_in_fp32
        if wide is None:
            wide = dtype == "bf16"
        return "fp32" if wide else dtype

    def buckets(self, job: Job, gradients: list[Gradient]) -> tuple[MegatronBucket, ...]:
        """The buckets of all dtypes, those of the dtype that is registered first in front."""
        pads = self.use_distributed_optimizer and job.control
        end = lcm(job.ranks, END_OF_BUCKET)
        if self.pad_buckets_for_high_nccl_busbw:
            end = lcm(end, HIGH_BANDWIDTH)
        alignment = (START_OF_PARAMETER, end) if pads else (1, 1)
        found: list[MegatronBucket] = []
        for dtype in dict.fromkeys(g.dtype for g in gradients):
            own = [i for i, g in enumerate(gradients) if g.dtype == dtype]
            sizes = [(i, gradients[i].elements) for i in reversed(own)]
            found += fill(sizes, self.capacity(job.ranks, job.stage), alignment, dtype)
        return tuple(found)

    # -- the step -----------------------------------------------------------------------------

    def program(self, job: Job, iteration: int | None) -> Program:
        """Forward and backward, buckets in the last micro-batch, optimizer, gathers."""
        return _Step(self, job, iteration).play()

    def exchange(self, job: Job, iteration: int | None) -> Exchange:
        """Buckets, and with the distributed optimizer their gathers; none on a single rank."""
        gradients = gradients_of(job)
        found = () if job.ranks == 1 else self.buckets(job, gradients)
        late = iteration == 1 or not self.overlap_grad_reduce
        groups = [bucket.gradients for bucket in found]
        layers = due_after(job, gradients, groups, late=late, in_turn=False)
        gathers = (self._leg(f"AG{k}", "all_gather", b, b.dtype) for k, b in enumerate(found))
        return Exchange(
            tuple(self._message(k, bucket, layers[k], job) for k, bucket in enumerate(found)),
            COMM,
            gathers=tuple(gathers) if self.use_distributed_optimizer else (),
            beside=self.overlap_param_gather,
            shards=self.shards(job.ranks),
        )

    @property
    def _inside(self) -> str:
        """The ranks that share the optimizer states, where they are not all."""
        return INSIDE_GROUP if self.num_distributed_optimizer_instances > 1 else ""

    def _message(self, k: int, bucket: MegatronBucket, layer: int, job: Job) -> Message:
        """A bucket is scaled, and reduced inside an instance, then across the instances."""
        dtype, scatter = self.gradient_dtype(bucket.dtype), self.use_distributed_optimizer
        name, operation = ("RS", "reduce_scatter") if scatter else ("AR", "all_reduce")
        leg = self._leg(name, operation, bucket, dtype)
        size, padding, n = leg.bytes, leg.padding, self.shards(job.ranks)
        across = Leg("AR", "all_reduce", size / n, padding / n, "", ACROSS, ACROSS_GROUP)
        legs = (leg, across) if self._inside else (leg,)
        title = f"bucket {k} ({dtype})"
        return Message(layer, legs, bucket.gradients, title, size, encode=Work(size))

    def _leg(self, name: str, operation: str, bucket: MegatronBucket, dtype: str) -> Leg:
        width = float(DTYPE_BYTES[dtype])
        size, padding = width * bucket.elements, width * bucket.padding
        return Leg(name, operation, size, padding, group=self._inside)

    def accept_stage(self, job: Job) -> None:
        """Refuse what is not modelled where layers are split over ranks."""
        where = "is not modelled together with tensor, pipeline, context or expert parallelism"
        if self.num_distributed_optimizer_instances > 1:
            message = f"more than one optimizer instance {where}; 1 is accepted"
            raise Refused(message, ("strategy", "num_distributed_optimizer_instances"))

    # -- memory -------------------------------------------------------------------------------

    @property
    def sharded(self) -> bool:
        """With the distributed optimizer."""
        return self.use_distributed_optimizer

    def lighter(self, *, split: bool) -> Iterator[Lighter]:
        """The distributed optimizer."""
        if not self.use_distributed_optimizer:
            yield from self.changed("sharded", use_distributed_optimizer=True)

    @property
    def fused_kernels(self) -> bool:
        return True

    def memory(self, job: Job) -> dict[str, float]:
        """Parameters and the gradient buffer whole, optimizer states of the shard; an fp32 copy of
        the shard's gradients where the buffer is in 16 bit.

        With Adam: 4 + 16/d bytes a parameter in 16 bit, 6 + 12/d with gradients in fp32 (as of
        bf16), 8 + 8/d in fp32 (dist_optimizer.md).
        """
        share = 1.0 / self.shards(job.ranks)
        parts = state_bytes(job, 1.0)
        buffer = copies = 0.0
        for i in range(len(job.model.layers)):
            for dtype, count in job.trained(i):
                width = DTYPE_BYTES[self.gradient_dtype(dtype)]
                buffer += width * count
                copies += 4.0 * count if width < 4 else 0.0
        cast = sum(copied_bytes(layer, job.precision.compute) for layer in job.model.layers)
        return {
            "parameters": parts["parameters"],
            **({"parameters in 4 bits": cast} if cast else {}),
            "gradients": buffer,
            "optimizer states": parts["optimizer states"] * share,
            "fp32 gradients": copies * share,
            "dummy gradients": _dummies(job),
        }


def _dummies(job: Job) -> float:
    """Bytes of the gradients that Transformer Engine hands to autograd where products add to the
    gradient buffer themselves: one for each shape of a block's matrices, kept for all blocks
    (TransformerEngine transformer_engine/pytorch/module/base.py, get_dummy_wgrad)."""
    units: dict[str, float] = {}
    for layer in job.model.layers:
        if layer.unit:
            size = sum(t.elements for t in layer.tensors if t.trained and len(t.shape) > 1)
            units[layer.unit] = units.get(layer.unit, 0.0) + size
    return working_bytes(job.precision.compute) * max(units.values(), default=0.0)


class _Step(ExchangeStep):
    """Issues the operations of one step."""

    encoding = "S"

    def __init__(self, knobs: Megatron, job: Job, iteration: int | None) -> None:
        super().__init__(job, knobs.exchange(job, iteration))
        self.knobs = knobs
        self.in_turn = knobs.num_distributed_optimizer_instances > 1
        self.ahead = knobs.overlap_param_gather and iteration != 1  # gathers beside forward
        self.gathers = Gathers(job, self.exchange)

    def before_forward(self, layer: int) -> tuple[int, ...]:
        """Wait for the buckets of the layer's parameters, dispatch the next."""
        if self.m == 0 and self.ahead:
            self.gathers.before(layer, self._gather_ahead, self._wait_for)
        return ()

    def _gather_ahead(self, k: int, first: bool) -> int:
        after = () if first else self.issue.computed
        leg = self.exchange.gathers[k]
        return self.issue.send((leg,), "", COMM, after, after_step=first)

    def _wait_for(self, k: int, gather: int) -> None:
        self.issue.add(f"W.AG{k}", "wait", after=(gather,))

    def update(self) -> None:
        """All ranks agree on the norm of the gradients first."""
        knobs = self.knobs
        if self.exchange.messages and knobs.use_distributed_optimizer and self.job.control:
            self.agree("norm", 4.0, COMM + ".norm")
        super().update()

    def gather(self) -> None:
        if not self.knobs.overlap_param_gather:
            super().gather()


def fill(
    sizes: list[tuple[int, int]], capacity: int | None, alignment: tuple[int, int], dtype: str
) -> list[MegatronBucket]:
    """Buckets over (index, elements) in order, closed at `capacity`; parameters start and buckets
    end at multiples of `alignment`."""
    start_unit, end_unit = alignment
    found: list[MegatronBucket] = []
    begin = end = kept = 0
    members: list[int] = []

    def close() -> None:
        nonlocal begin, end, kept
        end = _up(end, end_unit)
        found.append(MegatronBucket(tuple(members), end - begin, end - begin - kept, dtype))
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
