"""Measured factors, drawn as they are."""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import ClassVar

import numpy as np

from dpsim.core.arrays import Array
from dpsim.core.record import Refused, Text, record
from dpsim.variability.distributions import Distribution, Reader


@record
class Empirical(Distribution):
    """Draws from the numbers in a CSV file below the scenario's folder, each as likely as any
    other.  A column `factor` holds factors; a column `seconds` holds step times of one rank, which
    are divided by their median.

    file  name of the CSV
    """

    kind: ClassVar[str] = "empirical"
    file: Text

    def resolved(self, read: Reader) -> Distribution:
        values, column = read(self.file)
        if column == "length":
            raise Refused("has lengths; a column factor or seconds is needed", ("variability",))
        if column == "seconds":
            middle = median(values)
            if middle <= 0:
                raise Refused("the median of its step times is 0 s", ("variability",))
            values = tuple(value / middle for value in values)
        return _Listed(tuple(sorted(values)))


class _Listed(Distribution):
    """The factors themselves, sorted."""

    def __init__(self, values: tuple[float, ...]) -> None:
        self.values = values

    def mean(self) -> float:
        return fmean(self.values)

    def quantile(self, share: float) -> float:
        place = math.ceil(share * len(self.values) - 1e-9) - 1
        return self.values[min(max(place, 0), len(self.values) - 1)]

    def expected_maximum(self, n: int) -> float:
        """Each value times the chance that it is the largest: (i/m)^n - ((i - 1)/m)^n."""
        m = len(self.values)
        chances = ((i / m) ** n - ((i - 1) / m) ** n for i in range(1, m + 1))
        return math.fsum(x * chance for x, chance in zip(self.values, chances, strict=True))

    def sample(self, stream: np.random.Generator, n: int) -> Array:
        return np.asarray(np.array(self.values)[(stream.random(n) * len(self.values)).astype(int)])
