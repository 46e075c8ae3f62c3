"""The bare NumPy pass: what the arithmetic of a step costs with nothing around it.

    python benchmarks/bare.py RANKS STEPS      prints CPU seconds

For each computation one `np.add` over the ranks, for each collective one maximum over them, in
pieces that fit the cache.  No engine that plays every rank with NumPy can be faster.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cost import fastest
from lines import GROWN

from dpsim.cases.case import Case
from dpsim.compile.program import Op
from dpsim.describe.scenario import read

#: numbers of a piece: 128 KiB
PIECE = 16_384


def operations(scenario: Path) -> tuple[Op, ...]:
    """What a rank of `scenario` issues in a step."""
    loaded = read(scenario, ["cluster.nodes=2", "variability.jitter=0"])
    return Case(loaded.points[0], loaded.base).programs.asked.programs[0].ops


def bare_pass(ops: tuple[Op, ...], ranks: int, steps: int = 1) -> Callable[[], float]:
    """What plays `ops` in `steps` steps of `ranks` ranks; it returns the last maximum."""
    computing = [op.on_device for op in ops]
    rows, columns = max(1, min(steps, PIECE // ranks)), min(ranks, PIECE)
    factors = np.random.default_rng(0).normal(1.0, 0.02, (steps, ranks))

    def play() -> float:
        last = 0.0
        for step in range(0, steps, rows):
            latest = np.zeros((len(ops), min(rows, steps - step)))
            for rank in range(0, ranks, columns):
                piece = np.ascontiguousarray(factors[step : step + rows, rank : rank + columns])
                clock = np.zeros_like(piece)
                for k, on_device in enumerate(computing):
                    if on_device:
                        np.add(clock, piece, out=clock)
                    else:
                        np.maximum(latest[k], clock.max(axis=1), out=latest[k])
            last = float(latest.max())
        return last

    return play


def main() -> None:
    ranks, steps = map(int, sys.argv[1:])
    print(fastest(bare_pass(operations(GROWN), ranks, steps)))


if __name__ == "__main__":
    main()
