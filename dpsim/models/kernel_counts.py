"""Kernels of transformer layers, counted: run one by one by torch, and as a compiler leaves them.

Two ways to run a layer.  **Eagerly** torch launches a kernel for every operation that is no view.
**Compiled**, torch.compile's inductor makes one kernel of neighbouring operations that compute
element by element or sum over rows; matrix products and flash attention stay kernels of their own.

Counted are launches, and the elements per token that all kernels but products and flash attention
read and write, at 16 bit (a 32-bit element counts as two).  h is the width, f that of the
feed-forward part, q and k the widths of queries and keys, s the keys that a token looks at, a the
heads.  Forward, and behind the bar backward:

* A layer norm is one kernel, 2 h | 3 h.  A root-mean-square norm as transformers writes it
  (`LlamaRMSNorm`) widens to 32 bit and is eight, 18 h | 16, 48 h.  Compiled both are one, 2 h |
  two, 6 h, with the sum of the residual's gradients, which is one more eagerly, 3 h.
* The residual addition is one, 3 h | 0.  Dropout is one, 2.5 h | one, 2.5 h; compiled it is part of
  the addition, of which half an element is its mask.
* Rotary positions (`apply_rotary_pos_emb`) are five for q and five for k, 10 (q + k) | 14,
  14 (q + k); compiled two, 2 (q + k) | one, 2 (q + k).
* A product is one | two, and one more, of its output, where it has a bias.  What q, k and v need
  is put together: of one fused product in one kernel, 2 (q + 2 k), of three in two, 2 q + 2 k, and
  two additions of 3 h, as the gradients of two inputs of a gated part are in one; compiled, what
  reads the sum reads its parts, h for each.
* Flash and memory-efficient attention is one | one.  Eager attention is two products that write
  and read the scores (2 a s), a scale and a mask (2 a s each), a softmax in 32 bit and its cast
  back (3 a s each), dropout (2.5 a s), a copy of its output (2 q) and, where heads share keys, two
  copies of them | four products (4 a s), a cast and a softmax (8 a s), mask, scale (2 a s each),
  dropout, and a copy (with one fused product two).
  `math`, as Megatron's, has scale, mask and softmax in one kernel of the own dtype, 2 a s | 3 a s;
  so has what is compiled.
* An activation is one, 2 f | one, 3 f; gated two, 5 f | three, 9 f; composed of eight operations
  (`gelu_new`) 18 f | 11, 28 f.  Compiled it is one, 2 f | one, 3 f, gated 3 f | 5 f.
* The loss widens the logits to 32 bit, and is a log-softmax and a sum: 7 V | 11 V; compiled 2 V |
  2 V.

**Experts**, of E a token is sent to k, each m wide, as huggingface/transformers 5.23 runs them
(`integrations/moe.py`, grouped_mm_experts_forward; `MixtralTopKRouter`); eagerly alone:

* The router is a norm, a product, a softmax, the choice and its weights: five kernels behind the
  norm, 5 E + 12 k | 13, 3 h + 11 E + 42 k.
* The experts sort tokens by expert, gather them, run two grouped products around a gate, weigh the
  outputs in 32 bit, put them back and add them up: 17 and the residual's, (11 k + 8) h + 5 k m +
  64 k | 20, (31 k + 4) h + 13 k m.

**Autocast** (fp32 parameters, products in 16 bit; pytorch/pytorch aten/src/ATen/autocast_mode.h)
keeps what runs between halves in 32 bit and casts where a product begins:

* A layer norm moves 4 h | 12 h with the residual's gradients; one of roots of squares six kernels,
  14 h | 15, 54 h.  The addition is 5 h | 0.  Compiled: norms 3 h | two, 11 h, with the gradient
  that the half before takes in 16 bit.
* Eagerly a product casts its input, 3 h, where that is in 32 bit, and backward casts its gradient
  back; the gradient that comes to a half is cast too, 3 h.
* Every matrix and bias is cast once a micro-batch, and its gradient back, 3 elements each way;
  compiled too.
* Rotary positions are in 32 bit, with two casts: 12, 18 (q + k) | 20, 27 (q + k).  A composed
  activation raises to a power in 32 bit: nine, 35 f, and a cast of its output | 14, 56 f, and one.

**In 32 bit** (fp32 and tf32; elements are of 32 bit then, a mask's a quarter of one) nothing is
widened or cast: eagerly a root-mean-square norm is six kernels, 7 h | 15, 27 h with the residual's
gradients, torch's softmax of stored scores 2 a s | 3 a s, and the loss a log-softmax and a sum,
2 V | 4 V.

Source: huggingface/transformers `models/llama/modeling_llama.py`, `models/gpt2/modeling_gpt2.py`,
`activations.py`; what torch 2.13 dispatches for modules written so, on the meta device
(`tests/test_kernels.py`), and inductor's own schedule of them (`validation/kernels.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpsim.core.lean import dataclass
from dpsim.models import Tensor
from dpsim.models.streams import Kernels


@dataclass(frozen=True)
class Habits:
    """What of a block decides on its kernels.

    hidden, ffn     widths of the block and of its feed-forward part
    query, key      widths of all queries, of all keys
    products        kernels that compute q, k and v
    scores          elements of stored scores per token; 0: none
    norms           norms per half
    """

    hidden: int
    ffn: int
    query: int
    key: int
    products: int
    scores: float
    norms: int
    gated: bool
    rotary: bool
    dropout: bool
    score_dropout: bool
    head_norms: bool
    composed: bool


@dataclass
class KernelPass:
    """Launches of a pass, and elements per token that they move; `whole`: outside the cut of tensor
    ranks."""

    launches: int = 0
    moved: float = 0.0
    whole: float = 0.0

    def add(self, launches: float, moved: float, *, whole: bool = False) -> None:
        """`launches` kernels that move `moved` elements together."""
        self.launches += int(launches)
        self.moved += moved
        self.whole += moved * whole


@dataclass
class KernelPasses:
    """Forward and backward of a layer, run eagerly or compiled, in 16 bit, under autocast, or in
    32 bit (`single`)."""

    compiled: bool
    autocast: bool = False
    single: bool = False

    def __post_init__(self) -> None:
        self.forward, self.backward = KernelPass(), KernelPass()
        self.weights = 0.0

    @property
    def mask(self) -> float:
        """Elements of a byte."""
        return 0.25 if self.single else 0.5

    def norm(self, norms: int, width: float, *, rms: bool, whole: bool = True) -> None:
        """`norms` norms of `width` elements, and what their input's other user adds; `whole`: not
        of heads, which tensor ranks share out."""
        (many, moved), (more, moved_back) = self._norm(rms)
        self.forward.add(many * norms, moved * width * norms, whole=whole)
        self.backward.add(more * norms, moved_back * width * norms, whole=whole)

    def _norm(self, rms: bool) -> tuple[tuple[int, int], tuple[int, int]]:
        """Kernels of a norm and elements that they move for each of its width, in either pass."""
        if self.autocast:
            eager = ((6, 14), (15, 54)) if rms else ((1, 4), (2, 12))
            return ((1, 3), (2, 11)) if self.compiled else eager
        if rms and self.single and not self.compiled:
            return (6, 7), (15, 27)
        return ((8, 18), (17, 51)) if rms and not self.compiled else ((1, 2), (2, 6))

    def cast(self, width: float, many: int = 1, *, whole: bool = True) -> None:
        """Under autocast, inputs of products in 32 bit, and their gradients."""
        if self.autocast and not self.compiled:
            self.forward.add(many, 3 * width * many, whole=whole)
            self.backward.add(many, 3 * width * many, whole=whole)

    def residual(self, width: float, *, dropout: bool) -> None:
        """What a half ends with."""
        self.forward.add(1, (5 if self.autocast else 3) * width, whole=True)
        if self.autocast and not self.compiled:
            self.backward.add(1, 3 * width, whole=True)
        if dropout:
            moved = self.mask + 2 * (not self.compiled)
            self.forward.add(not self.compiled, moved * width, whole=True)
            self.backward.add(1, (2 + self.mask) * width, whole=True)

    def products(self, tensors: Sequence[Tensor]) -> None:
        """A product with every matrix of `tensors`, and its bias."""
        names = {tensor.name for tensor in tensors}
        for tensor in tensors:
            if len(tensor.shape) == 2:
                self.forward.add(1, 0.0)
                self.backward.add(2, 0.0)
                stem = tensor.name.removesuffix("weight")
                many = 1
                if f"{stem}bias" in names:
                    out = next(t.elements for t in tensors if t.name == f"{stem}bias")
                    self.backward.add(1, out)
                    many += not self.compiled
                if self.autocast:
                    self.forward.add(many, 0.0)
                    self.backward.add(many, 0.0)
                    self.weights += 3.0 * tensor.elements

    def rotary(self, width: float) -> None:
        """Rotary positions on `width` elements of q and k."""
        if self.autocast and not self.compiled:
            self.forward.add(12, 18 * width)
            self.backward.add(20, 27 * width)
            return
        self.forward.add(2 if self.compiled else 10, (2 if self.compiled else 10) * width)
        self.backward.add(1 if self.compiled else 14, (2 if self.compiled else 14) * width)

    def gathered(self, own: Habits) -> None:
        """The gradients of q, k and v, put in place for their products."""
        if own.products == 1:
            self.backward.add(1, 2 * (own.query + 2 * own.key))
        elif self.compiled:
            self.backward.add(0, own.hidden * (own.products - 1), whole=True)
        else:
            self.backward.add(2, 2 * own.query + 2 * own.key)
            each = (6 if self.autocast else 3) * own.hidden
            self.backward.add(own.products - 1, each * (own.products - 1), whole=True)

    def scored(self, each: float, *, wide: bool) -> None:
        """The products that write and read `each` stored scores, and what is between them: a
        softmax of torch's (`wide`) beside scale and mask, or fused with them."""
        self.forward.add(2, 2 * each)
        self.backward.add(4, 4 * each)
        if wide and self.single and not self.compiled:
            self.forward.add(3, 6 * each)
            self.backward.add(3, 7 * each)
        elif wide and not self.compiled:
            self.forward.add(4, 10 * each)
            self.backward.add(4, 12 * each)
        else:
            self.forward.add(1, 2 * each)
            self.backward.add(1, 3 * each)

    def stored(self, own: Habits, *, wide: bool) -> None:
        """Attention whose scores are stored."""
        each = own.scores
        self.scored(each, wide=wide)
        if own.score_dropout:
            moved = self.mask + 2 * (not self.compiled)
            self.forward.add(not self.compiled, moved * each)
            self.backward.add(not self.compiled, moved * each)
        self.forward.add(1, 2 * own.query)
        copies = 2 if own.products == 1 and not self.compiled else 1
        self.backward.add(copies, 2 * own.query * copies)
        if own.key < own.query:
            self.forward.add(2, 2 * (own.query + own.key))
            self.backward.add(2, 2 * (own.query + own.key))

    def flash(self) -> None:
        """Attention in one kernel."""
        self.forward.add(1, 0.0)
        self.backward.add(1, 0.0)

    def activation(self, own: Habits) -> None:
        """The function between the products of a feed-forward part."""
        f = own.ffn
        if self.compiled:
            self.forward.add(1, (3 if own.gated else 2) * f)
            self.backward.add(1, (5 if own.gated else 3) * f)
        elif own.gated:
            self.forward.add(2, 5 * f)
            self.backward.add(3, 9 * f)
        elif own.composed and self.autocast:
            self.forward.add(9, 35 * f)
            self.backward.add(14, 56 * f)
            self.cast(f, whole=False)
        elif own.composed:
            self.forward.add(8, 18 * f)
            self.backward.add(11, 28 * f)
        else:
            self.forward.add(1, 2 * f)
            self.backward.add(1, 3 * f)

    def counted(self, tokens: float, products: float) -> Kernels:
        """The sums, for `tokens` tokens, beside products that move `products` elements each."""
        ahead, back = self.forward, self.backward
        return Kernels(
            ahead.launches, back.launches, ahead.moved * tokens, back.moved * tokens,
            products * tokens, self.weights,
            whole=ahead.whole * tokens, whole_back=back.whole * tokens,
        )  # fmt: skip


