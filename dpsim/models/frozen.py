"""What is trained, and what freezing the rest leaves of a model's work.

Autograd (torch/csrc/autograd/engine.cpp) computes a gradient only where something that is trained
needs it.  So backward ends at the first layer of forward that has trained parameters; a frozen
layer behind that one makes the gradient of its input and none of its weights, and forward keeps
nothing for those.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import comb, inf

from dpsim.core.record import Refused
from dpsim.models import Layer, Model, Tensor
from dpsim.models.adapters import is_adapter
from dpsim.models.weights import full_name, is_weight, owned, product_elements, product_flop

LONGEST = 500  # characters of a pattern
MOST_TRIES = 1e7  # ways to match a name: some 0.1 s of a processor
#: what counts in a regular expression: escapes and classes are skipped as a whole
_TOKENS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?|\)?(?:[*+?]|\{\d*,?\d*\})[?+]?|[()|]", re.DOTALL
)


def selected(model: Model, patterns: Sequence[str]) -> Model:
    """`model` of which only what `patterns` match is trained, and the adapters that it has.

    A pattern is a regular expression for whole parts, between dots, of a parameter's or a layer's
    name.  Raises Refused for one that is none, or matches nothing.
    """
    matched: set[tuple[int, int]] = set()
    names = [full_name(la, t) for la in model.layers for t in la.tensors]
    longest = max(map(len, (*names, *(la.name for la in model.layers))), default=0)
    for k, pattern in enumerate(patterns):
        own = set(_matches(model, _compiled(pattern, k, longest)))
        if not own:
            said = f"{pattern[:60]!r} matches no parameter and no layer; a pattern is for whole"
            raise Refused(f"{said} parts of names such as {', '.join(names[:3])}", ("trainable", k))
        matched |= own
    adapted = any(is_adapter(t) for layer in model.layers for t in layer.tensors)
    layers = []
    for i, layer in enumerate(model.layers):
        own_tensors = (
            t._replace(trained=((i, j) in matched and (t.trained or adapted)) or is_adapter(t))
            for j, t in enumerate(layer.tensors)
        )
        layers.append(replace(layer, tensors=tuple(own_tensors)))
    return replace(model, layers=tuple(layers))


def _compiled(pattern: str, k: int, longest: int) -> re.Pattern[str]:
    where = ("trainable", k)
    if len(pattern) > LONGEST:
        raise Refused(f"a pattern has at most {LONGEST} characters", where)
    try:
        found = re.compile(rf"(?:^|\.)(?:{pattern})(?:$|\.)")
    except re.error as error:
        raise Refused(f"{pattern[:60]!r} is no regular expression: {error}", where) from None
    if _tries(pattern, longest) > MOST_TRIES:
        raise Refused(
            f"{pattern[:60]!r} can match in so many ways that it may never be done; repeat single "
            "characters only, no groups, a few times (.*norm.*)", where,
        )  # fmt: skip
    return found


def _tries(pattern: str, longest: int) -> float:
    """At most so many ways to match a name of `longest` characters, all of which `re` tries where
    the last part does not fit; infinite where a group is repeated.

    k repeats end at one of C(longest + k, k) sets of places; what is optional doubles the ways, and
    a group of n alternatives has n times as many.
    """
    repeats, ways, bars = 0, 1.0, [0]
    for token in (found.group() for found in _TOKENS.finditer(pattern)):
        if token.startswith(")"):
            ways *= 1 + (bars.pop() if len(bars) > 1 else 0)
            if token[1:2] not in ("", "?"):
                return inf
        if token in ("(", "(?"):
            bars.append(0)
        elif token == "|":
            bars[-1] += 1
        elif token in ("?", "??", "?+", ")?", ")??", ")?+"):
            ways *= 2
        elif token[0] in "*+{":
            repeats += 1
    return ways * (1 + bars[0]) * comb(longest + repeats, repeats)


def _matches(model: Model, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    """(layer, tensor) of what a pattern matches; a layer's name stands for all of its own, and for
    the tensor that it is tied to."""
    index = {layer.name: i for i, layer in enumerate(model.layers)}
    found = []
    for i, layer in enumerate(model.layers):
        whole = bool(pattern.search(layer.name))
        if whole and layer.tied is not None:
            found.append((index[layer.tied], 0))
        for j, tensor in enumerate(layer.tensors):
            if whole or pattern.search(full_name(layer, tensor)):
                found.append((i, j))
    return found


def frozen(model: Model) -> Model:
    """`model` with the work that is left where some of its tensors are not trained; the same model
    where all are.  Raises Refused where none is."""
    tensors = [t for layer in model.layers for t in layer.tensors]
    if all(t.trained for t in tensors):
        return model
    if not any(t.trained for t in tensors):
        raise Refused("every parameter is frozen; something has to be trained", ("trainable",))
    layers = list(model.layers)
    reached = False  # whether the layer's input needs a gradient
    for place, i in enumerate(model.forward_order):
        layer = model.layers[i]
        own = any(t.trained for t in owned(model, layer))
        if not reached and not own:
            layers[i] = _detached(layer)
        else:
            layers[i] = _partly(model, layer, first=not reached and place > 0)
        reached = reached or own
    return replace(model, layers=tuple(layers))


def _detached(layer: Layer) -> Layer:
    """A layer that no gradient reaches: forward keeps nothing."""
    return replace(
        layer,
        backward_flop=0.0,
        backward_bytes=0.0,
        backward=None if layer.backward is None else 0.0,
        backward_kernels=0,
        streamed=layer.streamed and layer.streamed._replace(backward=0.0, whole_back=0.0),
        activations=0.0,
        activations_full=0.0,
        activations_selective=0.0,
        activations_op=0.0,
        eager=0.0,
        eager_op=0.0,
        rms=0.0,
        inside=0.0,
        inside_bytes=0.0,
        cast_saves=0.0,
        cast_replicated=0.0,
        replicated=0.0,
        again_flop=0.0,
        again_bytes=0.0,
        again_kernels=0,
        backward_sum=0.0,
        saved=(),
        detached=True,
    )


def _partly(model: Model, layer: Layer, *, first: bool) -> Layer:
    """A layer without the gradients of its frozen tensors; `first`: its input needs none either."""
    if layer.backward is not None:
        return _timed(layer, first=first)
    weights = [t for t in owned(model, layer) if is_weight(t)]
    still = [t for t in weights if not t.trained]
    gone = still + weights * (first and len(weights) == 1)  # its only product's input gradient
    flop = sum(product_flop(model, layer, t) for t in gone)
    moved = sum(product_elements(model, layer, t) for t in gone)
    cut = replace(
        layer,
        backward_flop=max(layer.backward_flop - flop, 0.0),
        backward_bytes=max(layer.backward_bytes - moved, 0.0),
        backward_kernels=max(layer.launched_backward - len(gone), 0),
        weight_share=_weight_share(model, layer, weights, flop),
    )
    return _unkept(cut)


def _weight_share(model: Model, layer: Layer, weights: list[Tensor], gone: float) -> float:
    """The share of backward that makes gradients of weights, when `gone` FLOP of it are left out;
    of a layer with all weights trained as it was."""
    left = layer.backward_flop - gone
    if not any(not t.trained for t in weights) or left <= 0:
        return layer.weight_share
    return min(sum(product_flop(model, layer, t) for t in weights if t.trained) / left, 1.0)


def _timed(layer: Layer, *, first: bool) -> Layer:
    """The same of a layer that states its durations."""
    assert layer.backward is not None
    share = layer.trained / layer.parameters if layer.parameters else 1.0
    weights = layer.backward * layer.weight_share * share
    inputs = 0.0 if first else layer.backward * (1.0 - layer.weight_share)
    whole = weights + inputs
    return replace(layer, backward=whole, weight_share=weights / whole if whole else 0.0)


def _unkept(layer: Layer) -> Layer:
    """A layer that keeps nothing for gradients of frozen weights."""
    trained = {t.name for t in layer.tensors if t.trained}
    gone = [one for one in layer.saved if trained.isdisjoint(one.tensors)]
    less, whole = sum(one.elements for one in gone), sum(one.elements for one in gone if one.whole)
    return replace(
        layer,
        activations=max(layer.activations - less, 0.0),
        activations_selective=max(layer.activations_selective - less, 0.0),
        replicated=max(layer.replicated - whole, 0.0),
        cast_saves=max(layer.cast_saves - less, 0.0),
        cast_replicated=max(layer.cast_replicated - whole, 0.0),
        saved=tuple(one for one in layer.saved if one not in gone),
    )
