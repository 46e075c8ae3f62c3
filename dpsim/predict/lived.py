"""A training run with failures: from a point's step, nodes and state to drawn runs, and back.

What `dpsim.life` has to know of a job is worked out here; it knows seconds, nodes and rates alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from dpsim.cases.case import Case
from dpsim.core.arrays import Array
from dpsim.core.record import Refused
from dpsim.life.abreast import live
from dpsim.life.course import Course, Lives, Outages
from dpsim.life.failures import PRESETS, Inventory, hazards
from dpsim.life.recoveries import Outage, Recovery, Setting, Spares
from dpsim.life.recoveries.restart import Restart
from dpsim.life.saving import Checkpoint, Saving, StepsBetween, daly, expected, young
from dpsim.machines.leaves import leaves
from dpsim.money.usage import device_hours
from dpsim.predict import startup
from dpsim.predict.point import Point, RunCost, Saved, TrainingRun, WithFailures

#: failures of a run beyond which it is refused: no run that anybody would wait for has as many
MOST_FAILURES = 100_000
#: probability of having enough nodes below which a job hardly ever runs
_HARDLY = 0.01
#: half the width of a 90 % interval, in standard deviations
_NORMAL = NormalDist()
_HALF = _NORMAL.inv_cdf(0.95)


def lived(
    case: Case, point: Point, ideal: TrainingRun | None
) -> tuple[TrainingRun | None, WithFailures | None]:
    """The training run of `point` in the mean over runs with failures, and what these were like;
    `ideal` itself where the scenario has no failures.  Raises Refused, by name, where a run would
    have no end."""
    failures = case.scenario.failures
    if ideal is None or failures is None:
        return ideal, None
    course = course_of(case, point, ideal.time_s)
    check(course)
    drawn = live(course, failures.runs)
    times, mean = drawn.times, float(drawn.times.mean())
    low, high = _ends(point, times)
    run = replace(ideal, time_s=mean, low_s=low, high_s=high,
                  device_hours=float(device_hours(case.ranks, mean)))  # fmt: skip
    return run, _summary(case, point, ideal, course, drawn)


def with_cost(
    life: WithFailures | None, run: TrainingRun | None, cost: RunCost | None
) -> WithFailures | None:
    """`life` with what a sample that was needed costs."""
    if life is None or run is None or cost is None:
        return life
    return replace(life, usd_per_useful_sample=cost.usd / run.samples)


# -- the course -----------------------------------------------------------------------------------


def course_of(case: Case, point: Point, productive: float) -> Course:
    """What all drawn runs of `point` have in common; `productive` are the seconds of its steps."""
    scenario = case.scenario
    failures, asked = scenario.failures, scenario.checkpoint
    assert failures is not None
    assert asked is not None
    recovery: Recovery = scenario.recovery or Restart()
    nodes = case.nodes or case.ranks
    saving, restore = _saving(case, asked, point.step_time_s), _restore(case, asked)
    setting = Setting(sum(startup.parts(case).values()), restore, point.step_time_s, nodes)
    _check_spares(recovery.spares, nodes)
    bad = failures.bad
    return Course(
        productive=productive,
        nodes=nodes,
        saving=saving,
        outages=Outages(
            Outage(0.0, setting.startup, 0.0),
            *(recovery.outage(event, setting) for event in ("failure", "swap", "growth")),
        ),
        hazards=tuple(hazards(failures, _inventory(case, nodes))),
        seed=scenario.seed,
        spares=recovery.spares or Spares(),
        repair=recovery.repair,
        selection=recovery.selection,
        bad=(bad.share, bad.factor) if bad else (0.0, 1.0),
        always=failures.during == "always",
    )


def _inventory(case: Case, nodes: int) -> Inventory:
    """How many there are of what breaks."""
    topology = case.topology
    if topology is None:
        return Inventory(nodes, case.ranks, None, None)
    switches = sum(leaf.number for leaf in leaves(topology)) if topology.nodes > 1 else 0
    return Inventory(nodes, case.ranks, topology.nodes * topology.nics, switches)


def state_bytes(case: Case) -> float:
    """What a checkpoint holds [B]: parameters, their fp32 copies where they are stored in 16 bit,
    and the optimizer's states in fp32: 14 bytes a parameter in 16 bit with Adam."""
    optimizer, stored = case.scenario.optimizer, case.precision.parameters
    width = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2}[stored]
    copies = 4 if width == 2 and optimizer.master_weights is not False else 0
    return float(case.model.parameters * (width + copies + 4 * optimizer.states))


