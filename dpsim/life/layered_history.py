"""One drawn run of a course with levels, notices, windows or silent failures, event by event: the
reference of `layered`, with which it shares draws and, but for stretches of very many stops, no
arithmetic."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np

from dpsim.life import draws
from dpsim.life.course import (
    EVALUATION,
    FEWER,
    LABELS,
    MAINTENANCE,
    OVERHEAD,
    SAVE,
    SLOW,
    STEP,
    WASTED,
    Course,
)
from dpsim.life.halts import Halt
from dpsim.life.history import _Played
from dpsim.life.recoveries import Outage
from dpsim.life.saving import TIE
from dpsim.life.spells import Spell, relabel
from dpsim.life.staged import CORRUPTS, FOUND, SEEN, SLOWS, WINDOW, Onsets

NEVER = math.inf
#: stops before the next event beyond which they are one stretch of the timeline
_MANY = 512
#: parts in which it is told: its stops, and what is lost of it, lie about where they are
_PARTS = 32
#: what ends a stretch, beside what comes at a time of its own
_BROKE, _CAME = -1, -2


class LayeredPlayed(_Played):
    """A job, its nodes, what breaks, and what comes by itself."""

    def __init__(self, course: Course, run: int) -> None:
        super().__init__(course, run)
        self.levels = course.halts.levels
        self.held, self.pending = [0.0] * len(self.levels), [(NEVER, 0.0)] * len(self.levels)
        self.failures.update(dict.fromkeys(course.timed, 0))
        self.onsets, self.due = Onsets(course, range(run, run + 1)), [NEVER] * 5
        if course.windows:
            self.due[WINDOW] = course.windows.every
        for kind in self.onsets.kinds:
            self.due[kind] = float(self.onsets.next(kind, self.place)[0])
        self.slow = self.down = 0
        self.clean = self.read = 0.0

    def job(self) -> Generator[Any, Any, None]:
        """Start, work, break, recover, until all steps are done."""
        course = self.course
        known = dict(zip(_NAMES, course.outages.numbered, strict=True))
        kind, ended = "begin", None
        while True:
            if kind != "on":
                cut = yield from self._recover(self._outage(known[kind], kind), _PLAIN[kind])
            else:
                cut = False
            if not cut:
                self.down = 0
                ended = yield from self._stretch()
                if ended is None:
                    return
                kind = self._strike_kind() if ended == _BROKE else _ANSWERS[ended]
            else:
                was, kind = kind, self._strike_kind()
                kind = "lost" if was == "lost" and kind != "preempted" else kind
            keeps = known[kind].keeps
            saved = kind == "maintained" or (kind == "preempted" and course.in_time)
            self._return(kind, keeps, saved)
            if saved:
                yield from self._spend(SAVE, course.last_save)
            if not cut and ended is not None and ended >= 0:
                yield from self._happen(ended)

    def _outage(self, outage: Outage, kind: str) -> Outage:
        """With the reading of the level that has the newest checkpoint."""
        saved = kind == "maintained" or (kind == "preempted" and self.course.in_time)
        if kind == "begin" or not self.levels:
            return outage
        if saved or outage.keeps is None:
            return replace(outage, restore=self.read)
        return outage

    def _swapped(self, outage: Outage) -> Outage:
        swap = super()._swapped(outage)
        return replace(swap, restore=self.read) if self.levels and swap.keeps is None else swap

    def _spend(self, label: int, seconds: float) -> Generator[Any, Any, None]:
        """So many seconds in which nothing breaks."""
        begin = self.env.now
        yield self.env.timeout(seconds)
        self._note(label, begin)

    # -- working ------------------------------------------------------------------------------

    def _stretch(self) -> Generator[Any, Any, int | None]:
        """Steps and stops: None where all steps are done; else what ended them."""
        course, total, rate = self.course, self.course.productive, self._rate_of_all()
        self.arrived = self.env.event()
        if self.lack and self._there():
            self.arrived.succeed()
        begun, zones = self.done, [(NEVER, 0.0)] * len(self.levels)
        self.pending = [(NEVER, 0.0)] * len(self.levels)
        queue: list[Halt] = []
        while True:
            factor = course.slow.factor if course.slow and self.slow else 1.0
            speed = course.speeds[self.lack] / factor
            if self._many(speed, rate) and not queue and self.done == begun:
                return (yield from _leap(self, speed, rate))
            slowed = sum(one.slowdown for one, (end, _) in zip(self.levels, zones, strict=True)
                         if self.done < end < NEVER)  # fmt: skip
            goal = min([total, *(self._next(one, self.done) for one in course.halts.kinds),
                        *(end for end, _ in zones if end > self.done)])  # fmt: skip
            if goal > total - course.halts.near(total):  # nothing stops at the end any more
                goal = total
            pace = 0.0 if queue else speed / (1.0 + slowed)
            left = queue[0].pause if queue else (goal - self.done) / pace
            ended = yield from self._until(left, pace, goal, queue, rate)
            if ended is not None:
                return ended
            if queue:
                self._stopped(queue.pop(0), speed, zones)
            elif self.done >= total:
                return None
            else:
                queue = [one for one in course.halts.kinds if self._lies(one, self.done)
                         and self.done > begun + course.halts.near(begun)]  # fmt: skip

    def _until(
        self, left: float, pace: float, goal: float, queue: list[Halt], rate: float
    ) -> Generator[Any, Any, int | None]:
        """The next `left` seconds, or what ends them first."""
        due, begin, before = self._due(rate), self.env.now, self.done
        timer = min(range(5), key=lambda kind: self.due[kind])
        comes = max(self.due[timer] - begin, 0.0)
        if comes == 0.0:
            return timer
        ends = self.env.timeout(min(left, due, comes))
        yield (ends | self.arrived) if self.lack else ends
        passed, whole = self.env.now - begin, ends.processed
        self._age(passed, rate)
        reached = whole and left <= due and left <= comes
        if not queue:
            self.done = goal if reached else before + pace * passed
        self._worked(begin, self.done - before, queue)
        if reached:
            return None
        if not whole:
            return _CAME
        return timer if comes < due else _BROKE

    def _worked(self, begin: float, steps: float, queue: list[Halt]) -> None:
        label = STEP if not queue else EVALUATION if queue[0].copies is None else SAVE
        passed = self.env.now - begin
        self._note(label, begin)
        if queue:
            return
        base = self.course.speeds[self.lack]
        factor = self.course.slow.factor if self.course.slow and self.slow else 1.0
        self.seconds[STEP] += steps - passed
        self.seconds[FEWER] += steps / base * self.course.pace - steps
        self.seconds[OVERHEAD] += steps / base * (1.0 - self.course.pace)
        self.seconds[SLOW] += steps / base * (factor - 1.0)
        self.seconds[SAVE] += passed - steps / base * factor

    def _next(self, one: Halt, place: float) -> float:
        near = float(self.course.halts.near(place))
        return (math.floor((place + near) / one.interval) + 1.0) * one.interval

    def _lies(self, one: Halt, place: float) -> bool:
        away = abs(place - round(place / one.interval) * one.interval)
        return bool(away <= self.course.halts.near(place))

    def _stopped(self, one: Halt, speed: float, zones: list[tuple[float, float]]) -> None:
        """A pause is over."""
        if one.copies is None:
            return
        at = self.levels.index(one)
        if self.pending[at][0] <= self.env.now:
            self.held[at] = self.pending[at][1]
        self.pending[at] = self.env.now + one.write, self.done
        zones[at] = self.done + speed * one.write / (1.0 + one.slowdown), 0.0

    def _many(self, speed: float, rate: float) -> bool:
        quiet = min(self._due(rate), self.env.peek() - self.env.now, min(self.due) - self.env.now)
        rest = min(quiet * speed, self.course.productive - self.done)
        return sum(rest / one.interval for one in self.course.halts.kinds) > _MANY

    # -- what breaks, and what comes by itself --------------------------------------------------

    def _strike_kind(self) -> str:
        before = self.lack
        lost = self._strike()
        self.down += self.lack - before
        if lost:
            return "lost"
        return "preempted" if self.cause == "preemption" else "failure"

    def _send(self, name: str, row: Any, nodes: int) -> None:
        found = self.course.reclaimed
        if name == "preemption" and found:
            away = -math.log1p(-row[draws.FIRST]) * found.back
            self.env.process(self._come(away + self.course.joins, nodes))
        else:
            super()._send(name, row, nodes)

    def _return(self, kind: str, keeps: float | None, saved: bool) -> None:
        """What is not kept was for nothing."""
        self._arrive()
        if kind == "on":
            return
        down = {"maintained": self.course.nodes, "replaced": self.slow}.get(kind, self.down)
        for at, one in enumerate(self.levels):
            if kind == "growth":
                break
            if down >= (one.copies or 0.0) or (kind == "corrupt" and at < len(self.levels) - 1):
                self.held[at] = 0.0
        if kind == "corrupt":
            self.held[-1] = min(self.held[-1], self.clean)
        if saved and self.levels:
            self.held[-1] = self.done
        best = max(self.held, default=self.done)
        reads = [one.restore for one, held in zip(self.levels, self.held, strict=True)
                 if held >= best]  # fmt: skip
        if self.levels:
            self.read = min(reads) if best > 0 else self.levels[-1].restore
        left = best
        if saved or keeps == 0.0 or self.course.free:
            left = self.done
        elif keeps:
            left = max(min(math.floor(self.done / keeps + TIE) * keeps, self.done), best)
        self.seconds[STEP] -= self.done - left
        self.seconds[WASTED] += self.done - left
        self.done = left
        relabel(self.spells, left)

    def _arrive(self) -> None:
        """Checkpoints that are written by now are of use; others are not."""
        for at, (ready, place) in enumerate(self.pending):
            if ready <= self.env.now * (1.0 + 1e-15) + 1e-9:
                self.held[at] = max(self.held[at], place)
        self.pending = [(NEVER, 0.0)] * len(self.levels)

    def _happen(self, kind: int) -> Generator[Any, Any, None]:
        """What came by itself."""
        course = self.course
        if kind == WINDOW and course.windows:
            self.due[WINDOW] += course.windows.every
            self.failures["maintenance"] += 1
            yield from self._spend(MAINTENANCE, course.windows.takes)
        elif kind in (SLOWS, CORRUPTS):
            found, seen = (course.slow, FOUND) if kind == SLOWS else (course.corrupt, SEEN)
            assert found is not None
            if self.due[seen] == NEVER:
                self.due[seen] = self.env.now + found.hidden
                self.clean = self.held[-1] if kind == CORRUPTS else self.clean
            self.due[kind] += float(self.onsets.next(kind, self.place)[0])
            if kind == SLOWS:
                self.slow = min(self.slow + 1, course.nodes - self.lack)
        else:
            self._detected(kind)

    def _detected(self, kind: int) -> None:
        self.due[kind] = NEVER
        nodes = min(self.slow if kind == FOUND else 1, self.course.nodes - self.lack)
        self.failures["slow" if kind == FOUND else "corruption"] += 1
        self.lack += nodes
        self.slow = 0 if kind == FOUND else self.slow
        if self.course.repair is not None:
            self._send("", self.row, nodes)


def _leap(of: LayeredPlayed, speed: float, rate: float) -> Generator[Any, Any, int | None]:
    """Very many stops, as one stretch: to the next event."""
    stops, total, begin = of.course.halts, of.course.productive, of.env.now
    one = np.ones(1)
    whole = float(stops.passed(of.done * one, total * one, speed * one, False)[0])
    due, timer = of._due(rate), min(range(5), key=lambda kind: of.due[kind])
    if of.due[timer] <= begin:
        return timer
    ends = of.env.timeout(min(whole, due, max(of.due[timer] - begin, 0.0)))
    yield (ends | of.arrived) if of.lack else ends
    passed, comes = of.env.now - begin, of.due[timer] - begin
    over = ends.processed and whole <= min(due, comes)
    end = np.array([total if over else NEVER])
    made = stops.stretch(of.done * one, passed * one, speed * one, end)
    of._age(passed, rate)
    steps, saving, other = (float(x[0]) for x in (made.steps, made.saving, made.evaluating))
    of.done += steps
    of.held = [max(a, float(b[0])) for a, b in zip(of.held, made.held, strict=True)]
    of._worked(begin, steps, [])
    of.seconds[SAVE] -= other
    of.seconds[EVALUATION] += other
    of.spells += _spread(of.spells.pop(), steps, saving, other)
    if over:
        return None
    if not ends.processed:
        return _CAME
    return timer if comes < due else _BROKE


def _spread(whole: Spell, steps: float, saving: float, other: float) -> list[Spell]:
    """A stretch of so many seconds of steps, checkpoints and evaluations, told in equal parts."""
    found, at, each = list[Spell](), whole.begin, (whole.end - whole.begin) / _PARTS
    for left in range(_PARTS - 1, -1, -1):
        done, end = whole.done - steps * left / _PARTS, whole.end - left * each
        stops = (saving / _PARTS, LABELS[SAVE]), (other / _PARTS, LABELS[EVALUATION])
        ends = [(end - sum(one for one, _ in stops), whole.label)]
        ends += [(end - stops[1][0], stops[0][1]), (end, stops[1][1])]
        for until, label in ends:
            if until > at:
                found.append(Spell(at, until, label, done))
                at = until
    return found


_NAMES = ("begin", "failure", "swap", "growth", "lost", "on", "preempted", "maintained",
          "replaced", "corrupt")  # fmt: skip
_ANSWERS = {WINDOW: "maintained", SLOWS: "on", FOUND: "replaced", CORRUPTS: "on", SEEN: "corrupt",
            _CAME: "growth"}  # fmt: skip
#: what `_Played` takes each for
_PLAIN = {name: name for name in _NAMES} | {
    "preempted": "failure", "replaced": "failure", "corrupt": "failure", "maintained": "growth",
}  # fmt: skip
