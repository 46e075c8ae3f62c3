"""Work and memory of transformer layers, from their dimensions.

All figures are per sequence of s tokens; h is the width, a the query heads, k the key/value heads,
d the size of one head, f the width of the feed-forward part, V the vocabulary.

* FLOP, a multiply-add counted as 2: 2 * s per element of a weight matrix, and 2 * a * d for each
  of QK^T and AV per pair of tokens that attention looks at.  Encoders look at all s^2 pairs;
  causal models, whose flash attention kernels skip masked blocks, at s^2 / 2; with a sliding window
  of w < s tokens at s * w - w^2 / 2.  Backward costs twice forward; the scores that flash attention
  computes again in backward are not counted (Narayanan et al., arXiv:2104.04473, appendix, counts
  likewise but with all s^2 pairs; Dao, arXiv:2307.08691, section 4.1, halves them).
* Forward traffic in elements per token: a norm 2 h; a matrix product its input and its output;
  rotary positions 2 (a + k) d; flash attention (a + 2 k) d + a d; an activation 2 f, or 3 f for the
  gated product; dropout 2 h; the residual addition 3 h.  Backward moves twice as much.
* Kept for backward, in elements (= bytes / 2 at 16 bit) per token, flash attention assumed, so
  nothing grows with s^2: attention keeps the input and output of its norm (2 h), q, k and v
  ((a + 2 k) d), the attention output (a d) and a one-byte dropout mask (h / 2); the feed-forward
  part keeps the input and output of its norm (2 h), a mask (h / 2) and 2 f - or 3 f if gated: gate,
  up and their product, with silu(gate) computed again by a fused kernel.  With a * d = k * d = h
  this is (18 + 4 f / h) * s * h bytes, 34 s h at f = 4 h (Korthikanti et al., arXiv:2205.05198,
  section 4, without the 5 a s / h of stored scores; NVIDIA/Megatron-LM
  `megatron/training/theoretical_memory_usage.py`).  The log-sum-exp of flash attention (s * a) is
  left out.  Models without dropout keep no mask.  A norm on q and k keeps its input too, a second
  norm of a half keeps another h.
* In fp8 the inputs of products are kept at one byte, all else at two: per token the feed-forward
  part keeps h + f bytes less.  Attention keeps its norm's output at one byte too, and its own
  output twice, for its backward at two bytes and for the product behind it at one, which is as
  much as before (NVIDIA/TransformerEngine: `LayerNormLinear`, `DotProductAttention`,
  `LayerNormMLP`).  Embedding and head stay in bf16.
* Without flash attention (`attention: math`) the scores of all s^2 pairs are stored, also of pairs
  that a mask hides.  Kept in addition, per token: the output of the softmax (a s elements) and,
  with dropout on it, a one-byte mask and the dropout's output (1.5 a s): 5 a s^2 bytes, or
  2 a s^2 without dropout (Korthikanti et al., section 4.1).  Moved in addition, forward: the
  product Q K^T writes a s, a fused scale, mask and softmax reads and writes them, the product with
  V reads them: 4 a s; dropout reads a s and writes 1.5 a s.  The FLOP stay those above, though such
  kernels compute masked pairs too: moving a pair's scores takes longer than computing it.  The
  softmax runs in the compute dtype, as Megatron-LM's fused one; one in 32 bit keeps and moves more.
  Keys and values that query heads share are not copied for each of them.
* `attention: eager` is torch's operations one by one: a scale and a mask of their own (2 a s each)
  and a softmax in 32 bit with a cast back (3 a s each), 8 a s more, as autocast and transformers'
  `eager_attention_forward` run it.  Kept are the softmax in 32 bit (2 a s) and its cast (a s) or,
  with dropout, the mask and dropout's output: 6 a s^2 bytes, or 7 a s^2.
* Cross-attention: t tokens of a decoder look at all s that an encoder left, so there are t s pairs;
  q and the output product are of t tokens, k and v of s.
* Kernels: one for each of the operations above (q/k/v products one or three, gate and up one or
  two, rotary positions and norms of q and k two each); stored scores take two products, a softmax
  and its dropout instead of one; the head has four: product, widening, log-softmax and loss.
* Recomputing whole blocks keeps the block's input (s * h, on the attention layer).  Embedding,
  final norm and head lie outside the blocks and are not recomputed.  Recomputing attention alone
  (`recompute: selective`) keeps what flash attention keeps and, where scores were stored, does both
  products, softmax and dropout again in backward; flash attention does so anyway.
* Recomputing by operator (`recompute: selective_op`; torchtitan's selective activation
  checkpointing, torchtitan/distributed/activation_checkpoint.py) keeps the block's input, the
  output of attention and of every second matrix product of the block, the first, third, …: of q, k,
  v, output, gate, up, down those of q, v, gate and down (of a fused q/k/v, output, up and down the
  first and third); all else is done again.  What no backward needs, the output of down, a compiler
  leaves out.
* Stopping early (`recompute: full_early_stop`) leaves out the product that ends the feed-forward
  part, whose output no backward needs unless a dropout, whose mask is drawn again, or a norm, whose
  input it is, follows it.
* Backward of a half has at one time the gradients of its output and of what is inside: (q, k, v and
  attention's output, or those of the product, of gate and of up).
* Torch's own modules (`memory: {kernels: eager}`; `tests/data/memory`) keep silu(gate) of a gated
  feed-forward part too, f elements per token, and of a root-mean-square norm its input and its
  normalised input in 32 bit in place of the input: 6 h bytes per token more at 16 bit, 4 h at 32.
* What is kept for gradients of weights alone (`saved`): the output of a half's norm for its first
  products, the activation's for the last one of the feed-forward part (attention's backward needs
  its own output itself), the head's input for its product.
* Embedding keeps 8 bytes of token number per token (4 elements) and its mask; the head keeps its
  input and the logits in 32 bit, 2 V elements per token.
"""

