"""What ranks do together: collectives and transfers, carried out on the network they share.

A collective begins when the last of its group has come, and is carried out once for all of them,
phase by phase or transfer by transfer.  While it moves bytes its ranks compute more slowly, where
the request says so.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import simpy

from dpsim.backends import Plan, Transfer
from dpsim.compile.program import Cast, Op
from dpsim.core.errors import SimulationError
from dpsim.play import Play, check_time
from dpsim.play.network import SharedLinks

Events = Generator[simpy.Event, Any, None]


@dataclass(eq=False)
class Meeting:
    """One collective of one group: who has arrived, and the event of its end; the event's value is
    when it started."""

    op: Op
    group: tuple[int, ...]
    done: simpy.Event
    arrived: list[int] = field(default_factory=list)

    @property
    def missing(self) -> list[int]:
        """The ranks that have not come."""
        return [rank for rank in self.group if rank not in self.arrived]

    def __str__(self) -> str:
        return f"for {len(self.group) - len(self.arrived)} of {len(self.group)} ranks"


@dataclass(eq=False)
class Delivery:
    """One transfer: its pair, and the event of its end; the event's value is when it started."""

    pair: tuple[int, int]
    done: simpy.Event
    bytes: float

    @property
    def missing(self) -> list[int]:
        """The rank that has not sent."""
        return [self.pair[0]]

    def __str__(self) -> str:
        return f"from rank {self.pair[0]}"


class Contention:
    """How computing goes on while collectives move bytes of its rank: 1 + `contention` times as
    slowly."""

    def __init__(self, env: simpy.Environment, contention: float, ranks: int) -> None:
        self.env, self.contention = env, contention
        self.talking = [0] * ranks
        #: what each rank's work waits for: its end at the present pace
        self.ends: dict[int, simpy.Event] = {}

    def talk(self, group: tuple[int, ...], change: int) -> None:
        """One collective more or less (`change`) moves bytes of the ranks of `group`."""
        if not self.contention:
            return
        for rank in group:
            before = self.talking[rank]
            self.talking[rank] += change
            if bool(before) != bool(self.talking[rank]):
                self._change_pace(rank)

    def _change_pace(self, rank: int) -> None:
        """What waits for the end of work under way goes on now instead, and waits anew."""
        end = self.ends.get(rank)
        if end is not None and end.callbacks:
            now = self.env.timeout(0.0)
            now.callbacks, end.callbacks = end.callbacks, []

    def work(self, rank: int, seconds: float) -> Events:
        """What takes `seconds` [s] alone."""
        left, least = seconds, 1e-15 * seconds
        while left > least:
            slow = 1.0 + self.contention if self.talking[rank] else 1.0
            began, self.ends[rank] = self.env.now, self.env.timeout(left * slow)
            yield self.ends[rank]
            left -= (self.env.now - began) / slow
            least = 1e-14 * self.env.now  # what is left to rounding would not move the clock


class Rendezvous:
    """The collectives and transfers that are under way.

    rounds   collectives are played transfer by transfer, where their plan has any
    """

    def __init__(
        self, env: simpy.Environment, request: Play, casts: Sequence[Cast], rounds: bool
    ) -> None:
        self.env, self.costs, self.casts, self.rounds = env, request.costs, casts, rounds
        topology = request.costs.topology
        self.network = SharedLinks(env, cache(lambda edge: topology.link(edge).bandwidth))  # type: ignore[union-attr]
        self.contention = Contention(env, request.contention, casts[0].ranks)
        self.slow = [
            check_time(request.network(k), f"the network's slowing in step {k}")
            for k in range(request.steps)
        ]
        self.meetings: dict[tuple[Any, ...], Meeting] = {}
        self.deliveries: dict[tuple[Any, ...], Delivery] = {}

    def join(self, step: int, rank: int, index: int, op: Op) -> Meeting:
        """`rank` comes to its group's collective, which begins if it is the last."""
        cast = self.casts[step]
        number = cast.group_numbers.get(op.group, {}).get(rank)
        if number is None:
            raise SimulationError(f"rank {rank} is in no group {op.group!r}, which {op.name} needs")
        key = (step, op.stream, op.group, number, cast.program(rank).ordinals[index])
        meeting = self.meetings.get(key)
        if meeting is None:
            group = cast.groups[op.group][number]
            meeting = self.meetings[key] = Meeting(op, group, self.env.event())
        theirs = meeting.op
        if (op.operation, op.bytes) != (theirs.operation, theirs.bytes):
            raise SimulationError(
                f"ranks disagree on {op.stream}: rank {rank} runs {op.name} where rank "
                f"{meeting.arrived[0]} runs {theirs.name}; real ranks would hang"
            )
        meeting.arrived.append(rank)
        if len(meeting.arrived) == len(meeting.group):
            self.env.process(self._collective(key, meeting))
        return meeting

    def delivery(self, step: int, rank: int, index: int, op: Op) -> Delivery:
        """What `rank` sends or receives; whoever comes second takes it away."""
        cast = self.casts[step]
        try:
            number, pair = cast.pair(rank, op)
        except ValueError as error:
            raise SimulationError(str(error)) from None
        key = (step, op.stream, op.group, number, cast.program(rank).ordinals[index])
        delivery = self.deliveries.pop(key, None)
        if delivery is None:
            delivery = self.deliveries[key] = Delivery(pair, self.env.event(), op.bytes)
        elif delivery.bytes != op.bytes:
            raise SimulationError(
                f"rank {pair[0]} and rank {pair[1]} disagree on the bytes of {op.name}"
            )
        return delivery

    def send(self, step: int, op: Op, delivery: Delivery) -> Events:
        """Carry out a transfer."""
        start = self.env.now
        yield from self._by_phases(self._plan(step, op, delivery.pair))
        delivery.done.succeed(start)

    def _plan(self, step: int, op: Op, ranks: tuple[int, ...]) -> Plan:
        return self.costs.slowed(self.costs.of(op, ranks), self.slow[step])

    def _collective(self, key: tuple[Any, ...], meeting: Meeting) -> Events:
        start = self.env.now
        plan = self._plan(key[0], meeting.op, meeting.group)
        self.contention.talk(meeting.group, +1)
        if self.rounds and plan.stages is not None:
            yield from self._by_rounds(plan, meeting.group)
        else:
            yield from self._by_phases(plan)
        self.contention.talk(meeting.group, -1)
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
        topology = self.costs.topology
        assert topology is not None
        route = topology.route(transfer.source, transfer.target)
        if latency is None:
            latency = sum(topology.link(edge).latency for edge in route)
        if latency > 0:
            yield self.env.timeout(latency)
        efficiency = getattr(self.costs.backend, "efficiency", 1.0)
        yield self.network.transfer(dict.fromkeys(route, transfer.bytes / efficiency))
