"""One rank's share of a model whose sequences several ranks split between them.

Everything is per token and divides by the ranks, but for parameters, which every rank holds, and
attention over pairs of tokens.  Of causal attention rank r of c that has the r-th of c stretches
looks at (2 r + 1) / c^2 of all pairs; with a head and a tail stretch of 2 c each rank has 1 / c of
them (pytorch/torchtitan "headtail"; NVIDIA/TransformerEngine
transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py).  Where all ranks
have the same heads or tokens alike, as with all-to-alls (Jacobs et al., DeepSpeed Ulysses,
arXiv:2309.14509), every rank has 1 / c too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpsim.models import AttentionWork, Layer, Model

#: what a layer has per sample, in equal parts per token
_PER_TOKEN = (
    "forward_bytes", "backward_bytes", "activations", "activations_full", "activations_selective",
    "activations_op", "activations_moe", "eager", "eager_op", "rms", "inside", "inside_bytes",
    "logits", "cast_saves", "cast_replicated", "again_bytes", "op_flop", "last_flop", "replicated",
    "forward_sum", "backward_sum", "output", "sends", "routed", "routed_bytes",
)  # fmt: skip
#: what of it is work, of attention too
_WORK = ("forward_flop", "backward_flop", "forward", "backward")


def context_part(model: Model, ranks: int, uneven: int, gathered: float) -> Model:
    """The part of `model` of one of `ranks` ranks that split every sequence.

    uneven    causal work lies unevenly on so many of them, and the part is that of the slowest; 1:
              all have the same
    gathered  how many times its part of keys and values a rank has beside it at once while a layer
              computes, in either direction
    """
    key = "context part", ranks, uneven, gathered
    return model.once(key, lambda: _model_part(model, ranks, uneven, gathered))


def _model_part(model: Model, ranks: int, uneven: int, gathered: float) -> Model:
    layers = (_part(layer, ranks, uneven, gathered) for layer in model.layers)
    return replace(model, layers=tuple(layers))


def slowest(work: AttentionWork, ranks: int) -> float:
    """How many times its mean share of pairs the last of `ranks` ranks has that hold one stretch
    of a sequence each: (2 c - 1) / c where tokens look back alone.

    >>> slowest(AttentionWork(1.0, 1.0), 4), slowest(AttentionWork(1.0, 1.0, causal=False), 4)
    (1.75, 1.0)
    """
    return (2.0 * ranks - 1.0) / ranks if work.causal and not work.window else 1.0


def _part(layer: Layer, ranks: int, uneven: int, gathered: float) -> Layer:
    changed: dict[str, Any] = {name: _over(getattr(layer, name), ranks) for name in _PER_TOKEN}
    work = layer.attended
    if work is None:
        more = 1.0
    else:
        most = slowest(work, uneven)
        more = 1.0 - work.share + work.share * most
        changed["attended"] = work._replace(
            queries=work.queries / ranks,
            keys=work.keys / ranks,
            share=work.share * most / more if more else work.share,
        )
        stated = "inside" if work.width is None else "inside_bytes"
        changed[stated] += 2.0 * gathered * work.keys / ranks * (work.width or 1.0)
        changed["again_flop"] = layer.again_flop * most / ranks
        changed["pairs"] = layer.pairs * most / ranks
    if layer.streamed is not None:
        changed["streamed"] = layer.streamed.times(1.0 / ranks)
    saved = tuple(one._replace(elements=one.elements / ranks) for one in layer.saved)
    changed |= {name: _over(getattr(layer, name), ranks, more) for name in _WORK}
    return replace(layer, **changed, saved=saved)


def _over(value: float | None, ranks: int, more: float = 1.0) -> float | None:
    return None if value is None else value * more / ranks
