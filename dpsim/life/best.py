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
#: from the end of what was tried, where that is the best: further by so much at a time
_WIDER = 2.0


def best_interval(course: Course, step: float, runs: int) -> Course:
    """`course` with the interval, in whole steps, with which its first runs take least in the mean.
    It is looked for until what was tried on both sides of it is worse, or there is nothing beyond:
    checkpoints that follow on one another, or none before the run ends.

    step  seconds of a step; the interval that `course` has is where the search begins
    runs  that are drawn in the end: no more are tried
    """
    saving = course.saving
    least = saving.pause + saving.write if saving.write > 0 else step
    most = max(math.ceil(course.productive / step), 1)
    fewest = min(max(math.ceil(least / step), 1), most)
    known: dict[int, float] = {}

    def mean(interval: float) -> float:
        steps = min(max(round(interval / step), fewest), most)
        if steps not in known:
            tried = replace(course, saving=replace(saving, interval=steps * step))
            known[steps] = float(live(tried, min(runs, _RUNS)).times.mean())
        return known[steps]

    for factor in _COARSE:
        mean(saving.interval * factor)
    while True:
        middle = min(known, key=lambda steps: known[steps]) * step
        tried = len(known)
        if middle == max(known) * step:
            mean(middle * _WIDER)
        if middle == min(known) * step:
            mean(middle / _WIDER)
        if len(known) == tried:
            break
    for factor in _FINE:
        mean(middle * factor)
    steps = min(known, key=lambda steps: known[steps])
    return replace(course, saving=replace(saving, interval=steps * step))