from __future__ import annotations

import re

from dpsim.core.lean import dataclass
from dpsim.models import AttentionWork, Layer, Tensor, WeightInput, kernel_lists
from dpsim.models.kernel_counts import Habits
from dpsim.models.streams import CodedKernels

#: how families call the weight of the product that ends a half
_LAST = re.compile(r"(^|\.)(o_proj|out_proj|c_proj|output\.dense|down_proj|fc2)\.weight$")


@dataclass(frozen=True)
class Block:
    """Dimensions and habits of one transformer block.

    `products` is the number of kernels that compute q, k and v (1 if fused); `norms` the norms per
    half; `head_norms` says that q and k are normalised; `window` the tokens one token looks back
    at (0: all).  `stored` says that scores are stored (no flash attention), `score_dropout` that
    they have a dropout of their own, `wide` that their softmax is torch's, in 32 bit, beside
    kernels for scale and mask.  `normed` says that a norm follows the feed-forward part, `composed`
    that torch makes the activation of eight kernels.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    causal: bool = True
    gated: bool = False
    rotary: bool = False
    dropout: bool = False
    products: int = 3
    norms: int = 1
    head_norms: bool = False
    window: int = 0
    stored: bool = False
    score_dropout: bool = False
    normed: bool = False
    wide: bool = False
    composed: bool = False

    def pairs(self, tokens: int) -> float:
        """Pairs of tokens that attention computes in a sequence of `tokens`."""
        if not self.causal:
            return float(tokens) ** 2
        reach = min(self.window or tokens, tokens)
        return tokens * reach - reach**2 / 2

    def attended(self, tokens: int, share: float) -> AttentionWork:
        """Attention over `tokens` tokens, which is the `share` of its layer's work."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        own = share, self.heads, self.kv_heads, self.causal, 0 < self.window < tokens
        return AttentionWork(tokens * query, 2 * tokens * key, *own)

    def scores(self, tokens: int) -> tuple[float, float]:
        """Elements of stored scores that are kept, and moved in forward, per token."""
        each = float(self.stored * self.heads * tokens)
        kept = 1 + 1.5 * self.score_dropout + (2 - self.score_dropout) * self.wide
        return each * kept, each * (4 + 2.5 * self.score_dropout + 8 * self.wide)

    @property
    def score_kernels(self) -> int:
        """Kernels of stored scores beside the first of their two products."""
        return self.stored * (2 + self.score_dropout + 3 * self.wide)

    @property
    def unaligned(self) -> bool:
        """Whether products that store scores in 16 bits have rows of no multiple of 16 bytes."""
        return self.stored and self.head_dim % 8 > 0

    def habits(self, keys: int) -> Habits:
        """What decides on its kernels, where a token looks at `keys` keys."""
        return Habits(
            self.hidden, self.ffn, self.heads * self.head_dim, self.kv_heads * self.head_dim,
            self.products, float(self.stored * self.heads * keys), self.norms, self.gated,
            self.rotary, self.dropout, self.score_dropout, self.head_norms, self.composed,
        )  # fmt: skip


