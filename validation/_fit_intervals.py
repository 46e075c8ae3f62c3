"""Learn the widths of intervals from what predictions miss on sources that they were not fitted on.

A half-width is the root of the sum of the squares of its causes, on logarithms, and each cause is a
learned width times what the model knows of the run: `dpsim/predict/uncertainty.py` says what each
is and puts them together again.  The widths minimise the interval score (Gneiting and Raftery, JASA
102:359, 2007, section 6.2), whose minimum is the 5 % and the 95 % point; every source counts with
the root of its rows.  Then they are widened to hold 90 % of the rows of sources left out (conformal
prediction with groups: Barber et al., Annals of Statistics 49(1), 2021); never narrowed.  A source
that is judged has neither its widths nor that factor from its own rows; the best constant interval,
beside which it stands, is learned and widened in the same way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsim.core.arrays import Array
from dpsim.core.constants import Constant
from dpsim.predict.collective_error import through_tcp
from dpsim.predict.widths import LEAST_OVER, doubt_of_level, far

#: what the file of constants that three programs write begins with
HEAD = (
    "What measured training runs alone can tell; written by validation/fit_training.py,\n"
    "validation/left_out.py and validation/experts.py, never by hand."
)
COVERED = 0.9
#: what lies outside counts so many times its distance: 2 / (1 - COVERED)
OUTSIDE = 2.0 / (1.0 - COVERED)
#: over how much of a logarithm the corner of the score is rounded while it is minimised
_ROUND = 0.02
Row = Mapping[str, Any]
Shape = Callable[[Array, float], Array]


def plain(known: Array, width: float) -> Array:
    """A logarithm that is proportional."""
    return known * width


def slower(known: Array, width: float) -> Array:
    """The logarithm of a time that grows by `width` times what is known."""
    return np.log1p(known * width)


def faster(known: Array, width: float) -> Array:
    """The same of one that shrinks."""
    return -np.log1p(-np.minimum(known * width, 0.95))


@dataclass(frozen=True)
class Cause:
    """One cause: what is known of it row by row, below and above, and how a width becomes a share
    of the logarithm.  `most` bounds the width; 0: the cause has no such side.  One that is `given`
    is known whole, with a width of 1: nothing is learned of it.  One that is `alone` is learned
    before and without those that are `late`, and has no part in what is learned with them: it is
    asked for elsewhere, by itself."""

    below: Array
    above: Array
    shapes: tuple[Shape, Shape] = (plain, plain)
    most: tuple[float, float] = (3.0, 3.0)
    given: bool = False
    late: bool = False
    alone: bool = False


Causes = Mapping[str, Cause]
Widths = tuple[Array, Array]


def calibrated(rows: Sequence[Row]) -> Causes:
    """The causes of calibrated predictions, as `uncertainty.interval` has them."""
    column = _columns(rows)
    batch = column(lambda r: min(abs(math.log2(r["shares"] / r["base_features"]["shares"])), 1.0))
    split = column(lambda r: float(bool({"tp", "pp", "cp"} & set(r["strategy"].split("+")))))
    network = Cause(*_network(rows), (faster, slower), (0.9, 9.0))
    return {
        "run": Cause(*[np.ones(len(rows))] * 2),
        "split": Cause(split, split),
        "network": replace(network, alone=True),
        "carried": replace(network, late=True),
        "images": Cause(*[column(_inside)] * 2, (plain, slower), (0.0, 3.0)),
        "batch": Cause(batch, batch),
        "departure": Cause(*[column(_departure)] * 2, late=True),
        "doubted": Cause(column(_doubted), np.zeros(len(rows)), given=True),
        "readings": _readings(rows),
    }


def uncalibrated(rows: Sequence[Row]) -> Causes:
    """Those of uncalibrated ones, as `widths.step_range` has them."""
    column = _columns(rows)
    over, newer = column(lambda r: r["overhead"]), column(lambda r: float(r["newer"]))
    known = {"any": Cause(*[np.ones(len(rows))] * 2), "overhead": Cause(over, over)}
    known["newer"] = Cause(newer, newer)
    return known | {"readings": _readings(rows)}


def _readings(rows: Sequence[Row]) -> Cause:
    """How far apart the readings of rows lie: their mixture is as wide without any other cause."""
    ends = np.array([row.get("readings", (0.0, 0.0)) for row in rows])
    return Cause(ends[:, 0], ends[:, 1], given=True)


def collectives(rows: Sequence[Row]) -> Causes:
    """Those of single collectives, as `collective_error.interval` has them."""
    column, machines = _columns(rows), machines_of(rows)
    latency, apart = column(lambda r: r["latency"]), column(lambda r: float(r["nodes"] > 1))

    tcp = column(lambda r: float(through_tcp(r["fabric"])))
    #: as of a kind of which no machine is left without this one
    alone = column(lambda r: machines[r["fabric"]] == {r["machine"]}) * (1 - tcp)
    return {
        "any": Cause(*[np.ones(len(rows))] * 2),
        "latency": Cause(*[latency * (1 - apart)] * 2),
        "passage": Cause(*[latency * apart] * 2),
        "nodes": Cause(apart, apart),
        "unmeasured": Cause(alone, alone),
        "sockets": Cause(tcp, tcp),
    }


def machines_of(rows: Sequence[Row]) -> dict[str, set[str]]:
    """Machines by kind of link."""
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row["fabric"], set()).add(row["machine"])
    return found


def _columns(rows: Sequence[Row]) -> Callable[[Callable[[Row], float]], Array]:
    return lambda of: np.array([of(row) for row in rows], dtype=float)


def _network(rows: Sequence[Row]) -> tuple[Array, Array]:
    """By how much of itself a step gains and loses per factor on all collectives."""
    from _left_out_rows import NETWORK

    ends = np.array([row["network"] for row in rows])
    low, high = NETWORK
    return np.maximum(1 - ends[:, 0], 0) / (1 - low), np.maximum(ends[:, 1] - 1, 0) / (high - 1)


def _departure(row: Row) -> float:
    """As `widths.departure` has it; the measured step is in both logarithms, and so in none."""
    return float(row["overhead"]) * far(row["linear"] - row["log"])


def _doubted(row: Row) -> float:
    """How far a step may be faster if its calibrated run was slow of itself (`widths.doubt_of`)."""
    return 0.0 if row["stand_in"] else doubt_of_level(row["level"])


def _inside(row: Row) -> float:
    """Doublings inside a node of runs on images, by how far these are more than any host decodes
    (`widths.fed`)."""
    here, start = (min(n, row["per_node"]) for n in (row["ranks"], row["at"]))
    return math.log2(max(here / start, 1.0)) * float(row["fed"])


# -- the fit --------------------------------------------------------------------------------------


def half_widths(causes: Causes, widths: Widths) -> tuple[Array, Array]:
    """How far intervals reach below and above, as logarithms."""
    known = {name: cause for name, cause in causes.items() if not cause.alone}
    kept = [not cause.alone for cause in causes.values()]
    return _half(known, widths[0][kept], 0), _half(known, widths[1][kept], 1)


def _half(causes: Causes, widths: Array, side: int) -> Array:
    parts = [
        _part(cause, width, side) for cause, width in zip(causes.values(), widths, strict=True)
    ]
    found: Array = np.sqrt(sum(part**2 for part in parts) + 1e-8)
    return found


def _part(cause: Cause, width: float, side: int) -> Array:
    return cause.shapes[side]((cause.below, cause.above)[side], width)


def fitted(causes: Causes, logs: Array, weights: Array) -> Widths:
    """The widths with the least interval score on ln(measured / predicted), below and above."""
    return (
        _side(causes, -logs, weights / weights.sum(), 0),
        _side(causes, logs, weights / weights.sum(), 1),
    )


def _side(causes: Causes, beyond: Array, weights: Array, side: int) -> Array:
    from scipy.optimize import minimize

    def loss(widths: Array) -> float:
        half = _half(causes, widths, side)
        outside = _ROUND * np.logaddexp(0.0, (beyond - half) / _ROUND)
        return float((weights * (half + OUTSIDE * outside)).sum())

    def least(ends: Sequence[tuple[float, float]]) -> Array:
        start = np.clip(0.2, *np.transpose(ends))
        widths: Array = minimize(loss, start, bounds=ends, method="L-BFGS-B").x
        return widths

    ends = [(1.0, 1.0) if c.given else (0.0, c.most[side]) for c in causes.values()]
    known = list(zip(causes.values(), ends, strict=True))
    if not any(c.late for c in causes.values()):
        return least(ends)
    first = least([(0.0, 0.0) if c.late else own for c, own in known])
    last = least([(0.0, 0.0) if c.alone else own for c, own in known])
    return np.where([c.alone for c in causes.values()], first, last)


def weights_of(groups: Array) -> Array:
    """The root of a group's rows is what the group counts."""
    count = Counter(groups)
    return np.array([count[group] ** -0.5 for group in groups])


