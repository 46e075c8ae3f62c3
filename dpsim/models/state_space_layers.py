"""Work and memory of state-space layers (Mamba-2), from their dimensions.

All figures are per sequence of s tokens, as in `dpsim/models/transformer_layers.py`, whose rules
hold here too.  h is the width of the model; a heads of p elements make d = a p; n is the size of
the state, g the groups that share its B and C, c = d + 2 g n the channels of the convolution over k
tokens, w = d + c + a what the first product puts out, Q the tokens of a chunk.

A block is a norm, a product into w, a causal convolution of every channel, the scan, a gated norm
and a product back (Dao and Gu, arXiv:2405.21060, sections 6 and 7; state-spaces/mamba
`mamba_ssm/modules/mamba2.py`).

* FLOP per token: 2 per element of both matrices, 2 k c of the convolution, and the scan's four
  products in chunks (section 6 and listing 1): C with B 2 g n Q, its masked scores with x 2 d Q, a
  chunk's state from B and x 2 n d, and the output from the state before it 2 n d.  Masked pairs are
  counted: the products of C with B compute them all, those with x some.  What hands states from
  chunk to chunk, 2 n d / Q, is left out.
* Traffic in elements per token, as the kernels of `mamba_ssm/ops/triton/ssd_combined.py` read and
  write it: norm 2 h, first product h + w, convolution 2 c, steps 5 a (three in 32 bit), C with B
  2 g n and 2 g Q written in 32 bit, states g n + d and 2 n d / Q written in 32 bit, handed on 4 n d
  / Q, scan 2 g Q + 2 d + g n + 2 n d / Q, gated norm 3 d, last product d + h, addition 3 h.
* Kept for backward (`MambaSplitConv1dScanCombinedFn`, which does convolution, states and the last
  product's input again): the norm's input and output, what the first product puts out and the
  scan's output, 2 h + w + d.
* Kernels: norm, product, convolution, five of the scan, gated norm, product, addition.

Torch's own operations, one by one, would keep and move many times as much; nobody trains so, and
eager kernels are not counted.
"""

from __future__ import annotations

from dpsim.core.lean import dataclass
from dpsim.models import Layer, Tensor
from dpsim.models.library_kernels import scan_kernels
from dpsim.models.transformer_layers import matrix_flop


@dataclass(frozen=True)
class Scan:
    """Dimensions of a block: width, heads and their size, state, groups that share its B and C,
    tokens that a convolution sees, and tokens of a chunk."""

    hidden: int
    heads: int
    head_dim: int
    state: int
    groups: int
    kernel: int
    chunk: int

    @property
    def inner(self) -> int:
        """Elements of all heads."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """What the convolution runs over: x, B and C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def projected(self) -> int:
        """What the first product puts out: gate, x, B, C and steps."""
        return self.inner + self.channels + self.heads

    def scanned(self, tokens: int) -> float:
        """FLOP of the scan's products over `tokens` tokens.

        >>> Scan(8, 2, 4, 16, 1, 4, 32).scanned(64)
        131072.0
        """
        seen = min(self.chunk, tokens)
        pairs = self.groups * self.state * seen + self.inner * seen
        return 2.0 * tokens * (pairs + 2 * self.state * self.inner)

    def moved(self, tokens: int) -> float:
        """Elements per token that the kernels between both products move."""
        shared, seen = self.groups * self.state, min(self.chunk, tokens)
        states = self.state * self.inner / seen
        return (
            2 * self.channels + 5 * self.heads + 4 * shared + 4 * self.groups * seen
            + 6 * self.inner + 8 * states
        )  # fmt: skip

    def moved_back(self, tokens: int) -> float:
        """The same of backward (`dpsim/models/library_kernels.py`)."""
        shared, seen = self.groups * self.state, min(self.chunk, tokens)
        states = self.state * self.inner / seen
        scores = self.groups * seen
        return (
            5 * self.channels + 10 * self.heads + 19 * shared + 12 * scores + 16 * self.inner
            + 17 * states
        )  # fmt: skip


def scan_tensors(shape: Scan, path: str, *, biased: bool, conv_biased: bool) -> tuple[Tensor, ...]:
    """A mixer's, in the order of registration; `path` is its name."""
    found = [Tensor(f"{path}.{name}", (shape.heads,)) for name in ("dt_bias", "A_log", "D")]
    found.append(Tensor(f"{path}.conv1d.weight", (shape.channels, 1, shape.kernel)))
    if conv_biased:
        found.append(Tensor(f"{path}.conv1d.bias", (shape.channels,)))
    found.append(Tensor(f"{path}.in_proj.weight", (shape.projected, shape.hidden)))
    if biased:
        found.append(Tensor(f"{path}.in_proj.bias", (shape.projected,)))
    found.append(Tensor(f"{path}.norm.weight", (shape.inner,)))
    found.append(Tensor(f"{path}.out_proj.weight", (shape.hidden, shape.inner)))
    if biased:
        found.append(Tensor(f"{path}.out_proj.bias", (shape.hidden,)))
    return tuple(found)


def scan_layer(shape: Scan, unit: str, tensors: tuple[Tensor, ...], tokens: int) -> Layer:
    """A block: norm, product, convolution, scan, gated norm, product, residual addition."""
    h, w, d = shape.hidden, shape.projected, shape.inner
    scanned = shape.scanned(tokens)
    between = scanned + 2.0 * tokens * shape.kernel * shape.channels
    flop = matrix_flop(tensors, tokens) + between
    moved = 2 * h + h + w + shape.moved(tokens) + d + h + 3 * h
    kept = float(tokens * (2 * h + w + d))
    return Layer(
        name=f"{unit}.mixer",
        tensors=tensors,
        forward_flop=flop,
        backward_flop=2 * flop,
        forward_bytes=tokens * moved,
        backward_bytes=2 * tokens * moved,
        kernels=11,
        activations=kept,
        activations_full=float(tokens * h),
        activations_selective=kept,
        activations_op=float(tokens * (h + w)),
        op_flop=2.0 * tokens * h * d + between,
        inside=float(tokens * (w + d + h)),
        rms=float(tokens * h),
        replicated=float(tokens * 2 * h),
        forward_sum=float(tokens * h),
        backward_sum=float(tokens * h),
        output=float(tokens * h),
        unit=unit,
        pairs=between,
        scan=(shape.heads, shape.groups),
        library_kernels=scan_kernels(
            h, shape.moved(tokens), shape.moved_back(tokens), h + w + d + h, tokens
        ),
    )
