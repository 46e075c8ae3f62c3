"""The vectorised engine: one pass in issue order over all ranks of a role at once.

A program with a fixed order per stream is a max-plus system: an operation starts at the maximum of
what it waits for and ends its duration later; a collective starts at the maximum over its group.
Where ranks do not differ a number stands for all of them; where their pace alone differs, a line
(`position`); and work beside collectives is counted on a clock of its own (`slowing`), so that it
only adds up.  Single ranks are played again where somebody asks for their times (`replay`).

A lane is a variant that is played along: lane 0 is the question itself, the others stretch all
compute or all communication, which is how intervals are made.

It applies where collectives of different communicators don't load the same links at the same time;
otherwise it says so (NotApplicable) and the event engine is the one to ask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from dpsim.compile.program import RECEIVE, Cast
from dpsim.compile.timeline import Split, Timeline
from dpsim.core.errors import SimulationError
from dpsim.core.many import finite
from dpsim.play import Play
from dpsim.play.vectorised.compiled import Compiled, compiled
from dpsim.play.vectorised.deadlock import stuck
from dpsim.play.vectorised.exchanges import Exchanges
from dpsim.play.vectorised.position import Factors
from dpsim.play.vectorised.replay import Replayed
from dpsim.play.vectorised.role import Role
from dpsim.play.vectorised.sharing import Sharing
from dpsim.play.vectorised.slowing import Slowing, Value, earliest
from dpsim.play.vectorised.together import CriticalRank
from dpsim.play.vectorised.together import splits as splits_of

Lane = tuple[float, float]
#: how far, as a share of a step, ranks and streams may be from where they were a step before, where
#: steps are alike: what rounding makes of 64 steps
SETTLED = 1e-13


def play(
    request: Play,
    *,
    lanes: tuple[Lane, ...] = ((1.0, 1.0),),
    sharing: bool = True,
    splits: bool = True,
) -> Timeline:
    """Play `request`; lane = (multiplier of all compute, multiplier of all communication).

    NotApplicable where communicators share links, unless `sharing` is not to be looked at.
    Without `splits` the timeline has none.
    """
    programs = _Programs(request, request.costs.concurrency if sharing else 1)
    runs = [_Run(request, lane, programs, sharing=sharing and k == 0)
            for k, lane in enumerate(lanes)]  # fmt: skip
    durations: list[float] = []
    found: list[Split | CriticalRank] = []
    for number in range(request.steps):
        factors = request.factors(number)
        if not np.all(factors >= 0):
            raise SimulationError(f"step {number} has a compute factor that is no factor")
        first, repeated = runs[0], runs[0].settled
        for run in runs:
            run.step(number, factors)
        if number >= request.warmup:
            durations.append(first.last.duration)
            if splits:
                found.append(found[-1] if repeated and found else _critical(request, first.last))
    means = tuple(run.mean for run in runs)
    return Timeline(tuple(durations), _splits(found), runs[0].last, lanes=means)


def _critical(request: Play, step: Replayed) -> Split | CriticalRank:
    """Where the time of `step` went, or what it takes to find out for many steps at once."""
    return step.split() if request.steady else step.critical()


def _splits(found: Sequence[Split | CriticalRank]) -> tuple[Split, ...]:
    """All of them found out."""
    known = iter(splits_of([one for one in found if isinstance(one, CriticalRank)]))
    return tuple(one if isinstance(one, Split) else next(known) for one in found)


class _Programs:
    """The programs of casts, compiled once for all lanes."""

    def __init__(self, request: Play, width: int) -> None:
        self.request, self.width = request, width
        self._known: dict[int, tuple[Cast, tuple[Compiled, ...]]] = {}
        self._alone: dict[int, bool] = {}

    def of(self, cast: Cast) -> tuple[Compiled, ...]:
        """Those of `cast`, in the order to play them in.

        Under contention a computation must know of all collectives beside it, so they come first.
        """
        if id(cast) not in self._known:
            found = []
            for program in cast.programs:
                early = self.request.contention > 0 and not program.host_matters
                found.append(compiled(program, early=early, width=self.width))
            self._known[id(cast)] = cast, tuple(found)
        return self._known[id(cast)][1]

    def one_by_one(self, cast: Cast) -> bool:
        """Whether whatever ranks do with others comes one after the other."""
        if id(cast) not in self._alone:
            programs = cast.programs
            streams = {(op.stream, op.group) for p in programs for op in p.ops if not op.on_device}
            groups = sum(len(cast.groups.get(group, ())) for _, group in streams)
            self._alone[id(cast)] = self.width == 1 and groups < 2
        return self._alone[id(cast)]


class _Run:
    """One lane: all roles of a call of `play`, one step after the other."""

    def __init__(self, request: Play, lane: Lane, programs: _Programs, *, sharing: bool) -> None:
        self.request, self.programs = request, programs
        self.compute, comm = lane
        cast = request.cast(0)
        self.roles = [
            Role(cast.members(role), programs.width, Slowing(request.contention))
            for role in range(len(cast.programs))
        ]
        self.exchanges = Exchanges(request, comm, self.roles)
        self.sharing = Sharing(request.costs.topology, programs.width) if sharing else None
        self.finish, self.total, self.measured = 0.0, 0.0, 0
        self._last: Replayed | None = None
        #: whether all steps from the last one on are alike
        self.settled = False
        self._ends: list[tuple[Value, ...]] = []

    @property
    def last(self) -> Replayed:
        """The last step."""
        assert self._last is not None
        return self._last

    @property
    def mean(self) -> float:
        """Mean duration of the measured steps [s]."""
        return self.total / self.measured

    def step(self, number: int, factors: Value) -> None:
        """Play step `number`, in which ranks compute `factors` times as long as a quiet one."""
        if not self.settled:
            self._step(number, factors)
            self.settled = self.request.steady and self._repeats()
        if number >= self.request.warmup:
            self.total += self.last.duration
            self.measured += 1

    def _repeats(self) -> bool:
        """Whether the next step begins as the last one did, and so will be like it.

        Where a communicator is busy beyond a step's end, the step before has to be like it too: it
        is part of what is told of the last."""
        self._ends.append(tuple(t for role in self.roles for t in _state(role, self.finish)))
        busy = any(role.streams.busy(self.finish) for role in self.roles)
        near = SETTLED * self.last.duration
        *others, last = self._ends[-3 if busy else -2 :]
        return len(others) == (2 if busy else 1) and all(_near(one, last, near) for one in others)

    def _step(self, number: int, factors: Value) -> None:
        cast = self.request.cast(number)
        programs, origin = self.programs.of(cast), self.finish
        sharing = None if self.programs.one_by_one(cast) else self.sharing
        self.exchanges.begin(number, sharing)
        own = self._factors(cast, factors)
        late = self.request.delays(number) if self.request.delays else [{}] * len(self.roles)
        delays = [seconds for each in late for seconds in each.values()]
        if not all(((seconds >= 0) & (seconds < np.inf)).all() for seconds in delays):
            raise SimulationError(f"step {number} has a delay that is no time")
        starts = [
            role.begin(
                programs[k],
                own[k],
                late[k],
                not programs[k].own and self.exchanges.together(k, cast),
            )
            for k, role in enumerate(self.roles)
        ]
        self._play(cast)
        if sharing is not None:
            sharing.check()
        ends = [role.end for role in self.roles]
        self.finish = max(ends)
        if not finite(self.finish):
            raise SimulationError(f"step {number} ends at no finite time")
        spans = [role.spans for role in self.roles]
        for role in self.roles:
            role.finish()
        ended = [(role.position.now, role.slowing.copied()) for role in self.roles]
        before = self._last.alone() if self._last is not None else None
        self._last = Replayed(
            cast, origin, self.finish, before, programs, starts, spans, ended, self.programs.width
        )

    def _factors(self, cast: Cast, factors: Value) -> list[Factors]:
        """The factors of each role's ranks in this lane."""
        values = factors if self.compute == 1.0 else factors * self.compute
        if isinstance(values, float) or len(self.roles) == 1:
            return [Factors(values) for _ in self.roles]
        return [Factors(values[np.asarray(role.members)]) for role in self.roles]

    def _play(self, cast: Cast) -> None:
        """Every role goes on until it has to wait for others, who then call it."""
        called = deque(range(len(self.roles)))
        while called:
            number = called.popleft()
            called.extend(self._advance(number, cast))
            if self.roles[number].arrived:
                called.extend(self.exchanges.meet(number, cast))
        if any(role.next < len(role.program.tasks) for role in self.roles):
            raise stuck(cast, self.roles)

    def _advance(self, number: int, cast: Cast) -> list[int]:
        """Play this role's operations up to its next collective; returns whom that lets go on."""
        role, freed = self.roles[number], list[int]()
        size = len(role.program.tasks)
        while role.next < size and not role.arrived:
            if role.task.computes:
                role.compute(size)
                continue
            op = role.task.op
            if op.kind == "collective":
                role.come()
                role.arrived = True
            elif op.operation == RECEIVE and not self.exchanges.sent(number, cast):
                break
            else:
                freed += self.exchanges.transfer(number, cast)
        return freed


def _state(role: Role, origin: float) -> Iterator[Value]:
    """All that a role's next step depends on, as times after `origin` [s]; the host does not count
    where it costs nothing."""
    now = role.slowing.time(role.position.now.each)
    yield now - origin
    if not isinstance(role.host, float) or role.host > 0.0:
        yield role.host - origin
    for time in (*role.streams.times, *role.slowing.beyond(earliest(now))):
        yield time - origin


def _near(one: tuple[Value, ...], other: tuple[Value, ...], most: float) -> bool:
    """Whether the same times are there, and none `most` [s] from the other's."""
    if len(one) != len(other):
        return False
    away = (a - b for a, b in zip(one, other, strict=True))
    return all(
        -most <= gap <= most if isinstance(gap, float) else bool(np.all(np.abs(gap) <= most))
        for gap in away
    )
