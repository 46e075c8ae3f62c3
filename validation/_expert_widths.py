"""How much longer the computing of many small experts may take than is predicted.

A step lies below the slow end of its interval if  1 + share x (width - 1)  beside its other causes
reaches as far as it was late; `width` is what holds 95 of 100 steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsim.core.constants import Constant, save, shipped
from dpsim.predict.point import Causes
from dpsim.predict.routing import SMALL_EXPERTS, behind

HELD = 0.95
HEAD = (
    "What measured training runs alone can tell; written by validation/fit_training.py,\n"
    "validation/left_out.py and validation/experts.py, never by hand."
)


@dataclass(frozen=True)
class Step:
    """A step of `model`: ln(measured / predicted), and the causes of its interval."""

    model: str
    late: float
    causes: Causes

    @property
    def needed(self) -> float:
        """The width at whose end it lies; 1 where the other causes hold it."""
        ends = {name: math.log(max(*pair, 1.0)) for name, pair in self.causes.items()}
        share = math.expm1(ends.pop(SMALL_EXPERTS, 0.0)) / (behind() - 1.0)
        left = max(self.late, 0.0) ** 2 - math.hypot(*ends.values()) ** 2
        if left <= 0:
            return 1.0
        return 1.0 + math.expm1(math.sqrt(left)) / share if share else math.inf


def width(steps: Sequence[Step]) -> float:
    return float(np.quantile([step.needed for step in steps], HELD, method="higher"))


def learn(steps: Sequence[Step]) -> Constant:
    """Write the width; its error is the jackknife's over models."""
    models = sorted({step.model for step in steps})
    others = np.array([width([s for s in steps if s.model != model]) for model in models])
    n = len(models)
    found = Constant(
        value=float(f"{width(steps):.3g}"),
        error=float(f"{math.sqrt((n - 1) / n * ((others - others.mean()) ** 2).sum()):.2g}"),
        unit="1",
        meaning="factor on the computing of layers with many experts: the slow end of 90 %",
        fitted_on=f"{len(steps)} published steps of {n} models with experts, uncalibrated; the "
        "error is the jackknife's over models",
        n=len(steps),
    )
    save("training", HEAD, dict(shipped("training")) | {"experts.slow": found})
    return found
