"""Calibration of one measured curve by some of its own points, between which it is interpolated.

What is interpolated is not the time but its ratio to a shape.  The plain shape is a constant plus a
term in proportion to the size (Hockney, Parallel Computing 20 (1994) 389-398), both fitted to the
points.  The model's shape is what the model says.  The ratio's logarithm is interpolated over the
logarithm of the size by monotone cubics (Fritsch and Carlson, SIAM J. Numer. Anal. 17 (1980)
238-246), and stays as it is beyond the outer points.

Where a curve has few points of its own the model says where it bends, and both shapes count alike;
from `MANY` points on they say so better themselves, and only the plain shape counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsim.accuracy.collectives.table import CollectiveRow
from dpsim.core.arrays import Array
from dpsim.core.record import Refused

#: what makes a curve: its series, and whatever else must be equal
Curve = tuple[str, str, int, int]
#: points from which a curve needs no model's shape.  On 5,419 published timings calibrated with
#: every:4 and 3,609 with every:2 the model's shape helps below 6 points and not above
MANY = 6
MODES = "none, smallest or every:K with K of at least 2"


class Knot(NamedTuple):
    """One size of a curve: bytes, seconds, and the model's latency and transfer time there [s];
    None where there is no model."""

    size: float
    seconds: float
    parts: tuple[float, float] | None = None


def curve_of(row: CollectiveRow) -> Curve:
    return (row.series, row.operation, row.nodes, row.ranks)


def spacing(mode: str) -> int | None:
    """K of "every:K"; None for the other modes.  Refused where `mode` is none of them."""
    if mode in ("none", "smallest"):
        return None
    found = re.fullmatch(r"every:(\d{1,6})", mode)
    if not found or int(found[1]) < 2:
        raise Refused(f"--calibrate: {mode[:60]!r} is not {MODES}")
    return int(found[1])


def calibrating(rows: Sequence[CollectiveRow], mode: str) -> frozenset[int]:
    """The places in `rows` that calibrate; rows that show a fault never do.

    smallest  the rows with `role` calib, or where no row has a role the first of each series
    every:K   sizes number 1, K+1, 2K+1, … of each curve
    """
    step = spacing(mode)
    if mode == "none":
        return frozenset()
    chosen = _every(rows, step) if step else _smallest(rows)
    return frozenset(place for place in chosen if rows[place].scored)


def _every(rows: Sequence[CollectiveRow], step: int) -> list[int]:
    sizes: dict[Curve, set[int]] = {}
    for row in rows:
        sizes.setdefault(curve_of(row), set()).add(row.size)
    kept = {curve: set(sorted(found)[::step]) for curve, found in sizes.items()}
    return [place for place, row in enumerate(rows) if row.size in kept[curve_of(row)]]


def _smallest(rows: Sequence[CollectiveRow]) -> list[int]:
    if any(row.role for row in rows):
        return [place for place, row in enumerate(rows) if row.role == "calib"]
    first: dict[str, int] = {}
    for place, row in enumerate(rows):
        best = first.setdefault(row.series, place)
        if row.ranks < rows[best].ranks:
            first[row.series] = place
    return list(first.values())


# -- through the points of one curve --------------------------------------------------------------


@dataclass(frozen=True)
class Fitted:
    """A shape's two factors, and at each point the logarithm of what is left over."""

    factors: tuple[float, float]
    at: Array
    left: Array

    def seconds(self, size: float, parts: tuple[float, float]) -> float:
        """What the curve says at `size`, where the shape's parts are `parts`."""
        left = monotone(self.at, self.left, float(np.log(size)))
        return (self.factors[0] * parts[0] + self.factors[1] * parts[1]) * float(np.exp(left))


@dataclass(frozen=True)
class Through:
    """The curve through some points: the geometric mean of what its shapes say."""

    model: Fitted | None
    plain: Fitted | None

    def seconds(self, size: float, parts: tuple[float, float] | None) -> float:
        """The time at `size` [s]; the model's parts there are `parts`.

        Raises Refused where one point and no model say nothing of other sizes.
        """
        found = []
        if self.model is not None and parts is not None:
            found.append(self.model.seconds(size, parts))
        if self.plain is not None:
            found.append(self.plain.seconds(size, (1.0, size)))
        if not found:
            raise Refused("a single size of its own and no model say nothing of other sizes")
        return float(np.exp(np.mean(np.log(found))))


def through(points: Sequence[Knot]) -> Through:
    """The curve through `points`; those of equal size are replaced by their geometric mean."""
    merged = _merged(points)
    plain = _plain(merged) if len(merged) > 1 else None
    known = len(merged) < MANY and all(p.parts is not None for p in merged)
    return Through(_modelled(merged) if known else None, plain)


