"""How much longer the computing of many small experts may take than is predicted, and how far whole
steps of such models lie from what is predicted of them.

A step lies below the slow end of its interval if  1 + share x (width - 1)  beside its other causes
reaches as far as it was late; `width` is what holds 95 of 100 steps.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
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


def learn(steps: Sequence[Step]) -> dict[str, Constant]:
    """Write what the steps say that have many experts: the width, and the least, the median and the
    most of measured over predicted.  Errors are half of what lies between the least and the most of
    a number without one of the models."""
    steps = [step for step in steps if step.share > 0]
    models = sorted({step.model for step in steps})
    n = len(models)
    if n < 2:
        raise ValueError(f"many experts of {n} models: at least two tell of others")
    held = sum(step.needed <= width([s for s in steps if s.model != step.model]) for step in steps)
    print(f"held by widths without their model: {held} of {len(steps)}")
    found = {}
    for name, (of, meaning) in LEARNED.items():
        others = [of([s for s in steps if s.model != model]) for model in models]
        found[name] = Constant(
            value=float(f"{of(steps):.3g}"),
            error=float(f"{(max(others) - min(others)) / 2:.2g}"),
            unit="1",
            meaning=meaning,
            fitted_on=f"{len(steps)} published steps of {n} models with experts, uncalibrated; the "
            "error is half the range of what they say without one of the models",
            n=len(steps),
        )
    save("training", HEAD, dict(shipped("training")) | found)
    return found


def _ratio(of: Callable[[list[float]], float]) -> Callable[[Sequence[Step]], float]:
    """`of` all that measured steps are of their predictions."""
    return lambda steps: float(of([math.exp(step.late) for step in steps]))


_BESIDE = "measured steps of models with many experts over what is predicted of them uncalibrated"
#: what is learned, by its name in training.yaml
LEARNED: dict[str, tuple[Callable[[Sequence[Step]], float], str]] = {
    "experts.slow": (
        width, "factor on the computing of layers with many experts: the slow end of 90 %",
    ),
    "experts.least": (_ratio(min), f"{_BESIDE}: the least"),
    "experts.median": (_ratio(statistics.median), f"{_BESIDE}: the median"),
    "experts.most": (_ratio(max), f"{_BESIDE}: the most"),
}  # fmt: skip
