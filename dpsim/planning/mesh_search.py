"""The fastest settings of a space of meshes, by branch and bound.

A setting is looked at in the order of what it takes at least, and three times at most: by the work
of the whole model, by that of its own stages (and its memory), and played.  Both bounds are proved
(`dpsim.cases.least`), so what is left out is slower than what is kept.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from dpsim.cases.case import Case
from dpsim.cases.least import at_least
from dpsim.core import told
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.planning import mesh_times
from dpsim.planning.bench import Bench
from dpsim.planning.mesh_bounds import Whole
from dpsim.planning.mesh_space import MeshSetting, MeshSpace, halved
from dpsim.planning.mesh_wanted import MeshLimits
from dpsim.planning.search import holds
from dpsim.predict.memory import crowded, memory_of
from dpsim.predict.point import FITTING

#: relative rounding that a bound is given
ROUNDING = 1e-9
#: settings after which what is left is counted again
_AGAIN = 50


@dataclass(frozen=True)
class TimedMesh:
    """A setting that was played: its step time [s], and whether even the high end of its memory
    fits."""

    setting: MeshSetting
    seconds: float
    surely: bool


@dataclass
class Searched:
    """What a search has found, and how many settings it has dealt with how.

    timed      what was played
    settings   in the space
    reasons    why settings are not modelled, or not possible, and how many for each
    too_large  that do not fit in memory, or in what is wanted of it; `least` the smallest [B],
               which is that of `smallest`
    bounded    slower than what was found, by a bound
    missing    played, and not what is wanted; `nearest` comes nearest to it, at that margin
    fitting    whether any was too large for what is wanted alone
    crowded    of those too large, pipelines that may wait for memory
    """

    timed: list[TimedMesh] = field(default_factory=list)
    settings: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    too_large: int = 0
    least: float = inf
    smallest: MeshSetting | None = None
    bounded: int = 0
    missing: int = 0
    nearest: tuple[float, MeshSetting] | None = None
    fitting: bool = False
    crowded: int = 0

    @property
    def refused(self) -> int:
        """How many settings are not modelled, or not possible."""
        return self.reasons.total()

    @property
    def why(self) -> str:
        """The reason of most of them; of equals the first, empty where none was refused."""
        return max(self.reasons, key=lambda text: self.reasons[text], default="")

    def needs(self, size: float, setting: MeshSetting) -> None:
        """Note that `setting` is too large, with `size` bytes."""
        if size < self.least:
            self.least, self.smallest = size, setting

    def missed(self, setting: MeshSetting, margin: float) -> None:
        """Note that `setting` was played, and misses what is wanted by `margin`."""
        self.missing += 1
        if self.nearest is None or margin > self.nearest[0]:
            self.nearest = margin, setting

    def best(self, *, surely: bool = False) -> TimedMesh | None:
        """The fastest that was played."""
        found = (one for one in self.timed if one.surely or not surely)
        return min(found, key=lambda one: one.seconds, default=None)

    def meshes(self) -> list[TimedMesh]:
        """The fastest setting of each mesh, the fastest mesh first."""
        found: dict[tuple[int, ...], TimedMesh] = {}
        for one in sorted(self.timed, key=lambda one: one.seconds):
            found.setdefault(one.setting.mesh, one)
        return list(found.values())


@dataclass
class MeshSearch:
    """Searches `space` for the `wanted` fastest meshes and the fastest that surely fits, among
    those within `limits`; without pipelines that may wait for memory unless `crowded` ones are
    looked at too."""

    bench: Bench
    space: MeshSpace
    wanted: int
    tell: told.Told = told.nobody
    limits: MeshLimits = field(default_factory=MeshLimits)
    crowded: bool = False
    found: Searched = field(default_factory=Searched)
    _smallest: dict[tuple[object, ...], float] = field(default_factory=dict)
    _limit: float = inf
    _counted: int = 0
    _total: int = 0

    def run(self) -> Searched:
        """Everything that may be among them, played."""
        settings = list(self.space.settings())
        self.found.settings, whole = len(settings), Whole(self.space, self.case)
        queue = [(whole.bound(one), number, False, 0.0) for number, one in enumerate(settings)]
        heapq.heapify(queue)
        while queue and queue[0][0] * (1 - ROUNDING) < self._enough():
            self._tell(queue)
            bound, number, opened, surely = heapq.heappop(queue)
            setting = settings[number]
            if not opened:
                own = self._opened(setting)
                if own is not None:
                    heapq.heappush(queue, (max(own[0], bound), number, True, float(own[1])))
            elif not self._played(setting, bound, surely=bool(surely)):
                self.found.bounded += 1
        self.found.bounded += len(queue)
        self.tell(len(settings) - len(queue), len(settings) - len(queue))
        return self.found

    def _tell(self, queue: Sequence[tuple[float, int, bool, float]]) -> None:
        """How many settings are dealt with, and of how many: those that a bound leaves out, as far
        as is known by now, are not looked at, so the number falls to what the end is."""
        done = self.found.settings - len(queue)
        enough = self._enough()
        if not self._total or enough != self._limit or done >= self._counted + _AGAIN:
            self._limit, self._counted = enough, done
            self._total = done + sum(bound * (1 - ROUNDING) < enough for bound, *_ in queue)
        self.tell(done, self._total)

    def _enough(self) -> float:
        """What a setting has to be faster than to change the answer [s]."""
        sure = self.found.best(surely=True)
        return max(self._slowest(), sure.seconds if sure else inf)

    def _slowest(self) -> float:
        kept = self.found.meshes()
        return kept[self.wanted - 1].seconds if len(kept) >= self.wanted else inf

    def _opened(self, setting: MeshSetting) -> tuple[float, bool] | None:
        """What `setting` takes at least [s], and whether it surely fits; None where it is none."""
        try:
            if self._hopeless(setting):
                self.found.too_large += 1
                return None
            case = self.case(setting)
            used = memory_of(case)
            if not self._room(used.fits) or not self.limits.takes(used.total):
                self.found.too_large += 1
                self.found.needs(used.total, setting)
                return None
            if not self.crowded and crowded(case, used):
                self.found.too_large += 1
                self.found.crowded += 1
                return None
            bound = 0.0 if self.space.dealt(setting) else at_least(case)
            return bound, used.fits in ("yes", None)
        except (Refused, ValueError) as error:
            self._denied(error)
            return None

    def _room(self, fits: str | None) -> bool:
        """Whether that is taken to fit, whatever is wanted beside."""
        room = fits is None or fits in FITTING
        self.found.fitting |= room
        return room

    def _hopeless(self, setting: MeshSetting) -> bool:
        """Whether not even the smallest micro-batch fits: what is in flight, min(stages x size of a
        micro-batch, a replica's batch) samples, does not shrink where micro-batches grow."""
        if self.space.dealt(setting):
            return False  # so small ones may leave slow ranks without a sample
        key = setting.mesh, setting.recompute
        if key not in self._smallest:
            count = setting.micro_batch * setting.micro_batches
            size = min(halved(count))
            least = replace(setting, micro_batch=size, micro_batches=count // size)
            used = memory_of(self.case(least))
            will = self._room(used.fits) and not self.limits.too_much(used.total)
            self._smallest[key] = 0.0 if will else used.total
            if not will:
                self.found.needs(used.total, least)
        return self._smallest[key] > 0

    def _denied(self, error: Exception) -> None:
        self.found.reasons[str(error)] += 1

    def _played(self, setting: MeshSetting, bound: float, *, surely: bool) -> bool:
        """Play `setting` if it may change the answer; whether it was looked at."""
        sure = self.found.best(surely=True)
        limit = max(self._slowest(), (sure.seconds if sure else inf) if surely else 0.0)
        if bound * (1 - ROUNDING) >= limit:
            return False
        try:
            found = TimedMesh(setting, self._timed(self.case(setting), limit), surely)
            margin = self.limits.on(lambda: self.bench.point(self.space.change(setting)))
            if holds(margin):
                self.found.timed.append(found)
            else:
                self.found.missed(setting, margin)
        except (Refused, SimulationError, ValueError) as error:
            self._denied(error)
        return True

    def _timed(self, case: Case, limit: float) -> float:
        """The step time of `case` [s]: without shared links where that alone is above `limit`."""
        time = mesh_times.alone(case)
        return mesh_times.sharing(case, time) if time < limit else time

    def case(self, setting: MeshSetting) -> Case:
        """`setting` compiled, at the level that was found."""
        bench = self.bench
        change = {**bench.at, **self.space.change(setting)}
        return bench.unswept.case(bench.loaded(change))


def exhaustive(
    bench: Bench, space: MeshSpace, play: Callable[[Case], float] = mesh_times.step_time
) -> Iterator[tuple[MeshSetting, float]]:
    """Every setting that is possible and fits, with its step time [s]: what a search must equal."""
    search = MeshSearch(bench, space, 1)
    for setting in space.settings():
        if search._opened(setting) is not None:
            try:
                yield setting, play(search.case(setting))
            except (Refused, SimulationError, ValueError):
                continue


__all__: Sequence[str] = ("MeshSearch", "Searched", "TimedMesh", "exhaustive")