def matrix_flop(tensors: tuple[Tensor, ...], tokens: int) -> float:
    """FLOP of `tokens` vectors times every matrix (2-dimensional tensor) of `tensors`."""
    return 2.0 * tokens * sum(tensor.elements for tensor in tensors if len(tensor.shape) == 2)


def attention(block: Block, unit: str, tensors: tuple[Tensor, ...], tokens: int) -> Layer:
    """The attention half of a block: norm, q/k/v, attention, output product, residual addition."""
    b, h = block, block.hidden
    query, key = b.heads * b.head_dim, b.kv_heads * b.head_dim
    turned, turning = query + key, b.rotary + b.head_norms
    apart = query if b.products == 1 else query + key
    scores = 4.0 * query * b.pairs(tokens)
    flop = matrix_flop(tensors, tokens) + scores
    moved = 2 * h * (b.norms + b.dropout + 2) + b.products * h + (4 + 2 * turning) * turned
    kept = h + h * b.norms + turned + key + query + turned * b.head_norms + 0.5 * h * b.dropout
    scores_kept, scores_moved = b.scores(tokens)
    return Layer(
        name=f"{unit}.attention",
        tensors=tensors,
        forward_flop=flop,
        backward_flop=2 * flop,
        forward_bytes=tokens * (moved + scores_moved),
        backward_bytes=2 * tokens * (moved + scores_moved),
        kernels=b.norms + b.products + 2 * turning + 3 + b.dropout + b.score_kernels,
        activations=tokens * (kept + scores_kept),
        activations_full=tokens * h,
        activations_selective=tokens * kept,
        activations_op=tokens * (h + query + apart + 2 * key * (b.products == 1)),
        op_flop=2.0 * tokens * h * apart,
        rms=float(tokens * h * b.norms * b.gated),
        inside=float(tokens * (2 * turned + h)),
        again_flop=scores * b.stored,
        again_bytes=tokens * (2 * turned + scores_moved) * b.stored,
        again_kernels=b.stored + b.score_kernels,
        replicated=tokens * (h + h * b.norms + 0.5 * h * b.dropout),
        forward_sum=tokens * h,
        backward_sum=tokens * h,
        output=tokens * h,
        unit=unit,
        saved=(WeightInput(tokens * h, _products(tensors, last=False), whole=True),),
        attended=b.attended(tokens, scores / flop),
        pairs=scores,
        unaligned=b.unaligned * float(tokens) ** 2 / b.pairs(tokens),
        **kernel_lists.of_attention(b.habits(tokens), tensors, tokens, wide=b.wide),
    )


