"""What backward computes again of what forward did, to keep less."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from dpsim.models import Layer, Model
from dpsim.models.few_bits import is_cast

Recompute = Literal["none", "selective", "selective_op", "moe", "full", "full_early_stop"]
#: computes whole blocks again until backward has all that it needs of them
EARLY: Recompute = "full_early_stop"
WHOLE_BLOCKS: tuple[Recompute, ...] = ("full", EARLY)


def done_again(layer: Layer, recompute: Recompute) -> bool:
    """Whether backward does all of a layer's forward again: what keeps all its activations is not
    (embedding, final norm, head)."""
    if recompute == "moe":
        return layer.activations_moe is not None
    return recompute in WHOLE_BLOCKS and layer.activations_full < layer.activations


def stops_early(layer: Layer, recompute: Recompute) -> bool:
    """Whether forward is done again but for the layer's last product, and what is summed behind it.

    torch.utils.checkpoint with use_reentrant=False (torch 2.1 on) leaves a block as soon as the
    last tensor that its backward wants is there (pytorch/pytorch 2.13 torch/utils/checkpoint.py,
    `_enable_checkpoint_early_stop`); torch saves a product's inputs before it runs.
    """
    return recompute == EARLY and done_again(layer, recompute) and layer.last_flop > 0


def exchanged_again(layer: Layer, recompute: Recompute, *, sequence: bool) -> tuple[bool, bool]:
    """Whether tensor ranks gather again, and sum again, what they did in the layer's forward.

    By operator no product is done again whose output alone a sum would need, and what is
    reduce-scattered is saved, unlike what is gathered or all-reduced (pytorch/torchtitan at
    018740b, torchtitan/models/llama3/infra/parallelize.py, `_op_sac_save_list`).
    """
    if done_again(layer, recompute):
        return True, not stops_early(layer, recompute)
    kept = recompute == "selective_op" and layer.op_flop > 0
    return kept, kept and not sequence and not layer.last_flop


def stopping(model: Model, dtype: str, *, compiled: bool) -> Model:
    """`model` whose last products in 8 or 4 bits are done again unless they are `compiled`: they
    are functions of their own (Transformer Engine, torchao), which save their inputs when they end.
    So are those of quantised matrices (bitsandbytes; `adapters`)."""
    if compiled or not any(layer.last_flop for layer in model.layers):
        return model
    layers = (
        replace(layer, last_flop=0.0) if is_cast(layer, dtype) else layer for layer in model.layers
    )
    return replace(model, layers=tuple(layers))


def flop_again(layers: Iterable[Layer], recompute: Recompute) -> float:
    """FLOP per sample of what the backward passes of `layers` compute again."""
    own = {"selective": "again_flop", "selective_op": "op_flop"}.get(recompute, "")
    return sum(
        layer.forward_flop - layer.last_flop * stops_early(layer, recompute)
        if done_again(layer, recompute)
        else getattr(layer, own, 0.0)
        for layer in layers
        if not layer.detached
    )
