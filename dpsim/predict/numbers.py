"""The numbers of one point, from how its case was played."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dpsim.cases.case import Case
from dpsim.compile.program import RECEIVE, Cast
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.models.compute import beyond_peak
from dpsim.models.memory import MemoryUse
from dpsim.predict import training_run
from dpsim.predict.bottleneck import bottleneck
from dpsim.predict.level import Level
from dpsim.predict.player import Played
from dpsim.predict.point import BesideStep, Change, Failed, Memory, Parts, Point, Sent
from dpsim.predict.recorded import measured_at
from dpsim.predict.startup import startup_of
from dpsim.predict.uncertainty import interval


def point_of(
    case: Case, played: Played, used: MemoryUse, found: Level | None, change: Change
) -> Point:
    """The point of `case`, which is not compared with any other yet."""
    time, cast = played.step_time, case.programs.asked
    if not time > 0:
        raise Refused(
            "a step takes no time: neither layers, optimizer nor network take any", ("model",)
        )
    bounds = interval(case, played, found.ranks if found else measured_at(case))
    split = played.timeline.mean_split()
    durations = sorted(played.timeline.durations)
    samples = case.global_batch * case.model.tokens
    point = Point(
        ranks=case.ranks,
        nodes=case.nodes,
        global_batch=case.global_batch,
        engine=played.engine,
        engine_reason=played.reason,
        step_time_s=time,
        interval=bounds,
        step_p50_s=durations[(len(durations) - 1) // 2],
        step_p99_s=durations[-1 - len(durations) // 100],
        throughput_per_s=samples / time,
        throughput_unit="tokens/s" if case.model.tokens > 1 else f"{case.model.sample}s/s",
        mfu=_mfu(case, time),
        parts=Parts(split.compute, split.exposed_communication, split.bubble, split.stall),
        sent=_sent(case, cast),
        memory=Memory(used.total, used.parts, used.fits),
        bound_s=_bound(case, cast, played),
        cost_usd_per_hour=None,
        bottleneck=bottleneck(case, played),
        beside_step=tuple(_beside(case)),
        set=change,
        speedup=None,
        efficiency=None,
        efficiency_low=None,
        efficiency_high=None,
    )
    return replace(training_run.priced(case, point), startup=startup_of(case))


def failed(case: Case | None, error: str, change: Change) -> Failed:
    """The point of `case` where there are no numbers; without a case nothing is known of it."""
    ranks, nodes, batch = (None, None, None) if case is None else _counts(case)
    return Failed(ranks=ranks, nodes=nodes, global_batch=batch, error=error, set=change)


def _counts(case: Case) -> tuple[int | None, int | None, int | None]:
    """Ranks, nodes and global batch, as far as they are known where `case` is refused."""
    try:
        return case.ranks, case.nodes, case.global_batch
    except (Refused, ValueError):
        cluster = case.scenario.cluster
    try:
        return *(case.site.asked if case.machine else (cluster.ranks, None)), None
    except (Refused, ValueError):
        return cluster.ranks, cluster.nodes, None


def _beside(case: Case) -> Iterator[BesideStep]:
    """What the strategy costs beside its steps.

    A collective over all ranks is costed on idle links."""
    if not case.mesh.plain:
        return
    for cost in case.scenario.strategy.beside(case.job(max(case.shares))):
        seconds = cost.seconds
        moved = cost.operation and case.ranks > 1 and not case.backend.ideal
        if moved and seconds is not None:
            world = tuple(range(case.ranks))
            seconds += case.costs.plan(cost.operation, world, cost.bytes).seconds
        yield BesideStep(cost.name, cost.per, seconds, cost.at_most)


def _mfu(case: Case, time: float) -> float | None:
    """Model FLOP utilisation: FLOP of forward and backward over what the devices could do."""
    if case.device is None or time <= 0 or not (flop := case.model.flop_per_sample()):
        return None
    assert case.pace.peak is not None
    share = flop * case.global_batch / (case.pace.peak * time)
    if share > beyond_peak(case.model, case.precision.compute):
        raise SimulationError(f"MFU of {share:.0%}: a step of {time} s is beyond the device's peak")
    return share


def _sent(case: Case, cast: Cast) -> Sent:
    """What a rank sends in a step, in the mean over all ranks.

    Ranks of one role send alike, or as their collective's mean (see `Plan.sent`)."""
    payload = padding = control = 0.0
    for role, program in enumerate(cast.programs):
        ranks = cast.members(role)
        share = len(ranks) / cast.ranks
        sends = [op for op in program.ops if not op.on_device and op.operation != RECEIVE]
        peers = {group: cast.peers(ranks[0], group) for group in {op.group for op in sends}}
        for op in sends:
            sent = share * case.costs.of(op, peers[op.group]).sent
            filling = sent * op.padding / op.bytes if op.bytes else 0.0
            padding += filling
            if op.control:
                control += sent - filling
            else:
                payload += sent - filling
    return Sent(payload, padding, control)


def _bound(case: Case, cast: Cast, played: Played) -> float:
    """The lower bound; of random steps no more than they took, for a few of them may begin with
    talk that belongs to the step before, and end before their own."""
    bound = lower_bound(case, cast)
    return min(bound, played.step_time) if case.scenario.variability.random else bound


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
