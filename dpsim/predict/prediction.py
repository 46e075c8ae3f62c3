"""Predictions: the answer, its interval, its bounds and its reasons."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsim._version import __version__
from dpsim.cases.case import Case
from dpsim.cases.coverage import notes
from dpsim.cases.stage_memory import cuts_that_fit
from dpsim.compile.program import RECEIVE, Cast
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.describe.measured import read_measured
from dpsim.describe.scenario import Loaded, to_data
from dpsim.describe.uneven import ranks_of
from dpsim.models.memory import Activations, MemoryUse, activations, in_flight_bytes, memory_use
from dpsim.models.section import below
from dpsim.predict import startup, training_run
from dpsim.predict.bottleneck import bottleneck
from dpsim.predict.level import Level, level
from dpsim.predict.player import EVENT_BUDGET, Played, cross_check, estimate, play
from dpsim.predict.recorded import measured_at, warnings_of
from dpsim.predict.scaling import laws
from dpsim.predict.uncertainty import efficiency_interval, interval
from dpsim.variability import PRESETS

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Prediction:
    """The whole answer.  `document` is what ``--json`` prints; `played` and `cases` are behind it
    (None where a point could not be computed)."""

    loaded: Loaded
    document: dict[str, Any]
    cases: tuple[Case, ...]
    played: tuple[Played | None, ...]
    level: Level | None = None
    memory: tuple[MemoryUse | None, ...] = field(default=())

    @property
    def points(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.document["points"]
        return found

    @property
    def step_time_s(self) -> float:
        """Step time of the first point [s]; its error if it has none."""
        point = self.points[0]
        if "error" in point:
            raise SimulationError(point["error"])
        return float(point["step_time_s"])

    def explain(self) -> dict[str, Any]:
        """Where the step goes and what would help (see `dpsim explain --json`)."""
        from dpsim.predict.explain import explain

        return explain(self)

    def _repr_html_(self) -> str:
        import pandas as pd

        keys = ("ranks", "step_time_s", "throughput_per_s", "efficiency", "bottleneck")
        html: str = pd.DataFrame([{k: p.get(k) for k in keys} for p in self.points]).to_html()
        return html


def predict(loaded: Loaded, found: Level | None = None) -> Prediction:
    """The prediction of `loaded`; a refusal names the file and line at fault.

    `found` is the level of compute where it is known already: a sweep calibrates once."""
    try:
        return _predict(loaded, found)
    except Refused as error:
        raise loaded.located(error) from None


def _predict(loaded: Loaded, found: Level | None) -> Prediction:
    """Play every point of `loaded`.  Raises Refused where no point can be computed for a reason
    that lies in the input; a single point that cannot be computed carries its `error`."""
    cases = tuple(Case(point, loaded.base) for point in loaded.points)
    for case in cases[:1]:
        _ = case.model, case.machine  # what is wrong with these is wrong with all points
        training_run.check(case)
    if found is None and loaded.scenario.calibrate:
        found = level(cases[0], loaded.scenario.calibrate)
    if found is not None:
        cases = tuple(case.scaled(found.scale) for case in cases)
    points: list[dict[str, Any]] = []
    played: list[Played | None] = []
    memory: list[MemoryUse | None] = []
    budget = EVENT_BUDGET
    for case, change in zip(cases, loaded.changes, strict=True):
        try:
            budget, result = _play(case, budget)
            used = memory_of(case)
            point = _point(case, result, used, found)
            extra = {**training_run.fields(case, point), **startup.fields(case)}
            points.append({**point, **extra})
        except (Refused, SimulationError, ValueError) as error:
            if len(cases) == 1:
                raise _as_refusal(error) from None
            result, used = None, None
            points.append({**identity(case), "error": str(error)})
        points[-1]["set"] = change
        played.append(result)
        memory.append(used)
    if any(p and p.engine == "vectorised" and p.reason != "asked for" for p in played):
        cross_check(
            min((c for c, p in zip(cases, played, strict=True) if p), key=lambda c: c.ranks)
        )
    relate(points)
    document = _document(loaded, cases, points, memory, found)
    return Prediction(loaded, document, cases, tuple(played), found, tuple(memory))


def _as_refusal(error: Exception) -> Exception:
    return Refused(str(error)) if type(error) is ValueError else error


def _play(case: Case, budget: float) -> tuple[float, Played]:
    """Play `case`; `auto` uses the event engine as long as the run's budget lasts."""
    played = play(case, budget=budget)
    spent = estimate(case) if played.engine == "event" else 0.0
    return max(budget - spent, 0.0), played


