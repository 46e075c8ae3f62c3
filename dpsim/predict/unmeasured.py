"""What an answer says of steps of which none was measured: of whose code they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from dpsim.cases.case import Case
from dpsim.cases.typical_code import (
    BETWEEN,
    FASTEST,
    INSIDE,
    LEVEL,
    SCALED,
    SLOWEST,
    SOURCES,
    is_typical,
)
from dpsim.predict.point import Failed, Point, computed
from dpsim.predict.uncertainty import OTHERS

#: of the same sources, how many times as long as predicted the steps of a quarter take at least,
#: and how many of their runs the intervals of tuned code hold (A103)
QUARTER, HELD = 2.3, "54 %"
NOT_CALIBRATED = (
    "not calibrated: compute and its interval are those of tuned code, and others' code is slower "
    f"(of {SOURCES} sources that nobody had looked at, steps took {LEVEL} times as long as "
    f"predicted in the median and more than {QUARTER} times in a quarter, and intervals held "
    f"{HELD} of the runs); see `calibrate:`, or --set compute.code=typical, which predicts for "
    "such code"
)
#: what `dpsim check` says of the same
UNTUNED = (
    "No measured step says how fast the code is: healthy steps are those of tuned code, and of "
    f"{SOURCES} sources that nobody had looked at steps took {LEVEL} times as long in the median, "
    f"and more than {QUARTER} times in a quarter.  A step of one rank tells, and --set "
    "compute.code=typical asks about such code."
)
TYPICAL = (
    f"not calibrated: compute is that of typical code, {LEVEL} times tuned code's (so long took "
    f"whole steps in the median of {SOURCES} sources that nobody had looked at, and {FASTEST} to "
    f"{SLOWEST} times in nine of ten); exchanges are as modelled; one measured step makes the "
    "interval narrow: see `calibrate:`"
)
CARRIED = (
    "intervals on other counts than the measured one are those of typical code: calibrated steps "
    f"of {SCALED} sources that nobody had looked at took x {INSIDE[0]} to {INSIDE[1]} of what was "
    f"predicted inside a node, and x {BETWEEN[0]} to {BETWEEN[1]} between nodes; a step measured "
    "on a second count says what yours loses (calibrate.points)"
)
TOLD = (
    "compute.code changes nothing: what was measured says how fast the code is, and what it loses "
    "on such counts (calibrate)"
)
_OF = {
    NOT_CALIBRATED: " of tuned code", TYPICAL: " of typical code", CARRIED: " of typical code",
}  # fmt: skip


def said_of(cases: Iterable[Case]) -> Iterator[str]:
    """The warning of each kind of code that uncalibrated `cases` have."""
    kinds = dict.fromkeys(is_typical(one.scenario) for one in cases)
    yield from (TYPICAL if typical else NOT_CALIBRATED for typical in kinds)


def beside_a_step(cases: Iterable[Case], points: Sequence[Point | Failed]) -> Iterator[str]:
    """What typical code changes beside a measured step: the intervals of `points` that rest on
    other sources, or nothing."""
    if any(one.scenario.compute.typical for one in cases):
        yield CARRIED if any(OTHERS in one.interval.causes for one in computed(points)) else TOLD


def whose(warnings: Collection[str]) -> str:
    """Whose code all intervals are of, by an answer's `warnings`; "" where a step was measured, or
    where some are of one and some of the other."""
    found = [of for said, of in _OF.items() if said in warnings]
    return found[0] if len(found) == 1 else ""
