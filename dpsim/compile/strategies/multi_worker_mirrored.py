"""TensorFlow's MultiWorkerMirroredStrategy: a process per worker, collective ops.

Rules read in tensorflow/tensorflow tensorflow/python/distribute/cross_device_utils.py and
cross_device_ops.py (2.21):

* Gradients are taken in reversed order of the variables and grouped into packs: a new pack begins
  when the open one is already strictly larger than `bytes_per_pack`, so packs overshoot, and one
  that is exactly full takes one more.  0 puts everything into one pack.
* A pack is concatenated, all-reduced and split.  All-reduces run one after the other, in the order
  of the packs; a pack starts when its last gradient is there.
* A single replica reduces and copies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from dpsim.compile.exchange import Exchange
from dpsim.compile.job import Gradient, Job, gradients_of, state_bytes
from dpsim.compile.strategies import Strategy
from dpsim.compile.strategies._packs import Pack, one_dtype, packed
from dpsim.core.record import Check, Refused, record

COMM = "collective"


@record
class MultiWorkerMirrored(Strategy):
    """`bytes_per_pack` and `implementation` of `tf.distribute.experimental.CommunicationOptions`;
    `auto` is NCCL where all workers have GPUs."""

    channels_last = True  # as MirroredStrategy's
    bytes_per_pack: Annotated[int, Check(0, 10**15)] = 0
    implementation: Literal["auto", "nccl", "ring"] = "auto"

    def __post_init__(self) -> None:
        if self.implementation == "ring":
            raise Refused(
                "TensorFlow's own ring over gRPC is not modelled; auto and nccl are",
                ("implementation",),
            )

    def exchange(self, job: Job, iteration: int | None) -> Exchange:
        """Packs launched in order; the same in every iteration."""
        found = gradients_of(job)
        return packed(job, found, self.packs(found), COMM, late=False)

    def packs(self, gradients: Sequence[Gradient]) -> tuple[Pack, ...]:
        """The packs in launch order; a tensor alone is not copied."""
        order = range(len(gradients) - 1, -1, -1)
        found = []
        for members in group([(g, gradients[g].bytes) for g in order], self.bytes_per_pack):
            if not one_dtype([gradients[g] for g in members]):
                raise Refused(
                    "MultiWorkerMirroredStrategy concatenates the gradients of a pack, which need "
                    "one dtype",
                    ("strategy", "bytes_per_pack"),
                )
            size = float(sum(gradients[g].bytes for g in members))
            found.append(Pack(tuple(members), size, size if len(members) > 1 else 0.0))
        return tuple(found)

    def memory(self, job: Job) -> dict[str, float]:
        """States, and the packs before and after their all-reduce."""
        parts = state_bytes(job, 1.0)
        if job.ranks > 1:
            parts["packed gradients"] = sum(p.copied for p in self.packs(gradients_of(job)))
        return parts


def group(sizes: Sequence[tuple[int, int]], bytes_per_pack: int) -> list[list[int]]:
    """Packs over (index, bytes), in order."""
    packs: list[list[int]] = []
    filled = 0
    for index, size in sizes:
        if not packs or (bytes_per_pack and filled > bytes_per_pack):
            packs.append([])
            filled = 0
        packs[-1].append(index)
        filled += size
    return packs
