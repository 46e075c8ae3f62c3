"""Exchanges of a tensor group beside the products next to them.

Asynchronous tensor parallelism.  Torch's `_micro_pipeline_tp` (torchtitan:
`enable_async_tensor_parallel`) and Transformer Engine's `tp_comm_overlap` cut a gather and the
product behind it, and a product and the scatter behind it, into as many parts as the group has
ranks; each part is exchanged while another is computed
(pytorch/pytorch torch/_inductor/fx_passes/micro_pipeline_tp.py and
torch/distributed/_symmetric_memory/__init__.py, `_pipelined_multi_all_gather_and_consume` and
`_pipelined_produce_and_all2all`; Wang et al., Overlap Communication with Dependent Computation via
Decomposition, ASPLOS 2023).  Of t parts one has nothing to run beside: its own is there before any
other has come, or is sent when all else is computed.  So a product of M seconds with an exchange of
E takes max(M, E + M/t).

Forward gathers for the column-parallel matrices of a layer and scatters behind its row-parallel
one.  Backward gathers and scatters beside the products that make gradients of inputs, half of it;
those of weights run alone.

Overlapped gradients.  Megatron-LM's backward of a column-parallel matrix sums the gradients of its
input beside the product that makes those of its weights.  With sequence parallelism it keeps a part
of the input only, gathers it again beside the product that makes the gradients of the input, and
reduce-scatters these beside the one for the weights; what backward of a row-parallel matrix gathers
is waited for (NVIDIA/Megatron-LM d98e8a64 megatron/core/tensor_parallel/layers.py,
`LinearWithGradAccumulationAndAsyncCommunication`, and mappings.py,
`_ReduceScatterToSequenceParallelRegion`; the sum since 2021-09, the gather since 2022-03;
Korthikanti et al., arXiv:2205.05198, section 4.2.2; NVIDIA/TransformerEngine d0067d0d
transformer_engine/pytorch/module/layernorm_linear.py does the same).  With `tp_comm_overlap` too,
these stay whole beside whole products, and the others are cut as above (`ub_bulk_dgrad` and
`ub_bulk_wgrad`, the defaults of the same file).  Where gradients of weights are made in a pass of
their own, nothing is beside the scatter.  A layer whose column-parallel matrices are frozen waits:
Megatron-LM's `LinearWithFrozenWeight` (same file) keeps the weight alone, gathers no input again,
and sums before it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpsim.compile.context import Passes, PassPost, Posts
from dpsim.compile.job import Job
from dpsim.models import Layer, Model, Tensor
from dpsim.models.adapters import is_adapter
from dpsim.models.recomputing import exchanged_again
from dpsim.models.weights import owned

#: bytes that ranks gather and scatter for a layer, of (job, layer, whether forward)
Exchanged = Callable[[Job, Layer, bool], tuple[float, float]]


@dataclass(eq=False)
class TensorPasses(Passes):
    """Exchanges of `ranks` ranks that split layers, and sequences with `sequence`; `cut` into parts
    beside products, `overlapped` with gradients, or both."""

    ranks: int
    group: str
    exchanged: Exchanged
    cut: bool
    overlapped: bool
    sequence: bool

    def _of_layer(self, job: Job, number: int, kind: str) -> Posts:
        """Gradients of weights need none; a block that is computed again exchanges again."""
        layer, times = job.model.layers[number], job.times[number]
        if kind == "W":
            return ()
        ahead = self._posts(job, layer, times.forward, forward=True) if self.cut else ()
        if kind == "F":
            return ahead
        gathers, sums = exchanged_again(layer, self.recompute, sequence=self.sequence)
        repeated = ahead[:1] * gathers + ahead[1:] * sums
        whole = max(times.backward - times.again, 0.0)
        back = whole * for_inputs(layer)
        if self.overlapped and not waits(job.model, layer):
            return repeated + self._gradients(
                job, layer, back, whole * for_weights(job.model, layer) * (kind == "B")
            )
        return repeated + (self._posts(job, layer, back, forward=False) if self.cut else ())

    def _gradients(self, job: Job, layer: Layer, seconds: float, weights: float) -> Posts:
        """What backward exchanges beside products for inputs, which take a part of `seconds`, and
        beside those for weights, which take a part of `weights`."""
        gathered, size = self.exchanged(job, layer, False)
        if not size:
            return ()
        column, row = shares(job, layer)
        found: Posts = ()
        if self.cut:
            beside = seconds * row * (1.0 - 1.0 / self.ranks)
            found += (PassPost("all_gather", self.group, gathered, 1, beside),)
        if self.sequence:
            found += (PassPost("all_gather", self.group, gathered, 1, seconds * column),)
        last = "reduce_scatter" if self.sequence else "all_reduce"
        return (*found, PassPost(last, self.group, size, 1, weights * column))

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


def for_inputs(layer: Layer) -> float:
    """The share of a layer's backward that makes gradients of its inputs: as many products as
    forward has, which is all of it where its weights are frozen."""
    if layer.forward is not None:
        return 1.0 - layer.weight_share
    return min(layer.forward_flop / layer.backward_flop, 1.0) if layer.backward_flop else 0.5


def for_weights(model: Model, layer: Layer) -> float:
    """The share of a layer's backward that would make gradients of its weights, were those of as
    many trained as of its column-parallel matrices."""
    if layer.forward is not None:
        return layer.weight_share
    return for_inputs(layer) * trained_share(column_parallel(model, layer))


def waits(model: Model, layer: Layer) -> bool:
    """Whether nothing runs beside its gradients, though those of others overlap: matrices of
    experts, and column-parallel ones that are frozen."""
    return bool(layer.experts) or not trained_share(column_parallel(model, layer))


def trained_share(tensors: Sequence[Tensor]) -> float:
    """The share of their elements that is trained; 1 of none."""
    whole = sum(t.elements for t in tensors)
    return sum(t.elements for t in tensors if t.trained) / whole if whole else 1.0


def column_parallel(model: Model, layer: Layer) -> list[Tensor]:
    """A layer's matrices but the last, without adapters; all it has of a head, or where it states
    its durations or has no matrices."""
    own = [t for t in owned(model, layer) if not is_adapter(t)]
    matrices = [t for t in own if len(t.shape) == 2]
    if layer.forward is not None or not layer.forward_sum or len(matrices) < 2:
        return own
    return matrices[:-1]


def shares(job: Job, layer: Layer) -> tuple[float, float]:
    """The shares of a layer's pass that its column-parallel matrices and its row-parallel one, the
    last, take, by arithmetic; of a layer whose durations are given half each.  Experts have their
    own exchanges in between: none."""
    if layer.forward is not None:
        return 0.5, 0.5
    if layer.forward_flop and not layer.forward_sum:  # a head
        return 1.0, 0.0
    base = (tensor for tensor in layer.tensors if not is_adapter(tensor))
    matrices = [tensor.elements for tensor in base if len(tensor.shape) == 2]
    if layer.experts or not matrices or not layer.forward_flop:
        return 0.0, 0.0
    each = 2.0 * job.model.tokens / layer.forward_flop
    row, column = each * matrices[-1], each * sum(matrices[:-1])
    scale = max(1.0, row + column)
    return column / scale, row / scale
