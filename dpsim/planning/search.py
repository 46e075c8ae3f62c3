"""Searching over one number: scans, edges, the largest whole number, and fronts.

Nothing here knows scenarios.  A `margin` says how far a value is on the right side of all that is
required: at least 0 where everything holds, -inf where there is no number.

>>> edge(lambda x: x - 2.0, 1.0, 8.0, tolerance=1e-3)[1] / 2.0 < 1.001
True
>>> largest_whole(lambda n: n <= 37, 1, 10**6)
37
>>> pareto([(1.0, 9.0), (2.0, 5.0), (3.0, 6.0), (4.0, 1.0)])
[0, 1, 3]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Margin = Callable[[float], float]
#: how much may be missing, relatively, where something holds: the two engines agree to 1e-9
SLACK = 1e-9
#: relative width to which an edge is narrowed down
TOLERANCE = 1e-3
#: the same where runs are drawn, whose mean is no better known
DRAWN = 1e-2
#: values of a coarse scan
SCANNED = 9


def holds(margin: float) -> bool:
    """Whether a margin says that everything required holds."""
    return margin >= -SLACK


def spaced(low: float, high: float, count: int = SCANNED, step: float = 0.0) -> list[float]:
    """`count` values from `low` to `high`, both among them: by equal factors where the range is
    wide and above 0, else by equal steps; with `step` multiples of it only."""
    if high <= low:
        return [low]
    if low > 0 and high >= 4 * low:
        inner = [low * (high / low) ** (k / (count - 1)) for k in range(count)]
    else:
        inner = [low + (high - low) * k / (count - 1) for k in range(count)]
    if step:
        inner = [round(value / step) * step for value in inner]
    kept = {value for value in inner[1:-1] if low < value < high}
    return [low, *sorted(kept), high]


def edge(
    margin: Margin, bad: float, good: float, *, tolerance: float = TOLERANCE, step: float = 0.0
) -> tuple[float, float]:
    """The values next to where `margin` crosses 0, on the bad side and on the good one.

    `bad` and `good` may be in either order.  They end within the relative `tolerance` of each
    other, or with `step` that far apart.  The ITP method of Oliveira and Takahashi, ACM
    Transactions on Mathematical Software 47(1), 2020, on the logarithm where both are above 0: it
    needs one evaluation more than bisection at worst, and far fewer on smooth functions.
    """
    log = min(bad, good) > 0 and not step
    to, back = (math.log, math.exp) if log else (float, float)
    a, b = to(bad), to(good)
    fa, fb = margin(bad), margin(good)
    limit = math.log1p(tolerance) if log else step or tolerance * max(abs(bad), abs(good))
    whole = abs(b - a)
    most = math.ceil(math.log2(max(whole / limit, 1.0))) + 1
    for trial in range(most + 2):
        if abs(b - a) <= limit * (1 + 1e-12):
            break
        middle = (a + b) / 2
        shift = max(0.45 * limit, 0.2 * (b - a) ** 2 / whole)
        x = _guess((a, b), (fa, fb), shift, limit / 2 * 2.0 ** (most - trial))
        if step:
            x = _inside(round(x / step) * step, a, b, step)
        x = x if min(a, b) < x < max(a, b) else middle
        found = margin(back(x))
        if holds(found):
            b, fb = x, found
        else:
            a, fa = x, found
    return back(a) if a != to(bad) else bad, back(b) if b != to(good) else good


def _guess(
    ends: tuple[float, float], margins: tuple[float, float], shift: float, reach: float
) -> float:
    """Where the line through both ends crosses 0, moved by `shift` towards the middle, so that
    both ends close in; never further from the middle than `reach` allows."""
    (a, b), (fa, fb) = ends, margins
    middle, width = (a + b) / 2, abs(b - a)
    if not (math.isfinite(fa) and math.isfinite(fb)) or fb == fa:
        return middle
    crossing = (fb * a - fa * b) / (fb - fa)
    towards = math.copysign(1.0, middle - crossing)
    nearer = crossing + towards * shift if shift <= abs(middle - crossing) else middle
    radius = max(reach - width / 2, 0.0)
    return nearer if abs(nearer - middle) <= radius else middle - towards * radius


def _inside(x: float, a: float, b: float, step: float) -> float:
    """`x`, a multiple of `step`, kept off both ends."""
    low, high = min(a, b), max(a, b)
    return min(max(x, low + step), high - step)


@dataclass(frozen=True)
class Run:
    """A stretch of neighbouring scanned values, numbers `first` to `last`, where all holds, and
    whether what holds changes at most once over the whole scan."""

    first: int
    last: int
    monotone: bool


def run_of(margins: Sequence[float]) -> Run | None:
    """The stretch to look at: the one that goes on to the largest value, else the one from the
    smallest, else the longest.  None where nothing holds."""
    flags = [holds(margin) for margin in margins]
    starts = [k for k, flag in enumerate(flags) if flag and (k == 0 or not flags[k - 1])]
    runs = []
    for start in starts:
        end = start
        while end + 1 < len(flags) and flags[end + 1]:
            end += 1
        runs.append((start, end))
    if not runs:
        return None
    changes = sum(a != b for a, b in itertools.pairwise(flags))
    chosen = next((r for r in runs if r[1] == len(flags) - 1), None)
    chosen = chosen or next((r for r in runs if r[0] == 0), None)
    chosen = chosen or max(runs, key=lambda r: r[1] - r[0])
    return Run(*chosen, changes <= 1)


def rises_or_falls(values: Sequence[float | None], slack: float = 1e-3) -> bool:
    """Whether numbers go one way only, apart from a relative `slack`; gaps are passed over."""
    known = [value for value in values if value is not None]
    room = slack * max((abs(value) for value in known), default=0.0)
    pairs = list(itertools.pairwise(known))
    return all(b >= a - room for a, b in pairs) or all(b <= a + room for a, b in pairs)


def largest_whole(fits: Callable[[int], bool], first: int, last: int) -> int | None:
    """The largest number in `first` … `last` that `fits`, if those that fit are the small ones:
    by doubling, then by bisection.  None where `first` does not."""
    if not fits(first):
        return None
    good, bad = first, last + 1
    while good < last:
        tried = min(good * 2, last)
        if not fits(tried):
            bad = tried
            break
        good = tried
    while bad - good > 1 and good < last:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Places of the points that no other beats in one coordinate without losing in the other, by
    the first; of equal points the first one."""
    order = sorted(range(len(points)), key=lambda k: (*points[k], k))
    found: list[int] = []
    least = math.inf
    for place in order:
        if points[place][1] < least:
            least = points[place][1]
            found.append(place)
    return found
