"""Players of a request: what is the same for all ranks of a role is made once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsim.compile.program import COMPUTE, Cast, Program
from dpsim.core.arrays import Array
from dpsim.play import Play, check_time
from dpsim.play.event.score import HOST, Bookings, Score
from dpsim.play.event.workers import Player


class Ensemble:
    """Makes the players of a request whose steps have these casts."""

    def __init__(self, request: Play, casts: Sequence[Cast]) -> None:
        self.request, self.casts = request, casts
        names = dict.fromkeys(s for cast in casts for p in cast.programs for s in p.streams)
        self.streams = {name: number for number, name in enumerate(names, start=HOST + 1)}
        plans: dict[tuple[object, ...], int] = {}
        self._bookings = {id(cast): Bookings(cast, plans) for cast in casts}
        self._scores: dict[tuple[int, int, bool], Score] = {}

    def players(self) -> list[Player]:
        """All of them, by rank.  Raises SimulationError where a duration is none."""
        factors = np.array([self.request.factors(k) for k in range(len(self.casts))], dtype=float)
        distinct = list({id(cast): cast for cast in self.casts}.values())
        shared: dict[tuple[int, ...], Player] = {}
        found = []
        for rank, own in enumerate(factors.T.tolist()):
            roles = tuple(cast.roles[rank] for cast in distinct)
            if roles not in shared:
                shared[roles] = self._first(rank)
            first = shared[roles]
            found.append(Player(rank, first.scores, own, first.widths))
        self._check(factors, found)
        return found

    def _first(self, rank: int) -> Player:
        """The first of the ranks that play the same programs."""
        programs = [cast.program(rank) for cast in self.casts]
        hosted = any(program.host_matters for program in programs)
        scores = [
            self._score(cast, program, hosted)
            for cast, program in zip(self.casts, programs, strict=True)
        ]
        width = self.request.costs.concurrency
        widths = {HOST: 1} if hosted else {}
        for name in dict.fromkeys(stream for program in programs for stream in program.streams):
            widths[self.streams[name]] = 1 if name == COMPUTE else width
        return Player(rank, scores, (), widths)

    def _score(self, cast: Cast, program: Program, hosted: bool) -> Score:
        key = (id(cast), id(program), hosted)
        if key not in self._scores:
            self._scores[key] = Score(
                program, self._bookings[id(cast)], self.streams,
                self.request.costs.concurrency, self.request.contention > 0, hosted,
            )  # fmt: skip
        return self._scores[key]

    @staticmethod
    def _check(factors: Array, players: Sequence[Player]) -> None:
        """Refuse factors with which something takes no time."""
        for step, rank in np.argwhere(~((factors >= 0) & (factors < np.inf))).tolist():
            for op in players[rank].scores[step].program.ops:
                if op.scales:
                    check_time(op.seconds * factors[step][rank], f"{op.name} on rank {rank}")
