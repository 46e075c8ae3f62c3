"""What computing in 8 bits leaves in 16: casts, attention, embeddings and heads.

In fp8 the products with a block's weights run in 8 bits, and nothing else does: attention over
pairs of tokens, embeddings and the head stay in 16 (NVIDIA/TransformerEngine; pytorch/torchtitan
`torchtitan/components/quantization/float8.py`, whose filter leaves `output` out).  Every operand is
scaled by its largest element and cast before its product: it is read twice and written once, by
kernels of their own.  Forward casts the inputs of products, backward the gradients of their
outputs; what neighbours share (q, k and v; gate and up) is cast once.  Weights are cast once a
step, whatever its micro-batches, which is left out.  A hand-tuned library knows its scales from
steps before: norms and activations write 8 bits, with their transpose as many bytes as 16, and
gradients alone are read, cast and written both ways (TransformerEngine's delayed scaling).
"""

from __future__ import annotations

from math import prod

from dpsim.models import Layer

#: bytes that a cast of an operand moves per element, at the datasheet's rate: 7.8 to 9.8 are fitted
#: on H100, H200, B200, B300, GB200 and GB300 (ai-dynamo/aiconfigurator, Apache-2.0: fp8 products
#: whose 16-bit activations are scaled and cast first); two reads and a write would be 5
CAST_BYTES = 8.8
#: the same of a gradient by one kernel of a hand-tuned library: 16 bits read, 8 written twice
FUSED_CAST_BYTES = 4.0
#: share of the peak that 8-bit products reach over that of 16-bit ones: 0.709 against 0.803 of the
#: best shapes on H100, 0.763 against 0.776 on B200 (stas00/ml-engineering), and 4 % less of it at
#: 4,096 elements a sum, whose half is reached at 353 in place of 159 (H100, aiconfigurator)
PRODUCTS_SHARE = 0.85


def is_cast(layer: Layer, dtype: str) -> bool:
    """Whether products of `layer` run in 8 bits."""
    return dtype == "fp8" and bool(layer.unit)


def rest_of(dtype: str) -> str:
    """The dtype of what does not run in 8 bits."""
    return "bf16" if dtype == "fp8" else dtype


def cast_elements(layer: Layer, samples: float) -> tuple[float, float]:
    """Elements that forward and backward cast in a micro-batch of `samples` samples."""
    matrices = [t.shape for t in layer.tensors if len(t.shape) >= 2 and not t.name.endswith("bias")]
    weights = sum(prod(shape) for shape in matrices)
    if not weights:
        return 0.0, 0.0
    tokens = (layer.forward_flop - layer.pairs) * samples / (2.0 * weights)
    ins = [(prod(shape[:-2]), shape[-1]) for shape in matrices]
    inputs = sum(count * width for count, width in [*set(ins[:-1]), ins[-1]])
    outputs = sum(prod(shape[:-1]) for shape in matrices)
    return tokens * inputs, (0.0 if layer.detached else tokens * outputs)