@dataclass(frozen=True)
class Learned:
    """Widths, what each group left out says instead, and intervals of groups left out.

    factor  by how much widths were widened to hold what was left out; `below` and `above` of each
            group are widened by what the other groups need
    """

    widths: Widths
    without: tuple[Widths, ...]
    below: Array
    above: Array
    factor: float

    def error(self, side: int, place: int) -> float:
        """The jackknife's standard error of a width, over groups."""
        drawn = np.array([widths[side][place] for widths in self.without])
        n = len(drawn)
        return float(np.sqrt((n - 1) / n * ((drawn - drawn.mean()) ** 2).sum())) if n > 1 else 0.0


def learned(causes: Causes, logs: Array, groups: Array, most: Array | None = None) -> Learned:
    """The widths, with every group of `groups` left out once; `most`: how far below intervals
    reach at the most, whatever their widths, which are learned without that: they would grow where
    they no longer count."""
    weights = weights_of(groups)
    most = np.full(len(logs), math.inf) if most is None else most
    below, above = np.zeros(len(logs)), np.zeros(len(logs))
    without = []
    for group in np.unique(groups):
        out = groups == group
        widths = fitted(chosen(causes, ~out), logs[~out], weights[~out])
        without.append(widths)
        below[out], above[out] = half_widths(chosen(causes, out), widths)
    # no factor holds what lies below `most`
    needed = np.where(-logs > most, math.inf, np.maximum(-logs / below, logs / above))
    others = np.ones(len(logs))
    for group in np.unique(groups):
        out = groups == group
        others[out] = _factor(needed[~out], weights[~out])
    whole, factor = fitted(causes, logs, weights), _factor(needed, weights)
    below = np.minimum(below * others, most)
    return Learned(whole, tuple(without), below, above * others, factor)


