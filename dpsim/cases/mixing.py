"""Mixing: what preparing and reading single samples takes, where they are not all alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np

from dpsim.compile.loaders import SampleKind
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.variability.distributions import Distribution

#: a distribution with its file read
Resolve = Callable[[Distribution], Distribution]


@dataclass(frozen=True)
class SampleDraws:
    """Samples of `kinds`, whose random factors are resolved: what they take is drawn."""

    kinds: tuple[SampleKind, ...]
    resolve: Resolve

    @cached_property
    def factors(self) -> tuple[Distribution | None, ...]:
        """The random factor of each kind, its file read."""
        found = (kind.decode.factor for kind in self.kinds)
        return tuple(one and self.resolve(one) for one in found)

    @cached_property
    def means(self) -> tuple[float, ...]:
        """What preparing a sample of each kind takes a core in the mean [s]."""
        found = []
        for kind, factor in zip(self.kinds, self.factors, strict=True):
            decode = kind.decode
            mean = factor.mean() if factor and decode.mean is None else 1.0
            found.append(float(decode) * mean)
        return tuple(found)

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The share of each kind; they sum to 1."""
        whole = math.fsum(kind.share for kind in self.kinds)
        return tuple(kind.share / whole for kind in self.kinds)

    @cached_property
    def seconds(self) -> float:
        """What preparing a sample takes a core, in the mean over all [s]."""
        return math.fsum(map(math.prod, zip(self.shares, self.means, strict=True)))

    @cached_property
    def bytes(self) -> float:
        """What is read for a sample, in the mean over all [B]."""
        sizes = (kind.sample_bytes for kind in self.kinds)
        return math.fsum(map(math.prod, zip(self.shares, sizes, strict=True)))

    @property
    def random(self) -> bool:
        """Whether samples differ."""
        sizes = {kind.sample_bytes for kind in self.kinds}
        return any(self.factors) or len(set(self.means)) > 1 or len(sizes) > 1

    def sample(self, stream: np.random.Generator, n: int) -> Array:
        """For `n` samples, two rows: how many times the mean each takes to prepare, and to read."""
        which = np.zeros(n, dtype=int)
        if len(self.kinds) > 1:
            ends = np.cumsum(self.shares)
            which = np.minimum(np.searchsorted(ends, stream.random(n), "right"), len(ends) - 1)
        prepared, read = np.ones(n), np.ones(n)
        for k, (kind, factor) in enumerate(zip(self.kinds, self.factors, strict=True)):
            own = which == k
            if self.seconds:
                prepared[own] = self.means[k] / self.seconds
            if self.bytes:
                read[own] = kind.sample_bytes / self.bytes
            if factor is not None:
                prepared[own] *= factor.sample(stream, n)[own] / factor.mean()
        return np.stack((prepared, read))
