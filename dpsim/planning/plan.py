"""Inverse questions: which value of a key makes a requirement hold, and how large one can be.

`require` narrows down where a requirement begins (or ends) to hold over one numeric key; `largest`
finds the largest whole number that fits in memory.  `choose` and `tune` are in choose.py.  All
return a Finding, whose `document` is what ``dpsim plan --json`` prints.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple

from dpsim._version import __version__
from dpsim.core.errors import SimulationError
from dpsim.core.overrides import INSTEAD
from dpsim.core.record import Refused
from dpsim.describe.scenario import Loaded, to_data
from dpsim.models.memory import MemoryUse
from dpsim.planning.bench import Bench
from dpsim.planning.grid import parse_axis
from dpsim.planning.knobs import TRIED, Knob, knob_of, unit_in, with_unit
from dpsim.planning.search import (
    TOLERANCE,
    edge,
    holds,
    largest_whole,
    rises_or_falls,
    run_of,
    spaced,
)
from dpsim.planning.wanted import Wanted, check_fields, margin_of, value_of
from dpsim.predict.document import Keyed, Spread, to_json
from dpsim.predict.point import Change, Failed, Point, computed

SCHEMA_VERSION = 1
#: GPUs up to which the size of a cluster is searched if nobody says
MOST_GPUS = 1024


@dataclass(frozen=True)
class Tried(Keyed):
    """A point that was tried: whether all that is wanted holds there, as predicted and over the
    whole 90 % interval, and whether it is on the front of time and cost, if there is one."""

    point: Annotated[Point | Failed, Spread()]
    holds: bool
    holds_sure: bool
    on_front: bool | None = None

    @property
    def set(self) -> Change:
        return self.point.set


@dataclass(frozen=True)
class Finding:
    """What came out of a question.

    question    what was asked, as plain data
    found       whether there is an answer
    answer      the answer, or nothing
    infeasible  why there is none: what is missed by how much, and what binds
    points      what was played, in the order of the field that is varied
    notes       what to know about the answer
    """

    question: dict[str, Any]
    found: bool
    answer: dict[str, Any] | None
    infeasible: dict[str, Any] | None
    points: list[Tried]
    notes: list[str] = field(default_factory=list)
    wanted: Sequence[Wanted] = ()


def document(loaded: Loaded, bench: Bench, answer: Finding) -> dict[str, Any]:
    """The whole answer as plain data."""
    scenario = replace(loaded.scenario, sweep=None, measured=None)
    made: dict[str, Any] = to_json(
        {
            "schema_version": SCHEMA_VERSION,
            "dpsim_version": __version__,
            "name": loaded.name,
            "scenario": to_data(scenario),
            "question": {**answer.question, "at": _at(bench, answer.question)},
            "limits": [
                {"field": one.field, "least": one.least, "limit": one.limit}
                for one in answer.wanted
                if one.field != "fits"
            ],
            "found": answer.found,
            "answer": answer.answer,
            "infeasible": answer.infeasible,
            "points": answer.points,
            "played": bench.played,
            "warnings": [*answer.notes, *bench.warnings],
        }
    )
    return made


def _at(bench: Bench, question: Mapping[str, Any]) -> dict[str, Any]:
    """What the point that is asked about sets, apart from what is searched."""
    vary = question.get("vary") or [question.get("largest")]
    keys = (
        {vary} if isinstance(vary, str) else {v["key"] if isinstance(v, dict) else v for v in vary}
    )
    keys |= {f"cluster.{INSTEAD[key]}" for key in keys & set(INSTEAD)}
    return {key: value for key, value in bench.at.items() if key not in keys}


# -- which value does it take ---------------------------------------------------------------------


@dataclass
class Trials:
    """What has been tried of one knob: value -> point, with the margin of what is wanted.

    `extra` is what every trial sets beside the knob."""

    bench: Bench
    knob: Knob
    wanted: Sequence[Wanted]
    extra: Change = field(default_factory=dict)
    points: dict[float, Point | Failed] = field(default_factory=dict)

    @property
    def relative(self) -> bool:
        return any(one.relative for one in self.wanted)

    def change(self, text: str) -> dict[str, Any]:
        return {**self.extra, self.knob.key: self.knob.setting(text)}

    def play(self, text: str, *, confirmed: bool = False) -> Point | Failed:
        """The point at the value `text`."""
        return self.bench.point(self.change(text), relative=self.relative, confirmed=confirmed)

    def margin(self, value: float, sure: bool = False) -> float:
        """The margin at `value`, rounded to what a scenario would say."""
        text = self.knob.text(value, TRIED)
        at = self.knob.value(text)
        if at not in self.points:
            self.points[at] = self.play(text)
        return margin_of(self.wanted, self.points[at], sure=sure)

    def ordered(self) -> list[float]:
        return sorted(self.points)


class Span(NamedTuple):
    """A range to search in, both ends included."""

    low: float
    high: float


def require(
    bench: Bench,
    knob: Knob,
    wanted: Sequence[Wanted],
    given: Span | Sequence[float] | None = None,
) -> Finding:
    """From which value of `knob` on (or up to which one) all that is `wanted` holds.

    given   where to search, or the values to choose among; None: around the present value

    Where what holds changes more than once over a coarse scan, it is not monotone: the answer is
    then the value from which everything further up holds.
    """
    trials = Trials(bench, knob, wanted)
    now = bench.point({}, relative=trials.relative)
    listed = given is not None and not isinstance(given, Span)
    values = _scanned(bench, knob, given) if given is None or isinstance(given, Span) else given
    margins = [trials.margin(value) for value in values]
    checked([now, *trials.points.values()], wanted)
    found = _stretch(trials, values, False, listed)
    sure = _stretch(trials, values, True, listed)
    question = {
        "kind": "require",
        "require": [str(one) for one in wanted],
        "vary": knob.key,
        "from": knob.text(values[0]),
        "to": knob.text(values[-1]),
        "relative_to": bench.base if trials.relative else None,
    }
    notes = _shape_notes(trials, values, margins, found)
    points = [marked(trials.points[at], wanted) for at in trials.ordered()]
    state: dict[str, Any] = {
        "set": {},
        "value": knob.now,
        "holds": holds(margin_of(wanted, now)),
        "point": now,
    }
    if found is None:
        best = max(trials.points.values(), key=lambda p: margin_of(wanted, p))
        return Finding(question, False, None, missed(wanted, best), points, notes, wanted)
    answer = {"key": knob.key, **found, "sure": sure, "now": state}
    return Finding(question, True, answer, None, points, notes, wanted)


def searched(bench: Bench, text: str) -> tuple[Knob, Span | list[float] | None]:
    """The knob of a ``--vary KEY``, and where to search: None around its present value, the span of
    ``KEY=LOW:HIGH UNIT``, or the values of ``KEY=V1,V2,…``."""
    key, equals, values = (part.strip() for part in text.partition("="))
    knob = knob_of(bench.scenario(), key, "--vary")
    if not equals:
        return knob, None
    try:
        return _given(knob, key, values)
    except ValueError as error:
        message = error.message if isinstance(error, Refused) else str(error)
        raise Refused(f"--vary {text}: {message.removeprefix(f'--grid {text}: ')}") from None


def _given(knob: Knob, key: str, values: str) -> tuple[Knob, Span | list[float]]:
    """The knob in the unit of `values`, and their numbers, rising, or a range of them."""
    ends = values.split(":")
    if len(ends) == 2:
        unit = unit_in(ends[1])
        texts = [end if unit_in(end) or not unit else f"{end} {unit}" for end in ends]
        low, high = (knob.value(text) for text in texts)
        if low >= high:
            raise ValueError(f"a range goes up; {texts[0]} is not below {texts[1]}")
        return _said_in(knob, unit), Span(low, high)
    listed = [str(value) for value in parse_axis(f"{key}={values}").values]
    numbers = sorted(knob.value(text) for text in listed)
    return _said_in(knob, unit_in(listed[0])), numbers


def _said_in(knob: Knob, unit: str) -> Knob:
    return with_unit(knob, unit) if unit and not knob.whole else knob


def _scanned(bench: Bench, knob: Knob, given: Span | None) -> list[float]:
    """The values of the coarse scan."""
    low, high = given or (limits(bench, knob) if knob.counts else knob.span())
    if knob.whole:
        low = max(math.ceil(low / knob.step) * knob.step, knob.step)
        high = max(high // knob.step * knob.step, low)
    elif knob.above and low <= knob.low:
        raise Refused(f"--vary {knob.key}: {knob.text(low)} is excluded; begin above it")
    if knob.counts and given is None:  # counts that people build
        return [*(v for k in range(21) if (v := 2.0**k) < high), high]
    values = spaced(low, high, step=float(knob.step) if knob.whole else 0.0)
    inner = {knob.value(knob.text(value, 3)) for value in values[1:-1]}
    return [values[0], *sorted(v for v in inner if low < v < high), *values[1:][-1:]]


def limits(bench: Bench, knob: Knob) -> tuple[float, float]:
    """Sizes of cluster to look at: up to MOST_GPUS, and what the machine allows."""
    case = bench.case()
    if knob.key == "cluster.ranks" or case.topology is None:
        high = MOST_GPUS
    else:
        high = max(MOST_GPUS // case.topology.gpus, 1)
    while high > 1 and not _accepted(bench, {knob.key: high}):
        high //= 2
    return 1.0, float(high)


def _accepted(bench: Bench, change: Change) -> bool:
    try:
        return bench.case(change).ranks > 0
    except Refused:
        return False


def checked(points: Sequence[Point | Failed], wanted: Sequence[Wanted]) -> None:
    """Refuse where no point has numbers, or none the fields that are wanted."""
    if isinstance(last := points[-1], Failed) and not computed(points):
        raise Refused(f"no point has numbers: {last.error}")
    for one in wanted:
        check_fields([one.field], computed(points)[0], one.option)


def _stretch(
    trials: Trials, values: Sequence[float], sure: bool, listed: bool
) -> dict[str, Any] | None:
    """Where it holds: from `at_least` to `at_most`, each None where that end is open."""
    known = values if listed else trials.ordered()
    margins = [trials.margin(value, sure) for value in known]
    run = run_of(margins)
    if run is None:
        return None
    first, last = known[run.first], known[run.last]
    below = known[run.first - 1] if run.first else None
    above = known[run.last + 1] if run.last + 1 < len(known) else None
    return {
        "at_least": None if below is None else _end(trials, below, first, sure, listed),
        "at_most": None if above is None else _end(trials, above, last, sure, listed),
        "from": trials.knob.text(known[0]),
        "to": trials.knob.text(known[-1]),
        "monotone": run.monotone,
    }


def _end(trials: Trials, bad: float, good: float, sure: bool, listed: bool) -> dict[str, Any]:
    """One end of where it holds, narrowed down unless values are `listed`, and confirmed."""
    knob, up = trials.knob, bad < good
    text = knob.text(good, TRIED)
    if not listed:
        step = float(knob.step) if knob.whole else 0.0
        _, good = edge(lambda x: trials.margin(x, sure), bad, good, tolerance=TOLERANCE, step=step)
        text = knob.text(good, TRIED)
        nicer = knob.rounded(good, up)
        inside = knob.value(nicer) if knob.low <= _plain(knob, nicer) <= knob.high else bad
        if inside != bad and holds(trials.margin(inside, sure)):
            text = nicer
    point = _confirmed(trials, text, sure)
    return {"value": knob.value(text), "text": text, "point": marked(point, trials.wanted)}


def _plain(knob: Knob, text: str) -> float:
    try:
        return knob.value(text)
    except ValueError:
        return math.nan


def _confirmed(trials: Trials, text: str, sure: bool) -> Point | Failed:
    """The point at `text` as `dpsim run` plays it."""
    point = trials.play(text, confirmed=True)
    if not holds(margin_of(trials.wanted, point, sure=sure)):
        raise SimulationError(
            f"{trials.knob.key} = {text}: holds on the vectorised engine and not on the scenario's"
        )
    return point


def marked(point: Point | Failed, wanted: Sequence[Wanted]) -> Tried:
    """`point` with whether all that is wanted holds, and whether it does at 90 %."""
    sure = holds(margin_of(wanted, point, sure=True))
    return Tried(point, holds(margin_of(wanted, point)), sure)


def _shape_notes(
    trials: Trials,
    values: Sequence[float],
    margins: Sequence[float],
    found: Mapping[str, Any] | None,
) -> list[str]:
    """What is not as a search of one edge takes for granted."""
    key, notes = trials.knob.key, []
    if found is not None and not found["monotone"]:
        switches = ", ".join(
            f"{trials.knob.text(value)} {'yes' if holds(m) else 'no'}"
            for value, m in zip(values, margins, strict=True)
        )
        notes.append(
            f"not monotone: over {key} the requirement holds, and does not, more than once "
            f"({switches}); the answer is the stretch said, narrow gaps inside it may be missed"
        )
    for one in trials.wanted:
        line = [value_of(trials.points[v], one.field) for v in trials.ordered()]
        if one.field != "fits" and not rises_or_falls(line):
            notes.append(f"{one.field} goes up and down over {key}; narrow gaps may be missed")
    errors = [p.error for p in trials.points.values() if isinstance(p, Failed)]
    if errors:
        notes.append(f"no number at {len(errors)} of {len(trials.points)} values: {errors[0]}")
    unfit = [p for p in computed(trials.points.values()) if p.memory.fits is False]
    if unfit and not any(one.field == "fits" for one in trials.wanted):
        notes.append(
            f"{len(unfit)} of {len(trials.points)} values do not fit in memory; add --require fits"
        )
    return notes


def missed(wanted: Sequence[Wanted], best: Point | Failed | Tried) -> dict[str, Any]:
    """What `best`, the point that comes nearest, misses by how much, and what binds there."""
    misses: list[dict[str, Any]] = []
    for one in wanted:
        margin = one.margin(best)
        if holds(margin):
            continue
        entry: dict[str, Any] = {"require": str(one), "field": one.field}
        if one.field == "fits":
            entry |= {"limit": None, "value": best.get("memory_bytes"), "by": None}
        else:
            entry |= {"limit": one.limit, "value": value_of(best, one.field)}
            entry["by"] = _finite(-margin)
        misses.append(entry)
    return {"misses": misses, "binds": best.get("bottleneck"), "nearest": best}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# -- how large can it be --------------------------------------------------------------------------


def largest(bench: Bench, knob: Knob, wanted: Sequence[Wanted] = ()) -> Finding:
    """The largest value of the whole-numbered `knob` that fits in memory and for which all that is
    `wanted` holds; with what memory is made of there, and which changes would raise it."""
    if not knob.whole:
        raise Refused(f"--largest {knob.key}: is no whole number; use --require fits --vary")
    capacity = bench.memory({}).capacity
    if capacity is None:
        raise Refused("--largest: without a machine nothing says how much memory there is")
    _check_growth(bench, knob)
    most, refused = _most(bench, knob, {})
    question = {"kind": "largest", "largest": knob.key, "require": [str(one) for one in wanted]}
    if most is None:
        return _none_fits(bench, knob, question, refused)
    trials = Trials(bench, knob, wanted)
    by = refused or "memory"
    if wanted:
        best, why = _under(trials, most)
        if best is None:
            points = [marked(trials.points[at], wanted) for at in trials.ordered()]
            nearest = max(trials.points.values(), key=lambda p: margin_of(wanted, p))
            return Finding(question, False, None, missed(wanted, nearest), points, [], wanted)
        most, by = (best, by) if best == most else (best, why)
    point = trials.play(str(most), confirmed=True)
    following = _use(bench, {knob.key: most + knob.step})
    answer: dict[str, Any] = {
        "key": knob.key,
        "value": most,
        "limited_by": by,
        "memory": _memory(bench.memory({knob.key: most})),
        "following": following and {"value": most + knob.step, **_memory(following)},
        "raised_by": list(_raised(bench, knob, most)) if by == "memory" else [],
        "point": marked(point, wanted),
    }
    notes = [f"no number there: {point.error}"] if isinstance(point, Failed) else []
    points = [marked(trials.points[at], wanted) for at in trials.ordered()]
    return Finding(question, True, answer, None, points or [answer["point"]], notes, wanted)


def _use(bench: Bench, change: Change) -> MemoryUse | None:
    """Memory with `change`; None where it is no point."""
    try:
        return bench.memory(change)
    except (Refused, ValueError):
        return None


def _most(bench: Bench, knob: Knob, extra: Change) -> tuple[int | None, str]:
    """The largest value that fits, and what else than memory ends it there, if anything does; None
    where not even the smallest fits."""
    said: dict[int, str] = {}

    def fits(number: int) -> bool:
        try:
            return bool(bench.memory({**extra, knob.key: number * knob.step}).fits)
        except (Refused, ValueError) as error:
            said[number] = str(error)
            return False

    first, last = _first(bench, knob, extra), int(knob.high) // knob.step
    found = largest_whole(fits, first, last)
    if found is None:
        return None, said.get(first, "")
    end = f"its largest accepted value, {last * knob.step:,}" if found == last else ""
    return found * knob.step, said.get(found + 1, end)


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
    first = _first(bench, knob, {}) * knob.step
    uses = [_use(bench, {knob.key: value}) for value in (first, 8 * first)]
    if None not in uses and uses[1].total <= uses[0].total:  # type: ignore[union-attr]
        raise Refused(
            f"--largest {knob.key}: memory does not grow with it; ask --require fits --vary "
            f"{knob.key}"
        )


def _under(trials: Trials, most: int) -> tuple[int | None, str]:
    """The largest value up to `most` for which all that is wanted holds, and what ends it."""
    knob = trials.knob
    low = _first(trials.bench, knob, {}) * knob.step
    values = spaced(float(low), float(most), step=float(knob.step))
    flags = [holds(trials.margin(value)) for value in values]
    checked(list(trials.points.values()), trials.wanted)
    good = max((k for k, flag in enumerate(flags) if flag), default=None)
    if good is None:
        return None, ""
    if good == len(values) - 1:
        return most, ""
    _, best = edge(trials.margin, values[good + 1], values[good], step=float(knob.step))
    beyond: Mapping[str, Any] = trials.points.get(best + knob.step, {})
    missing = [str(one) for one in trials.wanted if not holds(one.margin(beyond))]
    return round(best), " and ".join(missing)


def _none_fits(bench: Bench, knob: Knob, question: dict[str, Any], refused: str) -> Finding:
    """Nothing fits: by how much, what it is made of, and what would make it fit."""
    low = _first(bench, knob, {}) * knob.step
    used = _use(bench, {knob.key: low})
    if used is None:
        raise Refused(f"--largest {knob.key}: {refused}")
    infeasible = {
        "misses": [{"require": "fits", "field": "memory_bytes", "limit": used.capacity,
                    "value": used.total, "by": used.total / (used.capacity or 1.0) - 1.0}],
        "binds": "memory",
        "at": {knob.key: low},
        "memory": _memory(used),
        "raised_by": list(_raised(bench, knob, 0)),
    }  # fmt: skip
    return Finding(question, False, None, infeasible, [])


def _memory(used: MemoryUse) -> dict[str, Any]:
    return {"bytes": used.total, "capacity": used.capacity, "parts": used.parts,
            "short_by": used.shortfall}  # fmt: skip


def _raised(bench: Bench, knob: Knob, most: int) -> Iterator[dict[str, Any]]:
    """Changes with which more fits, the one that brings most first."""
    found: list[dict[str, Any]] = []
    for change, cost in _easier(bench, knob):
        more, _ = _most(bench, knob, change)
        if more is not None and more > most:
            found.append({"set": change, "value": more, "cost": cost})
    yield from sorted(found, key=lambda entry: -entry["value"])


def _easier(bench: Bench, knob: Knob) -> Iterator[tuple[dict[str, Any], str]]:
    """Single changes that usually save memory, and what each costs; those of the knob's own section
    of one key are left out where they would set the knob."""
    scenario, case = bench.scenario(), bench.case()
    again = "one more forward pass per step"
    if scenario.recompute != "full":
        yield {"recompute": "full"}, again
    if scenario.recompute == "none":
        yield {"recompute": "selective"}, "the attention of every layer once more"
    for lighter in scenario.strategy.lighter(split=not case.mesh.plain):
        if case.ranks > 1 or lighter.what == "buckets":
            yield lighter.keys, lighter.cost
    if knob.key != "batch.per_device" and (scenario.batch.per_device or 1) > 1:
        yield {"batch.per_device": (scenario.batch.per_device or 1) // 2}, "a smaller batch"
    if case.precision.parameters == "fp32" and scenario.precision is not None:
        yield {"precision.parameters": "bf16"}, ""
    key = "cluster.nodes" if scenario.cluster.nodes is not None else "cluster.ranks"
    now = scenario.cluster.nodes or scenario.cluster.ranks or 1
    if key != knob.key:
        yield {key: now * 2}, "twice the devices"


__all__ = [
    "Finding",
    "Span",
    "Trials",
    "checked",
    "document",
    "largest",
    "limits",
    "marked",
    "missed",
    "require",
    "searched",
]
