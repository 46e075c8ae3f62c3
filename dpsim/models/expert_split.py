"""One rank's share of layers with experts, where ranks hold some experts each."""

from __future__ import annotations

from dataclasses import replace

from dpsim.models import Layer, Model, Tensor
from dpsim.models.streams import Streamed


def expert_part(
    model: Model, ranks: int, load: float = 1.0, *, sorted_again: bool = False
) -> Model:
    """The part of `model` of one of `ranks` ranks that share out the experts of every layer.

    Each computes, in the mean, what it would have computed of its own tokens: they leave, and as
    many come.  `load` is how many times its mean share the fullest rank has, in arithmetic, traffic
    and memory; the others wait for it.  `sorted_again`: what came is sorted by expert, and back
    (`dpsim/models/library_kernels.py`).
    """
    key = "experts", ranks, load, sorted_again
    return model.once(key, lambda: _expert_part(model, ranks, load, sorted_again))


def _expert_part(model: Model, ranks: int, load: float, sorted_again: bool) -> Model:
    layers = (_part(one, ranks, load, sorted_again) if one.experts else one for one in model.layers)
    return replace(model, layers=tuple(layers))


def _streamed(layer: Layer, held: int, sorted_again: bool) -> Streamed | None:
    """What a library's kernels beside products move: more where copies are sorted, and there are
    several experts to sort them by."""
    if layer.streamed is None or not layer.library or not sorted_again or held < 2:
        return layer.streamed
    moved = 4 * layer.routed * layer.chosen
    ahead, back = layer.streamed.forward + moved, layer.streamed.backward + moved
    return layer.streamed._replace(forward=ahead, backward=back)


def _part(layer: Layer, ranks: int, load: float, sorted_again: bool) -> Layer:
    held = layer.experts // ranks

    def share(tensor: Tensor) -> Tensor:
        rows = tensor.shape[0] * held // layer.experts
        if tensor.shape[0] % layer.experts:  # a stated number of elements
            rows = -(-tensor.shape[0] // ranks)
        return tensor._replace(shape=(rows, *tensor.shape[1:]))

    timed = layer.forward is not None and layer.backward is not None
    streamed = _streamed(layer, held, sorted_again)
    return replace(
        layer,
        tensors=tuple(share(tensor) for tensor in layer.tensors),
        experts=held,
        forward_flop=layer.forward_flop * load,
        backward_flop=layer.backward_flop * load,
        forward_bytes=layer.forward_bytes * load,
        backward_bytes=layer.backward_bytes * load,
        activations=layer.activations * load,
        activations_selective=layer.activations_selective * load,
        activations_op=layer.activations_op * load,
        eager=layer.eager * load,
        inside=layer.inside * load,
        inside_bytes=layer.inside_bytes * load,
        cast_saves=layer.cast_saves * load,
        op_flop=layer.op_flop * load,
        routed=layer.routed * load,
        streamed=streamed and streamed.times(load),
        routed_bytes=None if layer.routed_bytes is None else layer.routed_bytes * load,
        forward=layer.forward * load if timed and layer.forward is not None else layer.forward,
        backward=layer.backward * load if timed and layer.backward is not None else layer.backward,
    )


def apart(model: Model) -> tuple[Model, Model]:
    """`model` with the parameters outside experts alone, and with those of experts alone; all
    layers are in both."""
    return model.once("apart", lambda: _apart(model))


def _apart(model: Model) -> tuple[Model, Model]:
    layers = model.layers
    shared = (replace(one, tensors=()) if one.experts else one for one in layers)
    own = (one if one.experts else replace(one, tensors=(), tied=None) for one in layers)
    bare = replace(model, arrival=())
    return replace(bare, layers=tuple(shared)), replace(bare, layers=tuple(own))
