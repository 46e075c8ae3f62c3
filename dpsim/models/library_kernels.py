"""What the kernels of a hand-tuned library move in layers with sparse experts, latent attention and
scans: those of NVIDIA/Megatron-LM with NVIDIA/TransformerEngine, and of state-spaces/mamba.

As `dpsim/models/kernel_counts.py` counts: elements per token that all kernels but products and
attention read and write, at 16 bit (one in 32 counts as two), forward and behind the bar backward.
Norms, rotary positions and activations are those that a compiler leaves.

* The router: a norm, 2 h | 6 h with the residual's gradients; softmax and choice in 32 bit, 6 E |
  8 E; and tokens put in the order of their experts, h + k h | k h + h
  (`moe_utils.permute`; fused with the exchange it reads and writes as much).
* The experts: the activation between both products, 3 k m | 5 k m, of two matrices 2 k m | 3 k m;
  copies added up, k h + h | h + k h; the residual addition, 3 h.  Where ranks share experts out and
  send a copy to each, every one that holds several sorts what came by expert, and back:
  4 k h | 4 k h (`MoEAlltoAllTokenDispatcher`, `sort_chunks_by_idxs`).
* Shared experts: the activation, and the sum with the others, 3 h | 0.
* Latent attention (letters of `dpsim/models/latent_kernels.py`): norms of h, and of q and c, 2 | 4
  each; rotary positions 2 (R + r) | 2 (R + r); keys put together from both their parts, beside
  values, 2 (N + V) + r + R | as much; the sum of queries' and keys' gradients, h; the addition 3 h.
* A scan (letters of `dpsim/models/state_space_layers.py`): what its forward counts between both
  products.  Backward does the convolution, C with B and the states again, then makes the gradients
  of the gated norm, of states, of x, B, C and their scores, and of steps, a kernel each
  (`MambaSplitConv1dScanCombinedFn.backward`, `_mamba_chunk_scan_combined_bwd`): 16 d + 17 n d / Q +
  12 g Q + 19 g n + 5 c + 10 a.

Source: NVIDIA/Megatron-LM d98e8a64 `megatron/core/transformer/moe/token_dispatcher.py` and
`experts.py`; state-spaces/mamba e9594ce1 `mamba_ssm/ops/triton/ssd_combined.py`.  The scan's
forward kernel, with its products at flash attention's share of the peak, comes to 1.49 ms where
1.28 were measured of one that was searched for (tile-ai/tilelang `benchmark/mamba2/README.md`:
H800, 8 sequences of 8,192, 80 heads of 64).
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsim.models import Tensor
from dpsim.models.kernel_counts import KernelPasses
from dpsim.models.latent_kernels import LatentWidths
from dpsim.models.streams import Kernels


def router_kernels(hidden: int, sent: int, experts: int, chosen: int, tokens: int) -> Kernels:
    """The norm, the choice of experts, and tokens `sent` wide in their order."""
    found = KernelPasses(compiled=True)
    found.norm(1, hidden, rms=True)
    found.forward.add(3, 6 * experts + (1 + chosen) * sent)
    found.backward.add(3, 8 * experts + (1 + chosen) * sent)
    return found.counted(tokens, hidden + experts + (sent < hidden) * (hidden + sent))


def expert_kernels(
    hidden: int, width: int, inner: int, chosen: int, tokens: int, *, gated: bool
) -> Kernels:
    """What tokens `width` wide pass in their experts, each `inner` wide, up to the stream of the
    model, `hidden` wide."""
    found, up = KernelPasses(compiled=True), 2 if gated else 1
    found.forward.add(2, chosen * (up + 1) * inner + (chosen + 1) * width)
    found.backward.add(2, chosen * (2 * up + 1) * inner + (chosen + 1) * width)
    found.residual(hidden, dropout=False)
    return found.counted(tokens, chosen * (2 * width + (up + 1) * inner))


def shared_kernels(
    hidden: int, inner: int, latent: int, tensors: Sequence[Tensor], tokens: int, *, gated: bool
) -> Kernels:
    """Experts that every token passes, `inner` wide together; `latent`: and what widens others'."""
    found, up = KernelPasses(compiled=True), 2 if gated else 1
    found.products(tensors)
    found.forward.add(1, (up + 1) * inner)
    found.backward.add(1, (2 * up + 1) * inner)
    found.residual(hidden, dropout=False)
    moved = 2 * hidden + (up + 1) * inner + bool(latent) * (latent + hidden)
    return found.counted(tokens, moved)


def latent_kernels(own: LatentWidths, tensors: Sequence[Tensor], tokens: int) -> Kernels:
    """Latent attention of `tokens` tokens, with its norms and the residual addition."""
    found = KernelPasses(compiled=True)
    h, key, values, narrow = own.hidden, own.key, own.values, own.query_rank + own.rank
    found.norm(1, h, rms=True)
    found.forward.add(2, 2 * narrow)
    found.backward.add(2, 4 * narrow + h)
    found.products(tensors)
    found.rotary(own.turned + own.turned_key)
    made = 2 * (key - own.turned + values) + own.turned_key + own.turned
    found.forward.add(1, made)
    found.backward.add(1, made)
    if own.scores:
        found.scored(own.scores, wide=False)
    else:
        found.flash()
    found.residual(h, dropout=False)
    return found.counted(tokens, own.products)


def scan_kernels(
    hidden: int, forward: float, backward: float, products: float, tokens: int
) -> Kernels:
    """A block with a scan whose kernels between both products move `forward` and `backward`."""
    found = KernelPasses(compiled=True)
    found.norm(1, hidden, rms=True)
    found.forward.add(7, forward)
    found.backward.add(14, backward)
    found.residual(hidden, dropout=False)
    return found.counted(tokens, products)


def joined_kernels(hidden: int, tokens: int) -> Kernels:
    """Two norms whose outputs stand side by side before a product from twice the width, of what is
    looked up."""
    found = KernelPasses(compiled=True)
    found.norm(2, hidden, rms=True)
    found.forward.add(1, 2 * hidden)
    found.backward.add(1, 2 * hidden)
    return found.counted(tokens, 3 * hidden)
