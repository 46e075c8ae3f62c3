"""TensorFlow's MirroredStrategy: one process, the GPUs of one node.

Rules read in tensorflow/tensorflow tensorflow/python/distribute/cross_device_ops.py (2.21):

* All gradients of a device are concatenated in the order of the variables, the flat tensor is cut
  into `num_packs` ranges of total // num_packs elements (the last takes the rest), and each is
  all-reduced by NCCL.  The concatenation needs the last gradient, so nothing overlaps backward.
* `num_packs: 0` packs nothing: every gradient is all-reduced by itself once it is there.
* One pack is copied in and out once; several are copied twice each way (concatenated and cut).
* A single replica reduces and copies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated

from dpsim.compile.exchange import Exchange
from dpsim.compile.job import Gradient, Job, arrival, gradients_of, state_bytes
from dpsim.compile.strategies import Strategy
from dpsim.compile.strategies._packs import Pack, one_dtype, packed
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.record import Check, Refused, record

COMM = "nccl"


@record
class Mirrored(Strategy):
    """`num_packs` of `tf.distribute.NcclAllReduce`: how many ranges the concatenated gradients are
    cut into; 0 packs nothing."""

    channels_last = True  # tensorflow core/grappler/optimizers/generic_layout_optimizer.cc
    num_packs: Annotated[int, Check(0, 10_000)] = 1

    def exchange(self, job: Job, iteration: int | None) -> Exchange:
        """All packs; the same in every iteration."""
        self._check(job)
        found = gradients_of(job)
        return packed(job, found, self.packs(job, found), COMM, late=self.num_packs > 0)

    def _check(self, job: Job) -> None:
        if job.local_size is not None and job.local_size < job.ranks:
            raise Refused(
                f"MirroredStrategy runs on one node; {job.ranks} ranks fill more than one of "
                f"{job.local_size}: use multi_worker_mirrored",
                ("strategy", "kind"),
            )

    def packs(self, job: Job, gradients: Sequence[Gradient]) -> tuple[Pack, ...]:
        """The packs in launch order."""
        if not self.num_packs:
            order = arrival(gradients, job)
            return tuple(Pack((g,), float(gradients[g].bytes)) for g in order)
        if not gradients:
            return ()
        if not one_dtype(gradients):
            raise Refused(
                "MirroredStrategy concatenates all gradients, which need one dtype; with "
                "num_packs: 0 they may differ",
                ("strategy", "num_packs"),
            )
        width = DTYPE_BYTES[gradients[0].dtype]
        sizes = cut(sum(g.elements for g in gradients), self.num_packs)
        copies = 1 if self.num_packs == 1 else 2
        ends = list(accumulate(gradient.elements for gradient in gradients))
        found, first = [], 0
        for size in sizes:
            inside = [
                g
                for g, end in enumerate(ends)
                if end - gradients[g].elements < first + size and end > first
            ]
            found.append(Pack(tuple(inside), float(width * size), float(copies * width * size)))
            first += size
        return tuple(found)

    def memory(self, job: Job) -> dict[str, float]:
        """States; the concatenated gradients, and once more if they are cut."""
        self._check(job)
        parts = state_bytes(job, 1.0)
        if self.num_packs and job.ranks > 1:
            parts["packed gradients"] = parts["gradients"] * (1 if self.num_packs == 1 else 2)
        return parts


def cut(total: int, packs: int) -> list[int]:
    """Elements of each of at most `packs` ranges of `total` elements."""
    each = total // packs
    sizes = [each] * (packs - 1) + [total - each * (packs - 1)]
    return [size for size in sizes if size]
