"""A training run with failures: drawn runs of a point, and what is said of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from dpsim.cases.case import Case
from dpsim.core.arrays import Array
from dpsim.core.poisson import interval
from dpsim.core.record import Refused
from dpsim.life.abreast import live, live_each
from dpsim.life.best import best_interval
from dpsim.life.course import Course, Lives
from dpsim.life.failures import PRESETS, Interruptions
from dpsim.life.history import life_of
from dpsim.life.recoveries import Setting
from dpsim.life.saving import Checkpoint, Evaluation, StepsBetween, daly, young
from dpsim.life.spells import Life
from dpsim.money.usage import Usage, device_hours
from dpsim.predict.course import between_evaluations, checkpoint_bytes, course_of
from dpsim.predict.endless import check
from dpsim.predict.point import Point, RunCost, TrainingRun, WithFailures
from dpsim.predict.saved import Saved, SavedLevel

#: half the width of a 90 % interval, in standard deviations
_NORMAL = NormalDist()
_HALF = _NORMAL.inv_cdf(0.95)
#: standard deviations beyond the shortest and the longest drawn run that are told, in as many times
_AWAY, _SHOWN = 3.0, 41
#: interruptions that were counted below which a rate is hardly known
FEW = 10
#: interruptions of a run in which it is seen how much longer it takes at another rate
ENOUGH = 60


def lived(
    case: Case, point: Point, ideal: TrainingRun | None
) -> tuple[TrainingRun | None, WithFailures | None]:
    """The training run of `point` in the mean over runs with failures, and what these were like;
    `ideal` itself where the scenario has no failures.  Raises Refused, by name, where a run would
    have no end."""
    failures = case.scenario.failures
    if ideal is None:
        return None, None
    if failures is None:
        return _evaluated(case, point, ideal), None
    course = course_of(case, point, ideal.time_s)
    check(course)
    if case.scenario.checkpoint and case.scenario.checkpoint.every == "best":
        course = best_interval(course, point.step_time_s, failures.runs)
    drawn = live(course, failures.runs)
    times, mean = drawn.times, float(drawn.times.mean())
    many = float(drawn.failures.sum()) / len(times)
    life = _summary(case, point, ideal, course, drawn)
    run = replace(ideal, time_s=mean, device_hours=float(device_hours(case.ranks, mean)))
    stands = paused(case, run, life)
    low, high = _ends(point, times, _rate_known(case, course, mean, many), stands)
    return replace(run, low_s=low, high_s=high), life


def _evaluated(case: Case, point: Point, ideal: TrainingRun) -> TrainingRun:
    """`ideal` with its evaluations, where nothing breaks; none is held at its end."""
    asked = case.scenario.evaluation
    if asked is None or ideal.time_s <= 0:
        return ideal
    if isinstance(asked.every, StepsBetween):
        intervals = ideal.steps / asked.every.steps
    else:
        intervals = ideal.time_s / between_evaluations(asked, point.step_time_s) * (1.0 - 1e-12)
    more = max(math.ceil(intervals) - 1, 0) * asked.takes
    grows = [end / ideal.time_s if counted_in_time(asked) else 1.0
             for end in (ideal.low_s, ideal.high_s)]  # fmt: skip
    time = ideal.time_s + more
    return replace(ideal, time_s=time, low_s=ideal.low_s + more * grows[0],
                   high_s=ideal.high_s + more * grows[1],
                   device_hours=float(device_hours(case.ranks, time)))  # fmt: skip


def counted_in_time(asked: Evaluation) -> bool:
    """Whether evaluations come after so much time of steps: slower ones leave more of them."""
    return not isinstance(asked.every, StepsBetween)


def paused(case: Case, run: TrainingRun | None, life: WithFailures | None) -> float:
    """The share of a run that passes as it is said whatever a step takes: evaluations that come
    every so many steps."""
    asked = case.scenario.evaluation
    if asked is None or run is None or counted_in_time(asked) or run.time_s <= 0:
        return 0.0
    if life is not None:
        return life.badput.get("evaluation", 0.0)
    assert isinstance(asked.every, StepsBetween)
    return max(math.ceil(run.steps / asked.every.steps) - 1, 0) * asked.takes / run.time_s


def told(case: Case, point: Point) -> Life | None:
    """One drawn run of `point`, the first, from its beginning to its end; None where nodes are bad
    in part, which single runs are not told of."""
    life, failures = point.life, case.scenario.failures
    if life is None or failures is None or failures.bad is not None:
        return None
    course = course_of(case, point, life.ideal_s)
    if life.checkpoints is not None:
        saving = replace(course.saving, interval=life.checkpoints.every_s)
        course = replace(course, saving=saving)
    return life_of(course, 0)


def warm_nodes(case: Case) -> int:
    """How many spare nodes the job keeps, which are paid for, and compute nothing."""
    recovery = case.scenario.recovery
    return recovery.spares.warm if recovery and recovery.spares else 0


def with_warm(case: Case, use: Usage) -> Usage:
    """`use` with the warm nodes of the job.  Ports of switches are not counted anew."""
    nodes, warm = case.nodes or case.ranks, warm_nodes(case)
    if warm == 0:
        return use
    each, more = use.devices // nodes, (nodes + warm) / nodes
    nics = use.nics // nodes if use.nics else 0
    return replace(use, devices=use.devices + each * warm, nodes=use.nodes and use.nodes + warm,
                   nics=use.nics and use.nics + nics * warm, busy=use.busy / more)  # fmt: skip


def with_cost(
    life: WithFailures | None, run: TrainingRun | None, cost: RunCost | None
) -> WithFailures | None:
    """`life` with what a sample that was needed costs."""
    if life is None or run is None or cost is None:
        return life
    return replace(life, usd_per_useful_sample=cost.usd / run.samples)


# -- the answer -----------------------------------------------------------------------------------


def _rate_known(case: Case, course: Course, mean: float, many: float) -> tuple[float, float]:
    """By what factors runs are shorter and longer, in the mean, at the ends of the rate of
    interruptions where that was counted: a count tells a rate within its Poisson interval.  Of
    runs that are interrupted `many` times the first ENOUGH tell that."""
    failures = case.scenario.failures
    counted = failures.expanded.interruptions if failures else None
    if failures is None or counted is None:
        return 1.0, 1.0
    shortened = many > ENOUGH
    if shortened:
        course = replace(course, productive=course.productive * ENOUGH / many)
    factors, others = [1.0, 1.0], {}
    for place, end in enumerate(interval(counted.count)):
        longer = {"interruptions": counted.count / end}
        each = (one._replace(mtbf=one.mtbf * longer.get(one.name, 1.0)) for one in course.hazards)
        other = replace(course, hazards=tuple(each))
        with suppress(Refused):  # at that rate it would have no end; `warnings` tells of few counts
            check(other)
            others[place] = other
    if not others:
        return 1.0, 1.0
    drawn = live_each([*others.values(), *([course] if shortened else [])], failures.runs)
    if shortened:
        mean = float(drawn[-1].times.mean())
    for place, lives in zip(others, drawn, strict=False):
        factors[place] = float(lives.times.mean()) / mean
    return min(factors[0], 1.0), max(factors[1], 1.0)


def _ends(
    point: Point, times: Array, rate: tuple[float, float], stands: float
) -> tuple[float, float]:  # fmt: skip
    """The 90 % interval of a run: that of the step time, on which a share of the run that `stands`
    still does not depend, that of what is drawn, and that of the `rate` of interruptions.  They
    have nothing to do with each other, so their logarithms' squares add up."""
    mean = float(times.mean())
    bounds, step = point.interval, point.step_time_s
    ends = []
    for share, end, counted in ((0.05, bounds.low, rate[0]), (0.95, bounds.high, rate[1])):
        drawn = math.log(float(np.quantile(times, share)) / mean)
        known = math.log(stands + (1.0 - stands) * end / step) if end > 0 else 0.0
        sign = -1.0 if share < 0.5 else 1.0
        ends.append(mean * math.exp(sign * math.hypot(drawn, known, math.log(counted))))
    return ends[0], ends[1]


