"""The event engine: SimPy plays every operation of every rank.

One process per rank and stream walks its operations in issue order; a host process per rank joins
in only where issuing costs time or blocks.  A collective is carried out once for its whole group,
phase by phase (`detail: collective`) or transfer by transfer (`detail: rounds`), on a network
whose links all flows share.

SimPy accepts NaN delays, ends quietly when processes wait for each other, and never ends when time
stands still; hence the guards: finite non-negative times, everything done or an error that names
the cycle of waiters, limits on events and on events at one instant.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from math import inf

import simpy

from dpsim.compile.program import COMPUTE, RECEIVE, Op
from dpsim.compile.timeline import Timeline
from dpsim.core.errors import SimulationError
from dpsim.play import Play, check_time
from dpsim.play.event.deadlock import Waiting, deadlock
from dpsim.play.event.exchanges import Delivery, Events, Meeting, Rendezvous
from dpsim.play.event.steps import Steps

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
    """All ranks of one call of `play`, walking their operations."""

    def __init__(self, request: Play, detail: str, max_events: int) -> None:
        self.request, self.max_events = request, max_events
        self.env = simpy.Environment()
        self.casts = [request.cast(k) for k in range(request.steps)]
        self.factors = [request.factors(k) for k in range(request.steps)]
        self.late = request.delays and [request.delays(k) for k in range(request.steps)]
        self.steps = Steps(self.casts, request.warmup)
        self.exchanges = Rendezvous(self.env, request, self.casts, detail == "rounds")
        self.done: dict[tuple[int, int, int], simpy.Event] = {}
        self.issued: dict[tuple[int, int, int], simpy.Event] = {}
        self.waiting: Waiting = {}

    def timeline(self) -> Timeline:
        cast = self.casts[0]
        processes = []
        for rank in range(cast.ranks):
            if self._hosted(rank):
                processes.append(self.env.process(self._host(rank)))
            for stream in dict.fromkeys(
                s for cast in self.casts for s in cast.program(rank).streams
            ):
                queue = self._queue(rank, stream)
                for _ in range(1 if stream == COMPUTE else self.request.costs.concurrency):
                    processes.append(self.env.process(self._work_off(rank, queue)))
        events = self._drain(sum(len(c.program(r).ops) for c in self.casts for r in range(c.ranks)))
        if any(process.is_alive for process in processes):
            raise SimulationError(deadlock(self.waiting, self.casts, self._ended))
        return self.steps.timeline(events)

    def _drain(self, operations: int) -> int:
        """Run until nothing is left to happen, within the limits; returns how many events."""
        env, at, events, same = self.env, -1.0, 0, 0
        ceiling = 10_000 + 200 * operations
        while env.peek() != inf:
            env.step()
            events += 1
            before, at = at, env.now
            same = same + 1 if at == before else 0
            if events > self.max_events:
                raise SimulationError(
                    f"more than {self.max_events:,} events; use engine: vectorised"
                )
            if same > ceiling:
                raise SimulationError(
                    f"time stands still at {at} s: {same:,} events at one instant"
                )
        return events

    def _hosted(self, rank: int) -> bool:
        """Whether the host thread of `rank` matters in any step."""
        return any(cast.program(rank).host_matters for cast in self.casts)

    def _host(self, rank: int) -> Events:
        """Issue the operations in order; each becomes available at its issue time."""
        for step, cast in enumerate(self.casts):
            for index, op in enumerate(cast.program(rank).ops):
                if op.issue:
                    yield self.env.timeout(check_time(op.issue, f"issuing {op.name}"))
                self._event(self.issued, step, rank, index).succeed()
                if op.blocks_host:
                    yield self._event(self.done, step, rank, index)

    def _queue(self, rank: int, stream: str) -> Iterator[tuple[int, int, Op, bool]]:
        """The operations of a stream in issue order: (step, index, operation, whether its end may
        be awaited)."""
        for step, cast in enumerate(self.casts):
            program = cast.program(rank)
            for index, op in enumerate(program.ops):
                if op.stream == stream:
                    yield step, index, op, index in program.awaited

    def _work_off(self, rank: int, queue: Iterator[tuple[int, int, Op, bool]]) -> Events:
        """A worker of a stream: takes the next operation when it has ended the one before.

        A stream has one worker, or as many as the backend runs collectives at once."""
        host = self._hosted(rank)
        for step, index, op, awaited in queue:
            if host or op.after or op.after_step:
                yield from self._await(step, rank, index, op, host)
            ready = start = self.env.now
            if op.kind == "collective":
                meeting = self.exchanges.join(step, rank, index, op)
                start = yield from self._until(rank, op, (step, index, meeting))
            elif op.kind == "transfer":
                delivery = self.exchanges.delivery(step, rank, index, op)
                if op.operation == RECEIVE:
                    start = yield from self._until(rank, op, (step, index, delivery))
                else:
                    yield from self.exchanges.send(step, op, delivery)
            elif op.scales and self.request.contention:
                seconds = self._seconds(step, rank, index, op)
                yield from self.exchanges.contention.work(rank, seconds)
            elif seconds := self._seconds(step, rank, index, op):
                yield self.env.timeout(seconds)
            self.steps.note(step, rank, index, ready, start, self.env.now)
            if awaited:
                self._event(self.done, step, rank, index).succeed()

    def _await(self, step: int, rank: int, index: int, op: Op, host: bool) -> Events:
        """Everything that `op` waits for on its own rank."""
        waits = [self._event(self.done, step, rank, other) for other in op.after]
        if op.after_step and step:
            end = self.casts[step - 1].program(rank).end
            waits.append(self._event(self.done, step - 1, rank, end))
        if host:
            waits.append(self._event(self.issued, step, rank, index))
        for event in waits:
            if not event.triggered:
                self.waiting[rank, op.stream] = (step, index, None)
                yield event
        self.waiting.pop((rank, op.stream), None)
        if op.delay:
            # what is left of it since the last of what it waits for has ended
            delay = check_time(op.delay, f"the delay of {op.name}")
            left = self.steps.ended(step, rank, op.after) + delay - self.env.now
            if left > 0:
                yield self.env.timeout(left)

    def _until(
        self, rank: int, op: Op, place: tuple[int, int, Meeting | Delivery]
    ) -> Generator[simpy.Event, float, float]:
        """The end of what `rank` does with others; returns when that started."""
        self.waiting[rank, op.stream] = place
        start = yield place[2].done
        self.waiting.pop((rank, op.stream), None)
        return start

    def _seconds(self, step: int, rank: int, index: int, op: Op) -> float:
        """How long `op`, operation number `index`, takes `rank` alone [s]."""
        factor = float(self.factors[step][rank]) if op.scales else 1.0
        seconds = op.seconds * factor
        if self.late:
            cast = self.casts[step]
            delays = self.late[step][cast.roles[rank]].get(index)
            seconds += 0.0 if delays is None else float(delays[cast.columns[rank]])
        return check_time(seconds, f"{op.name} on rank {rank}")

    def _event(
        self, table: dict[tuple[int, int, int], simpy.Event], step: int, rank: int, index: int
    ) -> simpy.Event:
        key = (step, rank, index)
        if key not in table:
            table[key] = self.env.event()
        return table[key]

    def _ended(self, step: int, rank: int, index: int) -> bool:
        return self._event(self.done, step, rank, index).triggered
