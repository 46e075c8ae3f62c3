"""What lanes hold beside `Lanes` where there are levels, notices, windows or silent failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from dpsim.core.arrays import Array
from dpsim.life import draws
from dpsim.life.course import Course
from dpsim.life.lanes import Lanes, Mask, Places

#: what comes at a time of its own, by place in `StagedLanes.due`
WINDOW, SLOWS, FOUND, CORRUPTS, SEEN = range(5)


@dataclass
class StagedLanes(Lanes):
    """Here `since` is where steps are, from the run's beginning, and `saved` is not used.

    held     newest checkpoint of each level, in productive seconds; 0: none
    restore  reading the one that is read next [s]
    down     nodes lost since steps went on last
    due      times of what comes by itself [s]
    slow     nodes that are slow
    clean    where the newest checkpoint of the last level was when corruption began
    """

    held: Array
    restore: Array
    down: Array
    due: Array
    slow: Array
    clean: Array

    def take_back(self, some: Mask, lanes: Self) -> None:
        """What became of `some` of these, which were played as `lanes`."""
        while self.back.shape[1] < lanes.back.shape[1]:
            self._widen()
        for one in fields(self):
            getattr(self, one.name)[some] = getattr(lanes, one.name)


def staged(course: Course, lanes: Lanes) -> StagedLanes:
    """`lanes` at their beginning."""
    count = len(lanes)
    given = {one.name: getattr(lanes, one.name) for one in fields(Lanes)}
    more = np.zeros((count, len(course.timed)))
    given["failures"] = np.concatenate([lanes.failures, more], axis=1)
    due = np.full((count, 5), np.inf)
    if course.windows:
        due[:, WINDOW] = course.windows.every
    return StagedLanes(
        **given, held=np.zeros((count, len(course.halts.levels))), restore=np.zeros(count),
        down=np.zeros(count), due=due, slow=np.zeros(count), clean=np.zeros(count),
    )  # fmt: skip


class Onsets:
    """Rows of what goes wrong unseen: times are those of a Poisson process of its own."""

    def __init__(self, course: Course, runs: Sequence[int]) -> None:
        names = {SLOWS: ("slow", course.slow), CORRUPTS: ("corruption", course.corrupt)}
        self._rates = {kind: one.rate for kind, (_, one) in names.items() if one}
        self._rows = {
            kind: draws.Rows(course.seed, runs, f"life.{name}")
            for kind, (name, one) in names.items()
            if one
        }

    @property
    def kinds(self) -> tuple[int, ...]:
        """Which of `StagedLanes.due` are drawn."""
        return tuple(self._rates)

    def next(self, kind: int, places: Places) -> Array:
        """Seconds from one to the next, of runs at `places`."""
        made: Array = draws.gap(self._rows[kind].next(places)) / self._rates[kind]
        return made
