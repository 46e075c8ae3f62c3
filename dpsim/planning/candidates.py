"""Candidates of a comparison: clusters or strategies, each predicted job by job at one point."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpsim.cases.case import Case
from dpsim.cases.variant import at_ranks
from dpsim.core import plugins
from dpsim.core.errors import SimulationError
from dpsim.core.overrides import asked_last, with_change
from dpsim.core.places import as_text
from dpsim.core.record import Refused
from dpsim.describe.jobs import Mix, MixedJob, read_mix, sources
from dpsim.describe.scenario import Loaded, load
from dpsim.planning.grid import Axes, Axis, Grid, as_vary, axes_of
from dpsim.planning.unswept import Unswept, known_ranks
from dpsim.predict.carried import carried, one_for_all, values_of
from dpsim.predict.level import Level, level_of
from dpsim.predict.lived import paused, warm_nodes
from dpsim.predict.numbers import failed
from dpsim.predict.player import step_time
from dpsim.predict.point import UNFIT, Causes, Change, Failed, Fits, Point, computed
from dpsim.predict.prediction import predict
from dpsim.predict.training_run import check, cost_of

#: candidates of one comparison
MOST = 100
#: the line of a bill that is for the devices themselves
DEVICES = "devices"
#: sections whose other keys belong to the plug-in that one key names
_PLUGINS = {"strategy.kind": "strategies", "collective.backend": "dpsim.backends"}


@dataclass(frozen=True)
class PlayedJob:
    """One job on one candidate, predicted.

    weight      as the file gives it
    point       what `dpsim run` says of the point
    beside      what an hour of all else than the devices costs [usd]
    efficiency  throughput per rank over that of one rank (one replica) alone on the machine
    """

    name: str
    weight: float
    case: Case
    point: Point
    beside: float
    efficiency: float | None

    @property
    def step_time(self) -> float:
        return self.point.step_time_s

    @property
    def longer(self) -> float:
        """How many times as long as its steps alone the training run takes, in the mean: with what
        goes before compression begins, gaps between epochs, evaluations and failures."""
        run = self.point.run
        alone = run.steps * self.step_time if run else 0.0
        return run.time_s / alone if run and alone > 0 else 1.0

    @property
    def paused(self) -> float:
        """The share of the training run that no step time makes longer."""
        return paused(self.case, self.point.run, self.point.life)

    @property
    def spare_nodes(self) -> int:
        """Nodes that are paid for beside those that train."""
        return warm_nodes(self.case)

    @property
    def paid(self) -> float:
        """Devices that are paid for: those of spare nodes too."""
        nodes = self.case.nodes or self.case.ranks
        return self.case.ranks * (nodes + self.spare_nodes) / nodes

    @property
    def causes(self) -> Causes:
        """What each cause of uncertainty does to the step time, at its two ends, relative to it."""
        return self.point.interval.causes


@dataclass(frozen=True)
class Candidate:
    """A cluster or a strategy, with its jobs; or the point that has no numbers."""

    name: str
    title: str
    jobs: tuple[PlayedJob, ...]
    several: bool = False
    failed: Failed | None = None
    warnings: tuple[str, ...] = ()

    @property
    def error(self) -> str:
        """Why it has no numbers; "" where it has some."""
        return self.failed.error if self.failed else ""

    @property
    def fits(self) -> Fits | None:
        """Whether all jobs fit in memory; None where a capacity is not known."""
        found = [job.point.memory.fits for job in self.jobs]
        worst: tuple[Fits | None, ...] = ("no", "unlikely", None, "likely", "yes")
        return next((one for one in worst if one in found), "yes")

    @property
    def usable(self) -> bool:
        """Whether it can be chosen: it has numbers, and fits."""
        return not self.error and self.fits not in UNFIT


@dataclass(frozen=True)
class Asked:
    """A candidate before it is played, with `notes` on what of the file was left out."""

    name: str
    mix: Mix
    notes: tuple[str, ...] = ()


# -- what is compared -----------------------------------------------------------------------------


def asked(names: Sequence[str | Path], sets: Sequence[str] = (), vary: Axes = ()) -> list[Asked]:
    """The candidates that files, bundled names and folders stand for, times the values of `vary`.

    Raises Refused where a file is not right.
    """
    files = [file for name in names for file in sources(name)]
    mixes = [read_mix(file, sets) for file in files]
    return varied(mixes, _labels([Path(file) for file in files]), vary)


def varied(mixes: Sequence[Mix], labels: Sequence[str], vary: Axes = ()) -> list[Asked]:
    """`mixes` under their `labels`, times the values of `vary`."""
    if not vary:
        found = [Asked(label, mix) for label, mix in zip(labels, mixes, strict=True)]
    else:
        with as_vary():
            axes = axes_of(vary)
            _ = Grid(tuple(axes))
        found = [
            replace(made, name=" ".join(filter(None, (label if len(mixes) > 1 else "", made.name))))
            for label, mix in zip(labels, mixes, strict=True)
            for made in _varied(mix, axes)
        ]
    if len(found) > MOST:
        raise Refused(f"{len(found)} candidates; at most {MOST} are compared")
    if not found:
        raise Refused("nothing to compare: give scenario files, bundled names or folders")
    return found


def _labels(files: Sequence[Path]) -> list[str]:
    """Short names, all different: the file's, with its folder's where two are alike."""
    names = [as_text(file.stem) for file in files]
    if len(set(names)) < len(names):
        names = [as_text(f"{file.parent.name}/{file.stem}").lstrip("/") for file in files]
    seen: dict[str, int] = {}
    for place, name in enumerate(names):
        seen[name] = seen.get(name, 0) + 1
        names[place] = name if seen[name] == 1 else f"{name} #{seen[name]}"
    return names


def _varied(mix: Mix, axes: Sequence[Axis]) -> Iterable[Asked]:
    """`mix` with every combination of the axes' values, called after them."""
    over = values_of(change for axis in axes for change in axis.changes)
    first, seen = mix.jobs[0].loaded, set()
    kinds = ("calibrate", "calibration") if first.scenario.calibrate else ()
    measured = [key for key in kinds if getattr(first.scenario, key)]
    told = [*one_for_all(first.scenario.price, over), *carried(measured, over, first.data)]
    for change in Grid(tuple(axes)):
        shown = _named(change)
        changed = [_changed(job, change, f"--vary {shown}") for job in mix.jobs]
        left = set(changed[0][1]).intersection(*(keys for _, keys in changed))
        name = _named({key: value for key, value in change.items() if key not in left})
        if name not in seen:  # values of a key that it leaves out make no difference
            seen.add(name)
            left_out = (note for _, keys in changed for note in keys.values())
            notes = dict.fromkeys((*left_out, *told))
            yield Asked(name, replace(mix, jobs=tuple(job for job, _ in changed)), tuple(notes))


