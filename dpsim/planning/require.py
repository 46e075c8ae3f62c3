"""Which value does it take: where a requirement begins, or ends, to hold over one numeric key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from dpsim.core.errors import SimulationError
from dpsim.planning.bench import Bench
from dpsim.planning.finding import Finding, Tried, checked, marked, nearest
from dpsim.planning.flat import SAME, flat
from dpsim.planning.knobs import TRIED, Knob
from dpsim.planning.search import DRAWN, TOLERANCE, edge, holds, run_of
from dpsim.planning.trials import Reach, Trials, ended, looked_at, passed_over
from dpsim.planning.wanted import Wanted, margin_of
from dpsim.predict.document import JsonKey, Keyed, Spread
from dpsim.predict.point import Change, Failed, Point


@dataclass(frozen=True)
class WhichValue(Keyed):
    """The question: what is required, over which key, from where to where, relative to what."""

    kind: str
    require: Sequence[str]
    vary: str
    start: Annotated[str, JsonKey("from")]
    to: str
    relative_to: Change | None
    at: Change


@dataclass(frozen=True)
class End:
    """The value at which it begins, or ends, to hold, as a number and as a scenario has it."""

    value: float
    text: str
    point: Tried


@dataclass(frozen=True)
class HoldsFrom:
    """Where it holds; an end is None where it is open, as far as was searched."""

    at_least: End | None
    at_most: End | None
    start: Annotated[str, JsonKey("from")]
    to: str
    monotone: bool


@dataclass(frozen=True)
class Now:
    """The scenario as it stands."""

    set: Change
    value: float | None
    holds: bool
    point: Point | Failed


@dataclass(frozen=True)
class NeededValue(Keyed):
    """The answer: where it holds as predicted, and over the whole 90 % interval."""

    key: str
    predicted: Annotated[HoldsFrom, Spread()]
    sure: HoldsFrom | None
    now: Now


def require(
    bench: Bench, knob: Knob, wanted: Sequence[Wanted], given: Reach | Sequence[float] | None = None
) -> Finding:
    """From which value of `knob` on (or up to which one) all that is `wanted` holds.

    given   where to search, or the values to choose among; None: around the present value

    Where what holds changes more than once over a coarse scan, it is not monotone: the answer is
    then the value from which everything further up holds.
    """
    trials = Trials(bench, knob, wanted)
    now = bench.point({}, relative=trials.relative)
    values, between = looked_at(bench, knob, given)
    margins = [trials.margin(value) for value in values]
    checked([now, *trials.points.values()], wanted)
    found, sure = (_stretch(trials, None if between else values, way) for way in (False, True))
    base = bench.base if trials.relative else None
    ends = knob.text(values[0]), knob.text(values[-1])
    question = WhichValue(
        "require", [str(one) for one in wanted], knob.key, *ends, base, bench.beside(knob.key)
    )
    notes = [*trials.notes(), *flat(bench, knob, trials.points)]
    if not between and (given is None or isinstance(given, Reach)):
        notes.append(passed_over(knob))
    if given is None and None in (found, sure):
        notes += ended(knob, values)
    if found is not None and not found.monotone:
        notes.insert(0, _not_monotone(knob, values, margins))
    points = trials.marked()
    if found is None:
        infeasible = nearest(wanted, _closest(trials))
        return Finding(question, points, wanted, infeasible=infeasible, notes=notes)
    state = Now({}, knob.now, holds(margin_of(wanted, now)), now)
    answer = NeededValue(knob.key, found, sure, state)
    return Finding(question, points, wanted, answer, notes=notes)


def _closest(trials: Trials) -> list[Point | Failed]:
    """The point that comes nearest; of those that hardly differ, the one next to the others: what
    gains nothing further on is not asked for."""
    order = trials.ordered()
    margins = [margin_of(trials.wanted, trials.points[at]) for at in order]
    best = [k for k, margin in enumerate(margins) if margin >= max(margins) - SAME]
    low = best[0] == 0 and best[-1] < len(order) - 1
    return [trials.points[order[best[-1] if low else best[0]]]]


def _stretch(trials: Trials, listed: Sequence[float] | None, sure: bool) -> HoldsFrom | None:
    """Where it holds; one of the `listed` values is chosen, where they are given."""
    known, text = trials.ordered() if listed is None else listed, trials.knob.text
    run = run_of([trials.margin(value, sure) for value in known])
    if run is None:
        return None

    def end(bad: int, good: int) -> End | None:
        """The end between two neighbours; None where the one beyond was not looked at."""
        if not 0 <= bad < len(known):
            return None
        value = text(known[good], TRIED)
        if listed is None:
            value = _narrowed(trials, known[bad], known[good], sure)
        return _confirmed(trials, value, sure)

    least, most = end(run.first - 1, run.first), end(run.last + 1, run.last)
    return HoldsFrom(least, most, text(known[0]), text(known[-1]), run.monotone)


def _narrowed(trials: Trials, bad: float, good: float, sure: bool) -> str:
    """The value next to the edge between `bad` and `good`, rounded where that holds too."""
    knob, up = trials.knob, bad < good
    step = float(knob.step) if knob.whole else 0.0
    drawn = any(isinstance(one, Point) and one.life for one in trials.points.values())
    limit = DRAWN if drawn else TOLERANCE
    _, good = edge(lambda x: trials.margin(x, sure), bad, good, tolerance=limit, step=step)
    nicer = knob.rounded(good, up)
    inside = knob.value(nicer) if knob.low <= _plain(knob, nicer) <= knob.high else bad
    if inside != bad and holds(trials.margin(inside, sure)):
        return nicer
    return knob.text(good, TRIED)


def _plain(knob: Knob, text: str) -> float:
    try:
        return knob.value(text)
    except ValueError:
        return math.nan


def _confirmed(trials: Trials, text: str, sure: bool) -> End:
    """The end at `text`, as `dpsim run` plays it."""
    point = trials.play(text, confirmed=True)
    if not holds(margin_of(trials.wanted, point, sure=sure)):
        raise SimulationError(
            f"{trials.knob.key} = {text}: holds on the vectorised engine and not on the scenario's"
        )
    return End(trials.knob.value(text), text, marked(point, trials.wanted))


def _not_monotone(knob: Knob, values: Sequence[float], margins: Sequence[float]) -> str:
    switches = ", ".join(
        f"{knob.text(value)} {'yes' if holds(margin) else 'no'}"
        for value, margin in zip(values, margins, strict=True)
    )
    return (
        f"not monotone: over {knob.key} the requirement holds, and does not, more than once "
        f"({switches}); the answer is the stretch said, narrow gaps inside it may be missed"
    )
