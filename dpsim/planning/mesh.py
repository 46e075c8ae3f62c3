"""The best mesh: how a scenario's ranks should split its model, and why not otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from dpsim.cases.case import Case
from dpsim.core import told
from dpsim.core.record import Refused
from dpsim.planning import mesh_times
from dpsim.planning.bench import Bench
from dpsim.planning.finding import Finding, Miss, Missed, Tried, checked, marked, nearest
from dpsim.planning.mesh_search import MeshSearch, Searched, TimedMesh
from dpsim.planning.mesh_space import MeshSetting, MeshSpace
from dpsim.planning.mesh_wanted import MeshLimits
from dpsim.planning.search import holds
from dpsim.planning.wanted import Wanted
from dpsim.predict.document import Keyed, Spread
from dpsim.predict.meeting import HARDLY
from dpsim.predict.memory import WAITED
from dpsim.predict.point import Change, Failed, Point
from dpsim.predict.programs import ratio_interval

#: meshes that are told beside the best
RUNNERS_UP = 3
#: the parts of a step
PARTS = ("compute_s", "exposed_communication_s", "bubble_s", "stall_s")


@dataclass(frozen=True)
class WhichMesh(Keyed):
    """The question: what is chosen, for how many samples a step on how many ranks; `recompute` is
    what is tried of that key."""

    kind: str
    choose: str
    global_batch: int
    ranks: int
    recompute: Sequence[str]
    require: Sequence[str]
    at: Change


@dataclass(frozen=True)
class Looked(Keyed):
    """How many settings there are, and what became of them."""

    settings: int
    played: int
    slower_by_bound: int
    too_large: int
    refused: int


@dataclass(frozen=True)
class ChosenMesh(Keyed):
    """A mesh with its micro-batches, what it sets, and its point."""

    mesh: Annotated[dict[str, Any], Spread()]
    set: Change
    point: Tried


@dataclass(frozen=True)
class RunnerUp(Keyed):
    """Another mesh: by how much its step is longer than the best one's, between what that lies at
    90 %, whether that is beyond doubt, and which part of a step it is (the differences of all)."""

    chosen: Annotated[ChosenMesh, Spread()]
    slower: float
    slower_low: float
    slower_high: float
    beyond_error: bool
    because: str
    longer: dict[str, float]


@dataclass(frozen=True)
class BestMesh(Keyed):
    """The answer: the fastest mesh that is taken to fit, the fastest whose whole interval of memory
    fits, the next ones, and what was looked at."""

    best: Annotated[ChosenMesh, Spread()]
    objective: str
    value: float
    sure: ChosenMesh | None
    runners_up: Sequence[RunnerUp]
    searched: Looked


def choose_mesh(
    bench: Bench, wanted: Sequence[Wanted] = (), tell: told.Told = told.nobody
) -> Finding:
    """The mesh, micro-batches and recomputation with the shortest step at the scenario's ranks and
    global batch.

    Raises Refused where the scenario's strategy decides while it runs, or says who trains apart;
    where ranks have samples that it names; where points have nothing of what is `wanted`."""
    case = bench.case()
    _check(case)
    _check_wanted(bench, wanted)
    space, run = MeshSpace(case), case.scenario
    beside = run.failures, run.checkpoint, run.evaluation
    limits = MeshLimits(wanted, steps_only=all(one is None for one in beside))
    found = _searched(partial(MeshSearch, bench, space, RUNNERS_UP + 1, tell, limits), case)
    need, again = [str(one) for one in wanted], space.recomputes()
    question = WhichMesh("mesh", "parallel", case.global_batch, case.ranks, again, need, bench.at)
    told_about = _Told(bench, space, wanted)
    kept = [told_about.of(one.setting) for one in found.meshes()[: RUNNERS_UP + 1]]
    points = [one.point for one in kept]
    good = sorted((one for one in kept if one.point.usable and one.point.holds), key=_seconds)
    if not good:
        missed, notes = _none(found, points, told_about), _refusals(found)
        return Finding(question, points, wanted, infeasible=missed, notes=notes)
    sure = found.best(surely=True)
    answer = BestMesh(
        good[0],
        "step_time_s",
        _seconds(good[0]),
        told_about.sure(good[0], sure),
        [_runner_up(case, good[0], one) for one in good[1:]],
        _looked(found),
    )
    notes = _notes(found, answer, case) + _longer(told_about, found.meshes(), good)
    return Finding(question, points, wanted, answer, notes=notes)


def _searched(search: Callable[..., MeshSearch], case: Case) -> Searched:
    """What is found without pipelines that may wait for memory, where nobody has measured that they
    do not; with them where there is nothing else."""
    found = search(crowded=case.scenario.calibrate is not None).run()
    return search(crowded=True).run() if found.crowded and not found.timed else found


def _check(case: Case) -> None:
    """Refuse what has no answer, by name."""
    batch = case.batch
    if case.scenario.strategy.behaves or case.scenario.sites is not None:
        raise Refused("--choose parallel: is answered where all ranks train together in every step")
    if batch.per_rank:
        said = "names ranks of this mesh; leave it out to choose one, or give by_speed"
        raise Refused(f"--choose parallel: {said}", ("batch", "per_rank"))
    if (batch.by_speed or batch.rebalance) and case.global_batch % case.ranks:
        said = f"global batch {case.global_batch:,} is not a multiple of {case.ranks:,} ranks"
        key = "by_speed" if batch.by_speed else "rebalance"
        raise Refused(f"--choose parallel: {said}, as it has to be with {key}", ("batch", key))


def _check_wanted(bench: Bench, wanted: Sequence[Wanted]) -> None:
    """Refuse what points do not have, as far as the scenario's own one tells."""
    for one in wanted:
        if one.relative:
            said = "compares with another cluster; a mesh is chosen on this one"
            raise Refused(f"{one.option} {one.field}: {said}; require step_time_s or mfu")
    point = bench.point({}) if wanted else None
    if isinstance(point, Point):
        checked([point], wanted)


