"""A third player of programs, written apart from dpsim's engines and network.

It takes the same casts and plays them literally: one SimPy process per operation of a rank, per
rank of a collective and per message.  Every collective is a ring.  Messages cross a star: every
rank has one link up to the switch and one down from it.  Fair shares are found by letting every
link name a share until none changes its mind (Charny, Clark and Jain 1995), not by progressive
filling.  At most 16 ranks; slow and plain on purpose.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from dpsim.compile.program import Cast, Op

Times = dict[tuple[int, int, int], tuple[float, float]]
Link = tuple[str, int]
PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 2}


@dataclass(frozen=True)
class Star:
    """Bandwidth of every rank's links up and down [B/s], and the latency of a whole path [s]."""

    up: tuple[float, ...]
    down: tuple[float, ...]
    latency: float

    def capacity(self, link: Link) -> float:
        return (self.up if link[0] == "up" else self.down)[link[1]]


@dataclass(eq=False)
class Message:
    """Bytes on their way over two links."""

    links: tuple[Link, Link]
    size: float
    left: float
    arrived: simpy.Event
    rate: float = 0.0


def level(capacity: float, demands: Sequence[float]) -> float:
    """The water level at which demands, each cut off there, fill `capacity`; where they don't
    fill it, what the largest could grow to."""
    left = capacity
    for place, demand in enumerate(sorted(demands)):
        share = left / (len(demands) - place)
        if demand > share:
            return share
        left -= demand
    return max(demands) + left


def shares(paths: Sequence[tuple[Link, Link]], star: Star) -> list[float]:
    """Max-min fair rate of every path."""
    named = {link: math.inf for path in paths for link in path}
    for _ in range(2 * len(named) + 2):
        asked = defaultdict(list)
        for a, b in paths:
            asked[a].append(named[b])
            asked[b].append(named[a])
        renamed = {link: level(star.capacity(link), asked[link]) for link in named}
        if renamed == named:
            break
        named = renamed
    return [min(named[a], named[b]) for a, b in paths]


class Pipes:
    """The star at run time."""

    def __init__(self, env: simpy.Environment, star: Star) -> None:
        self.env, self.star = env, star
        self.moving: list[Message] = []
        self.seen = 0.0
        self.plan = 0

    def send(self, source: int, target: int, size: float) -> Generator[simpy.Event, Any, None]:
        yield self.env.timeout(self.star.latency)
        self._pass_time()
        message = Message((("up", source), ("down", target)), size, size, self.env.event())
        self.moving.append(message)
        self._new_plan()
        yield message.arrived

    def _pass_time(self) -> None:
        for message in self.moving:
            message.left -= message.rate * (self.env.now - self.seen)
        self.seen = self.env.now

    def _new_plan(self) -> None:
        self.plan += 1
        rates = shares([message.links for message in self.moving], self.star)
        for message, rate in zip(self.moving, rates, strict=True):
            message.rate = rate
        if self.moving:
            self.env.process(self._alarm(self.plan))

    def _alarm(self, plan: int) -> Generator[simpy.Event, Any, None]:
        if plan != self.plan:
            return
        first = min(self.moving, key=lambda message: message.left / message.rate)
        yield self.env.timeout(max(first.left / first.rate, 0.0))
        if plan != self.plan:
            return
        self._pass_time()
        through = [m for m in self.moving if m is first or m.left <= 1e-12 * m.size]
        self.moving = [m for m in self.moving if m not in through]
        for message in through:
            message.arrived.succeed()
        self._new_plan()


@dataclass(eq=False)
class Gathering:
    """One collective of one group: who came, who left, and its events by name."""

    env: simpy.Environment
    came: int = 0
    left: int = 0
    events: dict[Any, simpy.Event] = field(default_factory=dict)

    def event(self, *key: Any) -> simpy.Event:
        return self.events.setdefault(key, self.env.event())


