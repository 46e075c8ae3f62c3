"""Is a measured curve of a collective normal?  The rule, and nothing but the rule.

Each size band is judged alone.  It is `low` where nearly all of its rows are slower than the slow
end of their 90 % intervals by more than MARGIN, and `suspicious` where nearly all are faster than
the fast end by more than MARGIN.  From 64 MiB up, where time is bytes over bandwidth, it is also
`low` where the median row takes PLAIN times as long as predicted: intervals of some fabrics are
wide there because few machines of the kind were published.  The whole is `low` where a band is,
else `suspicious` where a band is.

The three numbers are chosen on published curves whose name has an even CRC-32
(`validation/check_nccl_rates.py` prints the rates for both halves).  Intervals are learned from
the same even curves, so MARGIN keeps a distance that those curves alone do not ask for; the
others had been looked at when it was set, so their rate is a little too good.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from dpsim.predict import collective_error

#: share of a band's rows that must lie outside, on one side [1]
NEARLY_ALL = 0.9
#: how far beyond the interval's end a row must lie [1]
MARGIN = 1.2
#: measured over predicted time at large sizes that is low whatever the interval says [1]
PLAIN = 2.5
#: rows below which PLAIN is not applied
FEW = 2
LARGE = collective_error.BANDS[-1][0]

Verdict = Literal["normal", "low", "suspicious"]


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
    """

    name: str
    rows: int
    ratio: float
    slower: float
    faster: float
    verdict: Verdict


def bands(sizes: Iterable[MeasuredSize]) -> tuple[Band, ...]:
    """The bands that have rows, in the order of sizes."""
    groups: dict[str, list[MeasuredSize]] = {}
    for each in sizes:
        groups.setdefault(collective_error.band_of(each.size), []).append(each)
    return tuple(_band(name, groups[name]) for name, _ in collective_error.BANDS if name in groups)


def _band(name: str, members: Sequence[MeasuredSize]) -> Band:
    ratio = statistics.median(r.measured / r.predicted for r in members)
    slower = sum(r.measured > r.high * MARGIN for r in members) / len(members)
    faster = sum(r.measured * MARGIN < r.low for r in members) / len(members)
    verdict: Verdict = "normal"
    if slower >= NEARLY_ALL or (name == LARGE and len(members) >= FEW and ratio >= PLAIN):
        verdict = "low"
    elif faster >= NEARLY_ALL:
        verdict = "suspicious"
    return Band(name, len(members), ratio, slower, faster, verdict)


def overall(found: Iterable[Band]) -> Verdict:
    """The verdict on all bands together."""
    verdicts = {band.verdict for band in found}
    return "low" if "low" in verdicts else "suspicious" if "suspicious" in verdicts else "normal"


def misfit(measured: Sequence[float], predicted: Sequence[float]) -> float:
    """Root mean square of ln(measured / predicted) [1]: 0 where they are equal."""
    logs = [math.log(m / p) for m, p in zip(measured, predicted, strict=True)]
    return math.sqrt(sum(log * log for log in logs) / len(logs))
