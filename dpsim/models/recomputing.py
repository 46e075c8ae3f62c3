"""What backward computes again of what forward did, to keep less."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from dpsim.models import Layer

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
    """Whether that ends before the layer's last product, and what is summed behind it.

    torch.utils.checkpoint with use_reentrant=False (torch 2.1 on) leaves a block as soon as the
    last tensor that its backward wants is there (pytorch/pytorch 2.13 torch/utils/checkpoint.py,
    `_enable_checkpoint_early_stop`); a product's inputs are saved before it runs.
    """
    return recompute == EARLY and layer.last_flop > 0


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
