"""Sequences of unequal length: ranks with more tokens compute longer."""

from __future__ import annotations

from statistics import NormalDist
from typing import Annotated, Literal

import numpy as np

from dpsim.core import units
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.core.record import Check, Flag, Refused, Text, record
from dpsim.variability.causes import Crew
from dpsim.variability.distributions import Reader
from dpsim.variability.draws import stream

#: equally likely points that stand for a continuous distribution of lengths
POINTS = 4096
_WHERE = ("variability", "sequence_length")


@dataclass(frozen=True)
class Lengths:
    """Lengths relative to their mean, sorted, and the share of sequences up to each of them."""

    values: Array
    shares: Array

    def at(self, shares: Array) -> Array:
        place = np.searchsorted(self.shares, shares, side="right")
        return np.asarray(self.values[np.minimum(place, len(self.values) - 1)])


@record
class SequenceLength:
    """Each sample has a length of its own; the model's times stand for the mean one.

    A sample of l times the mean length takes (1 - quadratic) l + quadratic l^2.

    spread     standard deviation of the length over its mean; lognormal
    file       instead: a CSV below the scenario's folder with columns `length` and `count`
    longest    lengths are cut at so many times the mean
    quadratic  share of the compute, at the mean length, that grows with the square (attention)
    padded     every sample of a rank is padded to the longest of them
    cure       packing: equal tokens per rank; sorting: the samples of a step, sorted, are dealt to
               the ranks in turn, back and forth; bucketing: all samples of a step are about as long
    buckets    how many kinds of steps bucketing makes
    """

    spread: Annotated[float, units.Unit("1", high=10.0, above=True)] | None = None
    file: Text | None = None
    longest: Annotated[float, units.Unit("1", low=1.0, high=1e4, above=True)] | None = None
    quadratic: units.Fraction = 0.0
    padded: Flag = False
    cure: Literal["none", "packing", "sorting", "bucketing"] = "none"
    buckets: Annotated[int, Check(2, 1024)] = 8

    def __post_init__(self) -> None:
        if (self.spread is None) == (self.file is None):
            raise ValueError("needs either spread (lognormal) or file (a histogram)")
        if self.padded and self.cure == "packing":
            raise Refused("packs have no padding; leave one of them out", ("padded",))

    def lengths(self, read: Reader) -> Lengths:
        """What is drawn from, with mean 1."""
        if self.file is not None:
            flat, column = read(self.file)
            if column != "length":
                raise Refused("has no columns length and count", (*_WHERE, "file"))
            pairs = np.array(flat).reshape(-1, 2)
            pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
            values, weights = pairs[:, 0], pairs[:, 1]
        else:
            assert self.spread is not None
            sigma = float(np.sqrt(np.log1p(self.spread**2)))
            middle = [(k + 0.5) / POINTS for k in range(POINTS)]
            values = np.exp(sigma * np.array([NormalDist().inv_cdf(p) for p in middle]))
            weights = np.ones(POINTS)
        if self.longest is not None:
            values = np.minimum(values, self.longest * np.average(values, weights=weights))
        mean = float(np.average(values, weights=weights))
        if mean <= 0:
            raise Refused("all lengths are 0", (*_WHERE, "file"))
        return Lengths(values / mean, np.cumsum(weights) / weights.sum())

    def factors(self, lengths: Lengths, crew: Crew, seed: int, step: int) -> Array:
        source = stream(seed, "sequence_length", step)
        draws = source.random((crew.ranks, crew.samples))
        if self.cure == "bucketing":
            which = stream(seed, "sequence_length.bucket", step).integers(self.buckets)
            draws = (which + draws) / self.buckets
        found = lengths.at(draws)
        if self.cure == "packing":
            squares = (found**2).sum(axis=1) / np.maximum(found.sum(axis=1), 1e-300)
            return np.asarray(1.0 - self.quadratic + self.quadratic * squares)
        if self.cure == "sorting":
            found = _dealt(found)
        if self.padded:
            found = np.repeat(found.max(axis=1, keepdims=True), crew.samples, axis=1)
        return np.asarray(self._work(found).mean(axis=1))

    def _work(self, length: Array) -> Array:
        return (1.0 - self.quadratic) * length + self.quadratic * length**2


def _dealt(lengths: Array) -> Array:
    """The same lengths, sorted and dealt to the ranks in turn, every other round backwards."""
    rounds = np.sort(lengths, axis=None)[::-1].reshape(lengths.shape[1], lengths.shape[0])
    rounds[1::2] = rounds[1::2, ::-1].copy()
    return rounds.T
