"""What a service does with its requests, as an answer: how much, how long, and what limits it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Several
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from dpsim._version import __version__
from dpsim.core import told
from dpsim.core.lean import dataclass
from dpsim.core.presented import Presented
from dpsim.core.record import Refused
from dpsim.predict.document import to_json
from dpsim.serving.assumed import assumptions
from dpsim.serving.described import LoadedService, loaded_service
from dpsim.serving.ends import Ends, ServedMeans, between_tokens, ends_of, means_of, paces
from dpsim.serving.fleet import Fleet, RankRecord
from dpsim.serving.pace import PARTS, StretchedPace
from dpsim.serving.scheduler import BLOCK
from dpsim.serving.service import Offered, machine_in_words, offered, played
from dpsim.serving.workload import counted, shared_evenly

SCHEMA_VERSION = 1
#: share of its time that an API server is busy from which on it is what limits
_FULL = 0.9
#: share of ranks' time in which requests wait from which on that is what limits
_HELD = 0.2
#: share of its time that a service still answers after the last request has come from which on it
#: does not keep up
_BEHIND = 0.5


@dataclass(frozen=True)
class RequestDelays:
    """A delay of all requests [s]: mean with the ends of its 90 % interval, and quantiles."""

    mean: float
    low: float
    high: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class RankUse:
    """What a rank did: steps (dummy ones among them), requests, tokens put out, and the mean and
    most of those that waited and ran, of its KV cache in use [1], and of preemptions."""

    steps: int
    dummy_steps: int
    requests: int
    output_tokens: int
    waiting_mean: float
    waiting_most: int
    running_mean: float
    running_most: int
    kv_use_mean: float
    kv_use_most: float
    preemptions: int


@dataclass(frozen=True)
class ServedPoint:
    """What one number of replicas does with its share of the load.

    gpus, nodes   how many the replicas take
    duration_s    from the first request to the last answer
    output_tokens_per_s_low, _high   ends of its 90 % interval
    asked_tokens_per_s  what requests ask for, where they come at a rate or from a file
    speedup       throughput over that of the fewest replicas whose share of the load is as much a
                  replica; efficiency: over the ratio of replicas.  None where arrivals limit
    ttft_s, tpot_s, latency_s   until the first token; between tokens after it, a mean for each
                  request; until the last
    queued_s      how much of the mean TTFT requests wait for seats, blocks, or room in a step
    limit         what keeps it from doing more: max_num_seqs, kv_blocks or max_num_batched_tokens
                  (requests wait for it), front_end, balancing, arrivals (it keeps up), or the
                  part of steps that takes most
    parts         shares of the time of steps
    held          shares of ranks' time in which the first that waits does so for what
    front_end_use share of its time that the busiest API server puts out tokens
    kv_tokens     tokens that a rank's KV cache holds
    weights_bytes, cache_bytes, beside_bytes   of a device's memory
    """

    replicas: int
    gpus: int
    nodes: int
    requests: int
    duration_s: float
    requests_per_s: float
    output_tokens_per_s: float
    output_tokens_per_s_low: float
    output_tokens_per_s_high: float
    asked_tokens_per_s: float | None
    speedup: float | None
    efficiency: float | None
    ttft_s: RequestDelays
    queued_s: float
    tpot_s: RequestDelays | None
    latency_s: RequestDelays
    limit: str
    parts: dict[str, float]
    held: dict[str, float]
    front_end_use: float
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_tokens: int
    weights_bytes: float
    cache_bytes: float
    beside_bytes: float
    ranks: tuple[RankUse, ...]


@dataclass(frozen=True)
class UnservedPoint:
    """A number of replicas that cannot serve, and why."""

    replicas: int
    error: str


@dataclass(frozen=True)
class ServingAnswer(Presented):
    """What `dpsim serve` answers: the service that was described last, fewer replicas with as much
    less to do before it."""

    schema_version: int
    dpsim_version: str
    name: str
    machine: str
    service: Mapping[str, Any]
    points: tuple[ServedPoint | UnservedPoint, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        return f"ServingAnswer({self.name}: {len(self.points)} points)"

    @property
    def document(self) -> dict[str, Any]:
        """Everything as plain data, in SI units."""
        found: dict[str, Any] = to_json(self)
        return found

    @property
    def point(self) -> ServedPoint | UnservedPoint:
        """What was described."""
        return self.points[-1]


def serve(
    source: str | Path | Mapping[str, Any],
    sets: Several[str] = (),
    *,
    scaling: bool = True,
    tell: told.Told = told.nobody,
) -> ServingAnswer:
    """Play the service that `source` (a file, a bundled name, plain data) describes.

    sets     keys to override, as "serving.replicas=4"
    scaling  also with 1, 2, 4, … replicas, each with as much less to do
    tell     is told how many requests are answered, of how many in all plays

    Raises Refused for what is not right or not modelled, also by the memory of the full service.
    """
    loaded = loaded_service(source, sets)
    try:
        points = _points(loaded, tell, scaling=scaling)
    except Refused as error:
        raise loaded.placed(error) from None
    answers = _compared(loaded, points)
    return ServingAnswer(
        SCHEMA_VERSION, __version__, loaded.name, machine_in_words(loaded), loaded.data, answers,
        tuple(assumptions(loaded)), tuple(_warnings(loaded, answers)),
    )  # fmt: skip


def _points(
    loaded: LoadedService, tell: told.Told, *, scaling: bool
) -> list[ServedPoint | UnservedPoint]:
    """The service, and fewer replicas before it; `tell` is told the answered requests of all."""
    wanted = loaded.service.serving.replicas
    counts = [2**k for k in range(wanted.bit_length()) if 2**k < wanted] if scaling else []
    offers = [*(_fewer(loaded, replicas) for replicas in counts), offered(loaded)]
    shares = [one.engine.replicas / wanted for one in offers if isinstance(one, Offered)]
    requests = counted(loaded.service.requests, loaded.base)
    plays = 1 if requests.concurrency is not None else 1 + len(paces())
    total = plays * sum(max(round(requests.count * share), 1) for share in shares)
    numbers = count(1)

    def answered() -> None:
        done = next(numbers)
        tell(done, max(done, total))

    tell(0, total)
    return [_point(loaded, one, wanted, answered) for one in offers]


def _fewer(loaded: LoadedService, replicas: int) -> Offered | UnservedPoint:
    """The service with fewer replicas."""
    try:
        return offered(loaded, replicas)
    except Refused as error:
        return UnservedPoint(replicas, str(error))


def _point(
    loaded: LoadedService, offer: Offered | UnservedPoint, wanted: int, answered: Callable[[], None]
) -> ServedPoint | UnservedPoint:
    """What `offer` does with its share of what the `wanted` replicas are asked."""
    if isinstance(offer, UnservedPoint):
        return offer
    replicas = offer.engine.replicas
    try:
        return point_of(loaded, replace(offer, answered=answered), replicas / wanted)
    except Refused as error:
        if replicas == wanted:
            raise
        return UnservedPoint(replicas, str(error))


def point_of(loaded: LoadedService, offer: Offered, share: float) -> ServedPoint:
    """What `offer` does with a `share` of the load."""
    service = loaded.service
    fleet = played(offer, service.requests, service.seed, loaded.base, share)
    served = fleet.served
    between = between_tokens(fleet)
    span = max(one.last for one in served)
    own = means_of(fleet)
    limit = limit_of(fleet, span)
    ends = _ends(loaded, offer, share, own, bound=limit)
    return ServedPoint(
        replicas=offer.engine.replicas,
        gpus=offer.engine.replicas * offer.engine.tensor,
        nodes=len(offer.nodes),
        requests=len(served),
        duration_s=span,
        requests_per_s=len(served) / span,
        output_tokens_per_s=own.tokens,
        output_tokens_per_s_low=ends.tokens[0],
        output_tokens_per_s_high=ends.tokens[1],
        asked_tokens_per_s=_asked(fleet),
        speedup=None,
        efficiency=None,
        ttft_s=_delays([one.first - one.came for one in served], ends.ttft),
        queued_s=own.queued,
        tpot_s=_delays(between, ends.tpot) if between else None,
        latency_s=_delays([one.last - one.came for one in served], ends.latency),
        limit=limit,
        parts=_parts(fleet.records),
        held=_held(fleet.records, span),
        front_end_use=_front_end(fleet, span),
        max_num_seqs=offer.most,
        max_num_batched_tokens=offer.budget,
        kv_tokens=offer.room.blocks * BLOCK,
        weights_bytes=offer.room.weights,
        cache_bytes=offer.room.cache,
        beside_bytes=offer.room.beside,
        ranks=tuple(_use(fleet, rank, span) for rank in range(len(fleet.ranks))),
    )


def _ends(
    loaded: LoadedService, offer: Offered, share: float, own: ServedMeans, *, bound: str
) -> Ends:
    """Ends of intervals around `own`, whose limit is `bound` (`dpsim.serving.ends`)."""
    requests, found = loaded.service.requests, []
    for factor in paces():
        if requests.concurrency is not None and bound != "front_end":
            found.append(own.stretched(factor))
            continue
        other = replace(offer, pace=StretchedPace(offer.pace, factor))
        found.append(means_of(played(other, requests, loaded.service.seed, loaded.base, share)))
    return ends_of(own, *found)


def _delays(found: Several[float], ends: tuple[float, float]) -> RequestDelays:
    values = np.array(found)
    p50, p90, p99 = map(float, np.quantile(values, [0.5, 0.9, 0.99]))
    return RequestDelays(float(values.mean()), *ends, p50, p90, p99)


def _asked(fleet: Fleet) -> float | None:
    """Tokens of answers that are asked for in a second; None where requests wait for answers, or
    there is but one."""
    last, count = fleet.asks[-1].arrival, len(fleet.asks)
    tokens = sum(one.answer for one in fleet.asks)
    return tokens * (count - 1) / count / last if last else None


def _use(fleet: Fleet, rank: int, span: float) -> RankUse:
    record, own = fleet.records[rank], fleet.ranks[rank]
    served = [one for one in fleet.served if one.rank == rank]
    return RankUse(
        steps=record.steps,
        dummy_steps=record.dummies,
        requests=len(served),
        output_tokens=sum(one.ask.answer for one in served),
        waiting_mean=record.waiting / span,
        waiting_most=record.most_waiting,
        running_mean=record.running / span,
        running_most=record.most_running,
        kv_use_mean=record.blocks / span / own.blocks,
        kv_use_most=record.most_blocks / own.blocks,
        preemptions=own.preempted,
    )


def _parts(records: Iterable[RankRecord]) -> dict[str, float]:
    """Shares of the time of all ranks' steps."""
    found = {name: sum(getattr(r.spent, name) for r in records) for name in PARTS}
    whole = sum(found.values())
    return {name: value / whole for name, value in found.items()}