def memory_of(case: Case) -> MemoryUse:
    """Memory of the busiest rank."""
    if not case.mesh.plain:
        found = (_stage_memory(case, row) for row in range(case.mesh.pipeline))
        return max(found, key=lambda use: use.total)
    if len(case.devices) == 1:
        return _memory_of(case, max(case.shares), 0)
    uses = [_memory_of(case, samples, kind) for samples, kind in case.parts]
    return max(uses, key=lambda use: use.total / use.capacity if use.capacity else use.total)


def _memory_of(case: Case, samples: int, kind: int) -> MemoryUse:
    """Memory of a rank with micro-batches of `samples` samples on the device number `kind`."""
    job = case.job(samples, kind=kind)
    own = activations(case.model, job.samples, case.precision.compute, case.scenario.recompute)
    return memory_use(case.scenario.strategy.memory(job), own.peak, case.devices[kind])


def _stage_memory(case: Case, row: int) -> MemoryUse:
    """Memory of a rank of pipeline rank `row`: all its stages, and the activations of the
    micro-batches that are in flight at once."""
    scenario, layout, samples = case.scenario, case.layout, max(case.shares)
    own: dict[int, Activations] = {}
    states: dict[str, float] = {}
    for stage in layout.held(row):
        job = case.stage_job(stage, samples)
        own[stage] = activations(job.model, job.samples, case.precision.compute, scenario.recompute)
        for name, size in scenario.strategy.memory(job).items():
            states[name] = states.get(name, 0.0) + size
    acts = layout.acts(scenario.batch.accumulation)[row]
    return memory_use(states, in_flight_bytes(acts, own), case.device)


def identity(case: Case) -> dict[str, Any]:
    cluster = case.scenario.cluster
    ranks = cluster.ranks
    try:
        return {"ranks": case.ranks, "nodes": case.nodes, "global_batch": case.global_batch}
    except (Refused, ValueError):
        return {"ranks": ranks, "nodes": cluster.nodes, "global_batch": None}