class Player:
    """Plays `casts`, one per step; `factors[step][rank]` stretches what a slow rank stretches."""

    def __init__(
        self, casts: Sequence[Cast], star: Star, factors: Sequence[Sequence[float]], launch: float
    ) -> None:
        self.env = simpy.Environment()
        self.pipes = Pipes(self.env, star)
        self.casts, self.factors, self.launch = casts, factors, launch
        self.times: Times = {}
        self.done: dict[tuple[int, int, int], simpy.Event] = {}
        self.gatherings: dict[Any, Gathering] = {}

    def play(self) -> Times:
        """(start, end) of every operation, by (step, rank, index)."""
        for rank in range(self.casts[0].ranks):
            self._rank(rank)
        self.env.run()
        assert all(event.triggered for event in self.done.values())
        return self.times

    def _rank(self, rank: int) -> None:
        """Start a process for every operation, gated by what it must wait for."""
        tail: dict[str, simpy.Event] = {}
        issued: list[simpy.Event] = []
        ended: simpy.Event | None = None
        for step, cast in enumerate(self.casts):
            ops = cast.program(rank).ops
            mine = [self.env.event() for _ in ops]
            for index, op in enumerate(ops):
                self.done[step, rank, index] = mine[index]
                issue = self.env.process(self._issue(op.issue, issued))
                issued = [issue, mine[index]] if op.blocks_host else [issue]
                awaited = [mine[other] for other in op.after]
                gates = [issue, self.env.process(self._issue(op.delay, awaited))]
                gates += [tail[op.stream]] if op.stream in tail else []
                gates += [ended] if op.after_step and ended is not None else []
                tail[op.stream] = mine[index]
                self.env.process(self._operation(step, rank, index, gates))
            ended = mine[max(i for i, op in enumerate(ops) if op.stream == "compute")]

    def _issue(self, seconds: float, gates: list[simpy.Event]) -> Generator[simpy.Event, Any, None]:
        yield self.env.all_of(gates)
        yield self.env.timeout(seconds)

    def _operation(
        self, step: int, rank: int, index: int, gates: list[simpy.Event]
    ) -> Generator[simpy.Event, Any, None]:
        op = self.casts[step].program(rank).ops[index]
        yield self.env.all_of(gates)
        start = self.env.now
        if op.kind == "collective":
            start = yield from self._take_part(step, rank, index, op)
        else:
            slowed = op.kind in ("forward", "backward", "optimizer")
            yield self.env.timeout(op.seconds * (self.factors[step][rank] if slowed else 1.0))
        self.times[step, rank, index] = (start, self.env.now)
        self.done[step, rank, index].succeed()

    def _take_part(
        self, step: int, rank: int, index: int, op: Op
    ) -> Generator[simpy.Event, Any, float]:
        cast = self.casts[step]
        group = next(g for g in cast.groups[op.group] if rank in g)
        before = cast.program(rank).ops[:index]
        number = sum((o.stream, o.group) == (op.stream, op.group) for o in before)
        key = (step, op.stream, group, number)
        here = self.gatherings.setdefault(key, Gathering(self.env))
        here.came += 1
        if here.came == len(group):
            here.event("begin").succeed()
        yield here.event("begin")
        start = self.env.now
        if len(group) > 1:
            yield self.env.timeout(self.launch)
            yield from self._rounds(here, group, rank, op)
        here.left += 1
        if here.left == len(group):
            here.event("end").succeed()
        yield here.event("end")
        return start

    def _rounds(
        self, here: Gathering, group: tuple[int, ...], rank: int, op: Op
    ) -> Generator[simpy.Event, Any, None]:
        place, n = group.index(rank), len(group)
        following, preceding = group[(place + 1) % n], group[place - 1]
        for turn in range(PASSES[op.operation] * (n - 1)):
            here.event("entered", turn, rank).succeed()
            self.env.process(self._message(here, turn, rank, following, op.bytes / n))
            yield here.event("through", turn, rank) & here.event("through", turn, preceding)

    def _message(
        self, here: Gathering, turn: int, source: int, target: int, size: float
    ) -> Generator[simpy.Event, Any, None]:
        """One message: it leaves when both ends have come to this round."""
        yield here.event("entered", turn, source) & here.event("entered", turn, target)
        yield from self.pipes.send(source, target, size)
        here.event("through", turn, source).succeed()
