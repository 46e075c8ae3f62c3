"""What is drawn for a run: a row of numbers for each failure, so that whatever else changes, the
n-th failure of a run strikes and is mended alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsim.core.arrays import Array
from dpsim.life.failures import Hazard
from dpsim.variability.draws import stream

#: what each number of a row decides
GAP, CAUSE, WHO, FIRST, SECOND, ESCALATES, MENDED, PICK, FILL, LIFE, TURN = range(11)
_COLUMNS, _BLOCK = 11, 256


class Rows:
    """Rows of some runs, uniform on 0 … 1, as many of each as are asked for.  A run may be there
    more than once."""

    def __init__(self, seed: int, runs: Sequence[int], cause: str = "life") -> None:
        self._streams = [stream(seed, cause, run) for run in runs]
        self._block = np.stack([self._more(place) for place in range(len(runs))])
        self._at = np.zeros(len(runs), int)

    def _more(self, place: int) -> Array:
        drawn: Array = self._streams[place].random((_BLOCK, _COLUMNS))
        return drawn

    def next(self, places: np.ndarray[Any, np.dtype[np.intp]]) -> Array:
        """The next row of each of the runs at `places`, shape (places, columns)."""
        for place in places[self._at[places] == _BLOCK].tolist():
            self._block[place], self._at[place] = self._more(place), 0
        found: Array = self._block[places, self._at[places]]
        self._at[places] += 1
        return found


def gap(row: Array) -> Array:
    """Exponential numbers of mean 1: the hazard until the next failure, of shape row.shape[:-1]."""
    made: Array = -np.log1p(-row[..., GAP])
    return made


def lifetimes(hazard: Hazard, uniform: Array, turn: Array) -> Array:
    """Times until parts break [s], mean `hazard.mtbf`: Weibull with scale mtbf / Gamma(1 + 1/k), or
    lognormal with mu = ln mtbf - sigma^2 / 2 (normal numbers by Box and Muller's transform)."""
    shape = hazard.shape or 1.0
    tail = -np.log1p(-uniform)
    made: Array
    if hazard.distribution == "weibull":
        made = hazard.mtbf / math.gamma(1.0 + 1.0 / shape) * tail ** (1.0 / shape)
    else:
        normal = np.sqrt(2.0 * tail) * np.cos(2.0 * math.pi * turn)
        made = hazard.mtbf * np.exp(shape * normal - shape * shape / 2.0)
    return made


def first_lives(hazard: Hazard, seed: int, run: int) -> Array:
    """Lifetimes of all parts of one kind at the beginning of a run, shape (units,) [s]."""
    drawn = stream(seed, f"life.{hazard.name}", run).random((int(hazard.units), 2))
    return lifetimes(hazard, drawn[:, 0], drawn[:, 1])


def first_bad(seed: int, run: int, pools: tuple[int, ...], share: float) -> list[int]:
    """How many bad nodes are in each of `pools`, dealt at random: a `share` of all, and where that
    is no whole number one more with the probability of its fraction, so that the mean is right."""
    wanted = round(sum(pools) * share, 9)  # 15 % of 20 are 3
    more = float(stream(seed, "life.bad", run).random())
    drawn, left, total = stream(seed, "life.nodes", run), math.floor(wanted + more), sum(pools)
    found = []
    for size in pools:
        share = int(drawn.hypergeometric(left, total - left, size)) if size and total else 0
        found.append(share)
        left, total = left - share, total - size
    return found