def _looked(found: Searched) -> Looked:
    played = len(found.timed) + found.missing
    return Looked(found.settings, played, found.bounded, found.too_large, found.refused)


@dataclass
class _Told:
    """Points of settings, as `dpsim run` predicts them."""

    bench: Bench
    space: MeshSpace
    wanted: Sequence[Wanted]

    def of(self, setting: MeshSetting) -> ChosenMesh:
        change = self.space.change(setting)
        point = marked(self.bench.point(change), self.wanted)
        return ChosenMesh(dataclasses.asdict(setting), change, point)

    def sure(self, best: ChosenMesh, found: TimedMesh | None) -> ChosenMesh | None:
        """The fastest that surely fits: the best itself, where it does."""
        if isinstance(best.point.point, Point) and best.point.point.memory.fits in ("yes", None):
            return best
        return None if found is None else self.of(found.setting)


def _seconds(one: ChosenMesh) -> float:
    found = one.point.point
    assert not isinstance(found, Failed)
    return found.step_time_s


def _runner_up(case: Case, best: ChosenMesh, other: ChosenMesh) -> RunnerUp:
    """What both meshes share moves both steps in the same direction, so only what it does to their
    ratio counts; each has an error of its own beside that."""
    first, after = best.point.point, other.point.point
    assert isinstance(first, Point)
    assert isinstance(after, Point)
    ratio = after.step_time_s / first.step_time_s
    low, high = ratio_interval(case, first.interval.causes, after.interval.causes)
    longer = {part: other.point[part] - best.point[part] for part in PARTS}
    because = max(longer, key=lambda part: longer[part])
    ends = ratio * low - 1.0, ratio * high - 1.0
    return RunnerUp(other, ratio - 1.0, *ends, ends[0] > 0, because, longer)


