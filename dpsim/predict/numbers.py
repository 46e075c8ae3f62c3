"""The numbers of one point, from how its case was played, each on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from dpsim.cases.case import Case
from dpsim.compile.program import RECEIVE, Cast
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.core.unknown import did_you_mean
from dpsim.models.compute import beyond_peak
from dpsim.models.memory import MemoryUse
from dpsim.predict import training_run
from dpsim.predict.bottleneck import bottleneck
from dpsim.predict.dealt import dealt_batches
from dpsim.predict.document import keys_of, to_json
from dpsim.predict.fed import fed_step
from dpsim.predict.level import Level
from dpsim.predict.memory import memory_of
from dpsim.predict.player import Played, play, play_once, steps_alone
from dpsim.predict.point import (
    Asynchrony,
    BesideStep,
    Change,
    Chosen,
    DealtBatch,
    Failed,
    FedStep,
    Interval,
    LocalRound,
    Memory,
    Parts,
    Point,
    Sent,
)
from dpsim.predict.recorded import measured_at
from dpsim.predict.rounds import round_of
from dpsim.predict.startup import startup_of
from dpsim.predict.uncertainty import interval


class Numbers:
    """The numbers of a played case, each worked out when it is asked for, and once.

    Those that stand in a point have their names there.

    found   the level of compute, where it was calibrated
    change  what the sweep sets here
    """

    def __init__(
        self, case: Case, played: Played, found: Level | None, change: Change | None = None
    ) -> None:
        self.case, self.played = case, played
        self.found, self.set = found, change or {}
        if not played.step_time > 0:
            raise Refused(
                "a step takes no time: neither layers, optimizer nor network take any", ("model",)
            )
        self.ranks, self.nodes, self.global_batch = case.ranks, case.nodes, case.global_batch
        self.engine, self.engine_reason = played.engine, played.reason
        self.step_time_s = played.step_time
        tokens = case.model.tokens
        self.throughput_per_s = self.global_batch * tokens / self.step_time_s
        self.throughput_unit = "tokens/s" if tokens > 1 else f"{case.model.sample}s/s"

    @property
    def _alike(self) -> bool:
        """Whether cases that differ in failures alone were played as one."""
        case = self.case
        known = case.scenario.failures is not None and case.scenario.engine != "auto"
        return known and play_once(case) is self.played

    @cached_property
    def interval(self) -> Interval:
        """Bounds of the step time."""
        if self.found is None and self._alike:
            return self.case.shared.known(_bounds, steps_alone(self.case))
        if self.found is None:
            return interval(self.case, self.played, measured_at(self.case))
        case, measured = self.case, self.found.reference(self.case)
        if measured.elsewhere(case):  # what other devices take tells the middle alone
            return interval(case, self.played, None)
        repeated = self.found.repeated(case, self.step_time_s)
        made_up = case.scenario.calibrate is not None and case.scenario.calibrate.synthetic
        return interval(
            case, self.played, measured.ranks,
            repeated=repeated,
            batches=measured.batches(case),
            changed=measured.changed(case),
            fitted=self.found.causes(case, self.step_time_s, repeated=repeated),
            linear=measured.linear(case),
            fullest=1 if made_up else max(self.found.counts),
        )  # fmt: skip

    @cached_property
    def _durations(self) -> list[float]:
        return sorted(self.played.durations)

    @property
    def step_p50_s(self) -> float:
        """Median of the steps that were played [s]."""
        return self._durations[(len(self._durations) - 1) // 2]

    @property
    def step_p99_s(self) -> float:
        """What 99 % of them take at most [s]."""
        return self._durations[-1 - len(self._durations) // 100]

    @cached_property
    def mfu(self) -> float | None:
        """Model FLOP utilisation."""
        return mfu_of(self.case, self.global_batch / self.step_time_s)

    @cached_property
    def parts(self) -> Parts:
        """What the step is made of."""
        split, meal = self.played.timeline.mean_split(), self.played.meal
        compute = split.compute + (meal.beside if meal else 0.0)
        stall = split.stall + (meal.wait if meal else 0.0)
        return Parts(compute, split.exposed_communication, split.bubble, stall)

    @property
    def input(self) -> FedStep | None:
        """How steps are fed."""
        return fed_step(self.case, self.played)

    @property
    def rebalancing(self) -> tuple[DealtBatch, ...] | None:
        """How samples were dealt while training ran."""
        return dealt_batches(self.case, self.step_time_s)

    @cached_property
    def sent(self) -> Sent:
        """What a rank sends."""
        return _sent(self.case, self.case.programs.asked)

    @cached_property
    def used(self) -> MemoryUse:
        """Memory of the busiest rank, as it is worked out."""
        return memory_of(self.case)

    @property
    def memory(self) -> Memory:
        """The same, as a point has it."""
        used = self.used
        return Memory(used.total, used.parts, used.low, used.high, used.fits)

    @cached_property
    def bound_s(self) -> float:
        """What no schedule of the same program is faster than [s]."""
        return _bound(self.case, self.case.programs.asked, self.played)

    @cached_property
    def bottleneck(self) -> str:
        """What limits the step."""
        return bottleneck(self.case, self.played)

    @property
    def asynchrony(self) -> Asynchrony | None:
        """What workers made of their time, where they decide while they run."""
        return None

    @cached_property
    def beside_step(self) -> tuple[BesideStep, ...]:
        """What the strategy costs beside its steps."""
        return tuple(_beside(self.case))

    @cached_property
    def round(self) -> LocalRound | None:
        """The round that the step is the mean of."""
        return round_of(self.case, self.played, self.parts)

    @cached_property
    def point(self) -> Point:
        """All of them, which are not compared with those of any other case yet."""
        own: dict[str, Any] = {name: getattr(self, name) for name in STAGED}
        own |= dict.fromkeys(LATER)
        point = Point(**own, set=self.set)
        return replace(training_run.priced(self.case, point), startup=startup_of(self.case))

    def chosen(self, columns: Sequence[str]) -> Chosen:
        """The point with these columns of it alone."""
        found = {key: self.column(key) for key in columns}
        head = {name: getattr(self, name) for name in HEAD}
        return Chosen(**head, columns=found)

    def column(self, key: str) -> Any:
        """What the point's JSON has under `key`, working out no more than that needs."""
        name = keys_of(Point)[key]
        held = getattr(self, name) if name in STAGED else getattr(self.point, name)
        whole = to_json(held)
        return whole[key] if isinstance(whole, dict) and key in whole else whole


