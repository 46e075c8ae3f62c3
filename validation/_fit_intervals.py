"""Learn the widths of intervals from what calibrated predictions miss.

What collectives explain is taken off first: their own range comes from measured collectives
(`dpsim/core/fitted/collective_error.yaml`).  Each width is then the 95 % point, over series of
equal weight, of what is left: one run in twenty lies outside at either end.
`dpsim/predict/uncertainty.py` says what each width is and puts them together again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpsim.core.arrays import Array
from dpsim.core.constants import Constant

SHARE = 0.95
DRAWS = 200
MEANINGS = {
    "run.fast": "factor by which one calibrated prediction in twenty is too slow, with little to "
    "communicate",
    "run.slow": "the same for too fast",
    "images.loss": "loss of one run on images in twenty, per doubling inside a node, whose host "
    "decodes for all its GPUs",
}


class Miss(NamedTuple):
    """One calibrated prediction and what came of it.

    log      ln(measured / predicted) step time
    slower   what the step gains with collectives at the slow end of their range, as a share
    faster   what it loses at the fast end
    inside   doublings inside a node, from the calibrated count
    """

    series: str
    source: str
    log: float
    slower: float
    faster: float
    images: bool
    inside: float


def ends(misses: Sequence[Miss], widths: Sequence[float]) -> tuple[Array, Array]:
    """The ends of intervals over the predictions, as `dpsim.predict.uncertainty` makes them."""
    fast, slow, images = widths
    lost = np.array([m.inside * images if m.images else 0.0 for m in misses])
    slower, faster = (np.array([getattr(m, end) for m in misses]) for end in ("slower", "faster"))
    below = np.hypot(1.0 - 1.0 / fast, faster)
    return 1.0 - below, 1.0 + np.sqrt((slow - 1.0) ** 2 + slower**2 + lost**2)


def best(misses: Sequence[Miss]) -> tuple[float, float, float]:
    """run.fast, run.slow and images.loss."""
    pipelines = [m for m in misses if m.images and m.inside]
    others = [m for m in misses if not (m.images and m.inside)]
    fast = _point([_rest(1.0 - math.exp(m.log), m.faster) for m in misses], misses)
    slow = _point([_rest(math.exp(m.log) - 1.0, m.slower) for m in others], others)
    lost = [_rest(math.exp(m.log) - 1.0, math.hypot(m.slower, slow)) / m.inside for m in pipelines]
    return 1.0 / (1.0 - fast), 1.0 + slow, _point(lost, pipelines)


def _rest(missed: float, explained: float) -> float:
    """What is left of `missed` when `explained` is taken off in quadrature."""
    return math.sqrt(max(missed**2 - explained**2, 0.0)) if missed > 0 else 0.0


def _point(values: Sequence[float], misses: Sequence[Miss]) -> float:
    """The SHARE point of `values`; every series has the same weight, however many rows it has."""
    rows = Counter(m.series for m in misses)
    weights = np.array([1.0 / rows[m.series] for m in misses])
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order]) - weights[order] / 2.0
    return float(np.interp(SHARE * weights.sum(), below, np.array(values)[order]))


def learn(misses: Sequence[Miss], told: str) -> dict[str, Constant]:
    """The widths with standard errors: a bootstrap's over series."""
    names = sorted({m.series for m in misses})
    rng, drawn = np.random.default_rng(0), []
    for _ in range(DRAWS):
        chosen = Counter(names[k] for k in rng.integers(0, len(names), len(names)))
        drawn.append(best([m for m in misses for _ in range(chosen[m.series])]))
    errors = np.std(drawn, axis=0)
    return {
        f"interval.{name}": Constant(
            value=float(f"{value:.4g}"),
            error=float(f"{error:.2g}"),
            unit="1",
            meaning=MEANINGS[name],
            fitted_on=told,
            n=len(misses),
        )
        for name, value, error in zip(MEANINGS, best(misses), errors, strict=True)
    }