def _none(found: Searched, points: Sequence[Tried], told_about: _Told) -> Missed:
    """Why no mesh will do: what is wanted, memory, or why none is possible."""
    wanted = told_about.wanted
    if not points and found.nearest is not None:
        points = [told_about.of(found.nearest[1]).point]
    if points and all(one.usable for one in points):
        checked([one.point for one in points], wanted)
        return nearest(wanted, points)
    if not points and not found.too_large:
        raise Refused(f"--choose parallel: no mesh is possible: {found.why or 'there is none'}")
    value = found.least if found.too_large else None
    at = told_about.space.change(found.smallest) if found.smallest is not None else None
    misses = [
        Miss(str(one), one.field, one.limit, value, -one.margin({"memory_bytes": value}), at)
        for one in MeshLimits(wanted).of_memory
        if not holds(one.margin({"memory_bytes": value}))
    ]
    if not (misses and found.fitting):
        misses.insert(0, Miss("fits", "fits", None, value, None))
    return Missed(tuple(misses), "memory", points[0] if points else _unplayed(told_about.bench))


def _unplayed(bench: Bench) -> Failed:
    """What stands for the nearest mesh where none fits, so that none was played."""
    case = bench.case()
    topology = case.site.topology
    return Failed(
        ranks=case.ranks,
        nodes=None if topology is None else topology.nodes,
        global_batch=case.global_batch,
        error="no mesh fits in memory",
        set={},
    )


def _refusals(found: Searched) -> list[str]:
    """How many settings are refused, and the reason of most of them."""
    if not found.refused:
        return []
    most = found.reasons[found.why]
    share = "" if most == found.refused else f", {most:,} of them for this reason"
    return [f"{found.refused:,} of {found.settings:,} settings are refused{share}: {found.why}"]


def _longer(
    told_about: _Told, compared: Sequence[TimedMesh], good: Sequence[ChosenMesh]
) -> list[str]:
    """That the best is longer than what it was compared at, for links that were not shared."""
    mesh = good[0].mesh
    [found] = (one for one in compared if dataclasses.asdict(one.setting) == mesh)
    ratio = _seconds(good[0]) / found.seconds
    case = told_about.bench.case(good[0].set)
    if ratio <= HARDLY or mesh_times.affordable(case) or case.topology is None:
        return []
    return [
        "meshes were compared with links that communicators do not share, for it takes long to "
        f"play that for each; shared, the best takes {ratio:.2f} times as long, and others may "
        "be faster: sweep over those that are near"
    ]


def _notes(found: Searched, answer: BestMesh, case: Case) -> list[str]:
    notes = _refusals(found)
    if found.crowded:
        notes.append(
            f"{found.crowded:,} settings are taken not to fit whose memory may be full: published "
            f"{WAITED}"
        )
    batch = case.batch
    if batch.by_speed or batch.rebalance:
        key = "by_speed" if batch.by_speed else "rebalance"
        notes.append(f"batch.{key}: ranks that share a model have equal batches")
    close = [one for one in answer.runners_up if not one.beyond_error]
    if close:
        notes.append(
            f"{len(close)} of {len(answer.runners_up)} runners-up are no slower than the "
            "prediction can tell; measure them beside the first"
        )
    strategy = case.scenario.strategy
    if answer.searched.too_large and strategy.sharded and getattr(strategy, "no_sync", False):
        notes.append(
            "unsharded gradients wait for the last micro-batch (no_sync): with --set "
            "strategy.no_sync=false more meshes have room"
        )
    if case.scenario.calibrate is not None:
        notes.append(
            "calibrated on the mesh of the scenario: beside the keys above, `calibrate` would take "
            "the measured step as made with them; leave it out, or measure again (`dpsim sweep "
            "--grid` with these keys keeps the level that was found)"
        )
    if answer.sure is None:
        notes.append("no mesh fits over the whole interval of its memory")
    return notes