def cross_attention(
    block: Block, unit: str, tensors: tuple[Tensor, ...], tokens: int, memory: int
) -> Layer:
    """Attention of `tokens` tokens of a decoder over `memory` tokens that an encoder left: norm,
    q from the one, k and v from the other, attention over all pairs, output product, addition."""
    b, h = block, block.hidden
    query, key = b.heads * b.head_dim, b.kv_heads * b.head_dim
    flop = 2.0 * h * (2 * tokens * query + 2 * memory * key) + 4.0 * query * tokens * memory
    scores_kept, scores_moved = b.scores(memory)
    each = 2 * h * b.norms + h + query + 2 * query + query + h + 2 * h * b.dropout + 3 * h
    moved = tokens * (each + scores_moved) + memory * (2 * h + 4 * key)
    kept = tokens * (h + h * b.norms + 2 * query + 0.5 * h * b.dropout) + 2 * memory * key
    return Layer(
        name=f"{unit}.cross_attention",
        tensors=tensors,
        forward_flop=flop,
        backward_flop=2 * flop,
        forward_bytes=moved,
        backward_bytes=2 * moved,
        kernels=b.norms + 6 + b.dropout + b.score_kernels,
        activations=kept + tokens * scores_kept,
        activations_selective=kept,
        activations_op=tokens * 2 * query + memory * key,
        op_flop=2.0 * h * (tokens * query + memory * key),
        rms=float(tokens * h * b.norms * b.gated),
        inside=float(tokens * (2 * query + h) + 2 * memory * key),
        again_flop=4.0 * query * tokens * memory * b.stored,
        again_bytes=(tokens * (2 * query + scores_moved) + 2 * memory * key) * b.stored,
        again_kernels=b.stored + b.score_kernels,
        replicated=tokens * (h + h * b.norms + 0.5 * h * b.dropout),
        forward_sum=tokens * h,
        backward_sum=(tokens + memory) * h,
        output=tokens * h,
        unit=unit,
        attended=AttentionWork(tokens * query, 2 * memory * key, crossed=True),
        pairs=4.0 * query * tokens * memory,
        unaligned=float(b.unaligned),
        **kernel_lists.of_attention(b.habits(memory), tensors, tokens, wide=b.wide)
        | {"coded_kernels": CodedKernels()},
    )


def mlp(block: Block, unit: str, tensors: tuple[Tensor, ...], tokens: int) -> Layer:
    """The feed-forward half of a block: norm, matrices, activation, residual addition."""
    b, h, f = block, block.hidden, block.ffn
    flop = matrix_flop(tensors, tokens)
    inner = (2 * f + 3 * f) if b.gated else (f + 2 * f)
    fused = b.gated and b.products == 1
    kernels_up = 1 if fused or not b.gated else 2
    moved = 2 * h * b.norms + kernels_up * h + inner + (f + h) + 2 * h * b.dropout + 3 * h
    kept = h + h * b.norms + (3 if b.gated else 2) * f + 0.5 * h * b.dropout
    return Layer(
        name=f"{unit}.mlp",
        tensors=tensors,
        forward_flop=flop,
        backward_flop=2 * flop,
        forward_bytes=tokens * moved,
        backward_bytes=2 * tokens * moved,
        kernels=b.norms + kernels_up + 3 + b.dropout,
        activations=tokens * kept,
        activations_selective=tokens * kept,
        activations_op=float(tokens * f),
        eager_op=float(tokens * h * b.gated),
        op_flop=2.0 * tokens * h * f,
        last_flop=2.0 * tokens * h * f * (not (b.dropout or b.normed or b.norms > 1)),
        inside=float(tokens * ((3 if b.gated else 2) * f + h)),
        eager=float(tokens * f * b.gated),
        rms=float(tokens * h * b.norms * b.gated),
        cast_saves=tokens * (h + f),
        cast_replicated=tokens * h,
        replicated=tokens * (h + h * b.norms + 0.5 * h * b.dropout),
        forward_sum=tokens * h,
        backward_sum=tokens * h,
        output=tokens * h,
        unit=unit,
        saved=(
            WeightInput(tokens * h, _products(tensors, last=False), whole=True),
            WeightInput(tokens * f, _products(tensors, last=True)),
        ),
        **kernel_lists.of_feed_forward(b.habits(0), tensors, tokens),
    )


def _products(tensors: tuple[Tensor, ...], *, last: bool) -> tuple[str, ...]:
    """The weights of a half's last product, or of those before it."""
    names = [tensor.name for tensor in tensors if len(tensor.shape) == 2]
    return tuple(name for name in names if bool(_LAST.search(name)) == last)