def _size(case: Case, asked: Checkpoint) -> float:
    size = asked.bytes if asked.bytes is not None else state_bytes(case)
    if asked.storage is not None and 2 * size > asked.storage:
        raise Refused(
            f"the newest checkpoint and the one being written are {2 * size / 1e12:,.4g} TB, more "
            f"than {asked.storage / 1e12:,.4g} TB",
            ("checkpoint", "storage"),
        )
    return size


def _through_nics(case: Case, rate: float) -> float:
    """`rate` of a storage, or what the nodes' NICs let through [B/s]."""
    topology = case.topology
    if topology is None or topology.nodes == 1:
        return rate
    return min(rate, sum(one.number * one.below * one.fastest for one in leaves(topology)))


def _saving(case: Case, asked: Checkpoint, step: float) -> Saving:
    """The checkpoints of a run whose steps take `step` seconds; their interval is whole steps."""
    if asked.mode == "free":
        return Saving()
    every = asked.every
    assert every is not None
    size = _size(case, asked)
    steps = every.steps if isinstance(every, StepsBetween) else max(round(every / step), 1)
    if asked.write is None:
        written = asked.write_time or 0.0
    else:
        written = size / _through_nics(case, asked.write)
    if asked.mode == "sync":
        return Saving(steps * step, written)
    assert asked.staging is not None
    pause = size / (case.ranks * asked.staging)
    if written > steps * step:
        raise Refused(
            f"a checkpoint is written in {written:,.4g} s, and the next one begins after "
            f"{steps * step:,.4g} s of steps: the storage does not keep up",
            ("checkpoint", "every"),
        )
    return Saving(steps * step, pause, written, asked.slowdown)


def _restore(case: Case, asked: Checkpoint) -> float:
    """Seconds until a checkpoint is read."""
    if asked.mode == "free":
        return 0.0
    if asked.read_time is not None:
        return asked.read_time
    rate = asked.read or asked.write
    if rate is None:
        return asked.write_time or 0.0
    return _size(case, asked) / _through_nics(case, rate)


# -- what has no end ------------------------------------------------------------------------------


def _check_spares(spares: Spares | None, nodes: int) -> None:
    for key in ("warm", "idle"):
        asked = getattr(spares, key) if spares else 0
        if asked > nodes:
            said = f"{asked:,} spare nodes of a job that has {nodes:,}"
            raise Refused(said, ("recovery", "spares", key))


def check(course: Course) -> None:
    """Refuse runs that would hardly ever end."""
    rate, saving = course.rate, course.saving
    mtti = 1.0 / rate if rate > 0 else math.inf
    restart = course.restart if course.always else 0.0
    time = expected(course.productive, saving.interval if not course.free else 1e-3 * mtti,
                    saving.cost, restart, mtti)  # fmt: skip
    if time * rate > MOST_FAILURES:
        raise Refused(
            f"something breaks every {mtti:,.4g} s, going on takes {course.restart:,.4g} s, and "
            f"{min(saving.interval, course.productive):,.4g} s of steps lie between checkpoints: "
            f"a run would be interrupted {_many(time * rate)} times; at most {MOST_FAILURES:,} are "
            "accepted",
            ("failures",),
        )
    repair = course.repair
    if repair is not None and course.always:
        away = repair.automatic + repair.escalates * repair.manual
        share, factor = course.bad
        worse = 1.0 + share * (factor - 1.0)
        lost = sum(one.rate * one.nodes * (worse if one.nodes == 1 else 1.0)
                   for one in course.hazards)  # fmt: skip
        most = sum(course.pools[1:]) + len(course.speeds) - 1
        if _at_most(most, lost * away) < _HARDLY:
            raise Refused(
                f"{lost * away:,.4g} nodes are away at a time in the mean, and {most:,} are spare: "
                "the job would hardly ever have all of its nodes",
                ("recovery", "spares"),
            )


