"""Is a measured curve of a collective normal?  The rule, and nothing but the rule.

Each size band is judged alone.  Up to 64 MiB it is `low` where nearly all of its rows are slower
than the slow end of their 90 % intervals by more than MARGIN, and `suspicious` where nearly all are
faster than the fast end by more than MARGIN.  From 64 MiB up, where time is bytes over bandwidth,
the median row, or the only one, is compared with what healthy machines of that kind of link take
(`plateau`), and not with how little is known: `low` where 99 of 100 take less, `suspicious` where
99 of 100 take more, `cannot_tell` where 19 of 20 take less.  One row differs from the next by more
than medians do: it is low by itself where 99 of 100 take less, and where SOME of the rows, or the
largest, are beyond that by more than MARGIN, all are `low`, however normal the median is.  The
whole is `low` where a band is, else `suspicious`, else `cannot_tell`, where a band is.

MARGIN and NEARLY_ALL are chosen on published curves whose name has an even CRC-32
(`validation/check_nccl_rates.py` prints the rates for both halves), and so are plateaus; the other
curves had been looked at when MARGIN was set, so their rate is a little too good.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from dpsim.checks.plateau import Plateau, plateau_of
from dpsim.predict import collective_error

#: share of a band's rows that must lie outside, on one side [1]
NEARLY_ALL = 0.9
#: how far beyond the interval's end, or beyond what is low of a median, a row must lie [1]
MARGIN = 1.2
#: share of large rows that must lie there for all to be low, unless the largest does [1]
SOME = 0.2
LARGE = collective_error.BANDS[-1][0]
#: where that band begins [B]
LARGE_SIZE = collective_error.BANDS[-2][1]

Verdict = Literal["normal", "low", "suspicious", "cannot_tell"]


class MeasuredSize(NamedTuple):
    """One measured size [B] and its expected time: `low` to `high` around `predicted` [s]."""

    size: float
    measured: float
    predicted: float
    low: float
    high: float


class Band(NamedTuple):
    """A band of sizes.

    rows          how many sizes were measured
    ratio         median of measured over predicted time [1]
    slower, faster  shares of rows outside their intervals by more than MARGIN [1]
    low_sizes     sizes of rows that are low by themselves, from LARGE_SIZE up [B]
    """

    name: str
    rows: int
    ratio: float
    slower: float
    faster: float
    verdict: Verdict
    low_sizes: tuple[float, ...] = ()


def bands(sizes: Iterable[MeasuredSize], kind: str) -> tuple[Band, ...]:
    """The bands that have rows, in the order of sizes, of a collective over links of `kind`."""
    groups: dict[str, list[MeasuredSize]] = {}
    for each in sizes:
        groups.setdefault(collective_error.band_of(each.size), []).append(each)
    names = [name for name, _ in collective_error.BANDS if name in groups]
    return tuple(_band(name, groups[name], kind) for name in names)


def _band(name: str, members: Sequence[MeasuredSize], kind: str) -> Band:
    ratio = statistics.median(r.measured / r.predicted for r in members)
    slower = sum(r.measured > r.high * MARGIN for r in members) / len(members)
    faster = sum(r.measured * MARGIN < r.low for r in members) / len(members)
    verdict: Verdict = "normal"
    low: tuple[float, ...] = ()
    if name == LARGE:
        healthy = plateau_of(kind)
        low = tuple(r.size for r in members if _alone(healthy, r) == "low")
        verdict = "low" if _some_low(healthy, members) else of_plateau(healthy, ratio)
    elif slower >= NEARLY_ALL:
        verdict = "low"
    elif faster >= NEARLY_ALL:
        verdict = "suspicious"
    return Band(name, len(members), ratio, slower, faster, verdict, low)


def _alone(healthy: Plateau, row: MeasuredSize, margin: float = 1.0) -> Verdict:
    """The verdict on a large row by itself, were it faster by `margin`."""
    return of_plateau(healthy, row.measured / row.predicted / margin)


def _some_low(healthy: Plateau, members: Sequence[MeasuredSize]) -> bool:
    """Whether SOME large rows, or the largest, are low by more than MARGIN."""
    low = [row.size for row in members if _alone(healthy, row, MARGIN) == "low"]
    return len(low) >= SOME * len(members) or max(row.size for row in members) in low


def of_plateau(healthy: Plateau, ratio: float) -> Verdict:
    """The verdict on a plateau of so many times what was predicted, beside `healthy` machines'."""
    away = healthy.away(ratio)
    if abs(away) > healthy.faulty:
        return "low" if away > 0 else "suspicious"
    return "cannot_tell" if away > healthy.doubtful else "normal"


class Sensitivity(NamedTuple):
    """Measured over predicted time from which on large sizes are doubtful, from which on they are
    low, and below which they are suspicious [1]; `machines` of the kind were published, and healthy
    ones differ as much as that."""

    doubtful: float
    low: float
    suspicious: float
    machines: int


def sensitivity(kind: str) -> Sensitivity:
    """What the rule can see of a collective over links of `kind`."""
    known = plateau_of(kind)
    doubtful, low, fast = map(known.ratio, (known.doubtful, known.faulty, -known.faulty))
    return Sensitivity(doubtful, low, fast, known.machines)


def overall(found: Iterable[Band]) -> Verdict:
    """The verdict on all bands together."""
    verdicts = {band.verdict for band in found}
    order: tuple[Verdict, ...] = ("low", "suspicious", "cannot_tell")
    return next((verdict for verdict in order if verdict in verdicts), "normal")


def misfit(measured: Sequence[float], predicted: Sequence[float]) -> float:
    """Root mean square of ln(measured / predicted) [1]: 0 where they are equal."""
    logs = [math.log(m / p) for m, p in zip(measured, predicted, strict=True)]
    return math.sqrt(sum(log * log for log in logs) / len(logs))