def _summary(
    case: Case, point: Point, ideal: TrainingRun, course: Course, drawn: Lives
) -> WithFailures:
    times = drawn.times
    p10, p50, p90 = (float(value) for value in np.quantile(times, (0.1, 0.5, 0.9)))
    counts = drawn.failures.mean(axis=0)
    by = case.scenario.training.by if case.scenario.training else None
    return WithFailures(
        ideal_s=ideal.time_s,
        p10_s=p10,
        p50_s=p50,
        p90_s=p90,
        spread_s=float(times.std(ddof=1)),
        goodput=drawn.goodput,
        badput=drawn.badput,
        drawn_runs=len(times),
        interruptions=float(counts.sum()),
        interruptions_by={
            name: float(count) for name, count in zip(drawn.names, counts, strict=True)
        },
        interruptions_per_day=float(drawn.failures.sum() / times.sum() * 86400.0),
        mtti_s=(mtti := _between(course, drawn)),
        checkpoints=_saved(case, point, course, mtti),
        in_time=None if by is None else in_time(point, times.tolist(), by),
        chances=chances(point, times.tolist()),
    )


def _between(course: Course, drawn: Lives) -> float:
    """Mean time between interruptions [s]: from what breaks, at the beginning; where parts go by
    their age, new ones break at another rate than in the mean, or something comes otherwise, as it
    was drawn."""
    count, times = float(drawn.failures.sum()), float(drawn.times.sum())
    if course.timed:
        return times / max(count, 1.0)
    return times / count if course.aging and count else 1.0 / course.rate


