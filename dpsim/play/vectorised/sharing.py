"""Links that collectives would share, which one pass cannot play."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dpsim.backends import Edge, Plan, Topology
from dpsim.core.arrays import Array
from dpsim.play import NotApplicable

#: a little for rounding
_ROOM = 1 + 1e-9
Times = Sequence[float] | Array


class Talk(NamedTuple):
    """Collectives or transfers of several groups, each by its plan, from `begins` to `ends` [s].

    groups  what tells them apart; those of one group on one stream come one after the other
    """

    stream: str
    groups: Sequence[tuple[str, int]]
    plans: Sequence[Plan]
    begins: Times
    ends: Times


class _Use(NamedTuple):
    begin: float
    end: float
    stream: str
    plan: Plan


class Sharing:
    """Who uses which links when, in each step; a stream has `width` workers."""

    def __init__(self, topology: Topology | None, width: int) -> None:
        self._topology, self._width = topology, width
        self._talk: list[Talk] = []
        #: the plans of every group on every stream, and whether they could all run at once
        self._used: dict[tuple[str, tuple[str, int]], dict[int, Plan]] = {}
        self._apart: bool | None = None
        self._seen: dict[tuple[str, int], Sequence[Plan]] = {}
        self._verdicts: dict[tuple[int, ...], str | None] = {}

    def begin(self) -> None:
        """A step begins."""
        self._talk = []

    def note(self, talk: Talk) -> None:
        """This happened."""
        self._talk.append(talk)
        key = (talk.stream, id(talk.plans))
        if key in self._seen:
            return
        self._seen[key], self._apart = talk.plans, None
        for group, plan in zip(talk.groups, talk.plans, strict=True):
            if any(phase.loads for phase in plan.phases):
                self._used.setdefault((talk.stream, group), {})[id(plan)] = plan

    def check(self) -> None:
        """Refuse where collectives that may run at once ask more of a link than it has."""
        if self._topology is None or (self._width == 1 and len(self._used) < 2):
            return
        if self._apart is None:
            self._apart = self._width == 1 and self._never_meet()
        if self._apart:
            return
        busy: list[_Use] = []
        for use in sorted(self._uses(), key=lambda use: use.begin):
            # those of one group begin when the one before has ended
            busy = [other for other in busy if other.end > use.begin]
            rival = self._rival(use, busy) if busy else None
            if rival is not None:
                raise _shares(rival, use.stream)
            busy.append(use)

    def _uses(self) -> list[_Use]:
        return [
            _Use(float(begin), float(end), talk.stream, plan)
            for talk in self._talk
            for plan, begin, end in zip(talk.plans, talk.begins, talk.ends, strict=True)
            if any(phase.loads for phase in plan.phases)
        ]

    def _never_meet(self) -> bool:
        """Whether every link has room for the fastest of all groups at once."""
        total: dict[Edge, float] = {}
        for plans in self._used.values():
            most: dict[Edge, float] = {}
            for plan in plans.values():
                for link, rate in plan.rates.items():
                    most[link] = max(most.get(link, 0.0), rate)
            for link, rate in most.items():
                total[link] = total.get(link, 0.0) + rate
        return all(rate <= self._room(link) for link, rate in total.items())

    def _rival(self, use: _Use, busy: Sequence[_Use]) -> str | None:
        """The stream of one of `busy` with which `use` shares a link that has no room for all."""
        key = (id(use.plan), *(id(other.plan) for other in busy))
        if key not in self._verdicts:
            self._verdicts[key] = self._found(use, busy)
        return self._verdicts[key]

    def _found(self, use: _Use, busy: Sequence[_Use]) -> str | None:
        near = [other for other in busy if use.plan.meets(other.plan)]
        for link, rate in use.plan.rates.items() if near else ():
            rivals = [other for other in near if link in other.plan.rates]
            asked = rate + sum(other.plan.rates[link] for other in rivals)
            if rivals and asked > self._room(link):
                return rivals[0].stream
        return None

    def _room(self, link: Edge) -> float:
        assert self._topology is not None
        return self._topology.link(link).bandwidth * _ROOM


def _shares(one: str, other: str) -> NotApplicable:
    pair = f"{one} and {other}" if one != other else f"two of {one}"
    return NotApplicable(
        f"{pair} share links at the same time; only engine: event shares bandwidth between them"
    )
