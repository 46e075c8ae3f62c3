"""What computing in 8 or 4 bits leaves in 16: casts, attention, embeddings and heads.

In fp8 and nvfp4 the products with a block's weights run in few bits, and nothing else does:
attention over pairs of tokens, convolutions, embeddings and the head stay in 16
(NVIDIA/TransformerEngine; pytorch/torchtitan `torchtitan/components/quantization/float8.py`, whose
filter leaves `output` out), and so do whole blocks that are told to.  Operands are cast before
their product: forward casts the inputs of products, backward the gradients of their outputs; what
neighbours share (q, k and v; gate and up) is cast once.  Weights are cast once a step, whatever its
micro-batches, which is left out.

fp8.  Every operand is scaled by its largest element: it is read twice and written once, by kernels
of their own.  A hand-tuned library knows its scales from steps before: norms and activations write
8 bits, with their transpose as many bytes as 16, and gradients alone are read, cast and written
both ways (TransformerEngine's delayed scaling).

nvfp4.  One scale of 8 bits for 16 neighbours and one of 32 for the tensor, by its largest element.
Neighbours along a row for one product are not those for the other, so inputs and gradients are
written both ways, of which the gradient of weights takes one behind a random Hadamard transform:
they are read for the largest element, read again and written twice at 0.5625 bytes, 5.1 bytes an
element in a library too, for no scale is known from before (NVIDIA/TransformerEngine 000b637e
transformer_engine/common/recipe/__init__.py, NVFP4BlockScaling).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from dpsim.core.dtypes import OPERANDS
from dpsim.core.record import Refused
from dpsim.machines.devices import Device
from dpsim.models import Layer, Model
from dpsim.models.precision import Precision
from dpsim.models.rates import GROUPED, reached

#: bytes that a cast of an operand to 8 bits moves per element, at the datasheet's rate: 7.8 to 9.8
#: are fitted on H100, H200, B200, B300, GB200 and GB300 (ai-dynamo/aiconfigurator, Apache-2.0: fp8
#: products whose 16-bit activations are scaled and cast first); two reads and a write would be 5
CAST_BYTES = 8.8
#: the same of a gradient by one kernel of a hand-tuned library: 16 bits read, 8 written twice
FUSED_CAST_BYTES = 4.0
#: the same to 4 bits by two kernels, largest element and cast: 38.0 and 68.0 us for 2,048 x 28,672
#: elements on GB200 with its 8 TB/s (pytorch/ao 36027d82 benchmarks/prototype/nvfp4_training)
FOUR_CAST_BYTES = 14.4
#: and by TransformerEngine: what products with operands that are cast first take more than those of
#: cast ones on B300, 0.678, 0.884 and 1.126 ms in three passes over 656, 786 and 1,040 million
#: elements, 1.08 ps each (NVIDIA/TransformerEngine 8f2e6357 docs/examples/gemm_profiling)
FOUR_LIBRARY_CAST_BYTES = 8.7
#: share of the peak that 8-bit products reach over that of 16-bit ones: 0.709 against 0.803 of the
#: best shapes on H100, 0.763 against 0.776 on B200 (stas00/ml-engineering), and 4 % less of it at
#: 4,096 elements a sum, whose half is reached at 353 in place of 159 (H100, aiconfigurator)
PRODUCTS_SHARE = 0.85
#: the same of products on Blackwell that are not grouped: 0.763 of the best shapes against 0.776 on
#: B200, 0.745 against 0.786 on B300, 0.723 against 0.729 on GB200 (stas00/ml-engineering), and 0.93
#: to 0.98 with 2,048 and 4,096 rows, columns and elements of a sum on sm_100 (openxla/xla,
#: xla/service/gpu/model/matmul_interpolator_data.h)
BLACKWELL_SHARE = 0.97
#: the same of 4-bit products, by the least compute capability.  B300: a block's twelve in 3.764 ms,
#: and 13.102 in 16 bits, 3.48 times as fast for 5.8 times the peak (TransformerEngine, as above).
#: B200: 2.7 to 3.6 times as fast for four times the peak: 2.67, 2.66 and 2.87 with 4,096 tokens and
#: more (CUTLASS; vllm-project/vllm#20646); 3.9 and 5.2 PFLOP/s (cuBLAS in MXFP4;
#: deepseek-ai/DeepGEMM#348) over 1.46 in 16 bits, 0.65 of the peak.  RTX: 7.3 times for eight times
#: the peak on RTX 5060 Ti (QuantumDrizzy/BLACKWALL), 3.6 to 4.1 on RTX 5090 (Triton;
#: vllm-project/vllm#38338), and what is between them
FOUR_SHARES = {100: 0.75, 103: 0.60, 120: 0.65}


def is_cast(layer: Layer, dtype: str) -> bool:
    """Whether products of `layer` run in 8 or 4 bits: not where most of it are convolutions, of
    which Transformer Engine has none and torchao leaves all as they are (pytorch/ao
    torchao/float8/float8_linear_utils.py), nor where frozen matrices are stored quantised, which
    are unpacked to 16 bits before every product (`adapters`)."""
    if dtype not in OPERANDS or not layer.unit or layer.wide or layer.quantised:
        return False
    matrices = sum(prod(shape) for shape in _multiplied(layer))
    windows = sum(t.elements for t in layer.tensors if len(t.shape) > 2 and not layer.experts)
    return windows <= matrices


def products_share(device: Device, dtype: str) -> float:
    """What products in `dtype` reach of the share of the peak that wide ones in 16 bits do [1]."""
    if dtype == "nvfp4":
        known = [low for low in FOUR_SHARES if low <= device.compute_capability]
        return FOUR_SHARES[max(known, default=100)]
    if dtype == "fp8":
        return BLACKWELL_SHARE if device.generation == "blackwell" else PRODUCTS_SHARE
    return 1.0


def grouped_share(device: Device, dtype: str) -> float:
    """What grouped products of experts reach of what others do [1]: nobody has measured them to be
    as near to it in 8 bits as others are on Blackwell."""
    if device.generation not in GROUPED:
        return 1.0
    found = GROUPED[device.generation] / reached(device, dtype)[0]
    return found * PRODUCTS_SHARE / products_share(device, dtype) if dtype == "fp8" else found


def saved_bytes(layer: Layer, dtype: str) -> float:
    """Bytes per sample by which `layer` keeps less than in bf16 for its backward: inputs of
    products, of which TransformerEngine keeps one of the two ways they were written
    (transformer_engine/pytorch/module/linear.py)."""
    if not is_cast(layer, dtype):
        return 0.0
    return layer.cast_saves * (2.0 - OPERANDS[dtype]) / (2.0 - OPERANDS["fp8"])


def copied_bytes(layer: Layer, dtype: str) -> float:
    """Bytes of the matrices of `layer` that TransformerEngine keeps in 4 bits, both ways, beside
    those in 16: cast in a step's first micro-batch for all of them
    (transformer_engine/pytorch/module/base.py, get_weight_workspace).  Those in 8 bits are what is
    kept in place of 16 (`fp8_param_gather`), and count as these.  Megatron is known to; whether
    other systems keep them is not, and theirs are left out."""
    if dtype != "nvfp4" or not is_cast(layer, dtype):
        return 0.0
    return 2.0 * OPERANDS[dtype] * sum(prod(shape) for shape in _multiplied(layer))


def _multiplied(layer: Layer) -> list[tuple[int, ...]]:
    """Shapes of the matrices of `layer` that products are with, those of all experts in one: not of
    biases, of which experts have a matrix too, nor of convolutions."""
    most = 3 if layer.experts else 2
    found = [one.shape for one in layer.tensors if not one.name.endswith("bias")]
    return [shape for shape in found if 2 <= len(shape) <= most]


def cast_bytes(layer: Layer, dtype: str) -> tuple[float, float]:
    """Bytes at the memory's rate that forward and backward take to cast an element: as a
    hand-tuned library does, whatever the strategy, unless kernels are torch's or a compiler's
    (`execution`)."""
    library = layer.streamed is None or layer.library
    if dtype == "nvfp4":
        each = FOUR_LIBRARY_CAST_BYTES if library else FOUR_CAST_BYTES
        return each, each
    if library:
        sorted_first = bool(layer.library and layer.experts)
        return FUSED_CAST_BYTES * sorted_first, FUSED_CAST_BYTES
    return CAST_BYTES, CAST_BYTES


def cast_elements(layer: Layer, samples: float) -> tuple[float, float]:
    """Elements that forward and backward cast in a micro-batch of `samples` samples."""
    matrices = _multiplied(layer)
    weights = sum(prod(shape) for shape in matrices)
    if not weights:
        return 0.0, 0.0
    tokens = (layer.forward_flop - layer.pairs) * samples / (2.0 * weights)
    ins = [(prod(shape[:-2]), shape[-1]) for shape in matrices]
    inputs = sum(count * width for count, width in [*set(ins[:-1]), ins[-1]])
    outputs = sum(prod(shape[:-1]) for shape in matrices)
    return tokens * inputs, (0.0 if layer.detached else tokens * outputs)


def kept_wide(model: Model, precision: Precision) -> Model:
    """`model` whose first and last blocks stay in 16 bits, so many as `precision` says, if others
    run in fewer and durations are not given; Refused where it has fewer."""
    first, last = precision.wide_first, precision.wide_last
    given = all(layer.forward is not None for layer in model.layers)
    if not first + last or precision.compute not in OPERANDS or given:
        return model
    blocks = list(dict.fromkeys(layer.unit for layer in model.layers if layer.unit))
    if first + last > len(blocks):
        message = f"{first + last} blocks in 16 bits, and {model.name} has {len(blocks)}"
        raise Refused(message, ("precision", "wide_first" if first else "wide_last"))
    wide = {*blocks[:first], *blocks[len(blocks) - last :]}
    layers = tuple(replace(layer, wide=layer.unit in wide) for layer in model.layers)
    return replace(model, layers=layers)
