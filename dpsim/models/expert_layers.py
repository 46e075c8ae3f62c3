"""Work and memory of layers with sparse experts, and of latent attention, from their dimensions.

All figures are per sequence of s tokens, as in `dpsim/models/transformer_layers.py`, whose rules
hold here too; E is the number of experts, k how many of them a token is sent to, m the width of
one expert, h the width of the model.

A block's feed-forward part is up to three layers of one unit:

* `….router`: the norm, the product with h E elements, softmax and choice, and the copies of tokens
  put in the order of their experts.  Forward traffic in elements per token: 2 h (norm), h + E (its
  product), 3 E (softmax and choice), h + k h (copies).  Kept: the norm's input and output and the
  scores with their softmax, 2 h + 2 E.
* `….shared`: experts that every token passes: a gated feed-forward part of their summed width.
* `….experts`: a token takes 2 x 3 h m FLOP in each of its k experts (up, gate and down).  Traffic
  per copy: h + 2 m into and out of the first product, 3 m for the gated one, m + h for the last,
  and 2 h to sort what other ranks sent by expert; per token k h + h to add the copies up and 3 h
  for the residual.  Kept per copy: h + 3 m (its input, gate, up and their product; the weight of a
  copy is applied to that product, as NVIDIA/Megatron-LM `megatron/core/transformer/moe/experts.py`
  does, so the last product's output is not kept).  Experts of two matrices have 2 x 2 h m FLOP, m
  in place of 2 m and 2 m in place of 3 m, and keep h + 2 m.
* Narrower experts (latent ones: NVIDIA, Nemotron 3) have their own width l for h in all of this:
  tokens are narrowed before they are copied, h + l more of the router, and widened behind their
  sum, l + h more of the shared experts; l is what travels.

Recomputing these layers (`recompute: moe`) keeps the input of their norm, h, and does all else
again in backward, tokens' exchanges too: Megatron's `--recompute-granularity selective
--recompute-modules layernorm moe` (NVIDIA/Megatron-LM 00119989
`megatron/core/transformer/moe/moe_layer.py`: `MoELayer.forward` is checkpointed from its shared
experts and its router to what it combines), but for the norm of attention.

Latent attention (DeepSeek-AI, arXiv:2405.04434, section 2.1): queries and keys of n + r elements,
n without and r with a position, values of v; 2 a (n + r) + 2 a v FLOP per pair of tokens.  Traffic
and what is kept follow from the widths of what stands between its products; stored scores are those
of other attention.
"""

from __future__ import annotations

from dpsim.core.lean import dataclass
from dpsim.models import AttentionWork, Layer, Tensor, library_kernels
from dpsim.models.kernel_counts import expert_kernels, router_kernels
from dpsim.models.latent_kernels import (
    LatentWidths,
    grouped_router_kernels,
    latent_kernels,
    shared_kernels,
)
from dpsim.models.transformer_layers import Block, matrix_flop


@dataclass(frozen=True)
class Routing:
    """Experts of a block: their number, how many a token is sent to, and the width of one; whether
    they have three matrices or two, the width of tokens in them (0: the model's), and whether they
    are chosen among groups."""

    experts: int
    chosen: int
    width: int
    gated: bool = True
    latent: int = 0
    grouped: bool = False


def router(
    hidden: int, routing: Routing, unit: str, tensors: tuple[Tensor, ...], tokens: int
) -> Layer:
    """The norm, the scores of experts, and tokens put in the order of their experts."""
    h, e, k = hidden, routing.experts, routing.chosen
    counted = grouped_router_kernels if routing.grouped else router_kernels
    flop = matrix_flop(tensors, tokens)
    sent = routing.latent or h
    moved = 2 * h + h + e + 3 * e + sent + k * sent + bool(routing.latent) * (h + sent)
    kept = float(tokens * (2 * h + 2 * e))
    return Layer(
        name=f"{unit}.router",
        tensors=tensors,
        forward_flop=flop,
        backward_flop=2 * flop,
        forward_bytes=tokens * moved,
        backward_bytes=2 * tokens * moved,
        kernels=6 + bool(routing.latent),
        activations=kept,
        activations_selective=kept,
        activations_op=kept,
        activations_moe=float(tokens * h),
        inside=float(tokens * h),
        rms=float(tokens * h),
        replicated=kept,
        output=float(tokens * h),
        unit=unit,
        eager_kernels=counted(h, e, k, tokens) if routing.gated else None,
        library_kernels=library_kernels.router_kernels(h, sent, e, k, tokens),
    )


def experts(
    hidden: int, routing: Routing, unit: str, tensors: tuple[Tensor, ...], tokens: int
) -> Layer:
    """What a token passes in the experts that it is sent to, and their outputs added up."""
    h, k, m = routing.latent or hidden, routing.chosen, routing.width
    up = 2 if routing.gated else 1
    flop = 2.0 * tokens * k * (up + 1) * h * m
    moved = k * (h + up * m + (up + 1) * m + m + h + 2 * h) + k * h + h + 3 * hidden
    kept = float(tokens * k * (h + (up + 1) * m))
    return Layer(
        name=f"{unit}.experts",
        tensors=tensors,
        forward_flop=flop,
        backward_flop=2 * flop,
        forward_bytes=tokens * moved,
        backward_bytes=2 * tokens * moved,
        kernels=6,
        activations=kept,
        activations_selective=kept,
        activations_op=float(tokens * k * m),
        activations_moe=0.0,
        op_flop=2.0 * tokens * k * h * m,
        inside=float(tokens * k * ((up + 1) * m + h)),
        eager=float(tokens * k * (m + h)),
        cast_saves=float(tokens * k * (h + m)),
        forward_sum=float(tokens * k * h),
        backward_sum=float(tokens * k * h),
        output=float(tokens * hidden),
        unit=unit,
        experts=routing.experts,
        chosen=k,
        routed=float(tokens * h),
        eager_kernels=expert_kernels(h, m, k, tokens) if routing.gated else None,
        library_kernels=library_kernels.expert_kernels(
            hidden, h, m, k, tokens, gated=routing.gated
        ),
    )


