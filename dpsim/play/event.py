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
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import simpy

from dpsim.backends import Plan
from dpsim.collectives import Transfer
from dpsim.compile.program import COMPUTE, RECEIVE, Cast, Op
from dpsim.compile.timeline import Split, Step, Timeline
from dpsim.core.arrays import Array
from dpsim.core.errors import SimulationError
from dpsim.play import Play, check_time
from dpsim.play.network import Network

Events = Generator[simpy.Event, Any, None]
MAX_EVENTS = 200_000_000


@dataclass(eq=False)
class _Meeting:
    """One collective of one group: who has arrived, and the event of its end."""

    op: Op
    group: tuple[int, ...]
    done: simpy.Event
    arrived: list[int] = field(default_factory=list)


@dataclass(eq=False)
class _Message:
    """One transfer: its pair, and the event of its end; the event's value is when it started."""

    pair: tuple[int, int]
    done: simpy.Event
    bytes: float | None = None


@dataclass(eq=False)
class _Board:
    """Times of one step, per role (operations, ranks), and how many operations are still open."""

    cast: Cast
    start: tuple[Array, ...]
    end: tuple[Array, ...]
    ready: tuple[Array, ...]
    open: int


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
    """The mutable state of one call of `play`."""

    def __init__(self, request: Play, detail: str, max_events: int) -> None:
        self.request, self.rounds, self.max_events = request, detail == "rounds", max_events
        self.env = simpy.Environment()
        topology = request.costs.topology
        self.network = Network(self.env, cache(lambda edge: topology.link(edge).bandwidth))  # type: ignore[union-attr]
        self.casts = [request.cast(k) for k in range(request.steps)]
        self.boards = [_board(cast) for cast in self.casts]
        self.factors = [request.factors(k) for k in range(request.steps)]
        self.slow = [_slowing(request, k) for k in range(request.steps)]
        self.done: dict[tuple[int, int, int], simpy.Event] = {}
        self.issued: dict[tuple[int, int, int], simpy.Event] = {}
        self.meetings: dict[tuple[Any, ...], _Meeting] = {}
        self.messages: dict[tuple[Any, ...], _Message] = {}
        self.waiting: dict[tuple[int, str], tuple[int, int, _Meeting | _Message | None]] = {}
        self.events = 0
        self.closed = 0
        self.finished: list[Step] = []
        self.talking = [0] * self.casts[0].ranks
        self.turn: dict[int, simpy.Event] = {}
        self.durations: list[float] = []
        self.splits: list[Split] = []

    def timeline(self) -> Timeline:
        cast = self.casts[0]
        processes = []
        for rank in range(cast.ranks):
            if self._hosted(rank):
                processes.append(self.env.process(self._host(rank)))
            for stream in _streams(self.casts, rank):
                queue = self._queue(rank, stream)
                for _ in range(1 if stream == COMPUTE else self.request.costs.concurrency):
                    processes.append(self.env.process(self._work_off(rank, queue)))
        self._drain(sum(len(c.program(r).ops) for c in self.casts for r in range(c.ranks)))
        if any(process.is_alive for process in processes):
            raise SimulationError(self._deadlock())
        return Timeline(tuple(self.durations), tuple(self.splits), self.finished[-1], self.events)

    def _drain(self, operations: int) -> None:
        """Run until nothing is left to happen, within the limits."""
        env, at, same = self.env, -1.0, 0
        ceiling = 10_000 + 200 * operations
        while env.peek() != float("inf"):
            env.step()
            self.events += 1
            same = same + 1 if env.now == at else 0
            at = env.now
            if self.events > self.max_events:
                raise SimulationError(
                    f"more than {self.max_events:,} events; use engine: vectorised"
                )
            if same > ceiling:
                raise SimulationError(
                    f"time stands still at {at} s: {same:,} events at one instant"
                )

    # -- one rank -----------------------------------------------------------------------------

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

    def _queue(self, rank: int, stream: str) -> Iterator[tuple[int, int, Op]]:
        """The operations of a stream in issue order: (step, index, operation)."""
        for step, cast in enumerate(self.casts):
            for index, op in enumerate(cast.program(rank).ops):
                if op.stream == stream:
                    yield step, index, op

    def _work_off(self, rank: int, queue: Iterator[tuple[int, int, Op]]) -> Events:
        """A worker of a stream: takes the next operation when it has ended the one before.

        A stream has one worker, or as many as the backend runs collectives at once."""
        host = self._hosted(rank)
        for step, index, op in queue:
            yield from self._await(step, rank, index, op, host)
            ready = self.env.now
            if op.kind == "collective":
                start = yield from self._meet(step, rank, index, op)
            elif op.kind == "transfer":
                start = yield from self._transfer_of(step, rank, index, op)
            else:
                start = ready
                yield from self._work(step, rank, op)
            self._note(step, rank, index, ready, start)
            if index in self.casts[step].program(rank).awaited:
                self._event(self.done, step, rank, index).succeed()

    def _await(self, step: int, rank: int, index: int, op: Op, host: bool) -> Events:
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
            yield from self._delay(step, rank, op)

    def _delay(self, step: int, rank: int, op: Op) -> Events:
        """What is left of `op.delay` since the last of what it waits for ended."""
        board = self.boards[step]
        role, column = board.cast.roles[rank], board.cast.columns[rank]
        ended = float(board.end[role][list(op.after), column].max())
        left = ended + check_time(op.delay, f"the delay of {op.name}") - self.env.now
        if left > 0:
            yield self.env.timeout(left)

    def _work(self, step: int, rank: int, op: Op) -> Events:
        factor = float(self.factors[step][rank]) if op.scales else 1.0
        seconds = check_time(op.seconds * factor, f"{op.name} on rank {rank}")
        if self.request.contention and op.scales:
            yield from self._contended(rank, seconds)
        elif seconds > 0:
            yield self.env.timeout(seconds)

    def _contended(self, rank: int, seconds: float) -> Events:
        """`seconds` of work, which goes on more slowly whenever a collective moves bytes."""
        left, least = seconds, 1e-15 * seconds
        while left > least:
            slow = 1.0 + self.request.contention if self.talking[rank] else 1.0
            began, self.turn[rank] = self.env.now, self.env.event()
            yield self.env.timeout(left * slow) | self.turn[rank]
            left -= (self.env.now - began) / slow
            least = 1e-14 * self.env.now  # what is left to rounding would not move the clock

    def _talk(self, group: tuple[int, ...], change: int) -> None:
        """One collective more or less (`change`) moves bytes of the ranks of `group`."""
        if not self.request.contention:
            return
        for rank in group:
            before = self.talking[rank]
            self.talking[rank] += change
            turn = self.turn.get(rank)
            if bool(before) != bool(self.talking[rank]) and turn and not turn.triggered:
                turn.succeed()

    def _event(
        self, table: dict[tuple[int, int, int], simpy.Event], step: int, rank: int, index: int
    ) -> simpy.Event:
        key = (step, rank, index)
        if key not in table:
            table[key] = self.env.event()
        return table[key]

    # -- collectives --------------------------------------------------------------------------

    def _meet(self, step: int, rank: int, index: int, op: Op) -> Generator[simpy.Event, Any, float]:
        """Join the group's collective; returns when it started."""
        cast = self.casts[step]
        number = cast.group_numbers.get(op.group, {}).get(rank)
        if number is None:
            raise SimulationError(f"rank {rank} is in no group {op.group!r}, which {op.name} needs")
        group = cast.groups[op.group][number]
        key = (step, op.stream, op.group, number, cast.program(rank).ordinals[index])
        meeting = self.meetings.get(key)
        if meeting is None:
            meeting = self.meetings[key] = _Meeting(op, group, self.env.event())
        theirs = meeting.op
        if (op.operation, op.bytes) != (theirs.operation, theirs.bytes):
            raise SimulationError(
                f"ranks disagree on {op.stream}: rank {rank} runs {op.name} where rank "
                f"{meeting.arrived[0]} runs {theirs.name}; real ranks would hang"
            )
        meeting.arrived.append(rank)
        if len(meeting.arrived) == len(group):
            self.env.process(self._collective(key, meeting))
        self.waiting[rank, op.stream] = (step, index, meeting)
        start: float = yield meeting.done
        self.waiting.pop((rank, op.stream), None)
        return start

    def _transfer_of(
        self, step: int, rank: int, index: int, op: Op
    ) -> Generator[simpy.Event, Any, float]:
        """Send, or wait for what is sent; returns when the transfer started."""
        cast = self.casts[step]
        try:
            number, pair = cast.pair(rank, op)
        except ValueError as error:
            raise SimulationError(str(error)) from None
        key = (step, op.stream, op.group, number, cast.program(rank).ordinals[index])
        # whoever comes second takes the message away
        message = self.messages.pop(key, None)
        if message is None:
            message = self.messages[key] = _Message(pair, self.env.event(), op.bytes)
        elif message.bytes != op.bytes:
            raise SimulationError(
                f"rank {pair[0]} and rank {pair[1]} disagree on the bytes of {op.name}"
            )
        if op.operation == RECEIVE:
            self.waiting[rank, op.stream] = (step, index, message)
            start: float = yield message.done
            self.waiting.pop((rank, op.stream), None)
            return start
        start = self.env.now
        costs = self.request.costs
        yield from self._by_phases(costs.slowed(costs.of(op, pair), self.slow[step]))
        message.done.succeed(start)
        return start

    def _collective(self, key: tuple[Any, ...], meeting: _Meeting) -> Events:
        start = self.env.now
        op = meeting.op
        costs = self.request.costs
        plan = costs.slowed(costs.of(op, meeting.group), self.slow[key[0]])
        self._talk(meeting.group, +1)
        if self.rounds and plan.stages is not None:
            yield from self._by_rounds(plan, meeting.group)
        else:
            yield from self._by_phases(plan)
        self._talk(meeting.group, -1)
        del self.meetings[key]
        meeting.done.succeed(start)

    def _by_phases(self, plan: Plan) -> Events:
        if plan.launch:
            yield self.env.timeout(plan.launch)
        for phase in plan.phases:
            waiting = phase.latency if phase.loads else phase.latency + phase.seconds
            if waiting > 0:
                yield self.env.timeout(waiting)
            if phase.loads:
                yield self.network.transfer(phase.loads, phase.seconds, phase.size)

    def _by_rounds(self, plan: Plan, group: tuple[int, ...]) -> Events:
        """Every transfer of every round; a rank's next round waits for its own transfers only."""
        if plan.launch:
            yield self.env.timeout(plan.launch)
        before: dict[int, list[simpy.Event]] = {rank: [] for rank in group}
        for stage in plan.stages() if plan.stages else ():
            for _ in range(stage.repeats):
                own: dict[int, list[simpy.Event]] = {rank: [] for rank in group}
                for transfer in stage.transfers:
                    gate = before[transfer.source] + before[transfer.target]
                    done = self.env.process(self._transfer(transfer, gate, stage.latency))
                    own[transfer.source].append(done)
                    own[transfer.target].append(done)
                before = {rank: own[rank] or before[rank] for rank in group}
        yield simpy.AllOf(self.env, [event for events in before.values() for event in events])

    def _transfer(
        self, transfer: Transfer, gate: list[simpy.Event], latency: float | None
    ) -> Events:
        for event in gate:
            if not event.triggered:
                yield event
        topology = self.request.costs.topology
        assert topology is not None
        route = topology.route(transfer.source, transfer.target)
        if latency is None:
            latency = sum(topology.link(edge).latency for edge in route)
        if latency > 0:
            yield self.env.timeout(latency)
        efficiency = getattr(self.request.costs.backend, "efficiency", 1.0)
        yield self.network.transfer(dict.fromkeys(route, transfer.bytes / efficiency))

    # -- book-keeping -------------------------------------------------------------------------

    def _note(self, step: int, rank: int, index: int, ready: float, start: float) -> None:
        board = self.boards[step]
        role, column = board.cast.roles[rank], board.cast.columns[rank]
        board.ready[role][index, column] = ready
        board.start[role][index, column] = start
        board.end[role][index, column] = self.env.now
        board.open -= 1
        while self.closed < len(self.boards) and self.boards[self.closed].open == 0:
            self._close(self.closed)
            self.closed += 1

    def _close(self, step: int) -> None:
        board = self.boards[step]
        origin = self.finished[-1].finish if self.finished else 0.0
        before = replace(self.finished[-1], previous=None) if self.finished else None
        played = Step(board.cast, origin, board.start, board.end, board.ready, before)
        self.finished = [played]
        if step >= self.request.warmup:
            self.durations.append(played.duration)
            self.splits.append(played.split())

    def _deadlock(self) -> str:
        """Name a cycle of waiters; where there is none, who waits for what never comes."""
        graph: nx.DiGraph[tuple[int, str]] = nx.DiGraph()
        for place in self.waiting:
            graph.add_edges_from((place, other) for other in self._blockers(*place))
        try:
            chain = [place for place, _ in nx.find_cycle(graph)]
        except nx.NetworkXNoCycle:
            chain = sorted(self.waiting)
        named = [self._describe(place) for place in chain if place in self.waiting]
        more = f"; and {len(named) - 8} more" if len(named) > 8 else ""
        return "deadlock: these wait for each other: " + "; ".join(named[:8]) + more

    def _describe(self, place: tuple[int, str]) -> str:
        step, index, meeting = self.waiting[place]
        name = self.casts[step].program(place[0]).ops[index].name
        for_whom = ""
        if isinstance(meeting, _Message):
            for_whom = f" from rank {meeting.pair[0]}"
        elif meeting is not None:
            missing = len(meeting.group) - len(meeting.arrived)
            for_whom = f" for {missing} of {len(meeting.group)} ranks"
        return f"rank {place[0]} {place[1]} at {name} of step {step}{for_whom}"

    def _blockers(self, rank: int, stream: str) -> list[tuple[int, str]]:
        """The (rank, stream) places that this one cannot go on without."""
        step, index, meeting = self.waiting[rank, stream]
        if isinstance(meeting, _Message):
            return [(meeting.pair[0], stream)]
        if meeting is not None:
            return [(other, stream) for other in meeting.group if other not in meeting.arrived]
        ops = self.casts[step].program(rank).ops
        return [
            (rank, ops[other].stream)
            for other in ops[index].after
            if not self._event(self.done, step, rank, other).triggered
        ]


def _streams(casts: list[Cast], rank: int) -> list[str]:
    return list(dict.fromkeys(s for cast in casts for s in cast.program(rank).streams))


def _slowing(request: Play, step: int) -> float:
    return check_time(request.network(step), f"the network's slowing in step {step}")


def _board(cast: Cast) -> _Board:
    shapes = [(len(p.ops), len(cast.members(role))) for role, p in enumerate(cast.programs)]
    start, end, ready = (tuple(np.zeros(shape) for shape in shapes) for _ in range(3))
    return _Board(cast, start, end, ready, sum(a * b for a, b in shapes))
