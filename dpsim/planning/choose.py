"""Searching over several keys: the cheapest cluster that meets a deadline, the best knobs.

`choose` plays a grid and picks the best point that meets all constraints, with the Pareto front of
time and cost; `tune` ranks settings of knobs, and says whether the best one's gain is more than the
prediction can tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from dpsim.core.record import Refused
from dpsim.planning.bench import Bench, any_relative
from dpsim.planning.finding import Finding, Missed, Tried, checked, marked, missed, nearest
from dpsim.planning.grid import Axis, Grid, SweptKey, as_vary, check, parse_axis
from dpsim.planning.knobs import TRIED, knob_of, sensible, ways_of
from dpsim.planning.search import pareto
from dpsim.planning.trials import limits
from dpsim.planning.wanted import Wanted, check_fields, value_of
from dpsim.predict.document import Keyed, Spread
from dpsim.predict.point import Change, Failed, Point
from dpsim.predict.uncertainty import efficiency_interval

#: what may be minimised by a short name
OBJECTIVES = {"cost": "cost_usd", "time": "time_to_train_s", "energy": "energy_kwh"}
#: settings that one plan plays at most
MOST_POINTS = 10_000
#: told how many points of how many have been played
Told = Callable[[int, int], None]


def grid_of_axes(bench: Bench, axes: Sequence[Axis]) -> Grid:
    """The product of `axes`, every value of which some point accepts."""
    with as_vary():
        grid = Grid(tuple(axes))
    if len(grid) > MOST_POINTS:
        raise Refused(f"--vary: {grid}; a plan plays at most {MOST_POINTS:,}, `dpsim sweep` more")
    with as_vary():
        check(grid, bench.scenario)
    return grid


def _axes(texts: Sequence[str]) -> list[Axis]:
    with as_vary():
        return [parse_axis(text) for text in texts]


# -- the best that meets all constraints ----------------------------------------------------------


@dataclass(frozen=True)
class WhichBest(Keyed):
    """The question: what is minimised, what is required, over which values; `front` names the two
    fields of which there is a front."""

    kind: str
    minimise: str
    require: Sequence[str]
    vary: Sequence[SweptKey]
    front: Sequence[str] | None
    at: Change


@dataclass(frozen=True)
class Sure:
    """The best point that meets everything over its whole 90 % interval."""

    set: Change
    value: float | None
    point: Tried


@dataclass(frozen=True)
class BestPoint(Keyed):
    """The answer, what is sure too, and what the points on the front set."""

    set: Change
    objective: str
    value: float | None
    point: Tried
    sure: Sure | None
    front: Sequence[Change]


def default_axis(bench: Bench) -> Axis:
    """Nodes (ranks, where the scenario has no nodes) by doubling, up to the machine's limit."""
    key = "cluster.ranks" if bench.scenario().cluster.machine is None else "cluster.nodes"
    _, high = limits(bench, knob_of(bench.scenario(), key, "--vary"))
    counts = [2**k for k in range(int(math.log2(high)) + 1)]
    return Axis(key, tuple({key: count} for count in counts))


def choose(
    bench: Bench,
    texts: Sequence[str],
    wanted: Sequence[Wanted],
    objective: str,
    tell: Told = lambda done, of: None,
) -> Finding:
    """The point of a grid with the least `objective` (a field) that fits and meets all `wanted`.

    texts   axes as ``KEY=V1,V2,…``; the cluster's size is one of them, by doubling if not given
    """
    axes = _axes(texts)
    if not any(axis.name in ("cluster.nodes", "cluster.ranks") for axis in axes):
        axes.append(default_axis(bench))
    grid = grid_of_axes(bench, axes)
    relative = any_relative([objective, *(one.field for one in wanted)])
    points, other = _front(_played(bench, list(grid), wanted, objective, relative, tell), objective)
    question = WhichBest(
        "choose",
        objective,
        [str(one) for one in wanted],
        vary=[axis.listed for axis in axes],
        front=("time_to_train_s", other) if other else None,
        at=bench.beside(*(axis.name for axis in axes)),
    )
    notes, good = _error_notes(points), _best(points, objective, "holds")
    if good is None:
        return Finding(question, points, wanted, infeasible=_why(points, wanted), notes=notes)
    sure = _best(points, objective, "holds_sure")
    point = marked(bench.point(good.set, relative=relative, confirmed=True), wanted)
    answer = BestPoint(
        good.set,
        objective,
        value_of(point, objective),
        point,
        sure=Sure(sure.set, value_of(sure, objective), sure) if sure else None,
        front=[p.set for p in points if p.on_front],
    )
    return Finding(question, points, wanted, answer, notes=notes)