def _saved(case: Case, point: Point, course: Course, mtti: float) -> Saved | None:
    asked, saving = case.scenario.checkpoint, course.saving
    if asked is None or course.free:
        return None
    return Saved(
        every_s=saving.interval,
        steps=round(saving.interval / point.step_time_s),
        bytes=checkpoint_bytes(case, asked)
        if any(one.write is not None or one.read is not None for one in asked.parts)
        else None,
        pause_s=saving.pause,
        write_s=saving.pause + saving.write,
        restore_s=_restore(course),
        young_s=young(saving.cost, mtti),
        daly_s=daly(saving.cost, mtti),
        levels=tuple(
            SavedLevel(
                part.to, one.interval, round(one.interval / point.step_time_s), one.pause,
                one.pause + one.write,
            )
            for part, one in zip(asked.parts, course.levels, strict=True)
        ) if len(course.levels) > 1 else (),
    )  # fmt: skip


def _restore(course: Course) -> float:
    """Reading a checkpoint after one node broke [s]."""
    return next((one.restore for one in course.levels if (one.copies or 0.0) > 1),
                course.outages.failure.restore)  # fmt: skip


def in_time(point: Point, times: Sequence[float], by: float) -> float:
    """Probability that a run ends by `by`: each drawn one takes a factor longer, a lognormal cut
    in two at its median, so that it has the interval of the step time."""
    spreads = _spreads(point)

    def ended(time: float) -> float:
        if by <= 0:
            return 0.0
        distance = math.log(by / time)
        spread = spreads[distance > 0]
        return _NORMAL.cdf(distance / spread) if spread else float(distance >= 0)

    return sum(map(ended, times)) / len(times)


def chances(point: Point, times: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Times since the start [s], rising, and the probability that a run has ended by each, from
    next to nothing to nearly one; a single one where nothing is random."""
    low, high = _spreads(point)
    first, last = min(times) * math.exp(-_AWAY * low), max(times) * math.exp(_AWAY * high)
    grid = np.geomspace(first, last, _SHOWN) if first < last else [last]
    return tuple((float(time), in_time(point, times, time)) for time in grid)


def _spreads(point: Point) -> tuple[float, float]:
    """Standard deviations of the logarithm of a step, below and above its median."""
    bounds, step = point.interval, point.step_time_s
    low, high = (
        abs(math.log(end / step)) / _HALF if end > 0 else 0.0 for end in (bounds.low, bounds.high)
    )
    return low, high


def warnings(cases: Sequence[Case]) -> list[str]:
    """What to know about runs with failures."""
    found: list[str] = []
    for case in cases:
        failures = case.scenario.failures
        if failures is None:
            continue
        if failures.preset:
            source = PRESETS[failures.preset].source
            found.append(f"failures: {source}; the same rate is taken here")
        found += _thin(failures.expanded.interruptions)
        found += _lost(case.scenario.checkpoint)
        if case.scenario.recovery is None or case.scenario.recovery.repair is None:
            found.append("failures: a broken node's place is taken at once; see recovery.spares")
        if case.nodes != 1 and _goes_on_with_fewer(case):
            held = "shrinks with them" if case.scenario.batch.weak else "is shared by fewer ranks"
            found.append(
                f"recovery: while nodes are away the global batch {held}; what that does to the "
                "learning rate and to how many samples are needed is not modelled"
            )
        if case.scenario.startup is None:
            found.append("failures: going on takes no start-up; say what it takes in startup")
    return list(dict.fromkeys(found))


def _thin(counted: Interruptions | None) -> list[str]:
    """That a rate is hardly known."""
    if counted is None or counted.count >= FEW:
        return []
    low, high = interval(counted.count)
    return [
        f"failures: {counted.count} interruptions tell a rate within a factor of {high / low:.1f}: "
        "count longer, or take a published rate"
    ]


def _lost(asked: Checkpoint | None) -> list[str]:
    """That some failures take all checkpoints."""
    if asked is None or asked.mode == "free" or math.isinf(asked.parts[-1].survives):
        return []
    nodes = round(asked.parts[-1].survives)
    many = f"{nodes} nodes are lost at once" if nodes > 1 else "a node is lost"
    return [
        f"checkpoint: where {many} all checkpoints are, and the run starts from its beginning; add "
        "a level to: storage"
    ]


def _goes_on_with_fewer(case: Case) -> bool:
    recovery, nodes = case.scenario.recovery, case.nodes or case.ranks
    return (
        recovery is not None and nodes > 1 and recovery.usable(1, Setting(0.0, 0.0, 1.0, nodes)) > 0
    )
