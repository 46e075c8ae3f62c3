"""Work and memory of the layers of image networks, from their specification.

Rules, all per image (c channels of n x n elements in and out):

* FLOP: 2 * k * k * c_in * c_out * n_out^2 for a k x k convolution and 2 * in * out for a linear
  layer, a multiply-add counted as 2 (He et al., arXiv:1512.03385, table 1 counts it as 1).
  Backward costs twice that (input gradient and weight gradient), once for the network's first
  layer, whose input needs no gradient.  Pooling, normalisation and activations cost no FLOP, only
  traffic.
* Forward traffic in elements: convolution in + out; batch normalisation 3 out (it reads its input
  for the statistics and again to normalise); ReLU 2 out; addition 3 out; pooling in + out.
* Backward traffic: convolution 2 (in + out), or in + out for the first layer; batch normalisation
  5 out; ReLU 3 out; addition 3 out; pooling in + out.
* Kept for backward, in elements: what a convolution or linear layer read is what the layer before
  it wrote, so each layer keeps its own outputs: the convolution's output where a batch
  normalisation follows it (which reads it again), and the final output after the in-place ReLU.
  Max pooling also keeps int64 indices, counted as two elements each.
* Kernels: one each for convolution, batch normalisation, ReLU, addition, pooling and dropout;
  `dpsim/models/convolutions.py` has them fused.
"""

from __future__ import annotations

from typing import NamedTuple

from dpsim.models import Layer, Tensor
from dpsim.models.convolutions import NONE_SAVED, with_kernels


class Plane(NamedTuple):
    """The shape of one image inside the network: `channels` planes of `size` x `size`."""

    channels: int
    size: int

    @property
    def elements(self) -> int:
        return self.channels * self.size * self.size

    def after(self, channels: int, kernel: int, stride: int, padding: int) -> Plane:
        """The plane behind a window of `kernel`, rounded down (PyTorch's Conv2d and MaxPool2d)."""
        return Plane(channels, (self.size + 2 * padding - kernel) // stride + 1)


class Convolution(NamedTuple):
    """A square convolution and the element-wise operations that follow it in the same layer.

    `norm` names the batch normalisation ("" for none; the convolution has a bias exactly then);
    `first` says that the input needs no gradient.
    """

    name: str
    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0
    norm: str = ""
    relu: bool = True
    add: bool = False
    kept: bool = True
    first: bool = False
    unit: str = ""

    def output(self, source: Plane) -> Plane:
        return source.after(self.channels, self.kernel, self.stride, self.padding)

    def tensors(self, source: Plane) -> tuple[Tensor, ...]:
        shape = (self.channels, source.channels, self.kernel, self.kernel)
        weight = Tensor(f"{self.name}.weight", shape)
        if not self.norm:
            return (weight, Tensor(f"{self.name}.bias", (self.channels,)))
        ends = ("weight", "bias")
        return (weight, *(Tensor(f"{self.norm}.{end}", (self.channels,)) for end in ends))

    def layer(self, source: Plane) -> Layer:
        """This layer applied to `source` (rules in the module's docstring)."""
        out, read = self.output(source), source.elements
        wrote, norm = out.elements, bool(self.norm)
        weight = self.kernel**2 * source.channels * self.channels
        flop = 2.0 * weight * out.size**2
        passes = 1 if self.first else 2
        behind = wrote * (3 * norm + 2 * self.relu + 3 * self.add)
        back = wrote * (5 * norm + 3 * (self.relu + self.add))
        saved = NONE_SAVED
        if norm and self.relu:
            saved = saved.with_kernel(2 * wrote, 3 * wrote)
        if norm and self.add:
            saved = saved.with_kernel(2 * wrote, 2 * wrote)
        kept = wrote * (norm + self.kept) + (read if self.first else 0)
        made = Layer(
            name=self.name,
            tensors=self.tensors(source),
            forward_flop=flop,
            backward_flop=passes * flop,
            forward_bytes=read + wrote + behind,
            backward_bytes=passes * (read + wrote) + back,
            kernels=1 + norm + self.relu + self.add,
            activations=kept,
            activations_full=read,
            activations_selective=kept,
            activations_op=kept,
            output=wrote,
            unit=self.unit,
            batch_norm=self.channels * norm,
        )
        return with_kernels(made, behind, back, saved, 1, passes, read + wrote)


def pool(name: str, source: Plane, out: Plane, *, maximum: bool) -> Layer:
    """A pooling layer: no parameters, no FLOP; max pooling keeps two more elements per output."""
    moved, kept = source.elements + out.elements, out.elements * (3 if maximum else 1)
    made = Layer(
        name=name,
        forward_bytes=moved,
        backward_bytes=moved,
        activations=kept,
        activations_full=source.elements,
        activations_selective=kept,
        activations_op=kept,
        output=out.elements,
    )
    return with_kernels(made, moved, moved, NONE_SAVED, 0, 0)


def linear(name: str, read: int, wrote: int, *, relu: bool = False, dropout: bool = False) -> Layer:
    """A linear layer of `read` inputs and `wrote` outputs, with bias.

    It keeps its output, and where dropout follows the dropout's output and mask too.
    """
    flop, kept = 2.0 * read * wrote, wrote * (1.0 + 2.0 * dropout)
    behind, back = wrote * (2 * relu + 3 * dropout), wrote * 3 * (relu + dropout)
    made = Layer(
        name=name,
        tensors=(Tensor(f"{name}.weight", (wrote, read)), Tensor(f"{name}.bias", (wrote,))),
        forward_flop=flop,
        backward_flop=2 * flop,
        forward_bytes=read + wrote + behind,
        backward_bytes=2 * (read + wrote) + back,
        kernels=1 + relu + dropout,
        activations=kept,
        activations_full=read,
        activations_selective=kept,
        activations_op=kept,
        output=wrote,
    )
    return with_kernels(made, behind, back, NONE_SAVED, 1, 2)