def _played(
    bench: Bench,
    changes: Sequence[Change],
    wanted: Sequence[Wanted],
    objective: str,
    relative: bool,
    tell: Told,
) -> list[Tried]:
    """The points of `changes`, marked; Refused where none has what is asked for."""
    points = []
    for place, change in enumerate(changes):
        points.append(marked(bench.point(change, relative=relative), wanted))
        tell(place + 1, len(changes))
    checked([one.point for one in points], wanted)
    sound = next(one.point for one in points if isinstance(one.point, Point))
    check_fields([objective], sound, "--minimise")
    return points


def _usable(one: Tried) -> bool:
    return isinstance(one.point, Point) and one.point.memory.fits is not False


def _best(points: Sequence[Tried], objective: str, flag: str) -> Tried | None:
    """The usable point with `flag` and the least objective; of equal ones the smaller cluster."""
    good = [
        p for p in points if _usable(p) and getattr(p, flag) and value_of(p, objective) is not None
    ]
    return min(good, key=lambda p: (value_of(p, objective), p.point.ranks), default=None)


def _front(points: list[Tried], objective: str) -> tuple[list[Tried], str | None]:
    """The points, marked where they are on the front of time and cost (or what else is minimised),
    and the second field; None where there is no time to train or nothing beside it."""
    usable = [p for p in points if _usable(p) and value_of(p, "time_to_train_s") is not None]
    known = [f for f in ("cost_usd", "energy_kwh") if usable and value_of(usable[0], f) is not None]
    other = objective if objective != "time_to_train_s" else next(iter(known), None)
    if not usable or other is None or any(value_of(p, other) is None for p in usable):
        return points, None
    chosen = pareto([(value_of(p, "time_to_train_s"), value_of(p, other)) for p in usable])  # type: ignore[misc]
    front = {id(usable[place]) for place in chosen}
    return [replace(p, on_front=id(p) in front) for p in points], other


def _why(points: Sequence[Tried], wanted: Sequence[Wanted]) -> Missed:
    """Why no point will do: what each constraint comes nearest to, and where all come nearest."""
    usable = [point for point in points if _usable(point)]
    if not usable:
        numbered = [one.point for one in points if isinstance(one.point, Point)]
        smallest = min(numbered, key=lambda point: point.memory.bytes)
        return replace(missed([Wanted("fits", True, 1.0)], smallest), binds="memory")
    alone = []
    for one in wanted:
        best = max(usable, key=one.margin)
        alone += [replace(miss, set=best.set) for miss in missed([one], best).misses]
    return replace(nearest(wanted, usable), alone=tuple(alone))


def _error_notes(points: Sequence[Tried]) -> list[str]:
    errors = [one.point.error for one in points if isinstance(one.point, Failed)]
    return [f"no number at {len(errors)} of {len(points)} points: {errors[0]}"] if errors else []


# -- knobs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WhichSetting(Keyed):
    """The question: which keys, what is to be small (or large), and over which values."""

    kind: str
    tune: Sequence[str]
    objective: str
    maximise: bool
    require: Sequence[str]
    vary: Sequence[SweptKey]
    at: Change


@dataclass(frozen=True)
class Gain:
    """How much better one point is than another: the gain, its ends at 90 %, and what either is
    uncertain by; None without numbers."""

    gain: float | None
    gain_low: float | None
    gain_high: float | None
    unsure_by: float | None


@dataclass(frozen=True)
class SameBatch:
    """The best setting at the present global batch."""

    set: Change
    value: float | None
    gained: Annotated[Gain, Spread()]


@dataclass(frozen=True)
class BestSetting(Keyed):
    """The answer beside the scenario as it stands, and what all settings set, the best first."""

    set: Change
    objective: str
    value: float | None
    point: Tried
    now: Tried
    gained: Annotated[Gain, Spread()]
    ranking: Sequence[Change]
    same_batch: SameBatch | None


def tune_axes(bench: Bench, keys: Sequence[str], texts: Sequence[str]) -> list[Axis]:
    """An axis for each of `keys`: as given in `texts`, else the values that are sensible for it."""
    given = {axis.name: axis for axis in _axes(texts)}
    keys = list(dict.fromkeys(key.strip() for key in keys if key.strip()))
    if not keys:
        raise Refused("--tune: name the keys, as in strategy.bucket_cap_mb,batch.accumulation")
    strange = next((name for name in given if name not in keys), None)
    if strange is not None:
        raise Refused(f"--vary {strange}: is not among the keys of --tune")
    return [given.get(key) or _usual(bench, key) for key in keys]


def _usual(bench: Bench, key: str) -> Axis:
    scenario = bench.scenario()
    ways, _ = ways_of(scenario, key, "--tune")
    if ways:
        return Axis(key, tuple({key: way} for way in ways))
    knob = knob_of(scenario, key, "--tune")
    values = sensible(knob)
    if not values:
        raise Refused(f"--tune {key}: nothing says which values to try; give --vary {key}=v1,v2,…")
    settings = [knob.setting(knob.text(value, TRIED)) for value in values]
    accepted = [setting for setting in settings if _takes(bench, key, setting)]
    if not accepted:
        raise Refused(f"--tune {key}: none of {settings} is accepted; give --vary {key}=v1,v2,…")
    return Axis(key, tuple({key: setting} for setting in accepted))


