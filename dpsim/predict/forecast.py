"""Forecasts: what the most costly point takes, said before it begins."""

from __future__ import annotations

from collections.abc import Callable

from dpsim.cases.case import Case
from dpsim.cases.chapters import Chapters
from dpsim.core import capacity, told
from dpsim.describe.scenario import Loaded, Scenario
from dpsim.predict.acted_effort import acted_seconds
from dpsim.predict.affordable import affordable
from dpsim.predict.effort import effort_of, shown
from dpsim.predict.prediction import Prediction, predict

#: seconds of playing that are worth a word
LONG = 30.0
#: share of the memory that may be taken that is worth a word
MUCH = 0.25


def forecast(loaded: Loaded, shared: Chapters) -> str:
    """What a play of the most costly point of `loaded` takes, in words, where that is long or
    much; else ""."""
    much = MUCH * capacity.room().bytes
    found = [_taken(point, loaded, shared) for point in loaded.points]
    seconds, size, ranks = max(found, key=lambda one: (max(one[0] / LONG, one[1] / much), one))
    if seconds <= LONG and size <= much:
        return ""
    memory = f" and {capacity.shown(size)} of memory" if size else ""
    return f"{ranks:,} ranks take about {shown(seconds)}{memory}"


def foretold(loaded: Loaded, say: Callable[[str], None], tell: told.Told) -> Prediction:
    """The prediction of `loaded`; where it takes long or much, that is said before it begins."""
    shared = Chapters()
    if said := forecast(loaded, shared):
        say(said)
    return predict(loaded, tell=tell, shared=shared)


def _taken(point: Scenario, loaded: Loaded, shared: Chapters) -> tuple[float, float, int]:
    """Seconds, bytes and ranks of `point`; nothing where it is refused: whoever plays it says
    why."""
    case = Case(point, loaded.base, shared=shared)
    try:
        if point.strategy.behaves:
            return acted_seconds(case), 0.0, case.ranks
        effort = effort_of(case)
        engines = effort.appetites("event" if point.detail == "rounds" else point.engine)
        engine = min(engines, key=effort.seconds)
        if affordable(effort, engine):
            return effort.seconds(engine), effort.bytes(engine), case.ranks
    except ValueError:
        pass
    return 0.0, 0.0, 0