def _named(change: Change) -> str:
    return " ".join(f"{key}={value}" for key, value in change.items())


def _changed(job: MixedJob, change: Change, shown: str) -> tuple[MixedJob, dict[str, str]]:
    """`job` with `change`, and the keys that were left out, with why: another kind of strategy or
    backend keeps of its section what it knows too."""
    loaded = job.loaded
    data = with_change(loaded.data, change, ("--vary",))
    try:
        for key, value in change.items():
            asked_last(data, key, value)
    except Refused as error:
        raise Refused(f"{shown}: {error}") from None
    left: dict[str, str] = {}
    for key, package in _PLUGINS.items():
        section, tag = key.split(".")
        if key in change and isinstance(data.get(section), dict):
            name = str(change[key])
            kept = {tag, *_keys(package, name)}
            for other in (f"{section}.{other}" for other in data[section] if other not in kept):
                left[other] = f"{other} is left out: {name} has no such key"
            data[section] = {k: v for k, v in data[section].items() if k in kept}
    try:
        again = load(data, loaded.base, job.name, origins=loaded.origins)
    except Refused as error:
        raise Refused(f"{shown}: {error}") from None
    changed = {
        key: f"{key}={value}"
        for key, value in change.items()
        if with_change(loaded.data, {key: value}, ("--vary",)) != loaded.data
    }
    if loaded.scenario.calibrate is not None:  # its level is that of the file as it stands
        made = replace(again, sets=loaded.sets)
        return replace(job, loaded=made, calibrated=job.calibrated or loaded), left
    return replace(job, loaded=replace(again, sets={**loaded.sets, **changed})), left


