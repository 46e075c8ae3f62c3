"""One drawn run, played event by event on SimPy: the timeline of a run, and the reference that
`abreast` is held against.  It draws the same numbers and shares no arithmetic with it."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import simpy

from dpsim.core.arrays import Array
from dpsim.core.record import Refused
from dpsim.life import draws
from dpsim.life.course import (
    DETECTION,
    FEWER,
    LABELS,
    OVERHEAD,
    RESTORE,
    SAVE,
    STARTUP,
    STEP,
    WAITING,
    WASTED,
    Course,
)
from dpsim.life.recoveries import Outage, Repair
from dpsim.life.saving import TIE
from dpsim.life.spells import Life, Spell, relabel

Flow = Generator[Any, Any, bool]
NEVER = math.inf
#: checkpoints on end beyond which they are one stretch of the timeline
_MANY = 256


def life_of(course: Course, run: int) -> Life:
    """Run number `run` of `course`, whose nodes are all alike."""
    if course.bad[0] > 0:
        raise Refused("single runs are told of nodes that are alike", ("failures", "bad"))
    player: type[_Played] = _Played
    if course.layered:
        from dpsim.life.layered_history import LayeredPlayed  # which is built on this

        player = LayeredPlayed
    played = player(course, run)
    played.env.run(until=played.env.process(played.job()))
    return Life(tuple(played.spells), tuple(played.seconds), played.failures)


def _rates(course: Course, lack: int) -> list[float]:
    """Failures per second of what breaks at a constant rate, while `lack` nodes are away."""
    nodes = (course.nodes - lack) / course.nodes
    return [one.rate * (nodes if one.nodes == 1 else 1.0) for one in course.steady]


class _Nodes:
    """The pools of a job, and its nodes that are away."""

    def __init__(self, course: Course) -> None:
        self.course, self.env = course, simpy.Environment()
        self.lack, (_, self.warm, self.idle, self.cold) = 0, course.pools
        self.ordered = self.ready = 0
        self.arrived = self.env.event()
        self.shop = simpy.Resource(self.env, course.technicians) if course.technicians else None

    def _ask(self, broke: bool) -> None:
        """Cold nodes are asked for; where others go on meanwhile, warm and idle ones start up."""
        course, spares = self.course, self.course.spares
        wanted = max(self.lack - self.ready - self.ordered, 0)
        if self.lack > self.warm + self.idle and not course.one_by_one:
            there = self.warm + self.idle + self.ready + self.ordered
            nodes = min(max(self.lack + spares.warm - there, 0), self.cold)
            if nodes:
                self.cold -= nodes
                self.env.process(self._come(spares.provision + course.joins, nodes, True))
        if course.joins and broke and wanted:
            selects = wanted > self.warm
            nodes = self._out_of(wanted)
            if selects:
                self._warm_up()
            if nodes:
                ready = course.selection * selects + course.joins
                self.env.process(self._come(ready, nodes, True))

    def _come(self, seconds: float, nodes: int, new: bool = False) -> Generator[Any, Any, None]:
        """Nodes are there after so many seconds."""
        self.ordered += nodes * new
        yield self.env.timeout(seconds)
        self.ordered -= nodes * new
        if self.course.joins:
            ready = min(nodes, max(self.lack - self.ready, 0))
            self.ready, nodes = self.ready + ready, nodes - ready
        warm = min(nodes, max(self.course.spares.warm - self.warm, 0))
        self.warm += warm
        self.idle += nodes - warm
        if not self.arrived.triggered:
            self.arrived.succeed()

    def _there(self) -> int:
        """Nodes that the job can have at once."""
        return self.ready if self.course.joins else self.warm + self.idle

    def _out_of(self, wanted: int) -> int:
        """So many nodes at most out of the pools, warm ones first."""
        first = min(wanted, self.warm)
        second = min(wanted - first, self.idle)
        self.warm, self.idle = self.warm - first, self.idle - second
        return first + second

    def _warm_up(self) -> None:
        more = min(max(self.course.spares.warm - self.warm, 0), self.idle)
        self.warm, self.idle = self.warm + more, self.idle - more

    def _send(self, name: str, row: Array, nodes: int) -> None:
        """Nodes that broke for cause `name` go to be mended."""
        assert self.course.repair is not None
        first, second = _times(self.course.repair, row)
        if self.shop is not None and second > 0.0:
            self.env.process(self._mended(self.shop, first, second, nodes))
        else:
            self.env.process(self._come(first + second + self.course.joins, nodes))

    def _mended(
        self, shop: simpy.Resource, first: float, second: float, nodes: int
    ) -> Generator[Any, Any, None]:
        """A first attempt, then a technician's turn."""
        yield self.env.timeout(first)
        with shop.request() as turn:
            yield turn
            yield self.env.timeout(second)
        yield from self._come(self.course.joins, nodes)


