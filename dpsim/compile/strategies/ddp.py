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

Hooks: ddp_comm_hooks/default_hooks.py, optimizer_overlap_hooks.py.  SyncBatchNorm:
torch/nn/modules/_functions.py (forward gathers 2C + 1 statistics of every rank, backward reduces
2C).  Join: torch/distributed/algorithms/join.py; a rank that has run out is not played.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal, NamedTuple

from dpsim.compile.compressed import coded, payload_of
from dpsim.compile.compression import Compression, Hook
from dpsim.compile.exchange import Exchange, Message
from dpsim.compile.held import Held
from dpsim.compile.job import (
    Gradient,
    Job,
    arrival,
    copied,
    due_after,
    gradients_of,
    parameters_of,
    state_bytes,
)
from dpsim.compile.program import Program
from dpsim.compile.strategies import TORCH, Folded, Lighter, Rhythm, Strategy, Torch, offloading
from dpsim.compile.strategies._ddp_held import held
from dpsim.compile.strategies._ddp_step import DdpStep
from dpsim.core import plugins, units
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.record import Check, Flag, Refused, record

COMM = "ddp"
FIRST_BUCKET = 1024 * 1024  # bytes; reducer.hpp, kDefaultFirstBucketBytes
DEFAULT_CAP_MB = 25.0  # MiB; reducer.hpp, kDefaultBucketBytesCap
#: since this version an explicit bucket_cap_mb is the first bucket's cap too (pytorch/pytorch
#: pull 121640, reviewed until mid-2024; 2.13 checked by running it)
EXPLICIT_CAP_IS_FIRST = (2, 5)
#: bucket_cap_mb_list is there (2.13 checked by running it; earlier releases were not)
CAP_LIST = (2, 13)
#: bytes of a message with which the constructor sends rank 0's parameters, then its buffers,
#: coalesced by dtype; torch/nn/parallel/distributed.py, broadcast_bucket_size, and
#: torch/distributed/utils.py, _sync_module_states, 2.13
FIRST_MESSAGE = 250 * 1024 * 1024
_ONE_HOOK = (
    "torch runs the optimizer in backward as a communication hook of its own and takes one hook; "
    "comm_hook: none is accepted"
)
Megabytes = Annotated[float, units.Unit("1", low=0.0, high=1e6, above=True)]


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

    bucket_cap_mb_list  caps in MiB of the first, second, … bucket, in the first iteration too; the
                        last one holds for all further ones (torch 2.13 and later)
    comm_hook           what compresses gradients, as `compression` at the top says it too: `fp16`
                        and `bf16` are torch's compressing hooks
    sync_batchnorm      batch normalisation over all ranks (SyncBatchNorm)
    join                inside torch's Join context, for uneven inputs, while all ranks have some
    optimizer_in_backward  a bucket's parameters are updated when it has been reduced
    backup_workers      a step takes the gradients of all ranks but so many, the first that are
                        there, and drops the others (no knob of torch's)
    """

    recordable = True
    recorded_buckets = True
    torch_attention = True
    torch_stages = True

    torch: Torch = TORCH
    bucket_cap_mb: Megabytes | None = None
    bucket_cap_mb_list: tuple[Megabytes, ...] | None = None
    find_unused_parameters: Flag = False
    static_graph: Flag = False
    gradient_as_bucket_view: Flag = False
    broadcast_buffers: Flag = True
    no_sync: Flag = True
    comm_hook: Literal["none", "fp16", "bf16"] | Hook = "none"
    sync_batchnorm: Flag = False
    join: Flag = False
    optimizer_in_backward: Flag = False
    backup_workers: Annotated[int, Check(0, 1_048_575)] = 0

    def __post_init__(self) -> None:
        if self.bucket_cap_mb_list is not None:
            self._accept_list(self.bucket_cap_mb_list)
        if self.backup_workers and (self.sync_batchnorm or not self.no_sync):
            raise Refused(
                "every rank is needed where statistics or each micro-batch are exchanged",
                ("backup_workers",),
            )
        if self.optimizer_in_backward and self.comm_hook != "none":
            raise Refused(_ONE_HOOK, ("comm_hook",))

    def _accept_list(self, caps: tuple[float, ...]) -> None:
        where = ("bucket_cap_mb_list",)
        if not caps:
            raise Refused("an empty list says nothing; give caps in MiB, or leave it out", where)
        if self.bucket_cap_mb is not None:
            raise Refused("torch ignores bucket_cap_mb beside it; give one of the two", where)
        if tuple(self.torch) < CAP_LIST:
            known = ".".join(map(str, CAP_LIST))
            raise Refused(f"torch {self.torch} is not known to have it; {known} has", where)

    def program(self, job: Job, iteration: int | None) -> Program:
        """Forward, backward with buckets launched in order, optimizer."""
        self._accept(job)
        return DdpStep(self, job, iteration).play()

    def accept_backend(self, backend: str) -> None:
        if self.compression is not None:
            self.compression.accept_backend(backend, ("strategy", "comm_hook"))

    def accept_compression(self, compression: Compression) -> None:
        if self.comm_hook != "none":
            raise Refused(
                "says the same as strategy.comm_hook; give one of the two", ("compression",)
            )
        if self.optimizer_in_backward:
            raise Refused(_ONE_HOOK, ("compression",))

    def _accept(self, job: Job) -> None:
        """Refuse what only shows with a job."""
        if self.static_graph and self.no_sync and job.micro_batches > 1:
            raise Refused(
                "torch itself stops where a static graph begins inside no_sync "
                "(reducer.cpp, expect_autograd_hooks_); no_sync: false, or no static_graph, is "
                "accepted",
                ("strategy", "static_graph"),
            )
        if self.sync_batchnorm and not any(layer.batch_norm for layer in job.model.layers):
            raise Refused(
                f"{job.model.name} has no batch normalisation that is known; of the bundled "
                "models resnet50 has",
                ("strategy", "sync_batchnorm"),
            )

    def exchange(self, job: Job, iteration: int | None) -> Exchange:
        """The buckets of the `iteration`-th backward that reduces; DDP wraps the stage of a
        pipeline as a module of its own."""
        gradients = gradients_of(job)
        codec = self._codec(job, iteration)
        whole = codec is not None and codec.whole
        found = self._whole(gradients) if whole else self.buckets(gradients, job, iteration)
        late = whole or (self.static_graph and iteration == 1)
        layers = due_after(job, gradients, [bucket.tensors for bucket in found], late=late)
        copies = copied(gradients)
        back = 0.0 if self.gradient_as_bucket_view else sum(copies.values())
        messages = (
            self._message(k, b, layers[k], gradients, job, codec) for k, b in enumerate(found)
        )
        return Exchange(tuple(messages), COMM, copies, back)

    def _codec(self, job: Job, iteration: int | None) -> Compression | None:
        """What compresses gradients in `iteration`."""
        codec = self.compression or job.compression
        return None if codec is None else codec.at(iteration)

    def folded(self, job: Job) -> Folded:
        """Of rounds of local steps, those of a round."""
        found = self.rounds(job)
        return Folded() if found is None else Folded(found.period)

    def rounds(self, job: Job) -> Rhythm | None:
        """Where a compression leaves out steps."""
        codec = self._codec(job, None)
        if codec is None or codec.period == 1 or job.ranks == 1:
            return None
        count = len(self._whole(gradients_of(job)))
        coding = (f"{letter}{k}" for k in range(count) for letter in "HD")
        return Rhythm(codec.period, outside=("W", *coding))

    def _message(
        self,
        k: int,
        bucket: Bucket,
        layer: int,
        gradients: Sequence[Gradient],
        job: Job,
        codec: Compression | None,
    ) -> Message:
        """Bucket `k`: an all-reduce, or what a compression makes of it."""
        payload, elements = (
            payload_of(gradients, bucket.tensors),
            sum(g.elements for g in gradients),
        )
        legs, encode, decode, blocks = coded(codec, payload, job, elements)
        first = legs[0].name if legs else "AR"
        title = f"{first}{k} ({bucket.dtype})"
        return Message(layer, legs, bucket.tensors, title, bucket.bytes, encode, decode, blocks)

    def _whole(self, gradients: Sequence[Gradient]) -> tuple[Bucket, ...]:
        """All gradients of a dtype as one."""
        return assign_buckets([(g.dtype, g.bytes) for g in gradients], (), None)

    def buckets(
        self, gradients: list[Gradient], job: Job, iteration: int | None
    ) -> tuple[Bucket, ...]:
        """The buckets of the `iteration`-th backward that reduces, in launch order."""
        sizes = [(g.dtype, g.bytes) for g in gradients]
        rebuilt = self.rebuilt_in
        if rebuilt is not None and (iteration is None or iteration >= rebuilt):
            return assign_buckets(sizes, self.caps, arrival(gradients, job))
        one = rebuilt is not None and self.bucket_cap_mb_list is None
        return assign_buckets(sizes, () if one else self.caps, None)[::-1]

    def accept_stage(self, job: Job) -> None:
        """Refuse what is not modelled where layers are split over ranks."""
        for name in ("sync_batchnorm", "join", "optimizer_in_backward"):
            if getattr(self, name):
                raise Refused(
                    "is not modelled where layers are split over ranks; false is accepted",
                    ("strategy", name),
                )

    @property
    def compression(self) -> Compression | None:
        """What the communication hook does to a bucket."""
        if self.comm_hook == "none":
            return None
        if isinstance(self.comm_hook, str):
            found: Compression = plugins.find("compression", self.comm_hook)()
            return found
        return self.comm_hook

    @property
    def bare(self) -> Ddp:
        return replace(self, comm_hook="none")

    @property
    def takes_uneven_inputs(self) -> bool:
        return self.join

    def first_messages(self, job: Job) -> tuple[int, ...]:
        """What the constructor sends."""
        sizes = [(p.dtype, p.bytes) for p in parameters_of(job)]
        sizes += [(dtype, n * DTYPE_BYTES.get(dtype, 8)) for dtype, n in job.model.buffers]
        return tuple(bucket.bytes for bucket in assign_buckets(sizes, (FIRST_MESSAGE,), None))

    @property
    def rebuilt_in(self) -> int | None:
        """The backward before whose forward buckets are rebuilt, counted from 1; None: never."""
        if self.static_graph:
            return 3
        return None if self.find_unused_parameters else 2

    @property
    def caps(self) -> tuple[int, ...]:
        """Caps of the first and of all later buckets [B]."""
        if self.bucket_cap_mb_list is not None:
            return tuple(int(cap * 1024 * 1024) for cap in self.bucket_cap_mb_list)
        cap = int((self.bucket_cap_mb or DEFAULT_CAP_MB) * 1024 * 1024)
        if self.bucket_cap_mb is not None and tuple(self.torch) >= EXPLICIT_CAP_IS_FIRST:
            return (cap,)
        return (FIRST_BUCKET, cap)

    def memory(self, job: Job) -> dict[str, float]:
        """States, the buckets where gradients are no views of them, what a hook keeps."""
        parts = state_bytes(job, 1.0)
        if not self.gradient_as_bucket_view:
            parts["DDP buckets"] = parts["gradients"]
        if (codec := self._codec(job, None)) is not None:
            gradients = gradients_of(job)
            found = self._whole(gradients) if codec.whole else self.buckets(gradients, job, None)
            for bucket in found:
                kept = codec.memory(payload_of(gradients, bucket.tensors), job.ranks)
                for name, size in kept.items():
                    parts[name] = parts.get(name, 0.0) + size
        return parts

    def held(self, job: Job) -> Held:
        return held(job, self.memory(job), views=self.gradient_as_bucket_view)

    def lighter(self, *, split: bool) -> Iterator[Lighter]:
        """No copies of gradients; optimizer states or everything sharded."""
        if not self.gradient_as_bucket_view:
            yield from self.changed("buckets", gradient_as_bucket_view=True)
        if split:
            keys = {"kind": "zero", "stage": 1}
            yield Lighter(
                "sharded", plugins.find("strategies", "zero")(stage=1), {"strategy": keys}
            )
        else:
            fsdp = plugins.find("strategies", "fsdp")(torch=self.torch)
            cost = "parameters are gathered in every pass"
            yield Lighter("system", fsdp, {"strategy": {"kind": "fsdp"}}, cost)
            yield from offloading(1, 3)


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
