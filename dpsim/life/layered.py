"""All drawn runs at once, as `abreast`, where state is saved on several levels, evaluations pause
steps, nodes are reclaimed with notice, windows of maintenance come, or something goes wrong unseen.

A stretch ends at the next failure, at nodes that come, or at what comes at a time of its own; what
comes so while the job recovers waits until steps go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from dpsim.core.arrays import Array
from dpsim.life import draws
from dpsim.life.abreast import Abreast, _until
from dpsim.life.course import (
    BEGIN,
    CORRUPT,
    EVALUATION,
    FAILURE,
    FEWER,
    GROWTH,
    LOST,
    MAINTAINED,
    MAINTENANCE,
    ON,
    OVERHEAD,
    PREEMPTED,
    REPLACED,
    SAVE,
    SLOW,
    STEP,
    WASTED,
    Course,
)
from dpsim.life.halts import Elapsed
from dpsim.life.lanes import Mask, Places
from dpsim.life.saving import TIE
from dpsim.life.staged import CORRUPTS, FOUND, SEEN, SLOWS, WINDOW, Onsets, StagedLanes, staged

#: what the job answers when one of `StagedLanes.due` comes
_ANSWERS = np.array([MAINTAINED, ON, REPLACED, ON, CORRUPT])


class Layered(Abreast):
    """Runs of a course, abreast."""

    def __init__(self, courses: Sequence[Course], runs: range) -> None:
        super().__init__(courses, runs)
        course = self.course
        self.halts, self.kinds = course.halts, course.outages.numbered
        for name in ("detection", "startup", "restore"):
            setattr(self, name, np.array([getattr(one, name) for one in self.kinds]))
        kept = [-1.0 if one.keeps is None else one.keeps for one in self.kinds]
        self.keeps = np.zeros(len(kept)) if course.free else np.array(kept)
        if course.in_time:
            self.keeps[PREEMPTED] = 0.0
        self.reads = np.array([one.restore for one in self.halts.levels])
        self.copies = np.array([one.copies or 0.0 for one in self.halts.levels])
        self.onsets = Onsets(course, [*runs] * len(courses))
        lanes = staged(course, self.lanes)
        for kind in self.onsets.kinds:
            lanes.due[:, kind] = self.onsets.next(kind, np.arange(len(lanes)))
        self.lanes = lanes
        self.reclaims = [one.name == "preemption" for one in (*course.steady, *course.aging)]

    @property
    def state(self) -> StagedLanes:
        """The lanes, with what is theirs here."""
        return cast(StagedLanes, self.lanes)

    def _turn(self) -> Mask:
        cut, out = self._come_back()
        s, course = self.state, self.course
        base = self.speeds[np.minimum(s.lack, len(self.speeds) - 1).astype(int)]
        speed = base / np.where(s.slow > 0, course.slow.factor if course.slow else 1.0, 1.0)
        rate = self._rates().sum(axis=1)
        total = np.full(len(s), course.productive)
        whole = self.halts.passed(s.since, total, speed, False)
        aged, timer = self._until_aged(), np.maximum(s.due.min(axis=1) - s.now, 0.0)
        gap = np.minimum(_until(s.hazard, rate), aged)
        joins = np.where(s.lack > 0, np.maximum(s.soon - s.now, 0.0), np.inf)
        ended = ~cut & (whole <= gap) & (whole <= joins) & (whole <= timer)
        timed = ~cut & ~ended & (timer < gap) & (timer <= joins)
        grown = ~cut & ~ended & ~timed & (joins < gap)
        each = np.minimum(np.minimum(gap, whole), np.minimum(joins, timer))
        passed = np.where(cut, 0.0, each)
        ends = np.where(ended, total, np.where(passed == 0.0, s.since, np.inf))
        stretch = self.halts.stretch(s.since, passed, speed, ends)
        s.now += passed
        s.hazard -= rate * passed
        s.age += passed
        s.down = np.where(cut, s.down, 0.0)
        which = s.due.argmin(axis=1)
        s.kind = np.where(grown, GROWTH, np.where(cut & (s.kind == LOST), LOST, FAILURE))
        s.kind = np.where(timed, _ANSWERS[which], s.kind)
        if (fails := ~ended & ~grown & ~timed).any():
            by_age = np.where(cut, out, aged <= gap) if course.aging else fails & False
            self._break(np.flatnonzero(fails), by_age)
        self._label(stretch, speed, base)
        self._keep(stretch, ended)
        self._happen(np.flatnonzero(timed), which[timed])
        found: Mask = ended
        return found

    def _come_back(self) -> tuple[Mask, Mask]:
        """Recover, but for those that go on."""
        on = self.lanes.kind == ON
        if not on.any():
            return self._recover()
        whole, some = self.state, ~on
        cut, out = np.zeros(len(whole), bool), np.zeros(len(whole), bool)
        if some.any():
            self.lanes, lives = whole.only(some), self.lives_of
            self.lives_of = [one[some] for one in lives]
            cut[some], out[some] = self._recover()
            whole.take_back(some, self.lanes)
            self.lanes, self.lives_of = whole, lives
        return cut, out

    def _reading(self, kind: Places) -> Array:
        """Where the last checkpoint is read, that of the level that has it."""
        s = self.state
        reads = ((self.keeps[kind] < 0) | self._saved(s.kind)) & (s.kind != BEGIN)
        if self.course.free:
            return super()._reading(kind)
        found: Array = np.where(reads, s.restore, self.restore[kind])
        return found

    def _saved(self, kind: Places) -> Mask:
        """Whether all was saved before the job stopped."""
        found: Mask = kind == MAINTAINED
        return found | (kind == PREEMPTED) if self.course.in_time else found

    # -- labels -------------------------------------------------------------------------------

    def _label(self, stretch: Elapsed, speed: Array, base: Array) -> None:
        s, course, steps = self.state, self.course, stretch.steps
        s.seconds[:, STEP] += steps
        s.seconds[:, FEWER] += steps / base * course.pace - steps
        s.seconds[:, OVERHEAD] += steps / base * (1.0 - course.pace)
        s.seconds[:, SLOW] += steps / speed - steps / base
        s.seconds[:, SAVE] += stretch.saving
        s.seconds[:, EVALUATION] += stretch.evaluating

    def _keep(self, stretch: Elapsed, ended: Mask) -> None:
        """What is left of what was done, and where it is read from."""
        s, keeps = self.state, self.keeps[self.state.kind]
        place = s.since + stretch.steps
        saved, goes_on = self._saved(s.kind), ended | (s.kind == ON) | (s.kind == GROWTH)
        if len(self.reads):
            s.held = np.maximum(s.held, stretch.held.T)
            down = np.where(s.kind == MAINTAINED, self.course.nodes, s.down)
            down = np.where(s.kind == REPLACED, s.slow, down)
            gone = (down[:, None] >= self.copies) & ~goes_on[:, None]
            s.held = np.where(gone, 0.0, s.held)
            corrupt = s.kind == CORRUPT
            s.held[corrupt, :-1] = 0.0
            s.held[corrupt, -1] = np.minimum(s.held[corrupt, -1], s.clean[corrupt])
            s.held[saved, -1] = place[saved]
            best = s.held.max(axis=1)
            reads = np.where(s.held >= best[:, None] * (1.0 - 1e-12), self.reads, np.inf)
            found = np.where(best > 0, reads.min(axis=1), self.reads[-1])
            s.restore = found
        else:
            best = np.zeros(len(s))
        grid = np.maximum(keeps, 1e-300)
        kept = np.minimum(np.floor(place / grid + TIE) * keeps, place)
        left = np.where(keeps > 0, np.maximum(kept, best), np.where(keeps < 0, best, place))
        left = np.where(ended | saved, place, left)
        s.seconds[:, STEP] -= place - left
        s.seconds[:, WASTED] += place - left
        s.since = left
        self._save_all(saved)

    def _save_all(self, lanes: Mask) -> None:
        """All is written before the job stops."""
        s, seconds = self.state, self.course.last_save
        s.now += np.where(lanes, seconds, 0.0)
        s.seconds[:, SAVE] += np.where(lanes, seconds, 0.0)

    # -- what breaks, and what comes by itself --------------------------------------------------

    def _break(self, lanes: Places, by_age: Mask) -> Places:
        s = self.state
        before = s.lack[lanes]
        cause = super()._break(lanes, by_age)
        s.down[lanes] += s.lack[lanes] - before
        if self.course.reclaimed:
            mine = np.array(self.reclaims)[cause] & (s.kind[lanes] != LOST)
            s.kind[lanes[mine]] = PREEMPTED
        return cause

    def _send(
        self, lanes: Places, row: Array, nodes: Array, bad: Array, cause: Places
    ) -> None:  # fmt: skip
        found = self.course.reclaimed
        if found is None:
            super()._send(lanes, row, nodes, bad, cause)
            return
        mine = np.array([*self.reclaims, False])[cause]
        if (others := ~mine).any():
            super()._send(lanes[others], row[others], nodes[others], bad[others], cause[others])
        if mine.any():
            away = -np.log1p(-row[mine, draws.FIRST]) * found.back + self.course.joins
            at = self.lanes.now[lanes[mine]] + away
            self.lanes.put(lanes[mine], at, nodes[mine], bad[mine])

    def _happen(self, lanes: Places, which: Places) -> None:
        """What came by itself in each of `lanes`."""
        for kind in np.unique(which):
            some = lanes[which == kind]
            if kind == WINDOW:
                self._maintain(some)
            elif kind in (SLOWS, CORRUPTS):
                self._begin(int(kind), some)
            else:
                self._detect(int(kind), some)

    def _maintain(self, lanes: Places) -> None:
        s, found = self.state, self.course.windows
        assert found is not None
        s.now[lanes] += found.takes
        s.seconds[lanes, MAINTENANCE] += found.takes
        s.due[lanes, WINDOW] += found.every
        self._count("maintenance", lanes)

    def _count(self, name: str, lanes: Places) -> None:
        self.state.failures[lanes, len(self.reclaims) + self.course.timed.index(name)] += 1

    def _begin(self, kind: int, lanes: Places) -> None:
        """Something goes wrong, and nobody sees it."""
        s, course = self.state, self.course
        found, seen = (course.slow, FOUND) if kind == SLOWS else (course.corrupt, SEEN)
        assert found is not None
        new = np.isinf(s.due[lanes, seen])
        s.due[lanes[new], seen] = s.now[lanes[new]] + found.hidden
        s.due[lanes, kind] += self.onsets.next(kind, s.run[lanes])
        if kind == SLOWS:
            s.slow[lanes] = np.minimum(s.slow[lanes] + 1, course.nodes - s.lack[lanes])
        else:
            s.clean[lanes[new]] = s.held[lanes[new], -1]

    def _detect(self, kind: int, lanes: Places) -> None:
        """It is seen: its nodes leave."""
        s, course = self.state, self.course
        self._settle(lanes)
        left = course.nodes - s.lack[lanes]
        nodes = np.minimum(s.slow[lanes] if kind == FOUND else 1.0, left)
        s.due[lanes, kind] = np.inf
        self._count("slow" if kind == FOUND else "corruption", lanes)
        s.lack[lanes] += nodes
        if kind == FOUND:
            s.slow[lanes] = 0.0
        if course.repair is not None:
            row, cause = s.row[lanes], np.full(len(lanes), len(self.reclaims))
            self._send(lanes, row, nodes, np.zeros(len(lanes)), cause)
