"""The event engine: SimPy plays every operation of every rank.

Each stream of each rank walks its operations in issue order.  How far ahead of the clock it can
walk depends on what it knows: work of its own that nothing can slow down is walked through at once,
what is done with others, or beside collectives that slow it down, is walked when it happens.  A
collective is carried out once for its whole group, phase by phase (`detail: collective`) or
transfer by transfer (`detail: rounds`), on a network whose links all flows share.

SimPy ends quietly when processes wait for each other, and never ends when time stands still; hence
the guards: finite non-negative times, everything done or an error that names the cycle of waiters,
limits on events and on events at one instant.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from math import inf

from dpsim.compile.program import COMPUTE
from dpsim.compile.timeline import Timeline
from dpsim.core.errors import SimulationError
from dpsim.play import Play
from dpsim.play.clock import Clock
from dpsim.play.event.contention import Contention
from dpsim.play.event.deadlock import deadlock
from dpsim.play.event.exchanges import Rendezvous
from dpsim.play.event.players import Ensemble
from dpsim.play.event.score import (
    COLLECTIVE,
    CONTENDED,
    ISSUED,
    RECEIVED,
    SCALED,
    SENT,
    TAKE,
    TURN,
    Cue,
)  # fmt: skip
from dpsim.play.event.steps import Steps
from dpsim.play.event.workers import NOTHING, SPECIAL, Worker, enlist

MAX_EVENTS = 200_000_000


def play(request: Play, *, detail: str = "collective", max_events: int = MAX_EVENTS) -> Timeline:
    """Play `request` event by event.  Raises SimulationError where there is no honest number."""
    collecting = gc.isenabled()
    gc.disable()  # the run makes many small objects and no cycles worth collecting meanwhile
    try:
        return _Run(request, detail, max_events).timeline()
    finally:
        if collecting:
            gc.enable()


class _Run:
    """All players of one call of `play`, walking their operations."""

    def __init__(self, request: Play, detail: str, max_events: int) -> None:
        self.max_events = max_events
        self.clock = Clock()
        casts = [request.cast(k) for k in range(request.steps)]
        self.operations = sum(
            len(program.ops) * len(cast.members(role))
            for cast in casts
            for role, program in enumerate(cast.programs)
        )
        ensemble = Ensemble(request, casts)
        self.compute = ensemble.streams[COMPUTE]
        players = ensemble.players()
        self.contention = Contention(self.clock, request.contention, len(players), self._worked)
        self.exchanges = Rendezvous(
            self.clock, request, detail == "rounds", self.contention, self._ended
        )
        self.steps = Steps(casts, request.warmup, players)
        self.workers = [worker for player in players for worker in enlist(player, self.steps)]
        self.todo: list[Worker] = []
        self.walking = False
        self.acts: dict[int, Callable[[Worker, Cue], None]] = {
            CONTENDED: self._work, COLLECTIVE: self.exchanges.join,
            SENT: self.exchanges.send,
            RECEIVED: self.exchanges.receive, ISSUED: self._issue, TURN: self._turn,
            TAKE: self._take,
        }  # fmt: skip

    def timeline(self) -> Timeline:
        self.todo = self.workers[::-1]
        self._walk()
        events = self._drain()
        if not all(worker.over for worker in self.workers):
            raise SimulationError(deadlock(self.workers))
        return self.steps.timeline(events)

    def _drain(self) -> int:
        """Run until nothing is left to happen, within the limits; returns how many events."""
        events = self.clock.drain(self.max_events, 10_000 + 200 * self.operations)
        if events > self.max_events:
            raise SimulationError(f"more than {self.max_events:,} events; use engine: vectorised")
        return events

    # -- walking ----------------------------------------------------------------------------------

    def _walk(self) -> None:
        """Let every worker that has something to do go on as far as it can."""
        if self.walking:
            return
        self.walking, todo = True, self.todo
        while todo:
            self._go_on(todo.pop())
        self.walking = False

    def _go_on(self, worker: Worker) -> None:
        """Walk through the worker's own work, up to something that is not known yet or that is
        done with others."""
        cues, place, free = worker.cues, worker.place, worker.free
        readies, starts, ends = worker.times
        while True:
            index, kind, seconds, after, special, heard, _, _ = cues[place]
            ready = free
            for other in after:
                if ends[other] > ready:
                    ready = ends[other]
            if special:
                ready = self._specially(worker, cues[place], ready)
            if ready == inf or kind > SCALED:
                worker.place, worker.free, worker.ready = place, free, ready
                break
            if kind:
                seconds *= worker.factor
            if worker.late:
                seconds += worker.late.get(index, 0.0)
            readies[index] = starts[index] = ready
            ends[index] = free = ready + seconds
            place += 1
            if heard:
                self._tell(worker, index, heard)
        if ready == inf:
            worker.blocked = next((k for k in after if ends[k] == inf), SPECIAL)
            worker.player.awake -= 1
        else:
            self.acts[kind](worker, cues[place])

    def _specially(self, worker: Worker, cue: Cue, ready: float) -> float:
        """When `cue` is ready, which others of its rank would let start at `ready`; infinity if
        that is not known yet."""
        op, player = cue.op, worker.player
        if op.after_step and worker.step:
            known = len(player.finished) >= worker.step
            ready = max(ready, player.finished[worker.step - 1]) if known else inf
        if player.issued:
            ready = max(ready, player.issued[worker.step][cue.place])
        if op.delay and ready < inf:
            # what is left of it since the last of what it waits for has ended
            left = max(worker.times.end[other] for other in op.after) + op.delay - ready
            ready += max(left, 0.0)
        return ready

    def _tell(self, worker: Worker, index: int, streams: Sequence[int]) -> None:
        """Operation `index` of a worker's rank has ended, or been issued: its streams go on."""
        workers, todo = worker.player.workers, self.todo
        for stream in streams:
            for other in workers[stream]:
                if other.blocked == index or other.blocked == SPECIAL:
                    other.blocked = NOTHING
                    other.player.awake += 1
                    todo.append(other)

    def _worked(self, worker: Worker, end: float) -> None:
        """The work that `worker` is at, which began when it was ready, ended at `end`."""
        index, _, _, _, _, heard, _, _ = worker.cues[worker.place]
        readies, starts, ends = worker.times
        readies[index] = starts[index] = worker.ready
        ends[index] = worker.free = end
        worker.place += 1
        self.todo.append(worker)
        if heard:
            self._tell(worker, index, heard)
        if not self.walking:
            self._walk()

    def _ended(self, workers: Sequence[Worker], start: float, end: float) -> None:
        """The cues that `workers` are at ran from `start` to `end`."""
        todo = self.todo
        for worker in workers:
            index, _, _, _, _, heard, _, _ = worker.cues[worker.place]
            readies, starts, ends = worker.times
            readies[index], starts[index] = worker.ready, start
            ends[index] = worker.free = end
            worker.meets = None
            worker.place += 1
            todo.append(worker)
            if heard:
                self._tell(worker, index, heard)
        if not self.walking:
            self._walk()

    # -- what cannot be walked through ------------------------------------------------------------

    def _work(self, worker: Worker, cue: Cue) -> None:
        """Work that collectives beside it slow down, if any can."""
        seconds = cue.seconds * worker.factor + worker.late.get(cue.place, 0.0)
        if worker.player.awake > 1 and seconds:
            self.contention.work(worker, seconds)
        else:  # its other streams wait for what comes now or later
            self._worked(worker, worker.ready + seconds)

    def _issue(self, worker: Worker, cue: Cue) -> None:
        """The host issues an operation."""
        worker.free = worker.ready + cue.seconds
        worker.player.issued[worker.step][cue.place] = worker.free
        worker.place += 1
        self.todo.append(worker)
        self._tell(worker, cue.place, cue.heard)

    def _turn(self, worker: Worker, _: Cue) -> None:
        """The worker is through with its step."""
        worker.free = worker.ready
        self.steps.leave(worker.step)
        if worker.stream == self.compute:
            worker.player.finished.append(worker.free)
            self._tell(worker, SPECIAL, tuple(worker.player.workers))
        if worker.step + 1 == len(worker.player.scores):
            worker.over = True
            worker.player.awake -= 1
            return
        worker.enter(self.steps, worker.step + 1)
        self.todo.append(worker)

    def _take(self, worker: Worker, _: Cue) -> None:
        """A worker takes the next operation of a stream that it shares."""
        assert worker.queue is not None
        cue = worker.queue.take()
        for step in range(worker.step, worker.queue.step):
            self.steps.leave(step)
        if cue is None:
            worker.over = True
            worker.player.awake -= 1
            return
        worker.enter(self.steps, worker.queue.step, cue)
        self.todo.append(worker)
