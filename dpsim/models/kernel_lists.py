"""The kernels of a layer, as each way to run it has them: fields of `Layer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpsim.models import Tensor, nanotron_kernels, tensorflow_kernels, torchtitan_kernels
from dpsim.models.kernel_counts import Habits, attention_kernels, loss_kernels, mlp_kernels
from dpsim.models.streams import CodedKernels


def of_attention(
    own: Habits, tensors: Sequence[Tensor], tokens: int, *, wide: bool
) -> dict[str, Any]:
    """Those of an attention half of `tokens` tokens; `wide`: stored scores' softmax is torch's."""
    return {
        "eager_kernels": attention_kernels(own, tensors, tokens, wide=wide, compiled=False),
        "compiled_kernels": attention_kernels(own, tensors, tokens, wide=wide, compiled=True),
        "coded_kernels": CodedKernels(
            nanotron=nanotron_kernels.attention(own, tokens),
            tensorflow=tensorflow_kernels.attention(own, tensors, tokens),
            torchtitan=torchtitan_kernels.attention(own, tensors, tokens),
        ),
    }


def of_feed_forward(own: Habits, tensors: Sequence[Tensor], tokens: int) -> dict[str, Any]:
    """Those of a feed-forward half."""
    return {
        "eager_kernels": mlp_kernels(own, tensors, tokens, compiled=False),
        "compiled_kernels": mlp_kernels(own, tensors, tokens, compiled=True),
        "coded_kernels": CodedKernels(
            nanotron=nanotron_kernels.feed_forward(own, tokens),
            tensorflow=tensorflow_kernels.feed_forward(own, tensors, tokens),
            torchtitan=torchtitan_kernels.feed_forward(own, tensors, tokens),
        ),
    }


def of_loss(width: int, vocabulary: int, tokens: int) -> dict[str, Any]:
    """Those of the product with the vocabulary and the loss behind it."""
    return {
        "eager_kernels": loss_kernels(width, vocabulary, tokens, compiled=False),
        "compiled_kernels": loss_kernels(width, vocabulary, tokens, compiled=True),
        "coded_kernels": CodedKernels(
            nanotron=nanotron_kernels.loss(width, vocabulary, tokens),
            tensorflow=tensorflow_kernels.loss(width, vocabulary, tokens),
            torchtitan=torchtitan_kernels.loss(width, vocabulary, tokens),
        ),
    }
