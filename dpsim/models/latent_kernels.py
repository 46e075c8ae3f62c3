"""Kernels of DeepSeek's blocks, counted as torch runs them one by one: latent attention, the choice
of experts by groups, and shared experts.

As `dpsim/models/kernel_counts.py` counts: launches, and elements per token that all kernels but
products and flash attention read and write, forward and behind the bar backward.  h is the width,
q and c the narrow widths of queries and of keys and values, K the width of all queries or keys, V
that of all values, R that of all queries with a position, r of the one key with a position, and
N = K - R.

* Root-mean-square norms of h, q and c: eight each, 18 | 16, 48, and one sum with the residual, 3 h.
* Rotary positions on pairs of neighbours, of queries and of the one key: seven each, 9 | ten, 14.
* Queries are put together, 2 K; keys are written in two parts, 2 N and 2 R | the gradient of each
  part is copied out of one copied whole, 2 K + 2 N and 2 K + 2 R, its place is cleared, 4 R, and
  the key's is summed over heads, R + r.
* The gradients of what a product's output was split into are put together: 4 K, 4 (N + V), and
  2 (c + r).
* Flash attention's output is copied, 2 V; stored scores are those of `KernelPasses.scored`.
* Shared experts: two, 5 f, and the sum with the others, 3 h | three, 9 f, and two sums of 6 h.
* The choice by groups of E experts, k of them (DeepseekV3TopkRouter), in 32 bit: the norm, a cast
  of what comes and one of the matrix, a product, and 17 of choice and weights, 3 h + 26 E + 22 k |
  16, 6 h + 12 E + 40 k, with a sum of gradients.  What there is of groups is left out.

Source: huggingface/transformers 5.23 `models/deepseek_v3/modeling_deepseek_v3.py`; what torch 2.13
dispatches for modules written so, on the meta device (`tests/test_kernels.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dpsim.models import Tensor
from dpsim.models.kernel_counts import KernelPasses
from dpsim.models.streams import Kernels


class LatentWidths(NamedTuple):
    """Widths of latent attention: the model's, the narrow ones of queries (0: they have none) and
    of keys and values, all queries (or keys), all values, all queries with a position, and the one
    key with a position; elements of stored scores per token, and whether their softmax is torch's.
    """

    hidden: int
    query_rank: int
    rank: int
    key: int
    values: int
    turned: int
    turned_key: int
    scores: float = 0.0
    wide: bool = False

    @property
    def products(self) -> int:
        """Elements per token that products read and write, inputs and outputs of all matrices
        (down and up for queries, down and up for keys and values, and the output's), and those of
        attention: h + q, q + K, h + c + r, c + N + V, V + h, and 2 K + 2 V."""
        matrices = 3 * self.hidden + 2 * (self.query_rank + self.rank) + self.turned_key
        matrices += 2 * self.key - self.turned + 2 * self.values
        return matrices + 2 * self.key + 2 * self.values


def latent_kernels(own: LatentWidths, tensors: Sequence[Tensor], tokens: int) -> Kernels:
    """Latent attention of `tokens` tokens, with its norms and the residual addition."""
    found = KernelPasses(compiled=False)
    ahead, back = found.forward, found.backward
    h, key, values, turned = own.hidden, own.key, own.values, own.turned
    found.norm(1, h, rms=True)  # with the sum of the residual's gradients
    back.add(1, 3 * h)  # and that of queries' and keys'
    for width in (own.query_rank, own.rank):
        if width:
            ahead.add(8, 18 * width)
            back.add(16, 48 * width)
    found.products(tensors)
    both = turned + own.turned_key
    ahead.add(14, 9 * both)
    back.add(20, 14 * both)
    plain = key - turned
    ahead.add(3, 2 * key + 2 * plain + 2 * turned)
    back.add(7, 4 * key + 2 * plain + 2 * turned + 4 * turned + both)
    back.add(5, 4 * key + 4 * (plain + values) + 2 * (own.rank + own.turned_key))
    if own.scores:
        found.scored(own.scores, wide=own.wide)
        ahead.add(1, 2 * values)
    else:
        ahead.add(2, 2 * values)
        back.add(1, 0.0)
    found.residual(h, dropout=False)
    return found.counted(tokens, own.products)


def shared_kernels(hidden: int, width: int, tensors: Sequence[Tensor], tokens: int) -> Kernels:
    """Experts that every token passes, and the sum with those that it is sent to."""
    found = KernelPasses(compiled=False)
    found.products(tensors)
    found.forward.add(3, 5 * width + 3 * hidden)
    found.backward.add(5, 9 * width + 6 * hidden)
    return found.counted(tokens, 3 * hidden + 3 * width)


def grouped_router_kernels(width: int, experts: int, chosen: int, tokens: int) -> Kernels:
    """The norm, and the choice of experts among groups."""
    found = KernelPasses(compiled=False)
    found.norm(1, width, rms=True)
    found.forward.add(20, 3 * width + 26 * experts + 22 * chosen)
    found.backward.add(16, 6 * width + 12 * experts + 40 * chosen)
    found.weights += 3.0 * width * experts
    return found.counted(tokens, width + experts)
