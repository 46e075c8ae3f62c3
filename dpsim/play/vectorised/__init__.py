"""The vectorised engine: one pass in issue order over arrays of ranks.

A program with a fixed order per stream is a max-plus system: an operation starts at the maximum of
what it waits for and ends its duration later; a collective starts at the maximum over its group.
Arrays are shaped (lanes, ranks).  A lane is a variant played at once: lane 0 is the question
itself, the others stretch all compute or all communication, which is how intervals are made.

It applies where collectives of different communicators don't load the same links at the same time;
otherwise it says so (NotApplicable) and the event engine is the one to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dpsim.compile.program import RECEIVE, Cast
from dpsim.compile.timeline import Split, Step, Timeline
from dpsim.core.arrays import Array
from dpsim.core.errors import SimulationError
from dpsim.play import Play, check_time
from dpsim.play.vectorised.deadlock import stuck
from dpsim.play.vectorised.exchanges import Exchanges
from dpsim.play.vectorised.role import Role

Lane = tuple[float, float]


def play(
    request: Play, *, lanes: tuple[Lane, ...] = ((1.0, 1.0),), sharing: bool = True
) -> Timeline:
    """Play `request`; lane = (multiplier of all compute, multiplier of all communication).

    NotApplicable where communicators share links, unless `sharing` is not to be looked at.
    """
    run = _Run(request, lanes, sharing)
    finish = np.zeros(len(lanes))
    total = np.zeros(len(lanes))
    durations: list[float] = []
    splits: list[Split] = []
    for number in range(request.steps):
        origin = finish
        step = run.step(number, float(origin[0]))
        finish = run.finish
        if number >= request.warmup:
            total += finish - origin
            durations.append(step.duration)
            splits.append(step.split())
    measured = request.steps - request.warmup
    return Timeline(
        tuple(durations), tuple(splits), step, lanes=tuple(float(x) for x in total / measured)
    )


class _Run:
    """All roles of one call of `play`, one step after the other."""

    def __init__(self, request: Play, lanes: tuple[Lane, ...], sharing: bool) -> None:
        self.request = request
        self.sharing = sharing
        # without sharing, collectives that run at once would each have the links to themselves;
        # one after the other comes nearer
        self.width = request.costs.concurrency if sharing else 1
        self.compute = np.array([[lane[0]] for lane in lanes])
        cast = request.cast(0)
        self.roles = [
            Role(cast.members(role), len(lanes), self.width) for role in range(len(cast.programs))
        ]
        self.exchanges = Exchanges(request, np.array([lane[1] for lane in lanes]), self.roles)
        self.finish = np.zeros(len(lanes))
        self._orders: dict[int, tuple[Cast, Cast, tuple[tuple[int, ...], ...]]] = {}
        self._last: Step | None = None

    def step(self, number: int, origin: float) -> Step:
        asked = self.request.cast(number)
        cast, orders = self._order(asked)
        late = self.request.delays(number) if self.request.delays else [{}] * len(orders)
        late = [
            {order.index(op): seconds for op, seconds in delays.items()}
            for order, delays in zip(orders, late, strict=True)
        ]
        factors = self.request.factors(number)
        self.exchanges.begin(number)
        if not (factors >= 0).all():
            raise SimulationError(f"step {number} has a compute factor that is no factor")
        for role in self.roles:
            role.begin()
        while any(r.next < len(p.ops) for r, p in zip(self.roles, cast.programs, strict=True)):
            moved = [self._advance(k, cast, factors, late[k]) for k in range(len(self.roles))]
            if not (any(moved) | self.exchanges.meet(cast)):
                raise stuck(cast, self.roles)
        if self.sharing:
            self.exchanges.sharing.check(self.request.costs.topology, self.width)
        for role, program in zip(self.roles, cast.programs, strict=True):
            role.step_end = role.ends[program.end]
        self.finish = np.max([role.step_end.max(axis=1) for role in self.roles], axis=0)
        before = self._last and replace(self._last, previous=None)
        starts, ends, readies = (
            tuple(
                _first_lane(getattr(role, name), len(role.members), order)
                for role, order in zip(self.roles, orders, strict=True)
            )
            for name in ("starts", "ends", "readies")
        )
        self._last = Step(asked, origin, starts, ends, readies, before)
        return self._last

    def _order(self, asked: Cast) -> tuple[Cast, tuple[tuple[int, ...], ...]]:
        """`asked` in the order to play it in, and that order for each role.

        Under contention a computation must know of all collectives beside it, so they come first.
        """
        if id(asked) not in self._orders:
            programs, orders = [], []
            for program in asked.programs:
                early = self.request.contention > 0 and not program.host_matters
                early = early and not program.transfers  # a receive must not come before its turn
                order = program.collectives_first if early else tuple(range(len(program.ops)))
                programs.append(program.reordered(order) if early else program)
                orders.append(order)
            played = replace(asked, programs=tuple(programs))
            self._orders[id(asked)] = asked, played, tuple(orders)
        return self._orders[id(asked)][1:]

    def _advance(self, number: int, cast: Cast, factors: Array, late: Mapping[int, Array]) -> bool:
        """Play this role's operations up to its next collective; `late` is added to some [s]."""
        role, ops = self.roles[number], cast.programs[number].ops
        moved = False
        own = factors[role.members]
        while role.next < len(ops) and role.arrival is None:
            op = ops[role.next]
            if op.operation == RECEIVE and not self.exchanges.sent(number, cast):
                return moved
            ready = role.ready(op)
            moved = True
            if op.kind == "transfer":
                self.exchanges.transfer(number, cast, ready)
            elif op.kind == "collective":
                role.arrival = ready
            else:
                stretch = own * self.compute if op.scales else 1.0
                end = ready + check_time(op.seconds, op.name) * stretch + late.get(role.next, 0.0)
                if self.request.contention and op.scales:
                    end = role.contended(ready, end, self.request.contention)
                role.record(op, ready, end)
        return moved


def _first_lane(arrays: list[Array], ranks: int, order: tuple[int, ...]) -> Array:
    """Lane 0 of every operation in issue order, shaped (operations, ranks); operation number i of
    `arrays` is number order[i]."""
    result = np.empty((len(arrays), ranks))
    for row, array in zip(order, arrays, strict=True):
        result[row] = array[0]
    return result
