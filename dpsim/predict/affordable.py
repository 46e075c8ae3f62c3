"""Affordable: whether a case can be played here at all, and what could be if it cannot."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from dpsim.cases.case import Case
from dpsim.cases.variant import Variant, at_ranks
from dpsim.core import capacity
from dpsim.core.capacity import TooSmall
from dpsim.core.lean import dataclass
from dpsim.core.record import Refused
from dpsim.predict.effort import EVENT, Appetite, Effort, effort_of, shown

#: seconds of a single play, as estimated, beyond which it is refused; a run plays a point more than
#: once, for its interval and what it explains
LIMIT = 3600.0
#: memory for which something is suggested in place of what would take too long, on whatever machine
#: that is found: what is refused there is an answer, the same on all [B]
ANYWHERE = 8e9

#: smaller cases of a kind that are tried before none is suggested
TRIES = 4


def affordable(effort: Effort, engine: Appetite) -> bool:
    """Whether `check_affordable` lets a play pass."""
    return effort.seconds(engine) <= LIMIT and effort.bytes(engine) <= capacity.room().bytes


def check_affordable(case: Case, effort: Effort, engine: Appetite) -> None:
    """Refuse a single play that would take longer than LIMIT, on whatever machine.

    Raises TooSmall where it is only this machine's memory that does not suffice.  Both say what
    would work, where something does."""
    seconds, size, room = effort.seconds(engine), effort.bytes(engine), capacity.room()
    way = "event by event" if engine is EVENT else "in one pass over all ranks"
    said = f"playing {case.ranks:,} ranks {way} would take about {shown(seconds)}"
    needed = f"{capacity.shown(size)} of memory"
    if seconds > LIMIT:
        raise Refused(
            f"{said} (a single play may take {shown(LIMIT)}) and {needed}"
            + _instead(_Too(case, effort, engine, ANYWHERE), f", in {shown(LIMIT)} and 8 GB"),
            ("detail",) if effort.transfers else ("engine",),
        )
    if size > room.bytes:
        raise TooSmall(
            f"{said} and {needed}, and there are {capacity.shown(room.bytes)} ({room})"
            + _instead(_Too(case, effort, engine, room.bytes), "")
        )


@dataclass(frozen=True)
class _Too:
    """What is too much: the effort of `case` for `engine`, where there are `room` bytes."""

    case: Case
    effort: Effort
    engine: Appetite
    room: float

    def load(self, found: Effort, engine: Appetite) -> float:
        """How many times what is accepted `found` is."""
        return max(found.seconds(engine) / LIMIT, found.bytes(engine) / self.room)

    def of(self, changed: Case) -> float:
        """The same of another case; infinite where it is refused for what it is."""
        try:
            found = effort_of(changed)
        except ValueError:
            return math.inf
        return self.load(found, EVENT if self.engine is EVENT else found.vectorised)

    def less(self, now: int, values: Sequence[int], load: Callable[[int], float]) -> int:
        """One of rising `values` below `now` that is accepted, near the largest; 0: none is.

        What a case takes grows about as the number does, where it depends on it at all."""
        over = self.load(self.effort, self.engine)
        for _ in range(TRIES):
            place = bisect_right(values, 0.98 * now / over)
            if not place:
                return 0
            now = values[place - 1]
            over = load(now)
            if over <= 1:
                return now
        return 0


def _instead(too: _Too, where: str) -> str:
    """What would work, in words; "" where nothing was found."""
    case, effort = too.case, too.effort
    if effort.transfers:
        coarse = effort_of(Variant("whole", {"detail": "collective"}).of(case))
        loads = [too.load(coarse, one) for one in coarse.appetites(case.scenario.engine)]
        return "; detail: collective is much faster" if min(loads) <= 1 else ""
    if case.scenario.engine == "event" and too.load(effort, effort.vectorised) <= 1:
        return "; engine: auto is much faster, unless groups share links"
    ways = " or ".join(_smaller(too))
    return f"; {ways} would do{where}" if ways else ""


def _smaller(too: _Too) -> Iterator[str]:
    """Cases with less of something that are accepted, in words."""
    case = too.case
    batch, varied = case.batch, case.scenario.variability
    unit = math.lcm(case.mesh.least, case.site.gpus or 1)
    sizes = range(unit, case.ranks, unit)
    if found := too.less(case.ranks, sizes, lambda n: too.of(at_ranks(case, n))):
        yield f"{found:,} ranks"
    if varied.random and case.scenario.iteration == "steady":

        def of_steps(count: int) -> float:
            good = _with(varied, "steps", count) is not None
            short = replace(too.effort, steps=too.effort.steps - varied.steps + count)
            return too.load(short, too.engine) if good else math.inf

        if found := too.less(varied.steps, range(1, varied.steps), of_steps):
            yield f"variability.steps of {found:,}"

    def of_batch(count: int) -> float:
        changed = _with(batch, "accumulation", count)
        return too.of(Variant("short", {"batch": changed}).of(case)) if changed else math.inf

    free = not case.scenario.batch.follows  # else it is no key
    counts = [n for n in range(1, batch.accumulation * free) if (batch.global_ or 0) % n == 0]
    if found := too.less(batch.accumulation, counts, of_batch):
        yield f"batch.accumulation of {found:,}"


def _with(section: Any, key: str, value: int) -> Any:
    """`section` with another number; None where its other keys don't go with that."""
    try:
        return replace(section, **{key: value})
    except ValueError:
        return None
