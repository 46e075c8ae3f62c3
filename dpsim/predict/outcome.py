"""A point of an answer with what is behind it."""

from __future__ import annotations

from dpsim.cases.case import Case
from dpsim.core.lean import dataclass
from dpsim.models.memory import MemoryUse
from dpsim.predict.player import Played
from dpsim.predict.point import Failed, Point


@dataclass(frozen=True)
class Outcome:
    """What came of `case`; `played` and `memory` are None where the point has no number."""

    case: Case
    point: Point | Failed
    played: Played | None = None
    memory: MemoryUse | None = None