class _Played(_Nodes):
    """A job, its nodes, and what breaks."""

    def __init__(self, course: Course, run: int) -> None:
        super().__init__(course)
        self.rows, self.place = draws.Rows(course.seed, range(run, run + 1)), np.zeros(1, int)
        self.row = self.last = self.rows.next(self.place)[0]
        self.hazard, self.age = float(draws.gap(self.row)), 0.0
        self.lives = [draws.first_lives(one, course.seed, run) for one in course.aging]
        self.spells: list[Spell] = []
        self.seconds = [0.0] * len(LABELS)
        self.failures = {one.name: 0 for one in (*course.steady, *course.aging)}
        self.done, self.saved = 0.0, 0  # productive seconds; checkpoints that are of use
        self.by_age = self.grew = False
        self.cause = ""  # what broke last

    def job(self) -> Generator[Any, Any, None]:
        """Start, work, break, recover, until all steps are done."""
        answers, kind = self.course.outages, "begin"
        while True:
            cut = yield from self._recover(getattr(answers, kind), kind)
            if not cut and not (yield from self._work()):
                return
            if self.grew and not cut:
                kind = "growth"
            else:
                kind = "lost" if self._strike() or (cut and kind == "lost") else "failure"
            self._go_back(getattr(answers, kind).keeps)

    # -- time ---------------------------------------------------------------------------------

    def _due(self, rate: float) -> float:
        """Seconds until something breaks."""
        steady = self.hazard / rate if rate else NEVER
        nearest = min((float(lives.min()) for lives in self.lives), default=NEVER) - self.age
        self.by_age = nearest <= steady
        return max(min(steady, nearest), 0.0)

    def _age(self, seconds: float, rate: float) -> None:
        self.hazard -= rate * seconds
        self.age += seconds

    def _pass(self, label: int, seconds: float) -> Flow:
        """Let `seconds` pass, or less where something breaks first: whether it does."""
        exposed = self.course.always
        due = self._due(self.rate) if exposed else NEVER
        passed, begin = min(due, seconds), self.env.now
        yield self.env.timeout(passed)
        if exposed:
            self._age(passed, self.rate)
        self._note(label, begin)
        return due < seconds

    def _note(self, label: int, begin: float) -> None:
        if self.env.now > begin:
            self.spells.append(Spell(begin, self.env.now, LABELS[label], self.done))
            self.seconds[label] += self.env.now - begin

    # -- recovering ---------------------------------------------------------------------------

    def _recover(self, outage: Outage, kind: str) -> Flow:
        """What passes before steps go on; whether something broke in it."""
        self.rate = self._rate_of_all()
        gone = kind == "lost" and self.lack >= (self.course.holders or self.course.nodes)
        if (yield from self._pass(DETECTION, outage.detection)):
            return True
        swap, selects = False, self.lack > 0
        if self.course.endless:
            self.lack = 0
        else:
            self._ask(kind in ("failure", "lost"))
            swap = kind == "failure" and 0 < self.lack <= self.warm and not self.course.joins
            selects = self.lack > self.warm and (self.idle > 0 or len(self.course.speeds) == 1)
            if (yield from (self._fetch() if self.course.one_by_one else self._wait())):
                return True
            if self.course.joins:
                outage = replace(outage, startup=0.0) if gone else outage  # it has passed by now
                self.lack, self.ready, selects = self.lack - self.ready, 0, False
            else:
                self.lack -= self._out_of(self.lack)
                if selects:
                    self._warm_up()
        if (yield from self._pass(WAITING, self.course.selection * selects)):
            return True
        if swap:
            outage = self._swapped(outage)
        if (yield from self._pass(STARTUP, outage.startup)):
            return True
        return (yield from self._pass(RESTORE, outage.restore))

    def _swapped(self, outage: Outage) -> Outage:
        """What passes where a warm node takes a place, in place of `outage`."""
        return self.course.outages.swap

    def _fetch(self) -> Flow:
        """Until cold nodes have come, one after another, or others back; nothing breaks in it."""
        most, begin = self.lack + self.course.spares.warm, self.env.now
        begun = self.lack > self.warm + self.idle
        while begun and self.warm + self.idle < most:
            if self.cold:
                yield self.env.timeout(self.course.spares.provision)
                self.cold -= 1
                warm = self.warm < self.course.spares.warm
                self.warm, self.idle = self.warm + warm, self.idle + (not warm)
            else:
                self.arrived = self.env.event()
                yield self.arrived
        self._note(WAITING, begin)
        return False

    def _wait(self) -> Flow:
        """Until there are nodes enough; whether something breaks before."""
        most, begin = len(self.course.speeds) - 1, self.env.now
        due = self.env.timeout(self._due(self.rate)) if self.course.always else self.env.event()
        while self.lack - self._there() > most and not due.processed:
            self.arrived = self.env.event()
            yield due | self.arrived
        broke = self.lack - self._there() > most
        if self.course.always:
            self._age(self.env.now - begin, self.rate)
        self._note(WAITING, begin)
        return broke

    # -- working ------------------------------------------------------------------------------

    def _work(self) -> Flow:
        """Steps and checkpoints; False where all steps are done, else something broke or came."""
        saving, total = self.course.saving, self.course.productive
        speed, rate = self.course.speeds[self.lack], self._rate_of_all()
        self.arrived, self.grew = self.env.event(), False
        if self.lack and self._there():  # they came while the job recovered
            self.arrived.succeed()
        pause = write = 0.0
        each, taken = saving.interval, self.saved
        while True:
            if pause and (many := _cycles(self, taken, speed, rate)):
                yield from _skip(self, many, taken, speed, rate)
                self.saved, taken = self.saved + many, taken + many
            goal = (taken + 1) * each  # what lies at the end is not saved any more
            goal = total if goal > total - TIE * each else goal
            pace = 0.0 if pause else speed / (1.0 + saving.slowdown) if write else speed
            left = pause or min(write or NEVER, (goal - self.done) / pace)
            due, begin, before = self._due(rate), self.env.now, self.done
            ends = self.env.timeout(min(left, due))
            yield (ends | self.arrived) if self.lack else ends
            passed = self.env.now - begin
            self._age(passed, rate)
            whole = ends.processed and left <= due
            reached = whole and not pause and not (write and left == write)
            self.done = goal if reached else before + pace * passed
            _label(self, begin, self.done - before, speed, bool(pause))
            if not whole:
                self.grew = not ends.processed
                return True
            if reached and goal == total:
                return False
            if reached:
                pause, write, taken = saving.pause, 0.0, taken + 1
                continue
            if pause:
                pause, write = 0.0, saving.write
            else:
                write = 0.0
            if not write:
                self.saved = taken

    def _go_back(self, keeps: float | None) -> None:
        """What is not kept was for nothing: its spells get another label."""
        base, left = self.saved * self.course.saving.interval, self.done
        if keeps is None and not self.course.free:
            left = base
        elif keeps and not self.course.free:
            left = max(min(math.floor(left / keeps + TIE) * keeps, left), base)
        self.seconds[STEP] -= self.done - left
        self.seconds[WASTED] += self.done - left
        self.done = left
        self.saved += int((left - base) / self.course.saving.interval + TIE)
        relabel(self.spells, left)

    # -- what breaks --------------------------------------------------------------------------

    def _rate_of_all(self) -> float:
        return math.fsum(_rates(self.course, self.lack))

    def _strike(self) -> bool:
        """Something breaks, now; whether nobody is left with the job's state."""
        course, row, rates = self.course, self.row, _rates(self.course, self.lack)
        if self.by_age:
            kind = min(range(len(self.lives)), key=lambda k: float(self.lives[k].min()))
            hazard, own = course.aging[kind], self.lives[kind]
            new = draws.lifetimes(hazard, row[draws.LIFE], row[draws.TURN])
            own[int(own.argmin())] = self.age + float(new)
        else:
            drawn, kind = row[draws.CAUSE] * math.fsum(rates), 0
            while kind + 1 < len(rates) and drawn >= math.fsum(rates[: kind + 1]):
                kind += 1
            hazard = course.steady[kind]
        self.failures[hazard.name] += 1
        nodes = min(hazard.nodes, course.nodes - self.lack)
        self.lack += nodes
        if nodes and course.repair is not None:
            self._send(hazard.name, row, nodes)
        self.last, self.row = row, self.rows.next(self.place)[0]
        if not self.by_age:
            self.hazard = float(draws.gap(self.row))
        self.cause = hazard.name
        return bool(course.loses(np.array(hazard.nodes), np.array(self.lack)))


