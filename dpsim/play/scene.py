"""Scenes: what an engine is to play where workers behave, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from dpsim.compile.behaviour import CAUSES, Behaviour, World
from dpsim.compile.job import Job
from dpsim.core.arrays import Array
from dpsim.core.lean import dataclass
from dpsim.play import Costs


@dataclass(frozen=True)
class Scene:
    """What workers that behave are given.

    behave    the behaviour of every worker, from its world
    jobs      the work of every worker in a clock
    seats     for every place, workers first and servers behind them, the rank that it is on the
              network that `costs` knows
    factors   clock -> multiplier of every worker's compute [workers]
    draws     (cause, clock) -> numbers from 0 to 1 [workers]
    horizon   how long is played [s]; None: until every worker has ticked `clocks` times
    warmup    clocks of every worker that are not measured, where there is no horizon
    """

    behave: Callable[[World], Behaviour]
    jobs: Sequence[Job]
    seats: Sequence[int]
    costs: Costs
    factors: Callable[[int], Array]
    draws: Callable[[str, int], Array]
    horizon: float | None = None
    clocks: int = 32
    warmup: int = 4

    @property
    def ranks(self) -> int:
        """How many workers there are."""
        return len(self.jobs)

    @property
    def servers(self) -> int:
        """How many places there are beside them."""
        return len(self.seats) - len(self.jobs)


class Update(NamedTuple):
    """The parameters were updated at `time` [s], by what `rank` brought, with so many gradients."""

    time: float
    rank: int
    gradients: int
    staleness: float | None


class Doing(NamedTuple):
    """Something that a worker did: what it was, with how many bytes, and when [s]."""

    rank: int
    name: str
    kind: str
    bytes: float
    start: float
    end: float


@dataclass
class Holding:
    """How much of something that several may hold was used.

    capacity  how many may hold it at once
    busy      seconds that it was held, over all who held it
    waited    seconds that were waited for it; `asked` times
    """

    capacity: int
    busy: float = 0.0
    waited: float = 0.0
    asked: int = 0


@dataclass
class Chronicle:
    """What happened in a scene.

    end       when playing ended [s]
    ticks     when every worker's clocks were over [s]
    updates   all updates, in order
    wasted    gradients of every worker that were dropped, by when [s]
    spent     seconds of every worker, by cause; `computed` those of its device
    sent      bytes that every place has sent, and `came` that have come to it [B]
    moved     bytes from one place to another [B]
    holdings  what was held, by name
    notes     what workers noted
    doings    the latest things that workers did
    events    that playing took
    """

    ranks: int
    places: int
    end: float = 0.0
    ticks: list[list[float]] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    wasted: list[list[float]] = field(default_factory=list)
    spent: list[dict[str, float]] = field(default_factory=list)
    computed: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    came: list[float] = field(default_factory=list)
    moved: dict[tuple[int, int], float] = field(default_factory=dict)
    holdings: dict[str, Holding] = field(default_factory=dict)
    notes: list[dict[str, float]] = field(default_factory=list)
    doings: list[Doing] = field(default_factory=list)
    events: int = 0

    def __post_init__(self) -> None:
        for _ in range(self.ranks):
            self.ticks.append([])
            self.wasted.append([])
            self.spent.append(dict.fromkeys(CAUSES, 0.0))
            self.notes.append({})
        self.computed = [0.0] * self.ranks
        self.sent, self.came = [0.0] * self.places, [0.0] * self.places

    @property
    def clocks(self) -> tuple[int, ...]:
        """How often every worker ticked."""
        return tuple(len(found) for found in self.ticks)

    def share(self, cause: str) -> float:
        """What part of the workers' time went to `cause`."""
        total = sum(sum(spent.values()) for spent in self.spent)
        return sum(spent[cause] for spent in self.spent) / total if total else 0.0

    def noted(self, name: str) -> Mapping[int, float]:
        """What workers noted under `name`."""
        return {rank: found[name] for rank, found in enumerate(self.notes) if name in found}
