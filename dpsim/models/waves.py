"""Waves: what the last of a product's tiles leave idle.

A product's output is cut into tiles, of which a multiprocessor computes one at a time.  The last
wave of them takes as long as a full one, however few multiprocessors it needs:

    waves = ceil(ceil(rows / a) x ceil(columns / b) / multiprocessors)
    longer = (waves x multiprocessors x a x b / (rows x columns)) ** k / c

for tiles of a x b that reach the share c of what the largest do, of which a library takes the best.
k = 1 would be whole waves; kernels that go on from tile to tile, or share out sums, lose less.
"""

from __future__ import annotations

import math
from functools import lru_cache

from dpsim.core.many import each
from dpsim.machines.devices import Device

#: rows and columns of a tile, and the share of what the largest reach (NVIDIA/cutlass
#: `media/docs/cpp/efficient_gemm.md`: threadblock tiles); shares as they stood when k was fitted
TILES = (
    (256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.97), (128, 64, 0.85), (64, 64, 0.70),
)  # fmt: skip
#: k by generation, fitted to the measured shapes in 16 bits of ai-dynamo/aiconfigurator at
#: 095f58a51c4c (14,538 of an A100, 25,164 each of H100, H200, B200 and L40S): A100 0.62, H100 and
#: H200 0.19, B200 0.28 (B300 0.19, GB300 0.37), L40S 0.44.  Volta has no such table: of 32 shapes
#: of a V100 (baidu-research/DeepBench) all from 0.3 to 1 serve alike in 16 bits, and up to 0.45
#: in 32
WAVES = {"volta": 0.45, "ampere": 0.62, "ada": 0.44, "hopper": 0.19, "blackwell": 0.28}
#: rows and columns of a product that loses next to nothing, beside which losses are told; those of
#: which `dpsim.models.rates.PRODUCTS` has shares lose 3 % in the median on an A100, 1 elsewhere
SQUARE = 8192


def longer(device: Device, rows: float, columns: int) -> float:
    """How many times as long as wide ones a product on `device` takes for each FLOP, for what its
    output leaves idle: 1 where it is not known how many multiprocessors there are."""
    power = WAVES.get(device.generation, 0.0)
    if not power or not device.multiprocessors:
        return 1.0
    here = device.multiprocessors
    found = each(lambda many: _idle(many, columns, here, power), rows)
    return found / _idle(SQUARE, SQUARE, here, power)


@lru_cache(maxsize=1 << 16)
def _idle(rows: float, columns: int, multiprocessors: int, power: float) -> float:
    rows, found = max(rows, 1.0), []
    for tall, wide, share in TILES:
        waves = math.ceil(math.ceil(rows / tall) * math.ceil(columns / wide) / multiprocessors)
        held = waves * multiprocessors * tall * wide
        found.append(math.pow(held / (rows * columns), power) / share)
    return min(found)
