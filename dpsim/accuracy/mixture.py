"""One prediction out of those under several readings of a text.

The point is the weighted median on logs: with two equally likely readings the geometric mean of
their predictions.  The interval holds 90 % of the mixture, of which every part is a lognormal that
is cut in two at its own point, so that its own interval holds 90 % of it (Wallis, The two-piece
normal, binormal, or double Gaussian distribution, Statistical Science 29(1), 2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from dpsim.accuracy.scores import COVERAGE

_NORMAL = NormalDist()
_TAIL = (1.0 - COVERAGE) / 2.0
_REACH = -_NORMAL.inv_cdf(_TAIL)


@dataclass(frozen=True)
class MixturePart:
    """A prediction under one reading: its probability, the point and its interval [any unit]."""

    weight: float
    value: float
    low: float
    high: float

    def below(self, log: float) -> float:
        """The probability that the logarithm of what is measured is below `log`."""
        middle = math.log(self.value)
        end = self.low if log < middle else self.high
        spread = abs(math.log(end) - middle) / _REACH
        if spread == 0.0:
            return 0.0 if log < middle else 1.0
        return _NORMAL.cdf((log - middle) / spread)


def point(parts: Sequence[MixturePart]) -> float:
    """The weighted median of the parts' values on logs; between two where it lies between."""
    ordered = sorted(parts, key=lambda part: part.value)
    half, passed = sum(part.weight for part in parts) / 2.0, 0.0
    for place, part in enumerate(ordered):
        passed += part.weight
        if math.isclose(passed, half) and place + 1 < len(ordered):
            return math.sqrt(part.value * ordered[place + 1].value)
        if passed > half:
            return part.value
    return ordered[-1].value


def bounds(parts: Sequence[MixturePart]) -> tuple[float, float]:
    """The ends of the mixture's 90 % interval; a single part's are its own."""
    if len(parts) == 1:
        return parts[0].low, parts[0].high
    return _quantile(parts, _TAIL), _quantile(parts, 1.0 - _TAIL)


def _quantile(parts: Sequence[MixturePart], share: float) -> float:
    """Where the mixture's distribution reaches `share`, by bisection on logs."""
    low = math.log(min(part.low for part in parts))
    high = math.log(max(part.high for part in parts))
    whole = sum(part.weight for part in parts)
    low, high = low - 1.0, high + 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if sum(part.weight * part.below(middle) for part in parts) < share * whole:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2.0)
