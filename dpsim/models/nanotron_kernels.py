"""Kernels of nanotron's Llama, run one by one by torch.

Letters and units are those of `kernel_counts`; q, k and v are one product, gate and up another.

* A norm is one kernel, 2 h | three with the sum of the residual's gradients, 6 h
  (`TritonRMSNorm`, flash-attn's).
* q, k and v are put in a layout of their own, 2 (q + 2 k), keys and values joined and put in
  another, 4 k each | a split's join, 4 k, a stack and a copy of all three, 2 (q + 2 k) each.
* Rotary positions are flash-attn's kernel, one for q and one for k: 2 (q + k) | the same.
* Lengths of sequences are counted anew in every block: six kernels that move nothing to speak of.
* The activation is two, 5 f | four, 13 f: halves of one product's output are split, and joined.
* The loss widens the logits (3 V), and takes their maximum (2 V), subtracts it (4 V), raises (4 V),
  sums (2 V) and divides (4 V) | multiplies (4 V) and casts back (3 V), beside some fifteen small
  ones: `_ShardedCrossEntropy`.

Source: huggingface/nanotron at e24d2483 (February 2025), src/nanotron/models/llama.py,
parallel/tensor_parallel/functional.py, nn/layer_norm.py; what torch dispatches for modules written
so (`tests/test_kernels.py`).
"""

from __future__ import annotations

from dpsim.models.kernel_counts import Habits, KernelPasses
from dpsim.models.streams import Kernels


def accepts(own: Habits) -> bool:
    """Whether nanotron's Llama has such blocks."""
    plain = own.rotary and own.gated and not (own.scores or own.head_norms or own.composed)
    return plain and not (own.dropout or own.score_dropout) and own.norms == 1


def _halves(own: Habits) -> KernelPasses:
    """What both halves of a block begin and end with, and their two products."""
    found = KernelPasses(compiled=False)
    found.forward.add(1, 2 * own.hidden, whole=True)
    found.backward.add(3, 6 * own.hidden, whole=True)
    found.forward.add(2, 0.0)
    found.backward.add(4, 0.0)
    found.residual(own.hidden, dropout=False)
    return found


def attention(own: Habits, tokens: int) -> Kernels | None:
    """An attention half of `tokens` tokens; None where nanotron has none like it."""
    if not accepts(own):
        return None
    found, h, q, k = _halves(own), own.hidden, own.query, own.key
    found.forward.add(3, 2 * (q + 2 * k) + 4 * k + 4 * k)
    found.forward.add(2, 2 * (q + k))
    found.forward.add(6, 0.0)
    found.flash()
    found.backward.add(3, 4 * k + 2 * (q + 2 * k) + 2 * (q + 2 * k))
    found.backward.add(2, 2 * (q + k))
    return found.counted(tokens, 2 * h + 2 * (q + 2 * k) + 2 * q)


def feed_forward(own: Habits, tokens: int) -> Kernels | None:
    """A feed-forward half of `tokens` tokens; None where nanotron has none like it."""
    if not accepts(own):
        return None
    found, h, f = _halves(own), own.hidden, own.ffn
    found.forward.add(2, 5 * f)
    found.backward.add(4, 13 * f)
    return found.counted(tokens, 2 * h + 3 * f)


def loss(width: int, vocabulary: int, tokens: int) -> Kernels:
    """The product with the vocabulary and the loss behind it."""
    found = KernelPasses(compiled=False)
    found.forward.add(1 + 6 + 12, 19 * vocabulary)
    found.backward.add(2 + 2 + 3, 7 * vocabulary)
    return found.counted(tokens, width + vocabulary)
