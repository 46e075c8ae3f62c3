"""The interval of checkpoints with which drawn runs take least, on the same draws for all."""

from __future__ import annotations

import math
from dataclasses import replace

from dpsim.life.abreast import live
from dpsim.life.course import Course

#: runs that are drawn for each interval that is tried
_RUNS = 100
#: around the interval that a formula says: first by fourth roots of two, then by sixteenths
_COARSE = [2.0 ** (k / 4.0) for k in range(-8, 9)]
_FINE = [2.0 ** (k / 16.0) for k in (-3, -2, -1, 1, 2, 3)]


def best_interval(course: Course, step: float, runs: int) -> Course:
    """`course` with the interval, in whole steps, with which its first runs take least in the mean.

    step  seconds of a step; the interval that `course` has is where the search begins
    runs  that are drawn in the end: no more are tried
    """
    saving = course.saving
    least = saving.pause + saving.write if saving.write > 0 else step
    known: dict[int, float] = {}

    def mean(interval: float) -> float:
        steps = max(round(interval / step), math.ceil(least / step), 1)
        if steps not in known:
            tried = replace(course, saving=replace(saving, interval=steps * step))
            known[steps] = float(live(tried, min(runs, _RUNS)).times.mean())
        return known[steps]

    for factor in _COARSE:
        mean(saving.interval * factor)
    middle = min(known, key=lambda steps: known[steps]) * step
    for factor in _FINE:
        mean(middle * factor)
    steps = min(known, key=lambda steps: known[steps])
    return replace(course, saving=replace(saving, interval=steps * step))
