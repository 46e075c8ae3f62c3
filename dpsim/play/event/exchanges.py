"""What ranks do together: collectives and transfers, carried out on the network they share.

A collective begins when the last of its group has come, and is carried out once for all of them,
phase by phase or transfer by transfer.  While it moves bytes its ranks compute more slowly, where
the request says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from dpsim.backends import Plan
from dpsim.compile.program import Cast, Op
from dpsim.core.errors import SimulationError
from dpsim.play import Play, check_time
from dpsim.play.event.contention import Contention
from dpsim.play.event.rounds import Rounds
from dpsim.play.event.score import Move
from dpsim.play.event.workers import Worker
from dpsim.play.network import Clock, Passage, SharedLinks, Shape, parts

#: a plan, and what carrying it out is made of
Carried = tuple[Plan, tuple[tuple[float, float], tuple[float | Shape, ...]]]
#: what is called when workers are through with what they did together: when it started and ended
Ended = Callable[[Sequence[Worker], float, float], None]


class Meeting:
    """One collective of one group: who has arrived, and when the last of them did."""

    __slots__ = ("arrived", "begin", "group", "key", "op")

    def __init__(self, op: Op, group: Sequence[int], key: tuple[int, int]) -> None:
        self.op, self.group, self.key = op, group, key
        self.arrived: list[Worker] = []
        self.begin = 0.0

    @property
    def missing(self) -> list[int]:
        """The ranks that have not come."""
        here = {worker.player.rank for worker in self.arrived}
        return [rank for rank in self.group if rank not in here]

    def __str__(self) -> str:
        return f"for {len(self.group) - len(self.arrived)} of {len(self.group)} ranks"


class Delivery:
    """One transfer of a pair: when it started and ended, if it has, and who waits for it."""

    __slots__ = ("begin", "bytes", "end", "pair", "receiver")

    def __init__(self, pair: tuple[int, int], size: float) -> None:
        self.pair, self.bytes = pair, size
        self.receiver: Worker | None = None
        self.begin = 0.0
        self.end: float | None = None

    @property
    def missing(self) -> list[int]:
        """The rank that has not sent."""
        return [self.pair[0]]

    def __str__(self) -> str:
        return f"from rank {self.pair[0]}"


class Rendezvous:
    """The collectives and transfers that are under way.

    detailed   collectives are played transfer by transfer, where their plan has any
    """

    def __init__(
        self, clock: Clock, request: Play, casts: Sequence[Cast], detailed: bool,
        contention: Contention, ended: Ended,
    ) -> None:  # fmt: skip
        self.clock, self.costs, self.casts = clock, request.costs, casts
        self.detailed = detailed
        topology = request.costs.topology
        self.links = SharedLinks(clock, cache(lambda edge: topology.link(edge).bandwidth))  # type: ignore[union-attr]
        self.rounds = Rounds(clock, self.links, request.costs)
        self.contention, self.ended = contention, ended
        self.slow = [
            check_time(request.network(k), f"the network's slowing in step {k}")
            for k in range(request.steps)
        ]
        self.meetings: dict[tuple[int, int], Meeting] = {}
        self.deliveries: dict[tuple[int, int], Delivery] = {}
        self._carried: dict[tuple[int, int, float], Carried] = {}

    # -- collectives ------------------------------------------------------------------------------

    def join(self, worker: Worker, move: Move) -> None:
        """`worker` comes to its group's collective, which begins if it is the last."""
        key, group = self._place(worker, move)
        meeting = self.meetings.get(key)
        if meeting is None:
            meeting = self.meetings[key] = Meeting(move.op, group, key)
        elif meeting.op is not move.op:
            self._check_same(meeting, worker, move.op)
        worker.meets = meeting
        meeting.arrived.append(worker)
        if worker.ready > meeting.begin:
            meeting.begin = worker.ready
        if len(meeting.arrived) == len(meeting.group):
            del self.meetings[key]
            self._begin(meeting, worker, move)

    def _place(self, worker: Worker, move: Move) -> tuple[tuple[int, int], Sequence[int]]:
        """What a worker meets others under, and the group that it is in."""
        booking, rank = move.booking, worker.player.rank
        assert booking is not None
        number = booking.numbers[rank]
        if number < 0:
            raise SimulationError(
                f"rank {rank} is in no group {move.op.group!r}, which {move.op.name} needs"
            )
        group = self.casts[worker.step].groups[move.op.group][number]
        return (worker.step, booking.first + number), group

    @staticmethod
    def _check_same(meeting: Meeting, worker: Worker, op: Op) -> None:
        theirs = meeting.op
        if (op.operation, op.bytes) != (theirs.operation, theirs.bytes):
            raise SimulationError(
                f"ranks disagree on {op.stream}: rank {worker.player.rank} runs {op.name} where "
                f"rank {meeting.arrived[0].player.rank} runs {theirs.name}; real ranks would hang"
            )

    def _begin(self, meeting: Meeting, worker: Worker, move: Move) -> None:
        """All have come: carry it out, from `meeting.begin` on."""
        plan, (head, rest) = self._plan(worker, move, meeting.group)

        def over(_: object) -> None:
            self.contention.talk(meeting.group, -1)
            self.ended(meeting.arrived, meeting.begin, self.clock.now)

        def begin(_: object) -> None:
            self.contention.talk(meeting.group, +1)
            if stepwise:
                self.rounds.begin(plan, over)
            else:
                carry_out()

        def carry_out() -> None:
            Passage(self.clock, self.links, over).begin(meeting.begin, head, rest)

        stepwise = self.detailed and plan.stages is not None
        if stepwise or self.contention.labours:
            self.clock.at(meeting.begin, begin)
        else:  # nobody sees it begin
            carry_out()

    def _plan(self, worker: Worker, move: Move, ranks: Sequence[int]) -> Carried:
        """How `ranks` carry out a move in this step."""
        booking, slow = move.booking, self.slow[worker.step]
        assert booking is not None
        key = (booking.plan, booking.numbers[worker.player.rank], slow)
        carried = self._carried.get(key)
        if carried is None:
            group: Any = ranks
            plan = self.costs.slowed(self.costs.of(move.op, group), slow)
            carried = self._carried[key] = plan, parts(plan, self.links)
        return carried

    # -- transfers --------------------------------------------------------------------------------

    def _delivery(self, worker: Worker, move: Move) -> Delivery:
        """What a worker sends or receives; whoever comes second takes it away."""
        op = move.op
        try:
            pair = self.casts[worker.step].pair(worker.player.rank, op)[1]
        except ValueError as error:
            raise SimulationError(str(error)) from None
        key = self._place(worker, move)[0]
        delivery = self.deliveries.pop(key, None)
        if delivery is None:
            delivery = self.deliveries[key] = Delivery(pair, op.bytes)
        elif delivery.bytes != op.bytes:
            raise SimulationError(
                f"rank {pair[0]} and rank {pair[1]} disagree on the bytes of {op.name}"
            )
        return delivery

    def send(self, worker: Worker, move: Move) -> None:
        """Carry out a transfer, from when its sender is ready."""
        delivery = self._delivery(worker, move)
        delivery.begin = worker.ready
        _, (head, rest) = self._plan(worker, move, delivery.pair)

        def over(_: object) -> None:
            delivery.end = now = self.clock.now
            self.ended((worker,), delivery.begin, now)
            if delivery.receiver is not None:
                self._received(delivery.receiver, delivery)

        Passage(self.clock, self.links, over).begin(worker.ready, head, rest)

    def receive(self, worker: Worker, move: Move) -> None:
        """Take what has been sent, or wait for it."""
        delivery = self._delivery(worker, move)
        if delivery.end is None:
            worker.meets, delivery.receiver = delivery, worker
        else:
            self._received(worker, delivery)

    def _received(self, worker: Worker, delivery: Delivery) -> None:
        assert delivery.end is not None
        end = max(delivery.end, worker.ready)
        if worker.queue is not None and end > self.clock.now:
            # who is free first takes the next operation of a stream that several work off
            self.clock.at(end, lambda _: self.ended((worker,), delivery.begin, end))
        else:
            self.ended((worker,), delivery.begin, end)
