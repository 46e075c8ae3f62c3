"""Causes of intervals that follow from draws of a few steps, and from how steps are fed."""

from __future__ import annotations

import math

from dpsim.cases.case import Case
from dpsim.cases.feed import Feed
from dpsim.compile.copies import DOUBT
from dpsim.predict.player import Played
from dpsim.predict.point import Causes

#: standard deviations of a normal number that 90 % lie within
Z90 = 1.645
#: time of a loader's batches, from what its samples take and what is known of cores and storage:
#: as far as DLPerf's twelve rows are off (0.94 to 1.15 of what is predicted), and as much below; 75
#: of 76 set-ups of validation/measure_loader.py lie within where a load of at most 7 was on two
#: processors.  Of a measured rate, as of other repeated runs
LOADER, RATE = (0.87, 1.15), (0.97, 1.03)
#: time of a loader whose samples are of a kind of which a time is assumed (DLPerf's machine), or
#: whose rate is: on
#: milabench's it is a third (DataLoader) and a quarter (DALI) of that (`validation/loaders.py`);
#: twice is assumed above
ASSUMED = (0.25, 2.0)
#: groups of steps that are fed from whose means it is told how far the mean scatters: fewer would
#: say little of that, and more would leave neighbours that depend on each other
GROUPS = 10


def drawn(case: Case, played: Played, calibrated_at: int | None, fed: bool) -> Causes:
    """What follows from the draws of a few steps, or of one run, and from how steps are fed, unless
    the step was measured as it is `fed`."""
    found: Causes = {}
    if case.feed is not None and not fed:
        if case.machine or calibrated_at is not None:
            found["loader"] = _feeding_range(case.feed, played)
        if case.feed.made.given.assumed:
            what = "rate" if case.feed.made.loader is None else "decode"
            found[f"{what} (assumed)"] = _feeding_range(case.feed, played, ASSUMED)
    found |= {} if fed else _staged(case, played)
    time, durations = played.step_time, played.durations
    if len(durations) > 1 and _random(case):
        spread = _standard_error(durations, _episode(case, len(durations))) * Z90 / time
        found["sampling"] = (1.0 - spread, 1.0 + spread)
    if case.scenario.variability.drawn_once:
        found["which are slow"] = _middle(durations, time)
    return found


def _random(case: Case) -> bool:
    """Whether steps that differ were drawn; those that a loader feeds in bursts need not be."""
    drawn = case.scenario.variability.random
    return drawn or case.feed is None or case.feed.made.random


def _staged(case: Case, played: Played) -> Causes:
    """By what factors a step may be off where pageable memory is copied at a rate that is assumed:
    who trains waits for that copy."""
    copied = case.programs.copied
    if copied is None or copied.memory != "pageable" or copied.staging is not None:
        return {}
    seconds = copied.staging_seconds(case.programs.samples_copied)
    found = []
    for factor in DOUBT:
        steps = [one + (factor - 1.0) * seconds for one in played.timeline.durations]
        fed = steps if case.feed is None else [case.feed.meal(steps).step]
        found.append(math.fsum(fed) / len(fed) / played.step_time)
    return {"staging (assumed)": (found[0], found[1])}


def _feeding_range(
    feed: Feed, played: Played, ends: tuple[float, float] | None = None
) -> tuple[float, float]:
    """By what factors a step may be off where its loader takes longer or shorter than is said."""
    low, high = ends or (LOADER if feed.made.loader is not None else RATE)
    steps = played.timeline.durations
    fast, slow = (feed.meal(steps, factor).step / played.step_time for factor in (low, high))
    return fast, slow


def _middle(durations: tuple[float, ...], time: float) -> tuple[float, float]:
    """What 90 % of the steps take, relative to `time`.  Each has another draw of what lasts for a
    run, so a real run lies as far from the mean as one step."""
    ordered = sorted(durations)
    beyond = len(ordered) // 20
    return min(ordered[beyond] / time, 1.0), max(ordered[-1 - beyond] / time, 1.0)


def _episode(case: Case, steps: int) -> int:
    """Of so many steps, those that share the draws of co-tenants or links: the most of any cause; 1
    without.  Steps of a turn of a loader's lines come in a burst, and what one begins late the next
    makes up for: as many whole turns as leave `GROUPS` groups go together."""
    whole = case.scenario.variability.expanded
    causes = (getattr(whole, name, None) for name in ("co_tenant", "link_episodes"))
    longest = max((cause.episode for cause in causes if cause), default=1)
    if case.feed is None:
        return longest
    turn = case.feed.turn
    return turn * max(-(-longest // turn), steps // (GROUPS * turn))


def _standard_error(values: tuple[float, ...], together: int = 1) -> float:
    """Standard error of the mean of `values`, of which `together` neighbours share their draws:
    that of independent groups of so many (batch means).  Fewer than two groups say nothing of how
    groups differ; the values then count one by one."""
    count = len(values) // together
    if count < 2:
        together, count = 1, len(values)
    used = values[len(values) - count * together :]
    means = [sum(used[k * together : (k + 1) * together]) / together for k in range(count)]
    mean = sum(means) / count
    variance = sum((v - mean) ** 2 for v in means) / (count - 1)
    return math.sqrt(variance / count)