def _held(records: Several[RankRecord], span: float) -> dict[str, float]:
    """Shares of all ranks' time in which requests waited, by what they waited for."""
    names = dict.fromkeys(name for record in records for name in record.held)
    whole = span * len(records)
    return {name: sum(r.held.get(name, 0.0) for r in records) / whole for name in names}


def _front_end(fleet: Fleet, span: float) -> float:
    return max(busy for place in fleet.busy for busy in place) / span


def limit_of(fleet: Fleet, span: float) -> str:
    """What keeps the service from doing more."""
    if _front_end(fleet, span) >= _FULL:
        return "front_end"
    held = _held(fleet.records, span)
    each = [sum(record.held.values()) / span for record in fleet.records]
    if max(each) >= _HELD and min(each) < 0.2 * max(each):
        return "balancing"
    if sum(held.values()) >= _HELD:
        return max(held, key=lambda name: held[name])
    last = fleet.asks[-1].arrival
    if last is not None and span - last < _BEHIND * span:
        return "arrivals"
    parts = _parts(fleet.records)
    return max(parts, key=lambda name: parts[name])


def _compared(
    loaded: LoadedService, points: Several[ServedPoint | UnservedPoint]
) -> tuple[ServedPoint | UnservedPoint, ...]:
    """`points` beside the first that serves as much a replica; those that keep up beside none, for
    they would put out more if more were asked."""
    wanted = loaded.service.serving.replicas
    requests = counted(loaded.service.requests, loaded.base)
    even = [
        one for one in points
        if isinstance(one, ServedPoint)
        and shared_evenly(requests, one.replicas / wanted)
    ]  # fmt: skip
    found: list[ServedPoint | UnservedPoint] = []
    for one in points:
        alike = len(even) > 1 and one in even
        if not isinstance(one, ServedPoint) or not alike or one.limit == "arrivals":
            found.append(one)
            continue
        base = even[0]
        each = base.asked_tokens_per_s if base.limit == "arrivals" else None
        times = one.output_tokens_per_s / (each or base.output_tokens_per_s)
        more = one.replicas / base.replicas
        found.append(replace(one, speedup=times, efficiency=times / more))
    return tuple(found)


def _warnings(loaded: LoadedService, points: Several[ServedPoint | UnservedPoint]) -> Iterable[str]:
    wanted = loaded.service.serving.replicas
    requests = counted(loaded.service.requests, loaded.base)
    if not all(shared_evenly(requests, one.replicas / wanted) for one in points):
        yield (
            f"{requests.concurrency or requests.count:,} requests are not shared evenly by "
            f"{wanted} replicas: no speed-up is told where a share would be rounded"
        )
    last = points[-1]
    if not isinstance(last, ServedPoint):
        return
    waits = {rank.waiting_mean for rank in last.ranks}
    if any(rank.preemptions for rank in last.ranks):
        total = sum(rank.preemptions for rank in last.ranks)
        yield f"{total:,} times a request lost its keys and values and was computed again"
    if len(waits) > 1 and max(waits) > 4 * (min(waits) + 1):
        yield "requests pile up on some ranks: balancing goes by requests, not by their tokens"