def shared(
    hidden: int, width: int, unit: str, tensors: tuple[Tensor, ...], tokens: int,
    *, gated: bool = True, latent: int = 0,
) -> Layer:  # fmt: skip
    """Experts that every token passes, `width` wide together, and what widens the sum of narrower
    ones (`latent`) again."""
    h, f, up = hidden, width, 2 if gated else 1
    flop = matrix_flop(tensors, tokens)
    moved = up * h + up * f + (up + 1) * f + f + h + 3 * h + bool(latent) * (latent + h)
    kept = float(tokens * ((up + 1) * f + latent))
    return Layer(
        name=f"{unit}.shared",
        tensors=tensors,
        forward_flop=flop,
        backward_flop=2 * flop,
        forward_bytes=tokens * moved,
        backward_bytes=2 * tokens * moved,
        kernels=3 + up + bool(latent),
        activations=kept,
        activations_selective=kept,
        activations_op=float(tokens * f),
        activations_moe=0.0,
        op_flop=2.0 * tokens * h * f,
        inside=float(tokens * ((up + 1) * f + h)),
        eager=float(tokens * f),
        cast_saves=float(tokens * f),
        forward_sum=float(tokens * h),
        backward_sum=float(tokens * h),
        output=float(tokens * h),
        unit=unit,
        eager_kernels=shared_kernels(h, f, tensors, tokens) if gated else None,
        library_kernels=library_kernels.shared_kernels(h, f, latent, tensors, tokens, gated=gated),
    )


@dataclass(frozen=True)
class Latent:
    """Latent attention: width, heads, ranks of what queries (0: they have none) and keys and
    values are made from, and elements per head without and with a position, and of values."""

    hidden: int
    heads: int
    query_rank: int
    rank: int
    plain: int
    turned: int
    value: int

    @property
    def key(self) -> int:
        """Elements of all queries, and of all keys, of a token."""
        return self.heads * (self.plain + self.turned)

    @property
    def values(self) -> int:
        """Elements of all values of a token."""
        return self.heads * self.value

    def attended(self, tokens: int, share: float) -> AttentionWork:
        """Attention over `tokens` tokens, which is the `share` of its layer's work."""
        whole = float(tokens * self.key), float(tokens * (self.key + self.values))
        return AttentionWork(*whole, share, self.heads, self.heads)

    @property
    def moved(self) -> int:
        """Elements of a token that are read and written, without stored scores."""
        made = self.key + self.key + self.values
        return 8 * self.hidden + 4 * self.narrow + 4 * made + 2 * self.values

    def widths(self, scores: float, *, wide: bool) -> LatentWidths:
        """What decides on its kernels, with so many elements of stored scores per token."""
        turned = self.heads * self.turned
        ranks = self.query_rank, self.rank
        return LatentWidths(
            self.hidden, *ranks, self.key, self.values, turned, self.turned, scores, wide
        )

    @property
    def narrow(self) -> int:
        """Elements of a token between the products that narrow it and those that widen it."""
        return self.query_rank + self.rank + self.turned


def latent_attention(
    shape: Latent, unit: str, tensors: tuple[Tensor, ...], tokens: int,
    *, stored: bool, wide: bool = False,
) -> Layer:  # fmt: skip
    """The attention half of a block, whose keys are put together from both their parts."""
    h, key, values, narrow = shape.hidden, shape.key, shape.values, shape.narrow
    scores = 2.0 * (key + values) * Block(h, 1, 1, 1, 1).pairs(tokens)
    flop, made = matrix_flop(tensors, tokens) + scores, key + key + values
    kept = float(tokens * (2 * h + 2 * narrow + made + values))
    more, elements = stored * (2 + 3 * wide), float(stored * shape.heads * tokens)
    scores_kept, scores_moved = elements * (1 + 2 * wide), elements * (4 + 8 * wide)
    own, moved = shape.widths(elements, wide=wide), shape.moved + scores_moved
    return Layer(
        name=f"{unit}.attention",
        tensors=tensors,
        forward_flop=flop,
        backward_flop=2 * flop,
        forward_bytes=tokens * moved,
        backward_bytes=2 * tokens * moved,
        kernels=16 + more,
        activations=kept + tokens * scores_kept,
        activations_full=float(tokens * h),
        activations_selective=kept,
        activations_op=float(tokens * (h + values + narrow)),
        op_flop=2.0 * tokens * shape.rank * shape.heads * (shape.plain + shape.value),
        rms=float(tokens * h),
        inside=float(tokens * (made + h)),
        again_flop=scores * stored,
        again_bytes=tokens * (made + scores_moved) * stored,
        again_kernels=stored + more,
        replicated=float(tokens * (2 * h + 2 * narrow)),
        forward_sum=float(tokens * h),
        backward_sum=float(tokens * h),
        output=float(tokens * h),
        unit=unit,
        attended=shape.attended(tokens, scores / flop),
        pairs=scores,
        eager_kernels=latent_kernels(own, tensors, tokens),
        library_kernels=library_kernels.latent_kernels(own, tensors, tokens),
    )
