"""Scaling laws: Amdahl, Gustafson, the universal scalability law, Karp and Flatt.

Sources: Amdahl, AFIPS 1967; Gustafson, CACM 31(5), 1988; Gunther, "Guerrilla Capacity Planning",
2007 (USL); Karp and Flatt, CACM 33(5), 1990; Grama, Gupta and Kumar 1993 (isoefficiency).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsim.core.lean import dataclass


def amdahl(serial: float, n: float) -> float:
    """Speed-up of fixed work on `n` ranks when the share `serial` of it is not shared out.

    >>> round(amdahl(0.05, 64), 4)
    15.4217
    """
    return 1.0 / (serial + (1.0 - serial) / n)


def gustafson(serial: float, n: float) -> float:
    """Scaled speed-up when the work grows with `n`.

    >>> gustafson(0.05, 64)
    60.85
    """
    return n - serial * (n - 1.0)


def karp_flatt(speedup: float, n: float) -> float:
    """Experimentally determined serial fraction of a measured `speedup` on `n` > 1 ranks.

    >>> round(karp_flatt(amdahl(0.05, 64), 64), 12)
    0.05
    """
    return (1.0 / speedup - 1.0 / n) / (1.0 - 1.0 / n)


def usl(sigma: float, kappa: float, n: float) -> float:
    """Relative throughput by the universal scalability law.

    >>> round(usl(0.02, 1e-4, 64), 4)
    24.0312
    """
    return n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0))


def usl_peak(sigma: float, kappa: float) -> float:
    """The number of ranks at which throughput peaks (infinite without a kappa).

    >>> round(usl_peak(0.02, 1e-4), 3)
    98.995
    """
    return math.sqrt((1.0 - sigma) / kappa) if kappa > 0 and sigma < 1 else math.inf


def isoefficiency(efficiency: float, overhead: float) -> float:
    """Work that keeps `efficiency` when the total overhead is `overhead` (same unit).

    >>> round(isoefficiency(0.8, 2 * 64 * 6))
    3072
    """
    return efficiency / (1.0 - efficiency) * overhead


@dataclass(frozen=True)
class UslFit:
    """Least-squares USL parameters; `scale` is the throughput of one rank."""

    sigma: float
    kappa: float
    scale: float

    @property
    def peak_ranks(self) -> float:
        return usl_peak(self.sigma, self.kappa)


def fit_usl(ranks: Sequence[float], throughput: Sequence[float]) -> UslFit | None:
    """USL through points of (ranks, throughput), or None for fewer than four different counts.

    N / X is linear in the unknowns: (1 + sigma (N-1) + kappa N (N-1)) / scale.  Errors are taken
    relative to it; sigma and kappa are kept non-negative by leaving out the one that is not.
    """
    n, x = np.asarray(ranks, dtype=float), np.asarray(throughput, dtype=float)
    if len(set(ranks)) < 4 or not (x > 0).all():
        return None
    y = n / x
    columns = {"one": np.ones_like(n), "sigma": n - 1.0, "kappa": n * (n - 1.0)}
    best: tuple[float, dict[str, float]] | None = None
    for names in (("one", "sigma", "kappa"), ("one", "sigma"), ("one", "kappa"), ("one",)):
        design = np.stack([columns[name] for name in names], axis=1) / y[:, None]
        found, *_ = np.linalg.lstsq(design, np.ones_like(n), rcond=None)
        values = dict(zip(names, (float(v) for v in found), strict=True))
        error = float(((design @ found - 1.0) ** 2).sum())
        if min(values.values()) >= 0 and values["one"] > 0 and (best is None or error < best[0]):
            best = (error, values)
    if best is None:
        return None
    one = best[1]["one"]
    return UslFit(best[1].get("sigma", 0.0) / one, best[1].get("kappa", 0.0) / one, 1.0 / one)