def left_out(points: Sequence[Knot]) -> list[tuple[float, float]]:
    """Size and ln(measured / predicted) of every inner point, predicted from the others."""
    merged = _merged(points)
    found = []
    for place in range(1, len(merged) - 1):
        point = merged[place]
        others = through([*merged[:place], *merged[place + 1 :]])
        log = np.log(point.seconds / others.seconds(point.size, point.parts))
        found.append((point.size, float(log)))
    return found


def _plain(points: Sequence[Knot]) -> Fitted:
    """The constant and the term in proportion to the size, and what they leave over."""
    sizes = np.array([p.size for p in points])
    seconds = np.array([p.seconds for p in points])
    both = np.column_stack([np.ones(len(points)), sizes])
    factors = _factors(seconds, both)
    return Fitted(factors, np.log(sizes), np.log(seconds / (both @ factors)))


def _modelled(points: Sequence[Knot]) -> Fitted:
    """What the model leaves over.  A single point says something of the part only that takes most
    of its time."""
    sizes = np.log([p.size for p in points])
    parts = [p.parts or (0.0, 0.0) for p in points]
    if len(points) == 1:
        return Fitted(_single(points[0].seconds, *parts[0]), sizes, np.zeros(1))
    left = [p.seconds / sum(both) for p, both in zip(points, parts, strict=True)]
    return Fitted((1.0, 1.0), sizes, np.log(left))


def _merged(points: Sequence[Knot]) -> list[Knot]:
    by_size: dict[float, list[Knot]] = {}
    for point in points:
        by_size.setdefault(point.size, []).append(point)
    return [
        group[0]._replace(seconds=float(np.exp(np.mean(np.log([p.seconds for p in group])))))
        for _, group in sorted(by_size.items())
    ]


def _factors(seconds: Array, both: Array) -> tuple[float, float]:
    """Least squares of the relative error, with both factors at least 0 and not both 0."""
    parts = both / seconds[:, None]
    square = parts.T @ parts
    if np.linalg.det(square) > 1e-12 * square[0, 0] * square[1, 1]:
        first, second = np.linalg.solve(square, parts.sum(axis=0))
        if first > 0 and second > 0:
            return float(first), float(second)
    alone = parts.sum(axis=0) / np.diag(square)  # the better of the two parts alone
    misses = [float(((parts[:, k] * alone[k] - 1) ** 2).sum()) for k in (0, 1)]
    return (float(alone[0]), 0.0) if misses[0] <= misses[1] else (0.0, float(alone[1]))


def _single(seconds: float, latency: float, transfer: float) -> tuple[float, float]:
    rest = seconds - min(latency, transfer)
    if rest <= 0:
        common = seconds / (latency + transfer)
        return common, common
    return (rest / latency, 1.0) if latency >= transfer else (1.0, rest / transfer)


def loglog(points: Sequence[Knot], size: float) -> float:
    """The plain baseline: the logarithm of the time, linear in the logarithm of the size [s].

    Below the first point the time stays as it is there; above the last the slope of the last two
    goes on.
    """
    merged = _merged(points)
    x = np.log([p.size for p in merged])
    y = np.log([p.seconds for p in merged])
    at = float(np.log(size))
    if len(merged) == 1 or at <= x[-1]:
        return float(np.exp(np.interp(at, x, y)))
    return float(np.exp(y[-1] + (at - x[-1]) * (y[-1] - y[-2]) / (x[-1] - x[-2])))


def monotone(x: Array, y: Array, at: float) -> float:
    """Monotone cubic through (x, y) at `at`; constant beyond both ends.

    >>> monotone(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 2.0]), 1.5)
    1.5
    """
    if len(x) == 1 or at <= x[0]:
        return float(y[0])
    if at >= x[-1]:
        return float(y[-1])
    place = int(np.searchsorted(x, at, side="right")) - 1
    step = x[place + 1] - x[place]
    low, high = _slopes(x, y)[place : place + 2]
    t = (at - x[place]) / step
    return float(
        (1 + 2 * t) * (1 - t) ** 2 * y[place]
        + t * (1 - t) ** 2 * step * low
        + t**2 * (3 - 2 * t) * y[place + 1]
        + t**2 * (t - 1) * step * high
    )


def _slopes(x: Array, y: Array) -> Array:
    """Slopes at the points that keep the cubics monotone: weighted harmonic means, 0 at turns."""
    step, rise = np.diff(x), np.diff(y) / np.diff(x)
    slopes = np.concatenate(([rise[0]], np.zeros(len(x) - 2), [rise[-1]]))
    for k in range(1, len(x) - 1):
        if rise[k - 1] * rise[k] > 0:
            before, after = 2 * step[k] + step[k - 1], step[k] + 2 * step[k - 1]
            # Multiplied out: dividing by a rise near 0 would overflow.
            product = rise[k - 1] * rise[k]
            slopes[k] = (before + after) * product / (before * rise[k] + after * rise[k - 1])
    return slopes