def attention_kernels(
    own: Habits, tensors: Sequence[Tensor], tokens: int, *, wide: bool, compiled: bool
) -> Kernels:
    """An attention half of `tokens` tokens."""
    return _each(compiled, lambda found: _attention(found, own, tensors, tokens, wide=wide))


def _each(compiled: bool, count: Callable[[KernelPasses], Kernels]) -> Kernels:
    """What `count` finds in 16 bit, with what it finds under autocast and in 32 bit."""
    alone = count(KernelPasses(compiled))
    cast = count(KernelPasses(compiled, autocast=True))
    single = count(KernelPasses(compiled, single=True))
    return alone._replace(autocast=cast, single=single)


def _attention(
    found: KernelPasses, own: Habits, tensors: Sequence[Tensor], tokens: int, *, wide: bool
) -> Kernels:
    found.norm(own.norms, own.hidden, rms=own.gated)
    found.cast(own.hidden, own.products)
    found.products(tensors)
    if own.rotary:
        found.rotary(own.query + own.key)
    if own.head_norms:
        found.norm(2, (own.query + own.key) / 2, rms=True, whole=False)
    if own.scores:
        found.stored(own, wide=wide)
    else:
        found.flash()
    found.gathered(own)
    found.residual(own.hidden, dropout=own.dropout)
    h, q, k = own.hidden, own.query, own.key
    return found.counted(tokens, (own.products + 1) * h + 2 * (q + 2 * k) + 2 * q)


