"""How large can it be: the largest whole number that fits in memory, and what would raise it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from dpsim.core.record import Refused
from dpsim.planning.bench import Bench, MemoryNeed
from dpsim.planning.finding import Finding, Miss, Tried, checked, marked, nearest
from dpsim.planning.knobs import Knob
from dpsim.planning.mesh_space import divisors
from dpsim.planning.search import edge, holds, largest_whole, spaced
from dpsim.planning.trials import Trials
from dpsim.planning.wanted import Wanted
from dpsim.predict.document import Keyed, Spread
from dpsim.predict.point import Change, Failed


@dataclass(frozen=True)
class HowLarge(Keyed):
    """The question: which key, and what has to hold."""

    kind: str
    largest: str
    require: Sequence[str]
    at: Change


@dataclass(frozen=True)
class Raised:
    """A change with which more fits: the largest value then, and what else it costs."""

    set: Change
    value: int
    cost: str


@dataclass(frozen=True)
class Following:
    """The value after the largest one, and its memory."""

    value: int
    memory: Annotated[MemoryNeed, Spread()]


@dataclass(frozen=True)
class LargestValue(Keyed):
    """The answer, what memory is made of there and just after, and which changes would raise it."""

    key: str
    value: int
    limited_by: str
    memory: MemoryNeed
    following: Following | None
    raised_by: Sequence[Raised]
    point: Tried


@dataclass(frozen=True)
class NothingFits(Keyed):
    """Not even the smallest value fits: by how much, and what would make it fit."""

    misses: Sequence[Miss]
    binds: str
    at: Change
    memory: MemoryNeed
    raised_by: Sequence[Raised]


def largest(bench: Bench, knob: Knob, wanted: Sequence[Wanted] = ()) -> Finding:
    """The largest value of the whole-numbered `knob` that fits in memory and for which all that is
    `wanted` holds; with what memory is made of there, and which changes would raise it."""
    if not knob.whole:
        raise Refused(f"--largest {knob.key}: is no whole number; use --require fits --vary")
    follows = bench.scenario().batch.follows and not _divides(bench, knob)
    if knob.key.startswith("batch.") and follows:
        said = "divisors alone are accepted beside batch.global and batch.per_device"
        raise Refused(f"--largest {knob.key}: {said}; use --require fits --vary")
    capacity = bench.memory({}).capacity
    if capacity is None:
        raise Refused("--largest: without a machine nothing says how much memory there is")
    _check_growth(bench, knob)
    most, refused = _most(bench, knob, {})
    need = [str(one) for one in wanted]
    question = HowLarge("largest", knob.key, need, bench.beside(knob.key))
    if most is None:
        return Finding(question, [], infeasible=_nothing_fits(bench, knob, refused))
    trials, by = Trials(bench, knob, wanted), refused or "memory"
    if wanted:
        best, why = _under(trials, _upto(_values(bench, knob, {}), most))
        if best is None:
            infeasible = nearest(wanted, trials.points.values())
            return Finding(question, trials.marked(), wanted, infeasible=infeasible)
        most, by = (best, by) if best == most else (best, why)
    point, more = trials.play(str(most), confirmed=True), _next(bench, knob, most)
    following = _use(bench, {knob.key: more})
    answer = LargestValue(
        knob.key,
        most,
        limited_by=by,
        memory=bench.memory({knob.key: most}),
        following=Following(more, following) if following else None,
        raised_by=_raised(bench, knob, most) if by == "memory" else [],
        point=marked(point, wanted),
    )
    notes = [f"no number there: {point.error}"] if isinstance(point, Failed) else []
    return Finding(question, trials.marked() or [answer.point], wanted, answer, notes=notes)


def _use(bench: Bench, change: Change) -> MemoryNeed | None:
    """Memory with `change`; None where it is no point."""
    try:
        return bench.memory(change)
    except (Refused, ValueError):
        return None


def _divides(bench: Bench, knob: Knob) -> bool:
    """Whether what is asked for is a micro-batch of a global batch, which divides it."""
    return knob.key == "batch.per_device" and bench.scenario().batch.global_ is not None


def _values(bench: Bench, knob: Knob, extra: Change) -> Sequence[int]:
    """What is accepted, but for gaps that nobody knows: whole numbers from the smallest on, or what
    divides a replica's samples."""
    if _divides(bench, knob):
        case = bench.case({**extra, knob.key: 1})
        return divisors(case.global_batch // case.mesh.data)
    first = _first(bench, knob, extra)
    return range(first * knob.step, int(knob.high) + 1, knob.step)


def _upto(values: Sequence[int], most: int) -> Sequence[int]:
    """`values` up to `most`, which is one of them."""
    return values[: values.index(most) + 1]


def _next(bench: Bench, knob: Knob, value: int) -> int:
    """What is accepted after `value`, if anything is."""
    later = (one for one in _values(bench, knob, {}) if one > value)
    return next(later, value + knob.step)


def _last(fits: Callable[[int], bool], first: int, last: int) -> int | None:
    """The last number that `fits`, of a few that need not get worse one after the other: where more
    samples make one micro-batch, gradients need not wait for the next."""
    return next((n for n in range(last, first - 1, -1) if fits(n)), None)


def _most(bench: Bench, knob: Knob, extra: Change) -> tuple[int | None, str]:
    """The largest value that fits, and what else than memory ends it there, if anything does; None
    where not even the smallest fits."""
    said: dict[int, str] = {}

    def fits(number: int) -> bool:
        try:
            return bench.memory({**extra, knob.key: values[number - 1]}).fits
        except (Refused, ValueError) as error:
            said[number] = str(error)
            return False

    try:
        values = _values(bench, knob, extra)
    except Refused as error:
        return None, str(error)
    found = (_last if _divides(bench, knob) else largest_whole)(fits, 1, len(values))
    if found is None:
        return None, said.get(1, "")
    end = f"its largest accepted value, {values[-1]:,}" if found == len(values) else ""
    return values[found - 1], said.get(found + 1, end)


def _first(bench: Bench, knob: Knob, extra: Change) -> int:
    """The smallest number of steps that is accepted; the smallest of all where none is."""

    def refused(number: int) -> bool:
        return _use(bench, {**extra, knob.key: number * knob.step}) is None

    low, last = max(1, math.ceil(knob.low / knob.step)), int(knob.high) // knob.step
    start = low
    while refused(start):
        if start > last // 2 or start > 2**20:
            return low
        start *= 2
    below = largest_whole(refused, start // 2, start - 1) if start > low else None
    return start if below is None else below + 1


def _check_growth(bench: Bench, knob: Knob) -> None:
    """Refuse a knob that does not change memory, or with which it falls."""
    if _divides(bench, knob):
        return
    first = _values(bench, knob, {})[0]
    small, large = (_use(bench, {knob.key: value}) for value in (first, 8 * first))
    if small and large and large.bytes <= small.bytes:
        raise Refused(
            f"--largest {knob.key}: memory does not grow with it; ask --require fits --vary "
            f"{knob.key}"
        )


def _under(trials: Trials, accepted: Sequence[int]) -> tuple[int | None, str]:
    """The largest of the `accepted` values for which all that is wanted holds, and what ends it."""
    step = float(trials.knob.step)
    low, most, even = accepted[0], accepted[-1], isinstance(accepted, range)
    values = spaced(float(low), float(most), step=step) if even else [float(v) for v in accepted]
    flags = [holds(trials.margin(value)) for value in values]
    checked(list(trials.points.values()), trials.wanted)
    good = max((k for k, flag in enumerate(flags) if flag), default=None)
    if good is None:
        return None, ""
    if good == len(values) - 1:
        return most, ""
    best, worse = values[good], values[good + 1]
    if even:
        worse, best = edge(trials.margin, worse, best, step=step)
    beyond: Mapping[str, Any] = trials.points.get(worse, {})
    missing = [str(one) for one in trials.wanted if not holds(one.margin(beyond))]
    return round(best), " and ".join(missing)


def _nothing_fits(bench: Bench, knob: Knob, refused: str) -> NothingFits:
    accepted = _values(bench, knob, {})
    few = accepted if _divides(bench, knob) else accepted[:1]
    tried = [(used, value) for value in few if (used := _use(bench, {knob.key: value}))]
    if not tried:
        raise Refused(f"--largest {knob.key}: {refused}")
    used, value = min(tried, key=lambda one: one[0].bytes)
    at = {knob.key: value}
    beyond = used.bytes / (used.capacity or 1.0) - 1.0
    miss = Miss("fits", "memory_bytes", used.capacity, used.bytes, beyond)
    return NothingFits([miss], "memory", at, used, _raised(bench, knob, 0))


def _raised(bench: Bench, knob: Knob, most: int) -> list[Raised]:
    """Changes with which more fits, the one that brings most first."""
    found = []
    for change, cost in _easier(bench, knob):
        more, _ = _most(bench, knob, change)
        if more is not None and more > most:
            found.append(Raised(change, more, cost))
    return sorted(found, key=lambda one: -one.value)


def _easier(bench: Bench, knob: Knob) -> Iterator[tuple[dict[str, Any], str]]:
    """Single changes that usually save memory, and what each costs; those of the knob's own section
    of one key are left out where they would set the knob."""
    scenario, case = bench.scenario(), bench.case()
    again = "one more forward pass per step"
    if not case.rebuilds_blocks:
        yield {"recompute": "full"}, again
    if scenario.recompute == "none":
        yield {"recompute": "selective"}, "the attention of every layer once more"
    if getattr(scenario.strategy, "no_sync", False):
        yield {"strategy.no_sync": False}, "gradients reduced after every micro-batch"
    for lighter in scenario.strategy.lighter(split=not case.mesh.plain):
        if lighter.applies(case.mesh.holders):
            yield lighter.keys, lighter.cost
    if knob.key != "batch.per_device" and (scenario.batch.per_device or 1) > 1:
        cost = "twice the micro-batches" if scenario.batch.follows else "a smaller batch"
        yield {"batch.per_device": (scenario.batch.per_device or 1) // 2}, cost
    if case.precision.parameters == "fp32" and scenario.precision is not None:
        yield {"precision.parameters": "bf16"}, ""
    key = "cluster.nodes" if scenario.cluster.nodes is not None else "cluster.ranks"
    now = scenario.cluster.nodes or scenario.cluster.ranks or 1
    if key != knob.key:
        yield {key: now * 2}, "twice the devices"
