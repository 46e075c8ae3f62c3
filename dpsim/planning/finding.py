"""What came out of a question: the answer, or why there is none, and the points that were tried."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from dpsim._version import __version__
from dpsim.core.record import Refused
from dpsim.describe.scenario import Loaded, to_data
from dpsim.planning.bench import Bench
from dpsim.planning.search import holds
from dpsim.planning.wanted import Wanted, check_fields, margin_of, value_of
from dpsim.predict.carried import one_for_all, values_of
from dpsim.predict.document import Keyed, Spread, to_json
from dpsim.predict.point import Change, Failed, Point, computed

SCHEMA_VERSION = 1


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

    @property
    def usable(self) -> bool:
        """Whether it has numbers, and is not known to be too large."""
        return isinstance(self.point, Point) and self.point.memory.holds


@dataclass(frozen=True)
class Miss:
    """What is wanted and missed: by how much, relative to its limit, and where it is least."""

    require: str
    field: str
    limit: float | None
    value: float | None
    by: float | None
    set: Change | None = None


@dataclass(frozen=True)
class Missed(Keyed):
    """Why there is no answer: what the `nearest` point misses, what binds there, and what of it is
    missed everywhere, each at the point that is best in it."""

    misses: tuple[Miss, ...]
    binds: str | None
    nearest: Point | Failed | Tried
    alone: tuple[Miss, ...] | None = None


@dataclass(frozen=True)
class Finding:
    """What came out of a question.

    question    what was asked: one of the records of the modules that answer
    points      what was played, in the order of the field that is varied
    wanted      what had to hold
    answer      the answer, or nothing
    infeasible  why there is none: what is missed by how much, and what binds
    notes       what to know about the answer
    """

    question: Keyed
    points: Sequence[Tried]
    wanted: Sequence[Wanted] = ()
    answer: Keyed | None = None
    infeasible: Keyed | None = None
    notes: Sequence[str] = ()

    @property
    def found(self) -> bool:
        """Whether there is an answer."""
        return self.answer is not None


def document(loaded: Loaded, bench: Bench, found: Finding) -> dict[str, Any]:
    """The whole answer as ``dpsim plan --json`` prints it."""
    limits = [
        {"field": one.field, "least": one.least, "limit": one.limit}
        for one in found.wanted
        if one.field != "fits"
    ]
    varied = values_of(one.set for one in found.points)
    paid = one_for_all(loaded.scenario.price, varied)
    made: dict[str, Any] = to_json(
        {
            "schema_version": SCHEMA_VERSION,
            "dpsim_version": __version__,
            "name": loaded.called,
            "scenario": to_data(replace(loaded.scenario, sweep=None, measured=None)),
            "question": found.question,
            "limits": limits,
            "found": found.found,
            "answer": found.answer,
            "infeasible": found.infeasible,
            "points": found.points,
            "played": bench.played,
            "warnings": [*found.notes, *paid, *bench.warnings],
        }
    )
    return made


def checked(points: Sequence[Point | Failed], wanted: Sequence[Wanted]) -> None:
    """Refuse where no point has numbers, or none the fields that are wanted."""
    if isinstance(last := points[-1], Failed) and not computed(points):
        raise Refused(f"no point has numbers: {last.error}")
    for one in wanted:
        check_fields([one.field], computed(points)[0], one.option)


def marked(point: Point | Failed, wanted: Sequence[Wanted]) -> Tried:
    """`point` with whether all that is wanted holds, and whether it does at 90 %."""
    sure = holds(margin_of(wanted, point, sure=True))
    return Tried(point, holds(margin_of(wanted, point)), sure)


def missed(wanted: Sequence[Wanted], best: Point | Failed | Tried) -> Missed:
    """What `best`, the point that comes nearest, misses by how much, and what binds there."""
    margins = [(one, one.margin(best)) for one in wanted]
    misses = tuple(_miss(one, best, margin) for one, margin in margins if not holds(margin))
    return Missed(misses, best.get("bottleneck"), best)


def _miss(one: Wanted, best: Point | Failed | Tried, margin: float) -> Miss:
    if one.field == "fits":
        return Miss("fits", one.field, None, best.get("memory_bytes"), None)
    by = -margin if math.isfinite(margin) else None
    return Miss(str(one), one.field, one.limit, value_of(best, one.field), by)


def nearest(wanted: Sequence[Wanted], points: Iterable[Point | Failed | Tried]) -> Missed:
    """What the one of `points` that comes nearest misses."""
    return missed(wanted, max(points, key=lambda one: margin_of(wanted, one)))
