"""Activations of the micro-batches that a pipeline rank has in flight.

Where backward is split, its half for the weights (W) needs less than its half for the inputs (I):
inputs of products with weights, and the gradients of what these put out.  For a GPT block that is
32 s b h bytes at 16 bit (14 of inputs, 18 of gradients) of the 34 s b h + 5 a s^2 b of its forward
(Qi et al., arXiv:2401.10241, section 2.3; megatron/core/pipeline_parallel/zerobubble/runtime.py of
sail-sg/zero-bubble-pipeline-parallelism 39f2c186).  What is kept depends on who splits it:

* Code that puts products with weights off (`WeightGradStore` of sail-sg's
  megatron/core/tensor_parallel/layers.py and of deepseek-ai/DualPipe 3da1bbea dualpipe/utils.py;
  TransformerEngine's `delay_wgrad_compute`) keeps that alone, whatever is computed again: I has
  computed the inputs again, and W reads them.
* torch's pipelining keeps all that forward saved, for `stage_backward_input` retains the graph, and
  the gradients beside it; what is above the last product with weights, the loss, it lets go
  (torch 2.13 torch/distributed/pipelining/_backward.py).  Of blocks that are computed again it
  keeps inputs and gradients, and W computes each again for every one of its tensors, for each has
  an `autograd.grad` of its own (tests/test_memory_torch.py; pytorch/torchtitan#773).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from math import prod
from typing import NamedTuple

from dpsim.core.dtypes import operand_bytes, working_bytes
from dpsim.core.lean import dataclass
from dpsim.models import Layer, Model, Tensor
from dpsim.models.few_bits import is_cast
from dpsim.models.memory import Footprint, footprints, kept_bytes
from dpsim.models.recomputing import Recompute


@dataclass(frozen=True)
class Activations:
    """Bytes of activations of one micro-batch on one rank.

    kept      from its forward until its backward
    rebuilt   the most that backward has beside them at one time, of what it computes again
    forward   the most that forward has beside them at one time
    backward  how much more backward has with its own gradients
    waiting   between the two halves of a backward that is split
    first     the most that there is while the first of them runs, in all
    second    the most that the second has beside `waiting`
    """

    kept: float
    rebuilt: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    waiting: float = 0.0
    first: float = 0.0
    second: float = 0.0

    @property
    def peak(self) -> float:
        """With one micro-batch at a time."""
        return self.kept + max(self.rebuilt + self.backward, self.forward)


class Products(NamedTuple):
    """Elements per sample that a layer's products with trained weights read, and put out."""

    read: float
    made: float


def products(layer: Layer) -> Products | None:
    """None: nothing says what they are.

    Matrices of one width read one input, but for a half's last one.  Each token passes each once
    (2 FLOP a weight).  Ranks that split a layer are taken to keep what they all read whole, though
    Megatron with sequence parallelism keeps its part.
    """
    if not layer.tensors and layer.tied is not None:
        return Products(max(0.0, layer.activations - 2 * layer.logits), layer.logits)
    most, flop = 3 if layer.experts else 2, layer.forward_flop - layer.pairs
    found = [t for t in layer.tensors if 2 <= len(t.shape) <= most and not _no_product(t)]
    convolved = any(len(one.shape) > most for one in layer.tensors)
    if layer.forward is not None or (flop > 0 and (convolved or not found)):
        return None
    if flop <= 0 or not any(one.trained for one in found):
        return Products(0.0, 0.0)
    if not all(one.trained for one in found):
        return None
    uses = flop / (2.0 * sum(one.elements for one in found))
    ends = [
        (prod(one.shape[:-2]), *(one.shape[-2:] if one.transposed else one.shape[:-3:-1]))
        for one in found
    ]
    inputs = [*{(many, read) for many, read, _ in ends[:-1]}, ends[-1][:2]]
    read = sum(many * width for many, width in inputs)
    return Products(uses * read, uses * sum(many * made for many, _, made in ends))


def _no_product(tensor: Tensor) -> bool:
    """Whether nothing is multiplied with a matrix: a bias, or a table of positions."""
    return tensor.name.endswith("bias") or "position" in tensor.name


def _normed(layer: Layer) -> float:
    """Elements per sample that norms with trained weights put out."""
    sizes = [t.elements for t in layer.tensors if _is_norm(t)]
    matrices = sum(t.elements for t in layer.tensors if len(t.shape) == 2)
    if not matrices:
        return layer.output if sizes else 0.0
    return max(0.0, layer.forward_flop - layer.pairs) / (2.0 * matrices) * sum(sizes)