def _point(case: Case, played: Played, used: MemoryUse, found: Level | None) -> dict[str, Any]:
    time = played.step_time
    bounds = interval(case, played, found.ranks if found else measured_at(case))
    split = played.timeline.mean_split()
    cast = case.asked
    durations = sorted(played.timeline.durations)
    tokens = case.tokens_per_sample > 1
    samples = case.global_batch * (case.tokens_per_sample if tokens else 1)
    return {
        **identity(case),
        "engine": played.engine,
        "engine_reason": played.reason,
        "step_time_s": time,
        "step_time_low_s": bounds.low,
        "step_time_high_s": bounds.high,
        "interval_causes": {name: list(ends) for name, ends in bounds.causes.items()},
        "step_p50_s": durations[(len(durations) - 1) // 2],
        "step_p99_s": durations[-1 - len(durations) // 100],
        "throughput_per_s": samples / time if time > 0 else None,
        "throughput_unit": "tokens/s" if tokens else f"{case.model.sample}s/s",
        "mfu": _mfu(case, time),
        "compute_s": split.compute,
        "exposed_communication_s": split.exposed_communication,
        "bubble_s": split.bubble,
        "stall_s": split.stall,
        **_traffic(case, cast),
        "memory_bytes": used.total,
        "memory_parts": used.parts,
        "fits": used.fits,
        "bound_s": lower_bound(case, cast),
        "cost_usd_per_hour": None,  # from the line items, see dpsim/predict/training_run.py
        "bottleneck": bottleneck(case, played),
        **_beside(case),
    }


def _beside(case: Case) -> dict[str, Any]:
    """What the strategy costs beside its steps: nothing, or `beside_step` with one entry each.

    A collective over all ranks is costed on idle links."""
    if not case.mesh.plain:
        return {}
    found = []
    for cost in case.scenario.strategy.beside(case.job(max(case.shares))):
        seconds = cost.seconds
        moved = cost.operation and case.ranks > 1 and not case.backend.ideal
        if moved and seconds is not None:
            world = tuple(range(case.ranks))
            seconds += case.costs.plan(cost.operation, world, cost.bytes).seconds
        entry = {"name": cost.name, "per": cost.per, "seconds": seconds, "at_most_s": cost.at_most}
        found.append(entry)
    return {"beside_step": found} if found else {}


def _strategy_notes(cases: Sequence[Case]) -> list[str]:
    """What strategies say of themselves, each sentence once per number of ranks."""
    found: dict[str, None] = {}
    for case in cases:
        if case.mesh.plain:
            for text in case.scenario.strategy.notes(case.job(max(case.shares))):
                found[f"{case.ranks} ranks: {text}"] = None
    return list(found)


def _mfu(case: Case, time: float) -> float | None:
    """Model FLOP utilisation: FLOP of forward and backward over what the devices could do."""
    if case.device is None or time <= 0 or not (flop := case.model.flop_per_sample()):
        return None
    assert case.peak is not None
    share = flop * case.global_batch / (case.peak * time)
    if share > 1:
        raise SimulationError(f"MFU of {share:.0%}: a step of {time} s is beyond the device's peak")
    return share


def _traffic(case: Case, cast: Cast) -> dict[str, float]:
    """Bytes that rank 0 sends in a step: payload, padding, control."""
    totals = {"payload": 0.0, "padding": 0.0, "control": 0.0}
    for op in cast.program(0).ops:
        if op.on_device or op.operation == RECEIVE:
            continue
        sent = case.costs.of(op, cast.peers(0, op.group)).sent
        padding = sent * op.padding / op.bytes if op.bytes else 0.0
        totals["control" if op.control else "payload"] += sent - padding
        totals["padding"] += padding
    return {
        "bytes_sent_per_rank": totals["payload"],
        "padding_bytes_per_rank": totals["padding"],
        "control_bytes_per_rank": totals["control"],
    }


def lower_bound(case: Case, cast: Cast) -> float:
    """No schedule of this program is faster: its compute alone, or its busiest communicator (if it
    runs several collectives at once, as if they never shared a link).

    Where ranks vary, the compute of the fastest rank counts.
    """
    fastest = _fastest(case)
    roles = range(len(cast.programs))
    return max(_bound_of(case, cast, cast.members(role)[0], fastest) for role in roles)


def _bound_of(case: Case, cast: Cast, rank: int, fastest: float) -> float:
    """The bound that `rank` alone sets [s]."""
    program = cast.program(rank)
    compute = sum(
        op.seconds * (fastest if op.scales else 1.0) for op in program.ops if op.on_device
    )
    streams: dict[str, float] = {}
    for op in program.ops:
        if not op.on_device and not op.control:
            cost = case.costs.of(op, cast.peers(rank, op.group)).seconds
            streams[op.stream] = streams.get(op.stream, 0.0) + cost / case.backend.concurrency
    return max(compute, *streams.values()) if streams else compute


def _fastest(case: Case) -> float:
    """The smallest mean factor of any rank over the measured steps."""
    if not case.scenario.variability.varies:
        return 1.0
    request = case.plays()[0]
    total = sum(request.factors(step) for step in range(request.warmup, request.steps))
    return float(np.min(total)) / (request.steps - request.warmup)


def relate(points: list[dict[str, Any]]) -> None:
    """Speed-up and efficiency relative to the first point that has a throughput."""
    training_run.relate(points)
    base = next((p for p in points if p.get("throughput_per_s")), None)
    for point in points:
        if base is None or not point.get("throughput_per_s"):
            names = ("speedup", "efficiency", "efficiency_low", "efficiency_high")
            point.update({} if "error" in point else dict.fromkeys(names))
            continue
        point["speedup"] = point["throughput_per_s"] / base["throughput_per_s"]
        point["efficiency"] = point["speedup"] * base["ranks"] / point["ranks"]
        low, high = (1.0, 1.0) if point is base else _ratio(base, point)
        point["efficiency_low"] = point["efficiency"] * low
        point["efficiency_high"] = point["efficiency"] * high


def _ratio(first: dict[str, Any], point: dict[str, Any]) -> tuple[float, float]:
    return efficiency_interval(first["interval_causes"], point["interval_causes"])


def _document(
    loaded: Loaded,
    cases: tuple[Case, ...],
    points: list[dict[str, Any]],
    memory: list[MemoryUse | None],
    found: Level | None,
) -> dict[str, Any]:
    batch = loaded.scenario.batch
    weak = batch.weak
    usable = all(p.get("efficiency") is not None for p in points if "error" not in p)
    usable = usable and len({_apart_from_ranks(case) for case in cases}) == 1
    usable = usable and loaded.scenario.parallel.plain and len(cases[0].devices) == 1
    return {
        "schema_version": SCHEMA_VERSION,
        "dpsim_version": __version__,
        "name": loaded.name,
        "scenario": to_data(loaded.scenario),
        "scaling": "weak" if weak else "strong",
        "held_constant": _held_constant(loaded),
        "points": points,
        "laws": laws(cases, points, found is not None) if usable else {},
        "measured": _measured(loaded, cases, points, found),
        "calibration": found and dataclasses.asdict(found),
        "warnings": [
            *_altered(loaded),
            *_warnings(cases, points, memory, found),
            *_strategy_notes(_computed(cases, points)),
            *training_run.warnings(cases, points),
            *startup.warnings(_computed(cases, points)),
            *notes(_computed(cases, points), loaded.scenario.variability.spread),
        ],
    }


def _held_constant(loaded: Loaded) -> str:
    """What all points share: the batch of a rank, that of all, or, where the sweep sets the batch,
    the cluster (or nothing)."""
    batch = loaded.scenario.batch
    if not batch.weak and {point.batch.global_ for point in loaded.points} == {batch.global_}:
        return f"global batch of {batch.global_} samples"
    if any(point.batch != loaded.points[0].batch for point in loaded.points):
        same = all(point.cluster == loaded.points[0].cluster for point in loaded.points)
        return "the cluster" if same else "nothing"
    if batch.weak:
        return f"{batch.per_device or 1} samples per rank and micro-batch"
    return f"global batch of {batch.global_} samples"


def _apart_from_ranks(case: Case) -> str:
    """The scenario without its number of ranks: equal for all points of a scaling curve."""
    cluster = dataclasses.replace(case.scenario.cluster, ranks=1, nodes=None)
    return repr(dataclasses.replace(case.scenario, cluster=cluster))


def _measured(
    loaded: Loaded, cases: tuple[Case, ...], points: list[dict[str, Any]], found: Level | None
) -> list[dict[str, Any]]:
    """Measured points beside the predictions at the same count; the calibrated one is marked."""
    if loaded.scenario.measured is None or loaded.altered:
        return []
    result = []
    file = below(loaded.base, loaded.scenario.measured, "measured")
    for point in read_measured(file, "measured"):
        at = next(
            (
                (c, p)
                for c, p in zip(cases, points, strict=True)
                if c.ranks == point.ranks and "error" not in p
            ),
            None,
        )
        if at is None:
            continue
        case, predicted = at
        time = point.step_time(case.global_batch, case.tokens_per_sample, case.model.sample)
        calibrated = found is not None and found.ranks == point.ranks
        result.append(
            {
                "ranks": point.ranks,
                "step_time_s": time,
                "throughput_per_s": predicted["throughput_per_s"] * predicted["step_time_s"] / time,
                "error": predicted["step_time_s"] / time - 1.0,
                "inside_interval": _inside(time, predicted),
                "role": "calibrated" if calibrated else "predicted",
                "source": point.source,
            }
        )
    return result


def _altered(loaded: Loaded) -> list[str]:
    """Warnings where --set turned the scenario into another experiment than the measured one."""
    sets = ", ".join(f"--set {text}" for text in loaded.altered)
    warnings = []
    if sets and loaded.scenario.measured is not None:
        warnings.append(f"measured points are left out: {sets} changes what was measured")
    if sets and loaded.scenario.calibrate is not None and "calibrate" not in loaded.origins_set:
        warnings.append(f"calibrated on a measurement made without {sets}")
    network = [s for s in loaded.altered if s.startswith(("cluster.", "collective."))]
    if network and loaded.scenario.calibration and "calibration" not in loaded.origins_set:
        warnings.append(f"calibration: curves measured without --set {', --set '.join(network)}")
    return warnings


def _computed(cases: tuple[Case, ...], points: list[dict[str, Any]]) -> list[Case]:
    """The cases whose points have numbers."""
    return [case for case, point in zip(cases, points, strict=True) if "error" not in point]


def _inside(time: float, point: dict[str, Any]) -> bool:
    """Whether `time` lies in the point's interval, rounding apart."""
    low, high = point["step_time_low_s"], point["step_time_high_s"]
    return bool(low * (1 - 1e-9) <= time <= high * (1 + 1e-9))


def _warnings(
    cases: tuple[Case, ...],
    points: list[dict[str, Any]],
    memory: list[MemoryUse | None],
    found: Level | None,
) -> list[str]:
    warnings = []
    if found is None and cases[0].machine is not None and measured_at(cases[0]) is None:
        warnings.append("not calibrated: compute is assumed, not measured; see `calibrate:`")
    sound = next((c for c, p in zip(cases, points, strict=True) if "error" not in p), None)
    warnings.extend(warnings_of(sound) if sound else [])
    most = max((point["ranks"] or 0 for point in points), default=0)
    beyond = [r for r in cases[0].scenario.variability.slow_ranks or {} if r >= most]
    if beyond:
        warnings.append(f"variability.slow_ranks: no point has a rank {min(beyond)}")
    texts = cases[0].scenario.cluster.devices or {}
    unmet = [text for text in texts if min(span[0] for span in ranks_of(text)) >= most]
    if unmet:
        warnings.append(f"cluster.devices: no point has a rank of {unmet[0]}")
    hashed = {case.scenario.seed for case in cases if case.scenario.cluster.routing == "ecmp"}
    if len(hashed) == 1:
        warnings.append(
            f"cluster.routing: with seed {hashed.pop()} one draw of which flows collide; sweep "
            "over seed to see how much that is luck"
        )
    preset = cases[0].scenario.variability.preset
    if preset is not None:
        warnings.append(f"variability.preset {preset}: {PRESETS[preset].source}")
    batch = cases[0].scenario.batch
    if batch.by_speed or batch.per_rank:
        warnings.append(
            "uneven batches: where gradients are averaged over ranks, samples of a small batch "
            "count more, unless the loss is scaled by the rank's share of the samples"
        )
    if sound and sound.backup_workers:
        n, b = sound.ranks, sound.backup_workers
        warnings.append(
            f"backup workers: a step takes the first {n - b} of {n} gradients, and throughput "
            "counts their samples only"
        )
    for case, point, used in zip(cases, points, memory, strict=True):
        if "error" in point:
            warnings.append(f"{point['ranks']} ranks: {point['error']}")
        elif used is not None and used.fits is False:
            warnings.append(
                f"{point['ranks']} ranks: does not fit, {used.shortfall / 1e9:.1f} GB short of "
                f"{(used.capacity or 0) / 1e9:.1f} GB"
            )
            warnings.extend(f"{point['ranks']} ranks: {text}" for text in _other_stages(case))
    return warnings


def _other_stages(case: Case) -> list[str]:
    """That another cut into stages would fit, where one would."""
    for cut in () if case.mesh.plain else cuts_that_fit(case):
        scenario = dataclasses.replace(case.scenario, stages=cut)
        used = memory_of(Case(scenario, case.base, case.compute_scale))
        if used.fits:
            begins = ", ".join(stage[0] for stage in cut)
            return [f"other stages fit, with {used.total / 1e9:.1f} GB; they begin with {begins}"]
    return []