def _times(repair: Repair, row: Array) -> tuple[float, float]:
    """Seconds of both attempts to mend a node."""
    first = -math.log1p(-row[draws.FIRST]) * repair.automatic
    worse = row[draws.ESCALATES] < repair.escalates
    return first, -math.log1p(-row[draws.SECOND]) * repair.manual if worse else 0.0


def _label(of: _Played, begin: float, steps: float, speed: float, paused: bool) -> None:
    """What passed since `begin`, in which so many productive seconds were done."""
    passed = of.env.now - begin
    of._note(SAVE if paused else STEP, begin)
    of.seconds[SAVE if paused else STEP] -= passed
    of.seconds[STEP] += steps
    of.seconds[FEWER] += steps / speed * of.course.pace - steps
    of.seconds[OVERHEAD] += steps / speed * (1.0 - of.course.pace)
    of.seconds[SAVE] += passed - steps / speed


# -- many checkpoints on end ------------------------------------------------------------------


def _cycles(of: _Played, taken: int, speed: float, rate: float) -> int:
    """From the begin of a pause on: checkpoints before anything else happens, but for the last
    two; 0 where they are few, and played one by one."""
    saving = of.course.saving
    quiet = min(of._due(rate), of.env.peek() - of.env.now)
    rest = of.course.productive - taken * saving.interval
    most = min(quiet / float(saving.cycle(np.array(speed))), rest / saving.interval)
    return max(int(most) - 2, 0) if most > _MANY else 0


def _skip(of: _Played, many: int, taken: int, speed: float, rate: float) -> Flow:
    """So many pauses and the steps after them are one stretch: steps, pauses, last steps."""
    saving, begin = of.course.saving, of.env.now
    each = saving.interval
    yield of.env.timeout(many * float(saving.cycle(np.array(speed))))
    of._age(of.env.now - begin, rate)
    of.done = (taken + many) * each
    _label(of, begin, many * each, speed, False)
    whole, last = of.spells.pop(), each / speed
    worked = begin + (many - 1) * last
    of.spells += [
        Spell(begin, worked, LABELS[STEP], of.done - each),
        Spell(worked, whole.end - last, LABELS[SAVE], of.done - each),
        whole._replace(begin=whole.end - last),
    ]
    return False
