"""Links that collectives would share, which one pass cannot play."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
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


class _Narrow(NamedTuple):
    """Links of which more may be asked than they have, by number; those that the same plans cross
    at the same rates have one.

    crossed  by what a plan is known by, its links and at which rate it crosses each [B/s]
    rooms    what each has [B/s]
    """

    crossed: Mapping[int, Sequence[tuple[int, float]]]
    rooms: Sequence[float]


class Sharing:
    """Who uses which links when, in each step; a stream has `width` workers."""

    def __init__(self, topology: Topology | None, width: int) -> None:
        self._topology, self._width = topology, width
        self._talk: list[Talk] = []
        #: the plans of every group on every stream, and which links have no room for all of them
        self._used: dict[tuple[str, tuple[str, int]], dict[int, Plan]] = {}
        self._narrow: _Narrow | None = None
        self._seen: dict[tuple[str, int], Sequence[Plan]] = {}

    def begin(self) -> None:
        """A step begins."""
        self._talk = []

    def note(self, talk: Talk) -> None:
        """This happened."""
        self._talk.append(talk)
        key = (talk.stream, id(talk.plans))
        if key in self._seen:
            return
        self._seen[key], self._narrow = talk.plans, None
        for group, plan in zip(talk.groups, talk.plans, strict=True):
            if any(phase.loads for phase in plan.phases):
                self._used.setdefault((talk.stream, group), {})[id(plan)] = plan

    def check(self) -> None:
        """Refuse where collectives that run at once ask more of a link than it has."""
        if self._topology is None or (self._width == 1 and len(self._used) < 2):
            return
        if self._narrow is None:
            self._narrow = self._narrowed()
        crossed, rooms = self._narrow
        busy: list[dict[int, tuple[float, str]]] = [{} for _ in rooms]
        ends: list[tuple[float, int, Sequence[tuple[int, float]]]] = []
        for number, use in enumerate(sorted(self._uses(crossed), key=lambda use: use.begin)):
            # those of one group begin when the one before has ended
            while ends and ends[0][0] <= use.begin:
                _, over, left = heappop(ends)
                for link, _ in left:
                    del busy[link][over]
            crossing = crossed[id(use.plan)]
            for link, rate in crossing:
                others = busy[link]
                if others and rate + sum(one for one, _ in others.values()) > rooms[link]:
                    raise _shares(next(iter(others.values()))[1], use.stream)
                others[number] = rate, use.stream
            heappush(ends, (use.end, number, crossing))

    def _uses(self, crossed: Collection[int]) -> list[_Use]:
        """What went on in this step over links that may be narrow."""
        if not crossed:
            return []
        return [
            _Use(float(begin), float(end), talk.stream, plan)
            for talk in self._talk
            for plan, begin, end in zip(talk.plans, talk.begins, talk.ends, strict=True)
            if id(plan) in crossed
        ]

    def _narrowed(self) -> _Narrow:
        """The links that are narrow; where a stream has one worker, only those that have no room
        for the fastest of all groups at once."""
        plans = {number: plan for known in self._used.values() for number, plan in known.items()}
        asked = self._asked() if self._width == 1 else {}
        users: dict[Edge, list[tuple[int, float]]] = {}
        for number, plan in plans.items() if self._width > 1 or asked else ():
            for link, rate in plan.rates.items():
                if self._width > 1 or link in asked:
                    users.setdefault(link, []).append((number, rate))
        alike = {(tuple(each), self._room(link)): None for link, each in users.items()}
        crossed: dict[int, list[tuple[int, float]]] = {}
        for place, (each, _) in enumerate(alike):
            for number, rate in each:
                crossed.setdefault(number, []).append((place, rate))
        return _Narrow(crossed, [room for _, room in alike])

    def _asked(self) -> dict[Edge, float]:
        """What the fastest of all groups at once would ask of the links that have no room for it
        [B/s]."""
        total: dict[Edge, float] = {}
        for plans in self._used.values():
            most: dict[Edge, float] = {}
            for plan in plans.values():
                for link, rate in plan.rates.items():
                    most[link] = max(most.get(link, 0.0), rate)
            for link, rate in most.items():
                total[link] = total.get(link, 0.0) + rate
        return {link: rate for link, rate in total.items() if rate > self._room(link)}

    def _room(self, link: Edge) -> float:
        assert self._topology is not None
        return self._topology.link(link).bandwidth * _ROOM


def _shares(one: str, other: str) -> NotApplicable:
    pair = f"{one} and {other}" if one != other else f"two of {one}"
    return NotApplicable(
        f"{pair} share links at the same time; only engine: event shares bandwidth between them"
    )
