"""The contract of this folder: how many times as long a computation takes, as a random number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from dpsim.core import units
from dpsim.core.arrays import Array
from dpsim.core.marks import Mark
from dpsim.core.plugins import Plugin

#: reads a file of the scenario's folder: name -> numbers, "factor" or "seconds"
Reader = Callable[[str], tuple[tuple[float, ...], str]]


class Distribution:
    """A factor on compute, not negative.  A plug-in says its mean, its quantiles and how to draw;
    the mean of the largest of n follows from the quantiles where there is no closed form."""

    tag: ClassVar[str] = "kind"

    def mean(self) -> float:
        raise NotImplementedError

    def quantile(self, share: float) -> float:
        """The smallest factor that a share of the draws does not exceed; 0 < share < 1."""
        raise NotImplementedError

    def upper(self, tail: float) -> float:
        """The factor that a small share `tail` of the draws exceeds; exact where 1 - tail is 1."""
        return self.quantile(1.0 - tail)

    def sample(self, stream: np.random.Generator, n: int) -> Array:
        """`n` draws, the first ones the same however many are asked for."""
        raise NotImplementedError

    def expected_maximum(self, n: int) -> float:
        """Mean of the largest of `n` independent draws.

        E = integral of Q(p) n p^(n-1) dp with p = exp(-e^y / n), Q the quantiles (David and
        Nagaraja, Order Statistics, 2003, section 3.1).  The integrand then falls off at both ends
        faster than any step matters, so the trapezoid rule is good to 1e-8.
        """
        step, total = 0.02, 0.0
        for k in range(-2000, 201):
            t = math.exp(k * step)
            weight = math.exp(-t) * t
            if weight > 1e-14:
                tail = -math.expm1(-t / n)
                total += weight * (self.upper(tail) if tail < 0.5 else self.quantile(1.0 - tail))
        return total * step

    def resolved(self, read: Reader) -> Distribution:
        """The distribution with its file read; itself where it has none."""
        return self


class Drawn(Mark):
    """Marks a field that is a number of `unit`, or a distribution ``{kind: …}`` of factors."""

    def __init__(self, unit: units.Unit) -> None:
        self.unit = unit
        self.plugin = Plugin("variability", "kind")

    def take(self, value: Any, file: bool) -> float | Distribution:
        if isinstance(value, Distribution):
            return value
        if isinstance(value, dict):
            made: Distribution = self.plugin.make(value, file=file)
            return made
        return self.unit.take(value, file)

    def json_schema(self) -> dict[str, Any]:
        options: list[Any] = self.plugin.json_schema()["oneOf"]
        return {"oneOf": [self.unit.json_schema(), *options]}


CONTRACT = Distribution
