"""Asynchronous tensor parallelism: exchanges of a tensor group beside the products next to them.

Torch's `_micro_pipeline_tp` (torchtitan: `enable_async_tensor_parallel`) and Transformer Engine's
`tp_comm_overlap` cut a gather and the product behind it, and a product and the scatter behind it,
into as many parts as the group has ranks; each part is exchanged while another is computed
(pytorch/pytorch torch/_inductor/fx_passes/micro_pipeline_tp.py and
torch/distributed/_symmetric_memory/__init__.py, `_pipelined_multi_all_gather_and_consume` and
`_pipelined_produce_and_all2all`; Wang et al., Overlap Communication with Dependent Computation via
Decomposition, ASPLOS 2023).  Of t parts one has nothing to run beside: its own is there before any
other has come, or is sent when all else is computed.  So a product of M seconds with an exchange of
E takes max(M, E + M/t).

Forward gathers for the column-parallel matrices of a layer and scatters behind its row-parallel
one.  Backward gathers and scatters beside the products that make gradients of inputs, half of it;
those of weights run alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpsim.compile.context import Passes, PassPost, Posts
from dpsim.compile.job import Job
from dpsim.models import Layer

#: of a backward's products those that make gradients of inputs
FOR_INPUTS = 0.5
#: bytes that ranks gather and scatter for a layer, of (job, layer, whether forward)
Exchanged = Callable[[Job, Layer, bool], tuple[float, float]]


@dataclass(eq=False)
class TensorPasses(Passes):
    """Exchanges of `ranks` ranks that split layers."""

    ranks: int
    group: str
    exchanged: Exchanged

    def _of_layer(self, job: Job, number: int, kind: str) -> Posts:
        """Gradients of weights need none; a block that is computed again exchanges again."""
        layer, times = job.model.layers[number], job.times[number]
        if kind == "W":
            return ()
        ahead = self._posts(job, layer, times.forward, forward=True)
        if kind == "F":
            return ahead
        again = self.recompute and layer.activations_full < layer.activations
        back = max(times.backward - times.forward * again, 0.0) * FOR_INPUTS
        return ahead * again + self._posts(job, layer, back, forward=False)

    def _posts(self, job: Job, layer: Layer, seconds: float, *, forward: bool) -> Posts:
        """The gather and the scatter of a pass whose products take a part of `seconds`."""
        gathered, size = self.exchanged(job, layer, forward)
        if not size:
            return ()
        column, row = shares(job, layer)
        others = 1.0 - 1.0 / self.ranks
        first, last = (column, row) if forward else (row, column)
        return (
            PassPost("all_gather", self.group, gathered, 1, seconds * first * others),
            PassPost("reduce_scatter", self.group, size, 1, seconds * last * others),
        )


def shares(job: Job, layer: Layer) -> tuple[float, float]:
    """The shares of a layer's pass that its column-parallel matrices and its row-parallel one, the
    last, take, by arithmetic; of a layer whose durations are given half each.  Experts have their
    own exchanges in between: none."""
    if layer.forward is not None:
        return 0.5, 0.5
    matrices = [tensor.elements for tensor in layer.tensors if len(tensor.shape) == 2]
    if layer.experts or not matrices or not layer.forward_flop:
        return 0.0, 0.0
    each = 2.0 * job.model.tokens / layer.forward_flop
    row, column = each * matrices[-1], each * sum(matrices[:-1])
    scale = max(1.0, row + column)
    return column / scale, row / scale
