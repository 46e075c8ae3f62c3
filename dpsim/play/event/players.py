"""Players: ranks that do the same at the same time are one.

Ranks that play the same programs, compute at the same pace and are in the same groups do all they
do at once, to the bit; one of them is played.  A rank with randomness of its own is a player by
itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpsim.compile.program import COMPUTE, Cast, Program
from dpsim.core.arrays import Array
from dpsim.play import Play, check_time
from dpsim.play.event.score import HOST, Bookings, Score

#: what is added to the operations of a rank, by index [s]
Lateness = dict[int, float]

if TYPE_CHECKING:
    from dpsim.play.event.workers import Worker


class Player:
    """Ranks that do the same; `rank` is the first of them.

    number    among the players
    scores    its cues, by step
    factors   multiplier of its compute, by step
    late      what is added to single operations, by step and index [s]
    widths    how many workers a stream has
    finished  when its steps ended [s]
    issued    when the host issued the operations of a step [s], where it matters
    workers   by stream
    awake     how many of them do not wait for others of the player, and are not through
    """

    __slots__ = (
        "awake", "factors", "finished", "issued", "late", "number", "rank", "ranks", "scores",
        "widths",
        "workers",
    )  # fmt: skip

    def __init__(
        self, number: int, ranks: Sequence[int], scores: Sequence[Score],
        factors: Sequence[float], widths: dict[int, int], late: Sequence[Lateness],
    ) -> None:  # fmt: skip
        self.number, self.ranks, self.rank = number, ranks, ranks[0]
        self.scores, self.factors, self.widths, self.late = scores, factors, widths, late
        self.finished: list[float] = []
        self.issued: list[list[float]] = []
        self.workers: dict[int, list[Worker]] = {}
        self.awake = sum(widths.values())


class Ensemble:
    """Makes the players of a request whose steps have these casts."""

    def __init__(self, request: Play, casts: Sequence[Cast]) -> None:
        self.request, self.casts = request, casts
        self._distinct = list({id(cast): cast for cast in casts}.values())
        names = dict.fromkeys(s for c in self._distinct for p in c.programs for s in p.streams)
        self.streams = {name: number for number, name in enumerate(names, start=HOST + 1)}
        plans: dict[tuple[object, ...], int] = {}
        self._bookings = {id(cast): Bookings(cast, plans) for cast in self._distinct}
        self._scores: dict[tuple[int, int, bool], Score] = {}
        self._parts: dict[tuple[int, ...], tuple[list[Score], dict[int, int]]] = {}

    def players(self) -> list[Player]:
        """All of them, by their first rank.  Raises SimulationError where a duration is none."""
        factors = np.array([self.request.factors(k) for k in range(len(self.casts))], dtype=float)
        self._check(factors)
        late = self._late()
        nothing: list[Lateness] = [{}] * len(self.casts)
        return [
            Player(
                number, ranks, *self._part(ranks[0], factors[:, ranks[0]].tolist()),
                late[ranks[0]] if late else nothing,
            )
            for number, ranks in enumerate(self._same(factors, late))
        ]  # fmt: skip

    def _same(self, factors: Array, late: list[list[Lateness]]) -> Iterable[Sequence[int]]:
        """The ranks of every player."""
        if not late and self._one_place and np.all(factors == factors[:, :1]):
            return [range(self.casts[0].ranks)]
        same: dict[object, list[int]] = {}
        for rank, (place, own) in enumerate(zip(self._places(), factors.T, strict=True)):
            own_late = tuple(tuple(each.items()) for each in late[rank]) if late else ()
            same.setdefault((place, own.tobytes(), own_late), []).append(rank)
        return same.values()

    @property
    def _one_place(self) -> bool:
        """Whether all ranks are at the same place in all things."""
        return all(
            len(cast.programs) == 1 and not (cast.programs[0].transfers or _parted(cast))
            for cast in self._distinct
        )

    def _late(self) -> list[list[Lateness]]:
        """For every rank and step, what is added to which operations; nothing where nothing is."""
        delays = self.request.delays
        if delays is None:
            return []
        steps = [(cast, delays(step)) for step, cast in enumerate(self.casts)]
        return [
            [
                {
                    index: self._delay(cast, rank, index, float(seconds[cast.columns[rank]]))
                    for index, seconds in late[cast.roles[rank]].items()
                }
                for cast, late in steps
            ]
            for rank in range(self.casts[0].ranks)
        ]

    @staticmethod
    def _delay(cast: Cast, rank: int, index: int, seconds: float) -> float:
        """`seconds`, by which an operation is late; SimulationError if that is no time."""
        return check_time(seconds, f"what delays {cast.program(rank).ops[index].name}")

    def _places(self) -> Iterator[object]:
        """What ranks that are in all things at the same place have in common, rank by rank: roles,
        and numbers of groups; where a rank sends or receives, it is like no other."""
        numbers = [
            [self._bookings[id(cast)].numbers(group) for group in _parted(cast)]
            for cast in self._distinct
        ]
        alone = [
            [any(op.kind == "transfer" for op in program.ops) for program in cast.programs]
            for cast in self._distinct
        ]
        for rank in range(self.casts[0].ranks):
            roles = tuple(cast.roles[rank] for cast in self._distinct)
            if any(each[role] for each, role in zip(alone, roles, strict=True)):
                yield rank
            else:
                yield roles, tuple(of[rank] for each in numbers for of in each)

    def _part(
        self, rank: int, factors: list[float]
    ) -> tuple[list[Score], list[float], dict[int, int]]:
        """Scores by step, factors, and widths of the streams of `rank`."""
        roles = tuple(cast.roles[rank] for cast in self._distinct)
        if roles not in self._parts:
            programs = [cast.program(rank) for cast in self.casts]
            hosted = any(program.host_matters for program in programs)
            scores = [
                self._score(cast, program, hosted)
                for cast, program in zip(self.casts, programs, strict=True)
            ]
            widths = {HOST: 1} if hosted else {}
            for name in dict.fromkeys(s for program in programs for s in program.streams):
                shared = name != COMPUTE
                widths[self.streams[name]] = self.request.costs.concurrency if shared else 1
            self._parts[roles] = scores, widths
        scores, widths = self._parts[roles]
        return scores, factors, widths

    def _score(self, cast: Cast, program: Program, hosted: bool) -> Score:
        key = (id(cast), id(program), hosted)
        if key not in self._scores:
            self._scores[key] = Score(
                program, self._bookings[id(cast)], self.streams,
                self.request.costs.concurrency, self.request.contention > 0, hosted,
                self.request.delays is not None,
            )  # fmt: skip
        return self._scores[key]

    def _check(self, factors: Array) -> None:
        """Refuse factors with which something takes no time."""
        for step, rank in np.argwhere(~((factors >= 0) & (factors < np.inf))).tolist():
            for op in self.casts[step].program(rank).ops:
                if op.scales:
                    check_time(op.seconds * factors[step][rank], f"{op.name} on rank {rank}")


def _parted(cast: Cast) -> list[str]:
    """The groups in which collectives run that are not groups of all ranks."""
    named = {op.group for p in cast.programs for op in p.ops if op.kind == "collective"}
    return [
        name
        for name in sorted(named)
        if [len(group) for group in cast.groups.get(name, ())] != [cast.ranks]
    ]
