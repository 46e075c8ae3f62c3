"""Kernels of torchtitan's Llama, run one by one by torch.

Letters and units are those of `kernel_counts`, whose products, activations and loss it has.

* A norm is torch's fused one (`nn.RMSNorm` on CUDA from torch 2.9): one kernel, 2 h | two with the
  sum of the residual's gradients, 6 h; of heads one, 2 q + 2 k | one, 3 q + 3 k.
* Rotary positions multiply complex numbers of 32 bit: three kernels for q and three for k,
  10 (q + k) | four and four, of which one conjugates the positions alone, 10 (q + k).
* Queries and keys are turned where their products left them, and the gradients of inputs of three
  products are added up, 6 h.

Source: pytorch/torchtitan at b5bcd76c (August 2026), torchtitan/models/common/attention.py,
rope.py, feed_forward.py and components/loss.py; before ff0829c1 (January 2026) keys and values were
repeated for their queries first, which is not counted.  The fused norm: pytorch/pytorch pull
request 153666.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsim.models import Tensor
from dpsim.models.kernel_counts import Habits, KernelPasses, loss_kernels
from dpsim.models.streams import Kernels


def accepts(own: Habits) -> bool:
    """Whether torchtitan's decoders have such blocks."""
    plain = own.rotary and own.gated and not (own.scores or own.composed)
    return plain and not (own.dropout or own.score_dropout) and own.norms == 1


def attention(own: Habits, tensors: Sequence[Tensor], tokens: int) -> Kernels | None:
    """An attention half of `tokens` tokens; None where torchtitan has none like it."""
    if not accepts(own) or own.products != 3:
        return None
    found, h, q, k = KernelPasses(compiled=False), own.hidden, own.query, own.key
    found.norm(1, h, rms=False)
    found.products(tensors)
    found.forward.add(6, 10 * (q + k))
    found.backward.add(8, 10 * (q + k))
    if own.head_norms:
        found.forward.add(2, 2 * (q + k))
        found.backward.add(2, 3 * (q + k))
    found.flash()
    found.backward.add(2, 6 * h, whole=True)
    found.residual(h, dropout=False)
    return found.counted(tokens, 4 * h + 2 * (q + 2 * k) + 2 * q)


def feed_forward(own: Habits, tensors: Sequence[Tensor], tokens: int) -> Kernels | None:
    """A feed-forward half of `tokens` tokens; None where torchtitan has none like it."""
    matrices = [t for t in tensors if len(t.shape) == 2]
    if not accepts(own) or len(matrices) != 3:
        return None
    found, h = KernelPasses(compiled=False), own.hidden
    found.norm(1, h, rms=False)
    found.products(tensors)
    found.activation(own)
    found.backward.add(1, 3 * h, whole=True)
    found.residual(h, dropout=False)
    return found.counted(tokens, sum(sum(t.shape) for t in matrices))


def loss(width: int, vocabulary: int, tokens: int) -> Kernels:
    """The product with the vocabulary and the loss behind it."""
    return loss_kernels(width, vocabulary, tokens, compiled=False)