def _many(count: float) -> str:
    return f"{count:,.0f}" if count < 1e12 else "countless"


def _at_most(most: int, mean: float) -> float:
    """Probability that a Poisson number of mean `mean` is at most `most`."""
    if mean > 1e4:  # as a normal number
        return _NORMAL.cdf((most + 0.5 - mean) / math.sqrt(mean))
    logs = (k * math.log(mean) - mean - math.lgamma(k + 1) for k in range(most + 1)) if mean else ()
    return min(math.fsum(map(math.exp, logs)), 1.0) if mean else 1.0


# -- the answer -----------------------------------------------------------------------------------


def _ends(point: Point, times: Array) -> tuple[float, float]:
    """The 90 % interval of a run: that of the step time and that of what is drawn, which have
    nothing to do with each other, so their logarithms' squares add up."""
    mean = float(times.mean())
    bounds, step = point.interval, point.step_time_s
    ends = []
    for share, end in ((0.05, bounds.low), (0.95, bounds.high)):
        drawn = math.log(float(np.quantile(times, share)) / mean)
        known = math.log(end / step) if end > 0 else 0.0
        sign = -1.0 if share < 0.5 else 1.0
        ends.append(mean * math.exp(sign * math.hypot(drawn, known)))
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
        mtti_s=1.0 / course.rate,
        checkpoints=_saved(case, point, course),
        in_time=None if by is None else _in_time(point, times.tolist(), by),
    )


def _saved(case: Case, point: Point, course: Course) -> Saved | None:
    asked, saving = case.scenario.checkpoint, course.saving
    if asked is None or course.free:
        return None
    mtti = 1.0 / course.rate
    return Saved(
        every_s=saving.interval,
        steps=round(saving.interval / point.step_time_s),
        bytes=_size(case, asked) if asked.write is not None or asked.read is not None else None,
        pause_s=saving.pause,
        write_s=saving.pause + saving.write,
        restore_s=course.outages.failure.restore,
        young_s=young(saving.cost, mtti),
        daly_s=daly(saving.cost, mtti),
    )


def _in_time(point: Point, times: Sequence[float], by: float) -> float:
    """Probability that a run ends by `by`: each drawn one takes a lognormal factor longer, by the
    interval of the step time."""
    low, high = point.interval.low, point.interval.high
    spread = math.log(high / low) / (2.0 * _HALF) if 0 < low < high else 0.0
    if spread == 0.0:
        return sum(time <= by for time in times) / len(times)
    return sum(_NORMAL.cdf(math.log(by / time) / spread) if by > 0 else 0.0
               for time in times) / len(times)  # fmt: skip


def warnings(cases: Sequence[Case]) -> list[str]:
    """What to know about runs with failures."""
    found: list[str] = []
    for case in cases[:1]:
        failures = case.scenario.failures
        if failures is None:
            continue
        if failures.preset:
            source = PRESETS[failures.preset].source
            found.append(f"failures: {source}; the same rate is taken here")
        if case.scenario.recovery is None or case.scenario.recovery.repair is None:
            found.append("failures: a broken node's place is taken at once; see recovery.spares")
        if case.scenario.startup is None:
            found.append("failures: going on takes no start-up; say what it takes in startup")
    return found