def _factor(needed: Array, weights: Array) -> float:
    """What holds `COVERED` of rows that need so many times their half-widths; at least 1."""
    order = np.argsort(needed)
    share = np.cumsum(weights[order]) / weights.sum()
    return max(float(np.interp(COVERED, share, needed[order])), 1.0)


def chosen(causes: Causes, rows: Array) -> dict[str, Cause]:
    """The causes of some rows."""
    return {
        name: replace(cause, below=cause.below[rows], above=cause.above[rows])
        for name, cause in causes.items()
    }


# -- judged ---------------------------------------------------------------------------------------


def scores(logs: Array, below: Array, above: Array) -> Array:
    """The interval score of each row, on logarithms."""
    outside = np.maximum(-logs - below, 0.0) + np.maximum(logs - above, 0.0)
    found: Array = below + above + OUTSIDE * outside
    return found


def constant(logs: Array, groups: Array) -> tuple[Array, Array]:
    """The ends of the best constant interval, chosen without the group that it is judged on."""
    found = learned({"constant": Cause(*[np.ones(len(logs))] * 2)}, logs, groups)
    return found.below, found.above


# -- as constants ---------------------------------------------------------------------------------

MEANINGS = {
    "run": "factor around a calibrated prediction, with little to communicate",
    "network": "factor on the time of all collectives of a step",
    "carried": "the same of a calibrated step, beside its departure from linear scaling",
    "images": "loss of runs on images, per doubling inside a node, whose host decodes for all and "
    "may not keep up",
    "split": "factor on steps of ranks that share a model or its sequences",
    "batch": "factor of another batch of a rank than in the calibrated run: doublings, at most one",
    "departure": "factor per e-fold by which a calibrated step far from linear scaling takes "
    f"longer than {math.exp(LEAST_OVER):.2g} times its multiplications at the peak",
    "newer": "factor on devices that came after Ampere",
    "overhead": "factor per e-fold by which an uncalibrated step takes longer than "
    f"{math.exp(LEAST_OVER):.2g} times its multiplications at the peak",
    "any": "factor around an uncalibrated step, or the time of a single collective",
    "latency": "factor by the share of its time that is latency, where it is all, inside a node",
    "passage": "the same between nodes",
    "nodes": "factor between nodes",
    "unmeasured": "factor on kinds of link of which no machine was measured, without TCP",
    "sockets": "factor on kinds of link that go through the hosts' TCP, measured or not",
}


def constants(causes: Causes, found: Learned, told: str, n: int) -> dict[str, Constant]:
    """The widths under the names that `uncertainty` reads, without those that have no such side."""
    made = {}
    for place, (name, cause) in enumerate(causes.items()):
        for side, end in enumerate(("fast", "slow")):
            if cause.most[side] and not cause.given:
                width = float(found.widths[side][place]) * found.factor
                value = width if cause.shapes[side] is not plain else math.exp(width)
                scale = value if cause.shapes[side] is plain else 1.0
                made[f"{name}.{end}"] = Constant(
                    value=float(f"{_as_read(cause.shapes[side], value):.4g}"),
                    error=float(f"{scale * found.error(side, place) * found.factor:.2g}"),
                    unit="1",
                    meaning=f"{MEANINGS[name]}: the {end} end of 90 %",
                    fitted_on=told,
                    n=n,
                )
    return made


def _as_read(shape: Shape, value: float) -> float:
    """A factor on times at the slow end is 1 + width, at the fast end 1 - width."""
    return 1.0 + value if shape is slower else 1.0 - min(value, 0.95) if shape is faster else value
