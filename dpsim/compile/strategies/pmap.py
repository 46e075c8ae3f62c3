"""JAX's pmap (and jit over a data-parallel mesh) with XLA on GPUs.

Rules read in openxla/xla xla/service/collective_combiner_utils.h and xla/debug_options_flags.cc,
and checked on programs that jaxlib 0.10.2 compiled for an H100 (`validation/record_xla.py`):

* Every leaf of the gradients is one all-reduce.  The combiner walks them in post-order, which is
  the order of the leaves, and merges those of one dtype while their bytes stay within the threshold
  and their number within 256; one that does not fit closes the group; one larger than the threshold
  is passed over and stays alone.  The operands of a merged one are concatenated into one buffer,
  and cut out of it afterwards.
* With the latency-hiding scheduler an all-reduce starts when its last operand is there and runs
  beside the rest of backward.  Without it all-reduces keep the order of the program: one starts
  after its last operand, and after those before it, and the update waits for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from dpsim.compile.exchange import Exchange
from dpsim.compile.job import Gradient, Job, gradients_of, state_bytes
from dpsim.compile.strategies import Strategy
from dpsim.compile.strategies._packs import Pack, packed
from dpsim.core.record import Check, Flag, record

#: debug_options_flags.cc, kDefaultAllReduceCombineThreshold: 30 MiB + 7 B
THRESHOLD = 30 * 1024 * 1024 + 7
#: gpu_compiler.cc: operands of one combined all-reduce
OPERANDS = 256
COMM = "xla"


@record
class Pmap(Strategy):
    """XLA's own flags; the order of the model's tensors is that of the leaves of the gradients."""

    channels_last = True
    xla_gpu_all_reduce_combine_threshold_bytes: Annotated[int, Check(0, 10**15)] = THRESHOLD
    xla_gpu_enable_latency_hiding_scheduler: Flag = False

    def exchange(self, job: Job, iteration: int | None) -> Exchange:
        """The combined all-reduces; the same in every iteration (compilation, before the first
        one, is not part of it)."""
        found = gradients_of(job)
        return packed(job, found, self.packs(job, found), COMM, late=False)

    def packs(self, job: Job, gradients: Sequence[Gradient]) -> tuple[Pack, ...]:
        """The combined all-reduces in launch order; the operands of one are concatenated, and cut
        again afterwards."""
        leaves = [(g.dtype, g.bytes) for g in gradients]
        found = []
        for members in combine(leaves, self.xla_gpu_all_reduce_combine_threshold_bytes):
            size = float(sum(gradients[g].bytes for g in members))
            found.append(Pack(members, size, size if len(members) > 1 else 0.0))
        if self.xla_gpu_enable_latency_hiding_scheduler:
            place = {layer: k for k, layer in enumerate(job.model.backward_order())}
            found.sort(key=lambda pack: max(place[gradients[g].ready] for g in pack.gradients))
        return tuple(found)

    @property
    def fused_kernels(self) -> bool:
        return True

    def memory(self, job: Job) -> dict[str, float]:
        """States, and the buffers of the combined all-reduces."""
        parts = state_bytes(job, 1.0)
        if job.ranks > 1:
            found = gradients_of(job)
            parts["combined gradients"] = sum(p.copied for p in self.packs(job, found))
        return parts


def combine(
    leaves: Sequence[tuple[str, int]], threshold: int, operands: int = OPERANDS
) -> list[tuple[int, ...]]:
    """The groups over leaves of (dtype, bytes), in the order of their first members."""
    alone = [(index,) for index, (_, size) in enumerate(leaves) if size > threshold]
    left = [index for index, (_, size) in enumerate(leaves) if size <= threshold]
    found: list[tuple[int, ...]] = []
    while left:
        dtype, filled = leaves[left[0]][0], 0
        members: list[int] = []
        for index in left:
            if leaves[index][0] != dtype:
                continue
            if filled + leaves[index][1] > threshold or len(members) == operands:
                break
            members.append(index)
            filled += leaves[index][1]
        found.append(tuple(members))
        taken = set(members)
        left = [index for index in left if index not in taken]
    return sorted([*found, *alone])
