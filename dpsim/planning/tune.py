"""The best settings of some knobs, and whether their gain is more than a prediction can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from dpsim.core import told
from dpsim.core.plugins import name_of
from dpsim.core.record import Refused
from dpsim.planning.bench import Bench
from dpsim.planning.finding import Finding, Tried
from dpsim.planning.grid import Axis, Grid, SweptKey, as_vary
from dpsim.planning.knobs import TRIED, knob_of, sensible, ways_of
from dpsim.planning.settings import Settings, axes_of, error_notes
from dpsim.planning.trials import WORKERS, starved
from dpsim.planning.wanted import Wanted, value_of
from dpsim.predict.document import Keyed, Spread
from dpsim.predict.point import Change, Failed
from dpsim.predict.uncertainty import efficiency_interval


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
class BestOfSome:
    """The best of some of the settings, and what it gains over now."""

    set: Change
    value: float | None
    gained: Annotated[Gain, Spread()]


@dataclass(frozen=True)
class BestSetting(Keyed):
    """The answer beside the scenario as it stands, and what all settings set, the best first.

    same_batch     the best at the present global batch, where `set` changes it
    same_learning  the best whose gradients are published to be learnt from as whole ones are, where
                   those of `set` are not
    """

    set: Change
    objective: str
    value: float | None
    point: Tried
    now: Tried
    gained: Annotated[Gain, Spread()]
    ranking: Sequence[Change]
    same_batch: BestOfSome | None
    same_learning: BestOfSome | None


def tune_axes(bench: Bench, keys: Sequence[str], texts: Sequence[str]) -> list[Axis]:
    """An axis for each of `keys`: as given in `texts`, else the values that are sensible for it."""
    axes = axes_of(texts)
    with as_vary():
        _ = Grid(tuple(axes))
    given = {axis.name: axis for axis in axes}
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
    if taken := [way for way in ways if _takes(bench, key, way)]:
        return Axis(key, tuple({key: way} for way in taken))
    knob = knob_of(scenario, key, "--tune")
    values = sensible(knob)
    if not values:
        raise Refused(f"--tune {key}: nothing says which values to try; give --vary {key}=v1,v2,…")
    settings = [knob.setting(knob.text(value, TRIED)) for value in values]
    accepted = [setting for setting in settings if _takes(bench, key, setting)]
    if not accepted:
        why = _refusal(bench, key, settings[0])
        said = f"none of {settings} is accepted ({settings[0]}: {why}); give --vary {key}=v1,v2,…"
        raise Refused(f"--tune {key}: {said}")
    return Axis(key, tuple({key: setting} for setting in accepted))


def _takes(bench: Bench, key: str, setting: Any) -> bool:
    return not _refusal(bench, key, setting)


def _refusal(bench: Bench, key: str, setting: Any) -> str:
    """Why `key` cannot be `setting`; "" where it can."""
    try:
        bench.scenario({key: setting})
    except Refused as error:
        return str(error)
    return ""


def tune(
    bench: Bench,
    axes: Sequence[Axis],
    wanted: Sequence[Wanted] = (),
    objective: str | None = None,
    tell: told.Told = told.nobody,
) -> Finding:
    """The settings of some keys, the best first, and what the best gains over now.

    objective   a field to minimise; None: the time to train, or where the scenario has no
                `training` the largest throughput
    """
    if objective is None and bench.scenario().training is not None:
        objective = "time_to_train_s"
    most, key = objective is None, objective or "throughput_per_s"
    asked = Settings(bench, axes, wanted, key)
    points, keys = asked.played([{}, *asked.grid], tell), [axis.name for axis in axes]
    ranked = sorted(
        (p for p in points if p.usable and p.holds and value_of(p, key) is not None),
        key=lambda p: (-1 if most else 1) * (value_of(p, key) or 0.0),
    )
    question = WhichSetting("tune", keys, key, most, asked.required, asked.vary, asked.at)
    notes = [*error_notes(points), *_starved_notes(keys, points)]
    if not ranked:
        return Finding(question, points, wanted, infeasible=asked.missed(points), notes=notes)
    best, now = (asked.tried(change, confirmed=True) for change in (ranked[0].set, {}))
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
        same_learning=_same_learning(bench, now, best, ranked, key, most),
    )
    notes += _tune_notes(now, best, gained) + _learning_notes(bench, best)
    return Finding(question, points, wanted, answer, notes=notes)


def _starved_notes(keys: Sequence[str], points: Sequence[Tried]) -> list[str]:
    """That more workers hardly help, where nothing but them is tuned."""
    alone = keys == [WORKERS]
    return list(starved([one.point for one in points if one.set], WORKERS)) if alone else []


def _same_batch(
    now: Tried, best: Tried, ranked: Sequence[Tried], key: str, most: bool
) -> BestOfSome | None:
    """The best setting at the present global batch, where `best` has another one."""
    batch = now.point.global_batch
    if best.point.global_batch == batch:
        return None
    found = next((p for p in ranked if p.point.global_batch == batch and p.set), None)
    if found is None:
        return None
    return BestOfSome(found.set, value_of(found, key), _gain(now, found, key, most))


def _same_learning(
    bench: Bench, now: Tried, best: Tried, ranked: Sequence[Tried], key: str, most: bool
) -> BestOfSome | None:
    """The best setting that is known to learn as whole gradients do, where `best` is not."""
    if _alike(bench, best) is None:
        return None
    found = next((p for p in ranked if _alike(bench, p) is None), None)
    if found is None:
        return None
    return BestOfSome(found.set, value_of(found, key), _gain(now, found, key, most))


def _alike(bench: Bench, tried: Tried) -> str | None:
    """The compression at a point that is not known to learn as whole gradients do; None: another,
    or none."""
    scenario = bench.scenario(tried.set)
    codec, optimizer = scenario.compressed, scenario.optimizer.kind
    return None if codec is None or codec.learns_alike_with(optimizer) else name_of(codec)


def _learning_notes(bench: Bench, best: Tried) -> list[str]:
    """That a ranking by speed leaves out what the best setting costs in learning."""
    kind = _alike(bench, best)
    if kind is None:
        return []
    return [
        f"settings are ranked by speed, and {kind} changes what is learnt from a sample: nothing "
        "published bounds how many samples more it needs for the same loss"
    ]


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
    if not now.usable:
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
    if old is not None and new not in (old, None) and "time_to_train_s" not in best:
        notes.append(
            f"the global batch changes from {old:,} to {new:,}; "
            "what that does to convergence is counted only with training:"
        )
    return notes