def embedding(
    name: str, hidden: int, tensors: tuple[Tensor, ...], tokens: int, *, dropout: bool, lookups: int
) -> Layer:
    """Token (and position) embeddings.  Looking up costs no FLOP; `lookups` tables are read.

    `tensors[0]` is the (V, w) token table; a projection of it, and a norm, may be among the others.
    """
    matrices = (tensor for tensor in tensors if len(tensor.shape) == 2)
    projections = tuple(tensor for tensor in matrices if "project" in tensor.name)
    norm = any("norm" in tensor.name.lower() for tensor in tensors)
    flop = matrix_flop(projections, tokens)
    width = sum(sum(tensor.shape) for tensor in projections)
    moved = tokens * (hidden * (2 * lookups + 3 * (lookups - 1) + 2 * norm + 2 * dropout) + width)
    kept = tokens * (4 + 0.5 * hidden * dropout + hidden * norm)
    kept += tokens * sum(tensor.shape[1] for tensor in projections)
    return Layer(
        name=name,
        tensors=tensors,
        forward_flop=flop,
        backward_flop=2 * flop,
        forward_bytes=moved,
        backward_bytes=moved + tokens * width,
        kernels=lookups + (lookups - 1) + norm + dropout + len(projections),
        activations=kept,
        activations_full=kept,
        activations_selective=kept,
        activations_op=kept,
        replicated=kept,
        forward_sum=tokens * hidden,
        output=tokens * hidden,
    )


def final_norm(name: str, hidden: int, tensors: tuple[Tensor, ...], tokens: int) -> Layer:
    """The norm behind the last block, and the projection back to the embedding width if any."""
    flop, width = matrix_flop(tensors, tokens), hidden
    vectors = sum(len(tensor.shape) == 1 for tensor in tensors)
    kernels = int(vectors > 0)
    moved = 2 * hidden * kernels
    for tensor in tensors:
        if len(tensor.shape) == 2:
            width = tensor.shape[0]
            moved, kernels = moved + sum(tensor.shape), kernels + 1
    kept = tokens * hidden * kernels
    return Layer(
        name=name,
        tensors=tensors,
        forward_flop=flop,
        backward_flop=2 * flop,
        forward_bytes=tokens * moved,
        backward_bytes=2 * tokens * moved,
        kernels=kernels,
        activations=kept,
        activations_full=kept,
        activations_selective=kept,
        activations_op=kept,
        rms=float(tokens * hidden * (vectors == 1)),  # without a bias
        replicated=kept,
        output=tokens * width,
    )


def head(name: str, width: int, vocabulary: int, tokens: int, *, tied: str | None) -> Layer:
    """The product with the vocabulary (2 w V s FLOP) and the cross-entropy behind it.

    Traffic per token: w + V for the product, 3 V to make the logits 32 bit wide and 4 V for their
    log-softmax.  A head tied to an embedding has no tensors of its own.
    """
    flop = 2.0 * width * vocabulary * tokens
    moved, kept = tokens * (width + 8 * vocabulary), tokens * (width + 2 * vocabulary)
    return Layer(
        name=name,
        tensors=() if tied else (Tensor(f"{name}.weight", (vocabulary, width)),),
        forward_flop=flop,
        backward_flop=2 * flop,
        forward_bytes=moved,
        backward_bytes=2 * moved,
        kernels=4,
        activations=kept,
        activations_full=kept,
        activations_selective=kept,
        activations_op=kept,
        logits=float(tokens * vocabulary),
        replicated=tokens * width,
        backward_sum=tokens * width,
        output=tokens * vocabulary,
        tied=tied,
        saved=() if tied else (WeightInput(tokens * width, (f"{name}.weight",), whole=True),),
        **kernel_lists.of_loss(width, vocabulary, tokens),
    )


def pooler(name: str, hidden: int, tensors: tuple[Tensor, ...]) -> Layer:
    """A linear layer with tanh on the first token alone (2 h^2 FLOP per sequence)."""
    flop = matrix_flop(tensors, 1)
    return Layer(
        name=name,
        tensors=tensors,
        forward_flop=flop,
        backward_flop=2 * flop,
        forward_bytes=4 * hidden,
        backward_bytes=8 * hidden,
        kernels=2,
        activations=2 * hidden,
        activations_full=2 * hidden,
        activations_selective=2 * hidden,
        activations_op=2 * hidden,
        output=hidden,
    )