def mlp_kernels(own: Habits, tensors: Sequence[Tensor], tokens: int, *, compiled: bool) -> Kernels:
    """A feed-forward half of `tokens` tokens."""
    return _each(compiled, lambda found: _mlp(found, own, tensors, tokens))


def _mlp(found: KernelPasses, own: Habits, tensors: Sequence[Tensor], tokens: int) -> Kernels:
    apart = own.gated and sum(len(t.shape) == 2 for t in tensors) > 2
    found.norm(own.norms, own.hidden, rms=own.gated)
    found.cast(own.hidden, 1 + apart)
    found.products(tensors)
    found.activation(own)
    if apart:
        each = 1 if found.compiled else 6 if found.autocast else 3
        found.backward.add(not found.compiled, each * own.hidden, whole=True)
    found.residual(own.hidden, dropout=own.dropout)
    matrices = [t for t in tensors if len(t.shape) == 2]
    return found.counted(tokens, sum(sum(t.shape) for t in matrices))


def loss_kernels(width: int, vocabulary: int, tokens: int, *, compiled: bool) -> Kernels:
    """The product with the vocabulary and the loss behind it, whose logits are widened under
    autocast too."""
    return _each(compiled, lambda found: _loss(found, width, vocabulary, tokens))


def _loss(found: KernelPasses, width: int, vocabulary: int, tokens: int) -> Kernels:
    eager = ((3, 2), (4, 4)) if found.single else ((4, 7), (5, 11))
    (many, moved), (more, moved_back) = ((3, 2), (3, 2)) if found.compiled else eager
    found.forward.add(many, moved * vocabulary)
    found.backward.add(more, moved_back * vocabulary)
    found.cast(width)
    if found.autocast:
        found.weights += 3.0 * width * vocabulary
    return found.counted(tokens, width + vocabulary)


def router_kernels(width: int, experts: int, chosen: int, tokens: int) -> Kernels:
    """The norm, and the choice of experts for `tokens` tokens."""
    found = KernelPasses(compiled=False)
    found.norm(1, width, rms=True)
    found.forward.add(5, 5 * experts + 12 * chosen)
    found.backward.add(13, 3 * width + 11 * experts + 42 * chosen)
    return found.counted(tokens, width + experts)


def expert_kernels(width: int, inner: int, chosen: int, tokens: int) -> Kernels:
    """What `tokens` tokens pass in the experts that they are sent to, each `inner` wide."""
    found, k = KernelPasses(compiled=False), chosen
    found.forward.add(18, (11 * k + 8) * width + 5 * k * inner + 64 * k)
    found.backward.add(20, (31 * k + 4) * width + 13 * k * inner)
    return found.counted(tokens, k * (2 * width + 3 * inner))
