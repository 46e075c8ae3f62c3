"""What ranks do together: collectives and transfers, carried out on the network they share.

A collective begins when the last of its group has come, and is carried out once for all of them,
phase by phase or transfer by transfer.  While it moves bytes its ranks compute more slowly, where
the request says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn

from dpsim.backends import Plan
from dpsim.compile.program import COPY_IN, Op
from dpsim.core.errors import SimulationError
from dpsim.play import Play, check_time
from dpsim.play.clock import Clock
from dpsim.play.event.contention import Contention
from dpsim.play.event.rounds import Rounds
from dpsim.play.event.score import Cue
from dpsim.play.event.workers import Ended, Worker
from dpsim.play.network import Parts, Passage, SharedLinks, parts


class Assembly(Passage):
    """One collective of one group: who has arrived, how many ranks are still away, and when the
    last of them came."""

    __slots__ = ("_parts_of", "arrived", "away", "begin", "group", "op", "place", "plan")

    def __init__(self, place: Rendezvous, op: Op, group: Sequence[int]) -> None:
        self.place, self.op, self.group = place, op, group
        self.arrived: list[Worker] = []
        self.away, self.begin = len(group), 0.0

    @property
    def missing(self) -> list[int]:
        """The ranks that have not come."""
        here = {rank for worker in self.arrived for rank in worker.player.ranks}
        return [rank for rank in self.group if rank not in here]

    def __str__(self) -> str:
        return f"for {self.away} of {len(self.group)} ranks"

    def complete(self, plan: Plan, parts: Parts) -> None:
        """All have come: it is carried out, from `begin` on."""
        place, self.plan = self.place, plan
        self._parts_of = parts
        stepwise = place.detailed and plan.stages is not None
        if not stepwise and not place.contention.labours:  # nobody sees it begin
            self.carry_out(place.clock, place.links, self.begin, parts)
        elif self.begin > place.clock.now:
            place.clock.at(self.begin, self._started)
        else:
            self._started(None)

    def _started(self, _: object) -> None:
        place = self.place
        self._talk(+1)
        if place.detailed and self.plan.stages is not None:
            place.rounds.begin(self.plan, self.over)
        else:
            self.carry_out(place.clock, place.links, self.begin, self._parts_of)

    def _talk(self, change: int) -> None:
        """Computing is slowed beside collectives; copies from the host need no processors."""
        if self.op.operation != COPY_IN:
            self.place.contention.talk(self.arrived, change)

    def over(self) -> None:
        self._talk(-1)
        self.place.ended(self.arrived, self.begin, self.place.clock.now)


class Delivery(Passage):
    """One transfer of a pair: who sends, who waits for it, and when it started and ended, if it
    has."""

    __slots__ = ("begin", "bytes", "end", "pair", "place", "receiver", "sender")

    def __init__(self, place: Rendezvous, pair: Sequence[int], size: float) -> None:
        self.place, self.pair, self.bytes = place, pair, size
        self.sender: Worker
        self.receiver: Worker | None = None
        self.begin = 0.0
        self.end: float | None = None

    @property
    def missing(self) -> list[int]:
        """The rank that has not sent."""
        return [self.pair[0]]

    def __str__(self) -> str:
        return f"from rank {self.pair[0]}"

    def over(self) -> None:
        ended, self.end = self.place.ended, self.place.clock.now
        ended((self.sender,), self.begin, self.end)
        if self.receiver is not None:
            self.received(self.receiver)

    def received(self, worker: Worker) -> None:
        """It ended, and its receiver has come to it."""
        assert self.end is not None
        end, clock = max(self.end, worker.ready), self.place.clock
        if worker.queue is not None and end > clock.now:
            # who is free first takes the next operation of a stream that several work off
            clock.at(end, lambda _: self.place.ended((worker,), self.begin, end))
        else:
            self.place.ended((worker,), self.begin, end)


class Rendezvous:
    """The collectives and transfers that are under way.

    detailed   collectives are played transfer by transfer, where their plan has any
    """

    def __init__(
        self, clock: Clock, request: Play, detailed: bool, contention: Contention, ended: Ended
    ) -> None:
        self.clock, self.costs, self.detailed = clock, request.costs, detailed
        topology = request.costs.topology
        self.links = SharedLinks(clock, cache(lambda edge: topology.link(edge).bandwidth))  # type: ignore[union-attr]
        self.rounds = Rounds(clock, self.links, request.costs)
        self.contention, self.ended = contention, ended
        self.slow = [
            check_time(request.network(k), f"the network's slowing in step {k}")
            for k in range(request.steps)
        ]
        self.meetings: dict[tuple[int, int], Assembly] = {}
        self.deliveries: dict[tuple[int, int], Delivery] = {}
        self._plans: dict[tuple[int, int, float], tuple[Plan, Parts]] = {}

    def join(self, worker: Worker, cue: Cue) -> None:
        """`worker` comes to its group's collective, which begins if it is the last."""
        first, numbers, groups, _ = cue.booking
        number = numbers[worker.player.rank]
        key = worker.step, first + number
        meeting = self.meetings.get(key)
        if number < 0 or meeting is None:
            group = groups[number] if number >= 0 else self._refuse(worker, cue.op)
            meeting = self.meetings[key] = Assembly(self, cue.op, group)
        elif meeting.op is not cue.op:
            self._check_same(meeting, worker, cue.op)
        worker.meets = meeting
        meeting.arrived.append(worker)
        meeting.away -= len(worker.player.ranks)
        if worker.ready > meeting.begin:
            meeting.begin = worker.ready
        if not meeting.away:
            del self.meetings[key]
            meeting.complete(*self._plan(worker.step, cue, number))

    def _refuse(self, worker: Worker, op: Op) -> NoReturn:
        """A worker has no part in what `op` is done with."""
        rank = worker.player.rank
        if op.kind == "collective":
            raise SimulationError(f"rank {rank} is in no group {op.group!r}, which {op.name} needs")
        raise SimulationError(f"rank {rank} cannot {op.operation} in {op.group!r}: {op.name}")

    @staticmethod
    def _check_same(meeting: Assembly, worker: Worker, op: Op) -> None:
        theirs = meeting.op
        if op.agreed != theirs.agreed:
            raise SimulationError(
                f"ranks disagree on {op.stream}: rank {worker.player.rank} runs {op.name} where "
                f"rank {meeting.arrived[0].player.rank} runs {theirs.name}; real ranks would hang"
            )

    def _plan(self, step: int, cue: Cue, number: int) -> tuple[Plan, Parts]:
        """How the group of that number carries out a cue in this step."""
        key = cue.booking.plan, number, self.slow[step]
        if key not in self._plans:
            group: Any = cue.booking.groups[number]
            plan = self.costs.slowed(self.costs.of(cue.op, group), self.slow[step])
            self._plans[key] = plan, parts(plan, self.links)
        return self._plans[key]

    def _delivery(self, worker: Worker, cue: Cue) -> tuple[Delivery, int]:
        """What a worker sends or receives, and the number of its pair; whoever comes second takes
        it away."""
        op, (first, numbers, groups, _) = cue.op, cue.booking
        number = numbers[worker.player.rank]
        pair = groups[number] if number >= 0 else self._refuse(worker, op)
        key = worker.step, first + number
        delivery = self.deliveries.pop(key, None)
        if delivery is None:
            delivery = self.deliveries[key] = Delivery(self, pair, op.bytes)
        elif delivery.bytes != op.bytes:
            raise SimulationError(
                f"rank {pair[0]} and rank {pair[1]} disagree on the bytes of {op.name}"
            )
        return delivery, number

    def send(self, worker: Worker, cue: Cue) -> None:
        """Carry out a transfer, from when its sender is ready."""
        delivery, number = self._delivery(worker, cue)
        delivery.sender, delivery.begin = worker, worker.ready
        parts = self._plan(worker.step, cue, number)[1]
        delivery.carry_out(self.clock, self.links, worker.ready, parts)

    def receive(self, worker: Worker, cue: Cue) -> None:
        """Take what has been sent, or wait for it."""
        delivery, _ = self._delivery(worker, cue)
        if delivery.end is None:
            worker.meets, delivery.receiver = delivery, worker
        else:
            delivery.received(worker)
