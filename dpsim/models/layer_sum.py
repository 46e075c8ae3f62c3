"""What the operations of one layer add up to: for models that are described operation by operation.

All figures are per sample.  A plane of c channels of n x n elements has c n^2 elements, a sequence
of t tokens of width w has t w.  For every operation:

* FLOP, a multiply-add counted as 2: 2 k_h k_w c_in / groups c_out n_out^2 of a convolution, 2 in
  out per row of a matrix, 4 q k d per head of attention over q queries and k keys of size d.
  Backward costs twice that, once where the input needs no gradient.  All else costs none, only
  traffic.
* Forward traffic in elements: convolution and matrix in + out, a depthwise convolution `DEPTHWISE`
  times that; attention its queries, keys, values and output, and 4 q k per head where scores are
  stored, which are kept then; batch normalisation 3 out, other norms 2 out; activation 2 out, gated
  product 3 out, dropout 2.5 out; addition 3 out; pooling in + out.
* Backward traffic: twice forward, but for batch normalisation (5 out), activations, dropout and
  additions (3 out), pooling (in + out), and convolutions and matrices without a gradient of their
  input (in + out).
* Kept for backward, in elements: each operation keeps its output once where a later one needs it,
  which is so for all but additions that an in-place activation follows; max pooling keeps int64
  indices too (two elements each), dropout a mask of one byte (half an element), batch and other
  norms their input, which is the output of the operation before.
* One kernel each.

The sources of these rules are those of `image_layers` and `transformer_layers`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from dpsim.models import Layer, Tensor
from dpsim.models.convolutions import NONE_SAVED, FusedAway, with_kernels
from dpsim.models.image_layers import Plane

#: how many times as long as its reads and writes at full bandwidth a depthwise convolution takes,
#: whose few products no tensor core makes.  Training rates on an RTX 3090 in mixed precision and
#: channels-last (huggingface/pytorch-image-models at aa4b5850,
#: results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv): with 6, EfficientNet B0 to B7 take
#: 0.91 to 1.03 times what is predicted, MobileNetV2 0.84 and V3 1.05 and 1.10
DEPTHWISE = 6.0


@dataclass
class LayerSum:
    """A layer that grows operation by operation.

    name    the layer's
    unit    the block that it is wrapped with; "" is the root
    first   its input needs no gradient

    `products` and `back_products` are what convolutions and matrices move of `moved` and
    `back_moved`, `multiplying` and `gradients` how many kernels they are in either pass; `saved` is
    what is not moved where what follows a batch normalisation is fused to it, `turned` what
    convolutions read and write, but for those of each channel alone.
    """

    name: str
    unit: str = ""
    first: bool = False
    tensors: list[Tensor] = field(default_factory=list)
    flop: float = 0.0
    back_flop: float = 0.0
    moved: float = 0.0
    back_moved: float = 0.0
    kept: float = 0.0
    kernels: int = 0
    batch_norm: int = 0
    scores: float = 0.0
    again_flop: float = 0.0
    again_moved: float = 0.0
    products: float = 0.0
    back_products: float = 0.0
    multiplying: int = 0
    gradients: int = 0
    saved: FusedAway = NONE_SAVED
    turned: float = 0.0

    def own(self, name: str, *shape: int) -> LayerSum:
        """A parameter tensor that no operation below accounts for."""
        self.tensors.append(Tensor(name, shape))
        return self

    def matrix(
        self, name: str, rows: float, out: int, inner: int, *, bias: bool = True, kept: bool = True
    ) -> LayerSum:
        """`rows` vectors of `inner` elements times a matrix of (out, inner)."""
        self._weights(name, (out, inner), bias)
        return self.product(2.0 * rows * out * inner, rows * inner, rows * out, kept=kept)

    def convolution(
        self,
        name: str,
        source: Plane,
        out: Plane,
        kernel: tuple[int, int],
        *,
        groups: int = 1,
        bias: bool = False,
    ) -> LayerSum:
        """A convolution of `kernel` from `source` to `out`."""
        shape = (out.channels, source.channels // groups, *kernel)
        self._weights(name, shape, bias)
        if groups == source.channels > 1:
            more = (DEPTHWISE - 1) * (source.elements + out.elements)
            self._multiplies(more, (1 if self.first else 2) * more, kernels=0, passes=0)
        else:
            self.turned += source.elements + out.elements
        return self.product(2.0 * prod(shape) * out.size**2, source.elements, out.elements)

    def product(self, flop: float, read: float, wrote: float, *, kept: bool = True) -> LayerSum:
        """What a convolution or matrix of `flop` FLOP does; the first needs no input gradient."""
        passes = 1 if self.first else 2
        self.flop += flop
        self.back_flop += passes * flop
        self.kept += wrote * kept + (read if self.first else 0)
        self.first = False
        return self._multiplies(read + wrote, passes * (read + wrote), kernels=1, passes=passes)

    def attention(
        self,
        queries: float,
        keys: float,
        width: int,
        *,
        pairs: float | None = None,
        kv: int = 0,
        stored: int = 0,
    ) -> LayerSum:
        """Attention of `queries` tokens over `keys`, with heads of `width` elements together, or of
        `kv` for keys and values; `pairs` of tokens are computed (all if left out), and their scores
        are `stored` for so many heads."""
        flop = 4.0 * width * (queries * keys if pairs is None else pairs)
        moved, scores = 2.0 * queries * width + 2.0 * keys * (kv or width), stored * queries * keys
        self.flop += flop
        self.back_flop += 2 * flop
        self.kept += queries * width + scores
        if stored:
            self.scores += scores
            self.again_flop += flop
            self.again_moved += moved + 4 * scores
            self.kernels += 2
        return self.moves(moved + 4 * scores, 2 * (moved + 4 * scores))

    def norm(
        self, name: str, elements: float, width: int, *, bias: bool = True, batch: bool = False
    ) -> LayerSum:
        """A norm of `elements` elements with `width` parameters of each kind ("" for none)."""
        if name:
            ends = ("weight", "bias")[: 1 + bias]
            self.tensors += [Tensor(f"{name}.{end}", (width,)) for end in ends]
        self.batch_norm += width * batch
        self.kept += elements
        return self.moves((2 + batch) * elements, (4 + batch) * elements)

    def activation(self, elements: float, *, kept: bool = True) -> LayerSum:
        """A function of each of `elements` elements; not `kept`: in place, of what is kept."""
        self.kept += elements * kept
        if self.batch_norm:
            self.saved = self.saved.with_kernel(2 * elements, 3 * elements)
        return self.moves(2 * elements, 3 * elements)

    def gate(self, elements: float) -> LayerSum:
        """A product of two halves of `elements` elements each, with an activation on one."""
        self.kept += elements
        return self.moves(3 * elements, 6 * elements)

    def scaled(self, elements: float) -> LayerSum:
        """Multiplied by something small (a gate, a layer's scale) and kept."""
        self.kept += elements
        return self.moves(2 * elements, 4 * elements)

    def add(self, elements: float, *, kept: bool = False) -> LayerSum:
        """The sum of two."""
        self.kept += elements * kept
        if self.batch_norm:
            self.saved = self.saved.with_kernel(2 * elements, 2 * elements)
        return self.moves(3 * elements, 3 * elements)

    def dropout(self, elements: float) -> LayerSum:
        """Dropout with its mask of one byte per element."""
        self.kept += 0.5 * elements
        return self.moves(2.5 * elements, 3 * elements)

    def pooled(self, read: float, wrote: float, *, maximum: bool = False) -> LayerSum:
        """A pooling, or a change of size."""
        self.kept += wrote * (3 if maximum else 1)
        return self.moves(read + wrote, read + wrote)

    def _multiplies(
        self, forward: float, backward: float, *, kernels: int, passes: int
    ) -> LayerSum:
        """Traffic of convolutions and matrices, of which each has so many backward `passes`."""
        self.products += forward
        self.back_products += backward
        self.multiplying += kernels
        self.gradients += passes
        return self.moves(forward, backward, kernels=kernels)

    def moves(self, forward: float, backward: float, *, kernels: int = 1) -> LayerSum:
        """Traffic of kernels that are not named above."""
        self.moved += forward
        self.back_moved += backward
        self.kernels += kernels
        return self

    def image_layer(self, *, read: float, wrote: float) -> Layer:
        """The layer of an image network, with its kernels."""
        behind = self.moved - self.products, self.back_moved - self.back_products
        made = self.layer(read=read, wrote=wrote)
        counts = self.multiplying, self.gradients
        return with_kernels(made, *behind, self.saved, *counts, self.turned)

    def layer(self, *, read: float, wrote: float, tied: str | None = None) -> Layer:
        """The layer, which reads `read` elements from the one before and writes `wrote`."""
        return Layer(
            name=self.name,
            tensors=tuple(self.tensors),
            forward_flop=self.flop,
            backward_flop=self.back_flop,
            forward_bytes=self.moved,
            backward_bytes=self.back_moved,
            kernels=max(self.kernels, 1),
            activations=self.kept,
            activations_full=read,
            activations_selective=self.kept - self.scores,
            again_flop=self.again_flop,
            again_bytes=self.again_moved,
            again_kernels=3 * (self.scores > 0),
            activations_op=self.kept,
            output=wrote,
            unit=self.unit,
            tied=tied,
            batch_norm=self.batch_norm,
        )

    def _weights(self, name: str, shape: tuple[int, ...], bias: bool) -> None:
        self.tensors.append(Tensor(f"{name}.weight", shape))
        if bias:
            self.tensors.append(Tensor(f"{name}.bias", shape[:1]))