def _keys(package: str, name: str) -> set[str]:
    """The keys of plug-in `name`; none where there is no such plug-in, which loading refuses."""
    if name not in plugins.names(package):
        return set()
    return set(plugins.find(package, name).__dataclass_fields__)


# -- playing them ---------------------------------------------------------------------------------


def played(wanted: Asked, ranks: int | None = None) -> Candidate:
    """`wanted` with its jobs predicted, each at the last point of its sweep or at `ranks` ranks.

    What is wrong with the input is raised; a point that cannot be computed leaves its error.
    """
    jobs, notes = [], list(wanted.notes)
    for job in wanted.mix.jobs:
        try:
            made, said = _played(job, ranks)
        except (SimulationError, _NoNumber) as error:
            text = f"{job.name}: {error}" if wanted.mix.several else str(error)
            case = Case(_at(job.loaded, ranks).points[0], job.loaded.base)
            nothing = failed(case, text, {})
            return Candidate(wanted.name, wanted.mix.title, (), wanted.mix.several, nothing)
        jobs.append(made)
        notes += [f"{job.name}: {text}" if wanted.mix.several else text for text in said]
    return Candidate(
        wanted.name, wanted.mix.title, tuple(jobs), wanted.mix.several, warnings=tuple(notes)
    )


class _NoNumber(ValueError):
    """A point that has no number, for a reason that is no mistake in the file."""


def _played(job: MixedJob, ranks: int | None) -> tuple[PlayedJob, list[str]]:
    loaded = job.loaded
    single = _at(loaded, ranks)
    found = level_of(job.calibrated or loaded)
    _check(single)
    try:
        prediction = predict(single, found)
    except Refused as error:
        raise _NoNumber(str(error)) from None
    case, (point,) = prediction.outcomes[0].case, computed(prediction.points)
    made = PlayedJob(
        name=job.name,
        weight=job.weight,
        case=case,
        point=point,
        beside=_beside_devices(case, point),
        efficiency=_efficiency(case, point, found),
    )
    return made, list(prediction.warnings)


def _beside_devices(case: Case, point: Point) -> float:
    """Dollars of an hour that are not the devices': network, storage and electricity."""
    bill = cost_of(case, point)
    items = bill.items if bill else ()
    return float(sum(item.usd_per_hour for item in items if item.name != DEVICES))


def _check(loaded: Loaded) -> None:
    """Refuse what is wrong with the file rather than with the point: the machine, the model, the
    prices."""
    case = Case(loaded.points[0], loaded.base)
    try:
        _ = case.model, case.machine
        check(case)
    except Refused as error:
        raise loaded.located(error) from None


def _at(loaded: Loaded, ranks: int | None) -> Loaded:
    """`loaded` with one point: the last of its sweep, or the last with `ranks` ranks; where no
    point has so many, the last one is played on as many ranks."""
    chosen = len(loaded.points) - 1
    if ranks is not None:
        counts = [known_ranks(Case(point, loaded.base)) for point in loaded.points]
        alike = [place for place, count in enumerate(counts) if count == ranks]
        if not alike:
            change = {**loaded.changes[-1], "cluster.ranks": ranks}
            change.pop("cluster.nodes", None)
            return replace(Unswept.of(loaded).changed(change), origins=loaded.origins)
        chosen = alike[-1]
    point = loaded.points[chosen]
    scenario = replace(point, sweep=None, measured=None)
    changes = (loaded.changes[chosen],) if loaded.changes else ({},)
    return replace(loaded, scenario=scenario, points=(scenario,), changes=changes)


def _efficiency(case: Case, point: Point, found: Level | None) -> float | None:
    """Throughput per rank over that of the smallest machine that holds one replica; None where
    that has no number (backup workers, say)."""
    try:
        least = case.mesh.least
        if case.ranks == least:
            return 1.0
        alone = at_ranks(case, least)
        if found is not None and found.fit is not None:  # steps are off by something else there
            alone = found.fit.carrying(alone, case, alone)
        base = alone.global_batch / least / step_time(alone)
    except (Refused, SimulationError, ValueError, ZeroDivisionError):
        return None
    time = point.step_time_s
    own = case.global_batch / case.ranks / time if time > 0 else math.inf
    share = own / base
    return share if math.isfinite(share) else None