def check_column(key: str) -> None:
    """Refuse a column that a point alone does not have."""
    known = [one for one, name in keys_of(Point).items() if name not in (*HEAD, *RELATIVE)]
    if key not in known:
        near = did_you_mean(key, known)
        raise Refused(
            f"--column {key}: no such column of a point alone; {near}{near and '; '}known: "
            f"{', '.join(known)}"
        )


#: fields that every point has anyway
HEAD = ("ranks", "nodes", "global_batch", "engine", "set")
#: fields that compare a point with others
RELATIVE = ("training_speedup", "speedup", "efficiency", "efficiency_low", "efficiency_high")
#: keys that ask for whole steps only, whatever these are made of
WHOLE = {*HEAD, "engine_reason", "step_time_s", "step_p50_s", "step_p99_s", "throughput_per_s",
         "throughput_unit", "mfu", "step_time_low_s", "step_time_high_s", "interval_causes",
         "memory_bytes", "memory_parts", "memory_low_bytes", "memory_high_bytes", "fits",
         "bound_s"}  # fmt: skip
#: fields of a point that are worked out from its case and how that was played
STAGED = (
    "ranks", "nodes", "global_batch", "engine", "engine_reason", "step_time_s", "interval",
    "step_p50_s", "step_p99_s", "throughput_per_s", "throughput_unit", "mfu", "parts", "sent",
    "memory", "bound_s", "bottleneck", "beside_step", "input", "rebalancing", "asynchrony", "round",
)  # fmt: skip
#: fields that are added to it, and have no value of their own until then
LATER = (*RELATIVE[1:], "cost_usd_per_hour")


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
            world = range(case.ranks)
            seconds += case.costs.plan(cost.operation, world, cost.bytes).seconds
        yield BesideStep(cost.name, cost.per, seconds, cost.at_most)


def mfu_of(case: Case, samples: float) -> float | None:
    """Model FLOP utilisation at so many samples a second: FLOP of forward and backward over what
    the devices could do."""
    if case.device is None or samples <= 0 or not (flop := case.model.flop_per_sample()):
        return None
    assert case.pace.peak is not None
    share = flop * samples / case.pace.peak
    if share > beyond_peak(case.model, case.precision.compute):
        raise SimulationError(
            f"MFU of {share:.0%}: {samples:,.4g} samples a second are beyond the devices' peak"
        )
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


def _bounds(steps: Case) -> Interval:
    """The interval of a case without failures."""
    return interval(steps, steps.shared.known(play, steps), measured_at(steps))


def _bound_of(case: Case, cast: Cast, rank: int, fastest: float) -> float:
    """The bound that `rank` alone sets [s]."""
    program = cast.program(rank)
    compute = sum(
        op.seconds * (fastest if op.scales else 1.0) for op in program.ops if op.on_device
    )
    streams: dict[str, float] = {}
    costs, concurrency = case.costs, case.backend.concurrency
    for op in program.ops:
        if not op.on_device and not op.control:
            cost = costs.of(op, cast.peers(rank, op.group)).seconds
            streams[op.stream] = streams.get(op.stream, 0.0) + cost / concurrency
    return max(compute, *streams.values()) if streams else compute


def _fastest(case: Case) -> float:
    """The smallest mean factor of any rank over the measured steps."""
    if not case.scenario.variability.varies:
        return 1.0
    request = case.plays()[0]
    total = sum(request.factors(step) for step in range(request.warmup, request.steps))
    return float(np.min(total)) / (request.steps - request.warmup)
