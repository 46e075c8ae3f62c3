"""How much longer the computing of many small experts may take than is predicted.

A step lies below the slow end of its interval if  1 + share x (width - 1)  beside its other causes
reaches as far as it was late; `width` is what holds 95 of 100 steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from _fit_intervals import HEAD

from dpsim.core.constants import Constant, save, shipped
from dpsim.predict.point import Causes
from dpsim.predict.routing import SMALL_EXPERTS, behind

HELD = 0.95


@dataclass(frozen=True)
class Step:
    """A step of `model`: ln(measured / predicted), and the causes of its interval."""

    model: str
    late: float
    causes: Causes

    @property
    def share(self) -> float:
        """Of its time that many small experts are computed in; 0 of a model that has none."""
        high = max(self.causes.get(SMALL_EXPERTS, (1.0, 1.0)))
        return (high - 1.0) / (behind() - 1.0)

    @property
    def needed(self) -> float:
        """The width at whose end it lies; 1 where the other causes hold it."""
        others = [max(*pair, 1.0) for name, pair in self.causes.items() if name != SMALL_EXPERTS]
        left = max(self.late, 0.0) ** 2 - math.hypot(*map(math.log, others)) ** 2
        return 1.0 + math.expm1(math.sqrt(max(left, 0.0))) / self.share


def width(steps: Sequence[Step]) -> float:
    """What holds `HELD` of `steps`, which all have such experts."""
    return float(np.quantile([step.needed for step in steps], HELD, method="higher"))


def learn(steps: Sequence[Step]) -> Constant:
    """Write the width of the steps that have many experts; its error is half of what lies between
    the least and the most without one of the models."""
    steps = [step for step in steps if step.share > 0]
    models = sorted({step.model for step in steps})
    n = len(models)
    if n < 2:
        raise ValueError(f"many experts of {n} models: at least two tell of others")
    others = [width([s for s in steps if s.model != model]) for model in models]
    held = sum(step.needed <= width([s for s in steps if s.model != step.model]) for step in steps)
    print(f"held by widths without their model: {held} of {len(steps)}")
    found = Constant(
        value=float(f"{width(steps):.3g}"),
        error=float(f"{(max(others) - min(others)) / 2:.2g}"),
        unit="1",
        meaning="factor on the computing of layers with many experts: the slow end of 90 %",
        fitted_on=f"{len(steps)} published steps of {n} models with experts, uncalibrated; the "
        "error is half the range of what they say without one of the models",
        n=len(steps),
    )
    save("training", HEAD, dict(shipped("training")) | {"experts.slow": found})
    return found
