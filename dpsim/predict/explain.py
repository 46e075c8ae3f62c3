"""Explanations: the operations of a step, its critical path, and what changes would bring."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dpsim.cases.case import Case
from dpsim.cases.plays import Stretch
from dpsim.cases.variant import Variant, without_communication
from dpsim.compile.critical import critical_path
from dpsim.compile.schedules import peak_in_flight
from dpsim.compile.timeline import after_input
from dpsim.core import told
from dpsim.core.record import Refused
from dpsim.describe.sections import Batch
from dpsim.machines.devices import SOCKETS
from dpsim.predict.blame import affordable, blame, without
from dpsim.predict.compressed import compression_gain
from dpsim.predict.cures import cures, with_spares
from dpsim.predict.explanation import Explained, Explanation, Launched, Operation, WhatIf
from dpsim.predict.feeding import better_fed
from dpsim.predict.library_kernels import better_kernels, has_already
from dpsim.predict.memory import memory_of
from dpsim.predict.player import Played, step_time
from dpsim.predict.point import Failed, Point
from dpsim.predict.prediction import Prediction
from dpsim.predict.symmetry import symmetry

MAX_OPERATIONS = 10_000
#: steps over which a what-if is compared with now, where anything is random
PAIRED_STEPS = 8
QUIET = "no stragglers"
#: by whether a device then has room for all
UNLOADED = {True: "no offloading", False: "no offloading (would not fit)"}


def explain(prediction: Prediction, tell: told.Told = told.nobody) -> Explanation:
    """The prediction's answer with, per point, operations, orders, buckets, critical path and
    what-ifs.  Points without a number keep their error."""
    points: list[Explained | Failed] = []
    for one in told.counted(prediction.outcomes, tell):
        if isinstance(one.point, Failed):
            points.append(one.point)
        else:
            assert one.played is not None
            points.append(_explained(one.case, one.played, one.point))
    return Explanation(prediction.answer, tuple(points))


def _explained(case: Case, played: Played, point: Point) -> Explained:
    step = played.timeline.last
    program = step.cast.programs[0]
    critical = step.critical_rank()
    ranks = tuple(dict.fromkeys((critical, *range(step.cast.ranks))))
    keep = max(1, MAX_OPERATIONS // max(len(program.ops), 1))
    wait = played.meal.wait if played.meal else 0.0
    spans = after_input(step.spans(ranks[:keep]), wait)[:MAX_OPERATIONS]
    # workers that do not wait for each other have no one path that a step is made of
    path = () if played.acted else critical_path(step)
    return Explained(
        point,
        critical_rank=step.cast.rank_of(critical),
        operations=tuple(Operation.of(span) for span in spans),
        orders={
            str(step.cast.rank_of(rank)): step.cast.program(rank).order() for rank in ranks[:keep]
        },
        peak_in_flight=tuple(_in_flight(case)),
        buckets=tuple(Launched(*bucket) for bucket in program.buckets),
        critical_path=tuple(
            Operation.of(span)
            for span in (*after_input(path[:1], wait), *(span.later(wait) for span in path[1:]))
        ),
        what_if=tuple(what_if(case, played.step_time)),
        blame=blame(case, played.step_time),
        compression=compression_gain(case, point.run.steps if point.run else None),
        symmetry=symmetry(case),
    )


def what_if(case: Case, time: float) -> list[WhatIf]:
    """Step time under single changes, each by playing it again.

    Where anything is random, now and then are played over the same few steps with the same draws,
    and their ratio is what counts.
    """
    now = _short(case)
    result = []
    for name, then, samples in _changes(case, now):
        scale = 1.0 if name == QUIET else time / now if now > 0 else 0.0
        changed = then * scale  # without any randomness there is nothing to pair
        gain = samples * time / changed - 1.0 if changed > 0 else None
        result.append(WhatIf(name, changed, gain))
    return result


def _short(case: Case, stretch: Stretch | None = None, *, quiet: bool = False) -> float:
    return step_time(case, stretch=stretch, quiet=quiet, at_most=PAIRED_STEPS)


def _changes(case: Case, now: float) -> Iterator[tuple[str, float, float]]:
    """Name, the new step time, and samples per step relative to now, a step of `now` seconds."""
    host = case.scenario.host
    if case.ranks > 1:
        yield from _twice_the_bandwidth(case)
        yield "half the latency", _short(case, Stretch(latency=0.5)), 1.0
        yield "free communication", _short(without_communication(case)), 1.0
    doubled = _twice_the_batch(case.scenario.batch).of(case)
    if memory_of(doubled).holds or not memory_of(case).holds:
        yield "twice the batch", _short(doubled), 2.0
    yield "twice the compute speed", _short(case, Stretch(compute=0.5)), 1.0
    if case.scenario.variability.varies:
        yield QUIET, _quiet(case), 1.0
    if host.launch and not host.captured:
        captured = Variant("captured graphs", {"host": replace(host, captured=True)})
        yield captured.name, _short(captured.of(case)), 1.0
    if case.scenario.recompute != "none":
        kept = Variant("no recomputation", {"recompute": "none"}).of(case)
        if memory_of(kept).holds:
            yield "no recomputation", _short(kept), 1.0
    yield from _within_nodes(case, now)
    if (here := case.scenario.strategy.on_device()) is not case.scenario.strategy:
        back = Variant("no offloading", {"strategy": here}).of(case)
        yield UNLOADED[memory_of(back).holds], _short(back), 1.0
    yield from _kernels(case, now)
    for variant in better_fed(case):
        yield variant.name, _short(variant.of(case)), 1.0
    yield from _cures(case)


def _twice_the_bandwidth(case: Case) -> Iterator[tuple[str, float, float]]:
    """With all links twice as fast; where bytes go through the hosts' TCP, whose connections carry
    no more for that, with the links between nodes."""
    topology = case.topology
    port = topology.port if topology is not None and topology.nodes > 1 else None
    if port is None or port.kind not in SOCKETS:
        yield "twice the bandwidth", _short(case, Stretch(transfer=0.5)), 1.0
        return
    cluster = replace(case.scenario.cluster, inter_node_bandwidth=2.0 * port.bandwidth)
    wide = Variant("twice the bandwidth between nodes", {"cluster": cluster})
    yield wide.name, _short(wide.of(case)), 1.0


def _within_nodes(case: Case, now: float) -> Iterator[tuple[str, float, float]]:
    """With parameters that the ranks of a node share, where all ranks do, there is room, and that
    is faster: gathers then stay inside, and an all-reduce of shards crosses the network."""
    strategy, topology = case.scenario.strategy, case.topology
    whole = getattr(strategy, "shard", 0) is None and case.mesh.plain
    if not whole or topology is None or topology.nodes < 2 or topology.gpus < 2:
        return
    for one in strategy.changed("hybrid sharding", shard=topology.gpus):
        own = Variant(f"shard: {topology.gpus}", {"strategy": one.strategy}).of(case)
        with suppress(Refused):  # ranks that do not split into nodes
            if memory_of(own).holds and (made := _short(own)) < now:
                yield f"strategy.shard: {topology.gpus}, of a node", made, 1.0


def _kernels(case: Case, now: float) -> Iterator[tuple[str, float, float]]:
    """With kernels that its code may ask for, where the calibrated step did not have them."""
    for variant in better_kernels(case):
        with suppress(Refused):  # kernels that are not counted
            made = _short(variant.of(case))
            if not has_already(case, made / now):
                yield variant.name, made, 1.0


def _quiet(case: Case) -> float:
    """Step time if nothing varied; shares by speed would then be others."""
    if not (case.batch.by_speed or case.batch.rebalance):
        return _short(case, quiet=True)
    return _short(without(case, list(case.scenario.variability.causes)))


def _twice_the_batch(batch: Batch) -> Variant:
    twice: dict[str, Any] = {"global": (batch.global_ or 1) * 2}
    if batch.weak:
        per_rank = {rank: 2 * samples for rank, samples in (batch.per_rank or {}).items()}
        twice = {"per_device": (batch.per_device or 1) * 2, "per_rank": per_rank or None}
    if batch.follows:  # twice the micro-batches
        twice["per_device"] = batch.per_device
    twice |= {"by_speed": batch.by_speed, "rebalance": batch.rebalance}
    doubled = Batch(accumulation=batch.accumulation, **twice)
    return Variant("twice the batch", {"batch": doubled})


def _cures(case: Case) -> Iterator[tuple[str, float, float]]:
    """Without the slowest node, with samples by speed, and with spare nodes."""
    for variant in cures(case):
        other = variant.of(case)
        try:
            yield variant.name, _short(other), other.global_batch / case.global_batch
        except Refused:  # it cannot be trained so: a batch, a group or a mesh that does not fit
            continue
    for variant in with_spares(case):
        yield variant.name, _paired(case, variant.of(case)), 1.0


def _paired(case: Case, other: Case) -> float:
    """Step time of `other` as `_short(case)` would have it, over as many draws as time allows."""
    if not case.scenario.variability.random:
        return _short(other)
    steps = affordable(case)
    now = step_time(case, at_most=steps)
    return _short(case) * step_time(other, at_most=steps) / now if now > 0 else 0.0


def _in_flight(case: Case) -> list[int]:
    """Micro-batches (of one stage each) whose activations every rank keeps at once."""
    mesh = case.mesh
    if mesh.plain:
        return [1] * case.ranks
    rows = case.programs.layout.acts(case.batch.accumulation)
    peaks = [peak_in_flight(acts) for acts in rows]
    return [peaks[mesh.place(rank, "pipeline")] for rank in range(case.ranks)]