def _takes(bench: Bench, key: str, setting: Any) -> bool:
    try:
        bench.scenario({key: setting})
    except Refused:
        return False
    return True


def tune(
    bench: Bench,
    axes: Sequence[Axis],
    wanted: Sequence[Wanted] = (),
    objective: str | None = None,
    tell: Told = lambda done, of: None,
) -> Finding:
    """The settings of some keys, the best first, and what the best gains over now.

    objective   a field to minimise; None: the time to train, or where the scenario has no
                `training` the largest throughput
    """
    grid = grid_of_axes(bench, axes)
    relative = any_relative([objective or "", *(one.field for one in wanted)])
    if objective is None and bench.scenario().training is not None:
        objective = "time_to_train_s"
    most = objective is None
    key = objective or "throughput_per_s"
    points = _played(bench, [{}, *grid], wanted, key, relative, tell)
    ranked = sorted(
        (p for p in points if _usable(p) and p.holds and value_of(p, key) is not None),
        key=lambda p: (-1 if most else 1) * (value_of(p, key) or 0.0),
    )
    question = WhichSetting(
        "tune",
        [axis.name for axis in axes],
        key,
        maximise=most,
        require=[str(one) for one in wanted],
        vary=[axis.listed for axis in axes],
        at=bench.beside(*(axis.name for axis in axes)),
    )
    notes = _error_notes(points)
    if not ranked:
        return Finding(question, points, wanted, infeasible=_why(points, wanted), notes=notes)
    best, now = (
        marked(bench.point(change, relative=relative, confirmed=True), wanted)
        for change in (ranked[0].set, {})
    )
    gained = _gain(now, best, key, most)
    answer = BestSetting(
        best.set,
        key,
        value_of(best, key),
        point=best,
        now=now,
        gained=gained,
        ranking=[one.set for one in ranked],
        same_batch=_same_batch(now, best, ranked, key, most),
    )
    return Finding(question, points, wanted, answer, notes=notes + _tune_notes(now, best, gained))


def _same_batch(
    now: Tried, best: Tried, ranked: Sequence[Tried], key: str, most: bool
) -> SameBatch | None:
    """The best setting at the present global batch, where `best` has another one."""
    batch = now.point.global_batch
    if best.point.global_batch == batch:
        return None
    found = next((p for p in ranked if p.point.global_batch == batch and p.set), None)
    if found is None:
        return None
    return SameBatch(found.set, value_of(found, key), _gain(now, found, key, most))


def _gain(now: Tried, best: Tried, key: str, most: bool) -> Gain:
    """How much better `best` is.

    A cause moves both points in the same direction, so only what it does to their ratio counts.
    """
    old, new = value_of(now, key), value_of(best, key)
    before, after = now.point, best.point
    if not old or not new or isinstance(before, Failed) or isinstance(after, Failed):
        return Gain(None, None, None, None)
    ratio = new / old if most else old / new
    low, high = efficiency_interval(before.interval.causes, after.interval.causes)
    time, width = after.step_time_s, (after.interval.high - after.interval.low) / 2
    unsure = width / time if time else 0.0
    return Gain(ratio - 1.0, ratio * low - 1.0, ratio * high - 1.0, unsure)


def _tune_notes(now: Tried, best: Tried, gained: Gain) -> list[str]:
    """What keeps the best setting from being simply better."""
    gain, notes = gained.gain, []
    ends = f"{gained.gain_low or 0.0:+.1%} … {gained.gain_high or 0.0:+.1%}"
    if not _usable(now):
        notes.append("now the scenario has no number, or does not fit in memory")
    elif gain is not None and gain <= 0:
        notes.append("nothing that was tried is better than now")
    elif gain is not None and (gained.gain_low or 0.0) < 0:
        notes.append(
            f"the gain of {gain:.1%} is less than the prediction can tell: its 90 % interval is "
            f"{ends}; measure both"
        )
    elif gain is not None and gain < (gained.unsure_by or 0.0):
        notes.append(
            f"the gain of {gain:.1%} is smaller than what either step time is unsure by "
            f"(±{gained.unsure_by:.0%}); most of that moves both alike, which leaves {ends} for "
            "the gain"
        )
    old, new = now.point.global_batch, best.point.global_batch
    if old != new and "time_to_train_s" not in best:
        notes.append(
            f"the global batch changes from {old:,} to {new:,}; "
            "what that does to convergence is counted only with training:"
        )
    return notes
