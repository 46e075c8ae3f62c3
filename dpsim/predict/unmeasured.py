"""What an answer says of steps of which none was measured: of whose code they are."""

from __future__ import annotations

from collections.abc import Collection

from dpsim.cases.case import Case
from dpsim.cases.typical_code import LEVEL, ends

#: sources of training runs that were read when all was learned (A25): how many there are, how many
#: times as long as predicted their steps take in the median and in a quarter, and how many runs
#: intervals hold
NOT_CALIBRATED = (
    "not calibrated: compute and its interval are those of tuned code, and others' code is slower "
    "(of 84 sources that nobody had looked at, steps took 1.3 times as long as predicted in the "
    "median and 2.2 times in a quarter, and intervals held 58 % of the runs); see `calibrate:`, "
    "or --set compute.code=typical, which predicts for such code"
)
TYPICAL = (
    f"not calibrated: compute is that of typical code, {LEVEL} times tuned code's (of 84 sources "
    "that nobody had looked at, in the median), and its interval holds 90 % of such sources, which "
    f"are x {ends()[0]:.2g} to {ends()[1]:.2g} of that; one measured step makes it narrow: see "
    "`calibrate:`"
)


def said_of(case: Case) -> str:
    """The warning of an uncalibrated `case`."""
    return TYPICAL if case.scenario.compute.code == "typical" else NOT_CALIBRATED


def whose(warnings: Collection[str]) -> str:
    """Whose code intervals are of, by an answer's `warnings`; "" where a step was measured."""
    if TYPICAL in warnings:
        return " of typical code"
    return " of tuned code" if NOT_CALIBRATED in warnings else ""
