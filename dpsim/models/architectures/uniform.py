"""A stand-in for any model of which only the size is known: equal blocks."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from dpsim.core import units
from dpsim.core.record import Check, Refused, record
from dpsim.models import Doubt, Layer, Model, Tensor
from dpsim.models.architectures import Architecture

#: shares of a transformer block's parameters: q, k, v; output; up; down (of 12 h^2)
_SHARES = (3, 1, 4, 4)
#: elements per token and width that such a block moves forward, and keeps, and its kernels
#: (dpsim/models/transformer_layers.py, without dropout; 34 s h bytes at 16 bit are kept)
_MOVED, _KEPT, _KERNELS = 40.0, 17.0, 12
#: FLOP per token and parameter of forward and backward
_FLOP = 6.0
#: by what factors a step of the model that is meant may differ from the stand-in's, where nothing
#: is calibrated, and where a step of it was measured at another count: nine in ten of 19 known
#: models on four machines lie inside (validation/stand_ins.py: 0.78 … 2.70 and 0.89 … 1.19)
LEVEL, GROWTH = (0.75, 2.8), (0.85, 1.2)


@record
class EqualBlocks(Architecture):
    """A stand-in for a model of which only the size is known: blocks that are all alike.

    parameters       trainable parameters, in equal blocks (a whole number; 12e9 is one)
    flop_per_sample  FLOP of one sample's forward and backward pass; a third of them is forward
    blocks           equal blocks, whose gradients are ready one after the other
    tokens           tokens per sample, for the unit of throughput
    sample           what one sample is: `image`s are decoded by the host

    Memory and traffic are those of a transformer of so many blocks, parameters and FLOP.  An answer
    says that it rests on a stand-in, and its interval has a cause of that name.
    """

    parameters: Annotated[float, units.Unit("1", low=1.0, high=1e13)]
    flop_per_sample: units.Flop
    blocks: Annotated[int, Check(1, 10_000)] = 32
    tokens: Annotated[int, Check(1, 10**9)] = 1
    sample: Literal["sample", "sequence", "image"] = "sample"

    def __post_init__(self) -> None:
        if self.parameters != int(self.parameters):
            raise Refused(f"{self.parameters} is not a whole number", ("parameters",))
        if self.parameters < self.blocks * sum(_SHARES):
            raise Refused(f"{self.parameters:,.0f} are too few for {self.blocks} blocks",
                          ("parameters",))  # fmt: skip
        if self.flop_per_sample <= 0:
            raise Refused("0 FLOP is no work", ("flop_per_sample",))

    def model(self) -> Model:
        """Equal blocks, the last of which has what does not divide."""
        total, each = int(self.parameters), int(self.parameters) // self.blocks
        sizes = [each] * (self.blocks - 1)
        sizes.append(total - sum(sizes))
        return Model(
            name=f"uniform, {total:,} parameters in {self.blocks} blocks",
            layers=tuple(self._block(i, size) for i, size in enumerate(sizes)),
            sample=self.sample,
            tokens=self.tokens,
            doubts=(Doubt("stand-in", LEVEL, GROWTH, self._says()),),
        )

    def _says(self) -> str:
        return (
            f"model: a stand-in of {self.blocks} equal blocks with the stated parameters and FLOP; "
            "where a real model has its parameters, and how much it moves and keeps, is not known, "
            "so memory is a guess and the interval is wider (cause: stand-in)"
        )

    def _block(self, index: int, parameters: int) -> Layer:
        """A block that works as long as a transformer's of its size would."""
        forward = self.flop_per_sample / 3 / self.blocks
        width = math.sqrt(parameters / sum(_SHARES))
        rows = self.flop_per_sample / _FLOP / self.parameters
        name, elements = f"blocks.{index}", rows * width
        parts = [parameters * share // sum(_SHARES) for share in _SHARES]
        parts[-1] += parameters - sum(parts)
        return Layer(
            name=name,
            tensors=tuple(Tensor(f"{name}.{k}", (size,)) for k, size in enumerate(parts)),
            forward_flop=forward,
            backward_flop=2 * forward,
            forward_bytes=_MOVED * elements,
            backward_bytes=2 * _MOVED * elements,
            kernels=_KERNELS,
            activations=_KEPT * elements,
            activations_full=elements,
            activations_selective=_KEPT * elements,
            activations_op=_KEPT * elements,
            output=elements,
            unit=name,
        )