def _is_norm(tensor: Tensor) -> bool:
    return len(tensor.shape) == 1 and tensor.trained and not tensor.name.endswith("bias")


class Halves(NamedTuple):
    """Bytes per sample that a layer keeps when the first half of its backward is done: while that
    goes on with other layers, and from then until the second half."""

    during: float
    after: float


def halves(layer: Layer, dtype: str, recompute: Recompute, *, eager: bool, graph: bool) -> Halves:
    """`graph`: torch's pipelining splits backward; else products with weights are put off."""
    if layer.detached:
        return Halves(0.0, 0.0)
    width, found = working_bytes(dtype), products(layer)
    if graph:
        kept = kept_bytes(layer, dtype, recompute, eager=eager)
        norms = _normed(layer) * (4.0 if eager and layer.rms else width)
        during = kept + norms + width * (found.made if found else 0.0)
        return Halves(during, during - 4.0 * layer.logits)
    if found is None:
        whole = kept_bytes(layer, dtype, "none", eager=eager)
        return Halves(whole, whole)
    stored = operand_bytes(dtype) if is_cast(layer, dtype) else width
    both = stored * (found.read + found.made)
    return Halves(both, both)


def activations(
    model: Model,
    samples: float,
    dtype: str,
    recompute: Recompute,
    *,
    eager: bool = False,
    loss: bool | None = None,
    graph: bool = False,
) -> Activations:
    """What a micro-batch of `samples` samples keeps.

    Full recomputation keeps the inputs of blocks and rebuilds one block after the other
    (Korthikanti et al., arXiv:2205.05198, section 5: 2 s b h bytes a block at 16 bit).  Selective
    recomputation rebuilds the scores of one attention at a time, that by operator one block, that
    of experts one half.
    """
    found = footprints(model, samples, dtype, recompute, eager=eager, loss=loss)
    rebuilt = max(one.rebuilt for one in found)
    after = [halves(one, dtype, recompute, eager=eager, graph=graph) for one in model.layers]
    return Activations(
        kept=sum(one.kept for one in found),
        rebuilt=rebuilt,
        forward=max(one.forward for one in found),
        backward=max(one.rebuilt + one.backward for one in found) - rebuilt,
        waiting=samples * sum(one.after for one in after),
        first=_first(model, found, [samples * one.during for one in after]),
        second=_second(model, found) if graph else 0.0,
    )


def _blocks_back(model: Model, found: list[Footprint]) -> Iterable[list[int]]:
    """Layers in the order of backward; those together that are computed again together."""

    def together(i: int) -> tuple[str, int]:
        return model.layers[i].unit, -1 if found[i].rebuilt else i

    return (list(block) for _, block in groupby(model.backward_order(), together))


def _first(model: Model, found: list[Footprint], during: list[float]) -> float:
    """The most that there is while the first half of a backward runs [B]: of layers it has done
    what waits, of the others what forward kept."""
    now = most = sum(one.kept for one in found)
    for block in _blocks_back(model, found):
        most = max(most, now + max(found[i].rebuilt + found[i].backward for i in block))
        now += sum(during[i] - found[i].kept for i in block)
    return max(most, now)


def _second(model: Model, found: list[Footprint]) -> float:
    """What W of torch's pipelining computes again and holds [B]: each block once for each of its
    weights (a bias goes with its own), of which is left what no weight before it has used, half on
    average, until the stage is done."""
    return (
        sum(
            max(found[i].rebuilt for i in block)
            * (1 + sum(_weights(model.layers[i]) for i in block))
            for block in _blocks_back(model, found)
        )
        / 2
    )


def _weights(layer: Layer) -> int:
    return sum(t.trained and not t.name.endswith("bias") for t in layer.tensors)


def in_flight_bytes(
    acts: Iterable[tuple[int, str, int]], stages: Mapping[int, Activations]
) -> float:
    """The most activations that a pipeline rank has at once [B].

    `acts` are its operations (stage, kind, micro-batch) in order, `stages` what one micro-batch has
    in each of its stages: its forward keeps them until its backward has run, and from I to W
    where that is split what W needs; what backward computes again is there once, not for every
    micro-batch in flight.
    """
    now = most = 0.0
    for stage, kind, _ in acts:
        own = stages[stage]
        if kind == "F":
            now += own.kept
            most = max(most, now + own.forward)
        elif kind == "B":
            most = max(most, now + own.rebuilt + own.backward)
            now -= own.kept
        elif kind == "I":
            most = max(most, now - own.kept + own.first)
            now += own.waiting - own.kept
        elif kind == "W":
            most = max(most, now + own.second)
            now -= own.waiting
        most = max(most, now)
    return most
