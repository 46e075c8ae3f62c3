"""A step whose single ranks are played again when somebody asks for their times."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dpsim.compile.program import Cast
from dpsim.compile.timeline import LATE, SAME, Column, Step
from dpsim.core.arrays import Array
from dpsim.play.vectorised.compiled import Compiled, Playable
from dpsim.play.vectorised.position import Moment, front
from dpsim.play.vectorised.role import Role, Span, Start, Watch
from dpsim.play.vectorised.slowing import Indices, Slowing, Value, at, latest
from dpsim.play.vectorised.together import CriticalRank, critical

#: ranks that end with the last are told apart by what they computed, as far as they differ
_MANY = 4096


class Replayed(Step):
    """One step, as far as it was kept: where each role's ranks began, when collectives and
    transfers ran, and where the ranks were at the end."""

    def __init__(
        self,
        cast: Cast,
        origin: float,
        finish: float,
        previous: Replayed | None,
        programs: Sequence[Compiled],
        starts: Sequence[Start],
        spans: Sequence[dict[int, Span]],
        ends: Sequence[tuple[Moment, Slowing]],
        width: int,
    ) -> None:
        super().__init__(cast, origin, previous)
        self._finish, self._width = finish, width
        self._programs, self._starts, self._exchanged, self._ends = programs, starts, spans, ends
        self._columns: dict[int, Column] = {}
        self._latest: dict[tuple[tuple[str, str], Sequence[int]], dict[int, int]] = {}

    def alone(self) -> Replayed:
        """The same without the step before."""
        self.previous = None
        return self

    @property
    def finish(self) -> float:
        return self._finish

    @cached_property
    def talks_until(self) -> float:
        """When the last collective or transfer of this step ends."""
        ends = (latest(end) for spans in self._exchanged for _, end in spans.values())
        return max(ends, default=0.0)

    def talk(self, rank: int) -> list[tuple[float, float]]:
        role, column = self.place(rank)
        spans = self._exchanged[role].values()
        return [(latest(at(a, column)), latest(at(b, column))) for a, b in spans]

    def column(self, rank: int) -> Column:
        if rank not in self._columns:
            role, column = self.place(rank)
            noted: dict[int, tuple[float, float, float]] = {}

            def note(task: Playable, *times: Value) -> None:
                noted[task.number] = tuple(map(latest, times))  # type: ignore[assignment]

            self._again(role, column, note)
            in_order = (noted[index] for index in range(len(noted)))
            self._columns[rank] = Column(*zip(*in_order, strict=True))
        return self._columns[rank]

    def critical(self) -> CriticalRank:
        """The critical rank, to be played again with those of other steps."""
        rank = self.critical_rank()
        role, column = self.place(rank)
        spans = self._exchanged[role].items()
        return critical(
            self.cast,
            self._programs[role],
            self.origin,
            self._starts[role].of_rank(column),
            {place: (at(a, column), at(b, column)) for place, (a, b) in spans},
            self.talk_before(rank),
        )

    def _again(self, role: int, column: int | Indices, watch: Watch) -> None:
        """Play the ranks at `column` of a role again."""
        program = self._programs[role]
        player = Role.again(self._starts[role], program, self._width, column, watch)
        player.replay(self._exchanged[role], column, len(program.tasks))

    # -- all ranks of a role, as far as they differ -----------------------------------------------

    @cached_property
    def start(self) -> tuple[Array, ...]:
        """Per role, when operations started on its ranks: (operations, ranks) [s]."""
        return self._whole("start")

    @cached_property
    def end(self) -> tuple[Array, ...]:
        """The same for when they ended."""
        return self._whole("end")

    @cached_property
    def ready(self) -> tuple[Array, ...]:
        """The same for when ranks had reached them."""
        return self._whole("ready")

    def _whole(self, name: str) -> tuple[Array, ...]:
        roles = range(len(self.cast.programs))
        members = (self.cast.members(role) for role in roles)
        return tuple(
            np.array([getattr(self.column(rank), name) for rank in ranks]).T for ranks in members
        )

    def critical_rank(self) -> int:
        """As that of any step, of all ranks at once."""
        last = self._last()
        if len(last) > 1:
            return super().critical_rank()
        ((role, columns),) = last.items()
        members = self.cast.members(role)
        if len(columns) == 1:
            return members[int(columns[0])]
        busy = self._busy(role, columns)
        most = columns[busy >= float(busy.max()) * (1 - SAME)]
        return int(min(members[k] for k in most.tolist()))

    def last_ranks(self) -> list[tuple[int, float]]:
        last = self._last()
        if sum(map(len, last.values())) == 1:
            return [(self.cast.members(role)[int(k)], 0.0) for role, (k,) in last.items()]
        return [
            (self.cast.members(role)[int(k)], float(busy))
            for role, columns in last.items()
            for k, busy in zip(columns, self._busy(role, columns), strict=True)
        ]

    def _last(self) -> dict[int, Indices]:
        """The ranks that end with the last, of each role that has one."""
        roles = range(len(self.cast.programs))
        return {role: columns for role in roles if len(columns := self._last_columns(role))}

    def _last_columns(self, role: int) -> Indices:
        """The ranks of a role that end with the last; one of those that do all the same, and of
        very many those with the largest factors."""
        moment, slowing = self._ends[role]
        late = self.finish - LATE * abs(self.finish)
        members = len(self.cast.members(role))
        if self._alike(role):
            members = 1
        found = np.flatnonzero(np.broadcast_to(slowing.time(moment.each) >= late, (members,)))
        factors = self._starts[role].factors.each
        if len(found) > _MANY and not isinstance(factors, float):
            found = np.sort(found[np.argsort(-factors[found], kind="stable")[:_MANY]])
        return found[:_MANY]

    def _together(self, role: int) -> bool:
        """Whether all ranks of a role wait for the same in this step."""
        times = (time for span in self._exchanged[role].values() for time in span)
        return self._starts[role].alike and all(isinstance(time, float) for time in times)

    def _alike(self, role: int) -> bool:
        """Whether all ranks of a role do the same at the same time."""
        start = self._starts[role]
        alike = isinstance(start.work, float) and isinstance(start.factors.each, float)
        return alike and self._together(role)

    def _may_be_last(self, role: int, columns: Indices) -> Indices:
        """The first of these ranks of a role, and those of which one is the last."""
        if not self._together(role):
            return columns
        if self._alike(role):
            return columns[:1]
        start = self._starts[role]
        kept = front(at(start.work, columns), start.factors.of_rank(columns).each)
        return np.unique(np.append(columns[0], columns[kept]))

    def _busy(self, role: int, columns: Indices) -> Array:
        """How long each of these ranks of a role computes [s]."""
        busy = np.zeros(len(columns))

        def add(task: Playable, _: Value, start: Value, end: Value) -> None:
            nonlocal busy
            if task.scales:
                busy = busy + (end - start)

        self._again(role, columns, add)
        return busy

    def last_to_come(self, group: Sequence[int], place: tuple[str, str, int]) -> int:
        key = (place[:2], group)
        if key not in self._latest:
            self._latest[key] = self._find_latest(group, place[:2])
        return self._latest[key][place[2]]

    def _find_latest(self, group: Sequence[int], where: tuple[str, str]) -> dict[int, int]:
        """The rank of `group` that came last to each of its collectives, by how many of the same
        stream and group name come before."""
        found: dict[int, tuple[float, int]] = {}
        for role, program in enumerate(self.cast.programs):
            own = [rank for rank in group if self.cast.roles[rank] == role]
            if not own:
                continue
            columns = self._may_be_last(role, np.array([self.cast.columns[rank] for rank in own]))
            members = self.cast.members(role)

            def see(task: Playable, ready: Value, _: Value, end: Value) -> None:
                if (task.op.stream, task.op.group) != where:
                    return
                ordinal = program.ordinals[task.number]  # noqa: B023
                k = 0 if isinstance(ready, float) else int(ready.argmax())
                came = latest(at(ready, k)), members[int(columns[k])]  # noqa: B023
                if ordinal not in found or came[0] > found[ordinal][0]:
                    found[ordinal] = came

            self._again(role, columns, see)
        return {ordinal: rank for ordinal, (_, rank) in found.items()}
