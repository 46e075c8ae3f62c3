"""How often parts break that go by their age: renewals, counted before any is drawn."""

from __future__ import annotations

import math

import numpy as np

from dpsim.life.failures import Hazard

#: times at which survival is looked at: down to 1e-280 of the longest, as sigma 20 needs
_GRID, _LEAST = 4000, 1e-280


def renewals(hazard: Hazard, time: float) -> float:
    """Failures of all units of `hazard` within `time` [s], in the mean, of parts that are new at
    its beginning: of each no fewer than F(t), its first, nor than t / E[min(X, t)] - 1, and at most
    F / (1 - F) and 2 t / E[min(X, t)] - 1 (Erickson, Trans. AMS 180, 1973, lemma 1); the mean of
    the better bounds.

    >>> round(renewals(Hazard("a", 1, 1e6, 1, "weibull", 1.0), 1e4), 4)  # 0.01 of an exponential
    0.01
    """
    times = time * np.geomspace(_LEAST, 1.0, _GRID)
    survival = np.array([_survival(hazard, float(at)) for at in times])
    widths = np.diff(times)
    lived = float(times[0] + (widths * (survival[1:] + survival[:-1]) / 2.0).sum())
    broken, alive = 1.0 - float(survival[-1]), float(survival[-1])
    low = max(broken, time / lived - 1.0)
    high = min(broken / max(alive, 1e-300), 2.0 * time / lived - 1.0)
    return hazard.units * math.sqrt(low * max(high, low))


def _survival(hazard: Hazard, time: float) -> float:
    """Probability that a part lives longer; as `draws.lifetimes` draws it."""
    shape = hazard.shape or 1.0
    if hazard.distribution == "weibull":
        return math.exp(-min((time / hazard.mtbf * math.gamma(1.0 + 1.0 / shape)) ** shape, 700.0))
    return math.erfc((math.log(time / hazard.mtbf) / shape + shape / 2.0) / math.sqrt(2.0)) / 2.0
