"""How many times as long a layer's matrix products take as wide ones: for sums that are short, and
for tiles of their outputs that fill no whole wave (`dpsim.models.waves`).

Forward sums over a matrix's inputs and has its outputs for every token, the gradient of inputs the
other way round; that of weights sums over tokens, of experts those that one has.  Matrices that a
hand-tuned library keeps in one (query, key and value; gate and up) are one product.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsim.core.many import added
from dpsim.machines.devices import Device
from dpsim.models import Layer, Tensor, waves
from dpsim.models.rates import WIDE

#: matrices that NVIDIA/TransformerEngine and NVIDIA/Megatron-LM keep in one, by words of names
JOINED = (
    {"q_proj", "k_proj", "v_proj", "query", "key", "value", "q", "k", "v"},
    {"gate_proj", "up_proj"},
)


def lengthened(
    layer: Layer, device: Device, half: float, samples: float, table: Sequence[Tensor]
) -> tuple[float, float]:
    """Forward's and backward's factor, for a micro-batch of `samples`; `half`: elements of a sum at
    which half is reached; 0: all products are alike.

    A library shares out long sums where an output of few tiles, as that of weights' gradients,
    leaves much idle; what experts' grouped products leave is not told.  Of frozen matrices there
    are no gradients.
    """
    shapes = _shapes(layer, table)
    weights = float(sum(rows * columns for rows, columns, _ in shapes))
    if not half or not weights:
        return 1.0, 1.0
    tokens = (layer.forward_flop - layer.pairs) * samples / (2.0 * weights * max(layer.experts, 1))
    wide = 1.0 + half / WIDE

    def idle(columns: int) -> float:
        return 1.0 if layer.experts else waves.longer(device, tokens, columns)

    ahead = added(rows * (columns + half) * idle(rows) for rows, columns, _ in shapes) / weights
    inputs = added(columns * (rows + half) * idle(columns) for rows, columns, _ in shapes) / weights
    trained = sum(rows * columns for rows, columns, learns in shapes if learns) / weights
    back = (inputs + trained * (1.0 + half / max(tokens, 1.0))) / (1.0 + trained)
    return ahead / wide, back / wide


def _shapes(layer: Layer, table: Sequence[Tensor]) -> list[tuple[int, int, bool]]:
    """Outputs and inputs of every product with a matrix, and whether that is trained."""
    many = 3 if layer.experts else 2  # experts' matrices are one tensor
    found: list[tuple[int, int, bool]] = []
    before = -1
    for tensor in (*table, *layer.tensors):
        if len(tensor.shape) != many or tensor.name.endswith("bias"):
            continue
        rows, columns = tensor.shape[::-1] if tensor.transposed else tensor.shape[-2:]
        place = _place(tensor.name) if layer.library else -1
        if found and place == before >= 0 and found[-1][1:] == (columns, tensor.trained):
            rows += found.pop()[0]
        found.append((rows, columns, tensor.trained))
        before = place
    return found


def _place(name: str) -> int:
    """Which of `JOINED` a matrix belongs to; -1: to none."""
    words = name.split(".")
    return next((k for k, known in enumerate(JOINED) if known.intersection(words)), -1)
