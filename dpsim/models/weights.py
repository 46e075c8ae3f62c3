"""Weights: what a layer's matrices cost, seen from its totals.

A layer states its work as a whole.  That of one of its matrices follows from its shape: a vector
times an (out, in) matrix takes 2 FLOP an element (Kaplan et al., arXiv:2001.08361, section 2.1), in
each of forward, the gradient of the input and the gradient of the weight; a convolution as many for
every place that its window takes.
"""

from __future__ import annotations

from math import prod

from dpsim.models import Layer, Model, Tensor


def full_name(layer: Layer, tensor: Tensor) -> str:
    """What a tensor is called in the whole model."""
    return tensor.name if "." in tensor.name else f"{layer.name}.{tensor.name}"


def is_weight(tensor: Tensor) -> bool:
    """Whether a tensor is a matrix, those of experts, or the windows of a convolution."""
    return len(tensor.shape) in (2, 3, 4) and not tensor.name.endswith("bias")


def columns(tensor: Tensor) -> tuple[int, int]:
    """Outputs and inputs of a weight, in numbers per position."""
    return tensor.shape[0], tensor.shape[1]


def owned(model: Model, layer: Layer) -> tuple[Tensor, ...]:
    """The tensors that a layer computes with: its own, and the one that it is tied to."""
    if layer.tied is None:
        return layer.tensors
    owner = next(one for one in model.layers if one.name == layer.tied)
    return (*owner.tensors[:1], *layer.tensors)


def positions(model: Model, layer: Layer, tensor: Tensor) -> float:
    """How often a sample's forward multiplies by the weight `tensor` of `layer`: its tokens, or the
    places of a window; less where the layer's FLOP say so (tables that are looked up: 0; experts,
    by the share of the tokens that each gets)."""
    own = [t for t in owned(model, layer) if is_weight(t) and len(t.shape) == len(tensor.shape)]
    elements = sum(t.elements for t in own)
    often = layer.forward_flop / (2.0 * elements) if elements else 0.0
    return min(often, float(model.tokens)) if len(tensor.shape) == 2 else often


def product_flop(model: Model, layer: Layer, tensor: Tensor) -> float:
    """FLOP per sample of one product with `tensor`: as many in forward, for the gradient of its
    input and for its own."""
    return 2.0 * positions(model, layer, tensor) * tensor.elements


def product_elements(model: Model, layer: Layer, tensor: Tensor) -> float:
    """Elements per sample that such a product reads and writes beside the weight."""
    if len(tensor.shape) == 4:
        return layer.activations_full + layer.output
    *experts, out, read = tensor.shape
    return positions(model, layer, tensor) * prod(experts) * (out + read)
