"""All drawn runs of a job at once: each turn brings every run to its next failure, or to its end.

Between two failures nothing is drawn, so what passes there is known in closed form
(`Saving.advance`).  `history` plays one run of the same draws event by event, for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsim.core.arrays import Array
from dpsim.core.record import Refused
from dpsim.life import draws
from dpsim.life.course import (
    DETECTION,
    FAILURE,
    FEWER,
    GROWTH,
    LOST,
    OVERHEAD,
    RESTORE,
    SAVE,
    STEP,
    SWAP,
    WASTED,
    Course,
    Lives,
)
from dpsim.life.lanes import POOLS, Mask, Places, some_bad, start
from dpsim.life.pools import ask, find
from dpsim.life.saving import TIE
from dpsim.life.shop import line_up

#: failures of a run beyond which it is refused: in the mean runs have a fourth of it at most
TURNS = 400_000
#: lifetimes that are kept at once
_PARTS = 4_000_000


def live(course: Course, runs: int) -> Lives:
    """So many drawn runs of `course`."""
    return live_each([course], runs)[0]


def live_each(courses: Sequence[Course], runs: int) -> list[Lives]:
    """The same so many drawn runs of each of `courses`, which differ in the rates of what breaks at
    a constant rate and in nothing else, all in one pass: what they are alone, to the bit."""
    course = courses[0]
    parts = sum(int(one.units) for one in course.aging) * len(courses)
    size = max(1, min(runs, _PARTS // parts if parts else runs))
    player: type[Abreast] = Abreast
    names = tuple(one.name for one in (*course.steady, *course.aging))
    if course.layered:
        from dpsim.life.layered import Layered  # which is built on this

        player, names = Layered, (*names, *course.timed)
    done = [player(courses, range(at, min(at + size, runs))).lives() for at in range(0, runs, size)]

    def joined(key: str, place: int) -> Array:
        parts = (np.split(getattr(one, key), len(courses))[place] for one in done)
        whole: Array = np.concatenate(list(parts))
        return whole

    return [
        Lives(joined("times", k), joined("seconds", k), joined("failures", k), names)
        for k in range(len(courses))
    ]


class Abreast:
    """The same runs of some courses that are alike but for rates, abreast."""

    def __init__(self, courses: Sequence[Course], runs: range) -> None:
        self.course = course = courses[0]
        numbers = [*runs] * len(courses)
        self.detection, self.startup, self.restore, self.keeps = (
            course.outages.column(name) for name in ("detection", "startup", "restore", "keeps")
        )
        if course.free:
            self.keeps = np.zeros(len(self.keeps))
        self.speeds = np.array(course.speeds)
        self.rows = draws.Rows(course.seed, numbers)
        first = self.rows.next(np.arange(len(numbers)))
        rates = np.repeat([_each(one) for one in courses], len(runs), axis=0)
        self.lanes = start(course, numbers, rates, first)
        self.lives_of = [
            np.stack([draws.first_lives(one, course.seed, run) for run in numbers])
            for one in course.aging
        ]
        self.of_node = np.array([one.nodes == 1 for one in course.steady], bool)
        hazards = (*course.steady, *course.aging)
        self.takes = np.array([one.nodes for one in hazards], float)

    def lives(self) -> Lives:
        """Play all to their ends."""
        count = len(self.lanes)
        times, seconds = np.zeros(count), np.zeros((count, self.lanes.seconds.shape[1]))
        failures = np.zeros((count, self.lanes.failures.shape[1]))
        for _ in range(TURNS):
            ended = self._turn()
            if ended.any():
                at = self.lanes.run[ended]
                times[at], seconds[at] = self.lanes.now[ended], self.lanes.seconds[ended]
                failures[at] = self.lanes.failures[ended]
                self.lanes = self.lanes.only(~ended)
                self.lives_of = [lives[~ended] for lives in self.lives_of]
                if not len(self.lanes):
                    rounding = np.abs(seconds) < 1e-12 * times[:, None]
                    return Lives(times, np.where(rounding, 0.0, seconds), failures, ())
        said = f"{len(self.lanes)} drawn runs have not ended after {TURNS:,} failures each"
        raise Refused(f"{said}; fewer are accepted", ("failures",))

    # -- a turn -------------------------------------------------------------------------------

    def _turn(self) -> Mask:
        """Every run recovers, and goes on to its next failure; which runs have ended."""
        s = self.lanes
        cut, out = self._recover()
        speed = self.speeds[np.minimum(s.lack, len(self.speeds) - 1).astype(int)]
        rate = self._rates().sum(axis=1)
        left = self.course.productive - s.saved * self.course.saving.interval - s.since
        whole = self.course.saving.duration(left, s.since, speed)
        aged = self._until_aged()
        gap = np.minimum(_until(s.hazard, rate), aged)
        joins = np.where(s.lack > 0, np.maximum(s.soon - s.now, 0.0), np.inf)
        ended = ~cut & (whole <= gap) & (whole <= joins)
        grown = ~cut & ~ended & (joins < gap)
        passed = np.where(cut, 0.0, np.minimum(np.minimum(gap, whole), joins))
        steps, saved = self.course.saving.advance(passed, s.since, speed)
        steps = np.where(ended, left, np.where(cut, 0.0, steps))
        s.now += passed
        s.hazard -= rate * passed
        s.age += passed
        s.kind = np.where(grown, GROWTH, np.where(cut & (s.kind == LOST), LOST, FAILURE))
        fails = ~ended & ~grown
        if fails.any():
            by_age = np.where(cut, out, aged <= gap) if self.course.aging else fails & False
            self._break(np.flatnonzero(fails), by_age)
        self._account(passed, steps, np.where(cut, 0.0, saved), speed, ended, cut)
        found: Mask = ended
        return found

    def _account(
        self, passed: Array, steps: Array, saved: Array, speed: Array, ended: Mask, cut: Mask
    ) -> None:  # fmt: skip
        """Label a stretch, and go back to what is left of it."""
        s, each = self.lanes, self.course.saving.interval
        keeps = self.keeps[s.kind]
        whole = s.since + steps
        base, grid = s.saved * each, np.maximum(keeps, 1e-300)
        kept = np.floor((base + whole) / grid + TIE) * keeps - base
        live = np.where(keeps > 0, np.minimum(kept, whole), whole)
        left = np.where(ended | (keeps >= 0), np.where(ended, whole, live), saved * each)
        left = np.where(cut, np.where(keeps < 0, 0.0, s.since), left)
        left = np.where(cut, left, np.maximum(left, saved * each))
        kept = left - s.since
        more = np.where(keeps >= 0, np.floor(left / each + TIE), saved)
        s.saved += np.where(cut, 0.0, more)
        s.since = np.maximum(left - more * each, 0.0)
        s.seconds[:, STEP] += kept
        s.seconds[:, WASTED] += steps - kept
        worked = steps / speed
        s.seconds[:, FEWER] += worked * self.course.pace - steps
        s.seconds[:, OVERHEAD] += worked * (1.0 - self.course.pace)
        s.seconds[:, SAVE] += np.maximum(passed - steps / speed, 0.0)

    def _recover(self) -> tuple[Mask, Mask]:
        """Pass the time until steps go on; where a failure comes first, and whether age was it."""
        s, course = self.lanes, self.course
        rate = self._rates().sum(axis=1) if course.always else np.zeros(len(s))
        before = self._pools()
        detection = self.detection[s.kind]
        apart = course.joins > 0 and not course.endless  # nodes that come have started up
        anew = (s.kind == LOST) & (s.lack >= (course.holders or course.nodes)) & apart
        ask(course, s, s.now + detection)
        asked = self._pools()
        found, ready, swap = find(course, s, s.now + detection)
        kind = np.where(swap, SWAP, s.kind)
        wait = ready - s.now - detection
        startup = np.where(anew, 0.0, self.startup[kind])
        phases = np.stack([detection, wait, startup, self._reading(kind)], axis=1)
        ends = np.cumsum(phases, axis=1)
        whole = ends[:, -1]
        aged = self._until_aged() if course.always else np.full(len(s), np.inf)
        gap = np.minimum(_until(s.hazard, rate), aged)
        cut = gap < whole
        passed = np.where(cut, gap, whole)
        self._undo(cut & (gap < found - s.now), asked)
        self._undo(cut & (gap < detection), before)
        spent = np.clip(passed[:, None] - (ends - phases), 0.0, phases)
        s.seconds[:, DETECTION : RESTORE + 1] += spent
        s.now += passed
        if course.always:
            s.hazard -= rate * passed
            s.age += passed
        return cut, aged <= gap

    def _reading(self, kind: Places) -> Array:
        """Seconds for which a checkpoint is read."""
        found: Array = self.restore[kind]
        return found

    def _pools(self) -> dict[str, Array]:
        """Where nodes are, to come back to."""
        if not self.course.always:
            return {}
        return {name: getattr(self.lanes, name).copy() for name in POOLS}

    def _undo(self, lanes: Mask, before: dict[str, Array]) -> None:
        """Nothing was picked in `lanes`, where a failure came first."""
        if not lanes.any():
            return
        for name, value in before.items():
            now = getattr(self.lanes, name)
            kept = now[lanes]
            if value.ndim > 1:
                kept[:] = np.inf if name == "back" else 0.0
                kept[:, : value.shape[1]] = value[lanes]
            else:
                kept = value[lanes]
            now[lanes] = kept

    # -- what breaks --------------------------------------------------------------------------

    def _rates(self) -> Array:
        """Failures per second of what breaks at a constant rate, shape (lanes, hazards)."""
        s = self.lanes
        if not len(self.of_node):
            return np.zeros((len(s), 1))
        nodes = self.course.nodes - s.lack + s.bad * (self.course.bad[1] - 1.0)
        made: Array = np.where(self.of_node, nodes[:, None] * s.rates, s.rates)
        return made

    def _until_aged(self) -> Array:
        """Seconds until the next part breaks by its age."""
        s = self.lanes
        nearest = [lives.min(axis=1) for lives in self.lives_of]
        if not nearest:
            return np.full(len(s), np.inf)
        made: Array = np.maximum(np.min(nearest, axis=0) - s.age, 0.0)
        return made

    def _break(self, lanes: Places, by_age: Mask) -> Places:
        """Something breaks in each of `lanes`, now: which of the hazards."""
        s, course = self.lanes, self.course
        self._settle(lanes)
        row = s.row[lanes]
        cause = self._cause(lanes, row, by_age[lanes])
        s.failures[lanes, cause] += 1
        at_work = course.nodes - s.lack[lanes]
        nodes = np.minimum(self.takes[cause], at_work)
        bad = s.bad[lanes]
        likely = bad * course.bad[1]
        single = row[:, draws.WHO] * (at_work - bad + likely) < likely
        lost = np.where(nodes == 1, single, some_bad(bad, at_work, nodes, row[:, draws.WHO]))
        lost = np.minimum(np.where(nodes > 0, lost, 0.0), bad)
        s.lack[lanes] += nodes
        s.kind[lanes[course.loses(self.takes[cause], s.lack[lanes])]] = LOST
        s.bad[lanes] -= lost
        if course.repair is not None and (hit := nodes > 0).any():
            self._send(lanes[hit], row[hit], nodes[hit], lost[hit], cause[hit])
        s.row[lanes] = self.rows.next(s.run[lanes])
        again = lanes[~by_age[lanes]]
        s.hazard[again] = draws.gap(s.row[again])
        s.last[lanes] = row
        return cause

    def _settle(self, lanes: Places) -> None:
        """Whoever has come to `lanes` by now came to a job that lacked less.  Others go on, and
        are yet to see who has come."""
        if self.course.joins > 0:
            at = np.full(len(self.lanes), -np.inf)
            at[lanes] = self.lanes.now[lanes]
            self.lanes.settle(at, self.course.spares.warm, True)

    def _cause(self, lanes: Places, row: Array, by_age: Mask) -> Places:
        """Which of the hazards it was; a part that broke by its age gets a new life."""
        s, course = self.lanes, self.course
        rates = np.cumsum(self._rates()[lanes], axis=1)
        drawn = row[:, draws.CAUSE] * rates[:, -1]
        most = max(len(course.steady) - 1, 0)
        cause: Places = np.minimum((drawn[:, None] >= rates).sum(axis=1), most)
        for place in np.flatnonzero(by_age):
            lane = lanes[place]
            nearest = [lives[lane].min() for lives in self.lives_of]
            kind = int(np.argmin(nearest))
            own, unit = self.lives_of[kind][lane], int(self.lives_of[kind][lane].argmin())
            numbers = row[place, draws.LIFE], row[place, draws.TURN]
            own[unit] = s.age[lane] + draws.lifetimes(course.aging[kind], *numbers)
            cause[place] = len(course.steady) + kind
        return cause

    def _send(
        self, lanes: Places, row: Array, nodes: Array, bad: Array, cause: Places
    ) -> None:  # fmt: skip
        """Broken nodes go to be mended."""
        repair, s = self.course.repair, self.lanes
        assert repair is not None
        worse = row[:, draws.ESCALATES] < repair.escalates
        first = -np.log1p(-row[:, draws.FIRST]) * repair.automatic
        second = np.where(worse, -np.log1p(-row[:, draws.SECOND]) * repair.manual, 0.0)
        fails = np.where(worse, repair.manual_fails, repair.automatic_fails)
        still = np.where(row[:, draws.MENDED] < fails, bad, 0.0)
        now = s.now[lanes]
        place = s.put(lanes, now + (first + second) + self.course.joins, nodes, still)
        if repair.technicians and worse.any():
            s.back_due[lanes[worse], place[worse]] = (now + first)[worse]
            s.back_work[lanes[worse], place[worse]] = second[worse]
            line_up(s, lanes[worse], place[worse], repair.technicians, self.course.joins)


def _each(course: Course) -> list[float]:
    """Failures per second of what breaks at a constant rate: of each node, or of the job."""
    return [one.rate / course.nodes if one.nodes == 1 else one.rate for one in course.steady]


def _until(hazard: Array, rate: Array) -> Array:
    """Seconds until `hazard` has passed at `rate`."""
    never = np.full(len(hazard), np.inf)
    made: Array = np.divide(np.maximum(hazard, 0.0), rate, out=never, where=rate > 0)
    return made
