"""Settings of several keys: a grid of points, played and held against what is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dpsim.core import told
from dpsim.core.record import Refused
from dpsim.planning.bench import Bench
from dpsim.planning.finding import Missed, Tried, checked, marked, missed, nearest
from dpsim.planning.grid import Axis, Grid, SweptKey, as_vary, check, parse_axis
from dpsim.planning.wanted import RELATIVE, Wanted, check_fields
from dpsim.predict.point import Change, Failed, Point, computed

#: settings that one plan plays at most
MOST_POINTS = 10_000


def axes_of(texts: Sequence[str]) -> list[Axis]:
    """The axes of texts such as ``KEY=V1,V2,…``."""
    with as_vary():
        return [parse_axis(text) for text in texts]


@dataclass(frozen=True)
class Settings:
    """The settings of `axes` on a bench; the field `objective` is to be small, or large."""

    bench: Bench
    axes: Sequence[Axis]
    wanted: Sequence[Wanted]
    objective: str

    @property
    def required(self) -> list[str]:
        """What has to hold, as text."""
        return [str(one) for one in self.wanted]

    @property
    def vary(self) -> list[SweptKey]:
        """The axes as JSON has them."""
        return [axis.listed for axis in self.axes]

    @property
    def at(self) -> Change:
        """What the point that is asked about sets beside them."""
        return self.bench.beside(*(axis.name for axis in self.axes))

    @property
    def grid(self) -> Grid:
        """All of them; Refused where there is a value that no point accepts."""
        with as_vary():
            grid = Grid(tuple(self.axes))
        if len(grid) > MOST_POINTS:
            most = f"a plan plays at most {MOST_POINTS:,}, `dpsim sweep` more"
            raise Refused(f"--vary: {grid}; {most}")
        with as_vary():
            check(grid, self.bench.scenario)
        return grid

    def tried(self, change: Change, *, confirmed: bool = False) -> Tried:
        """The point of `change`."""
        fields = [self.objective, *(one.field for one in self.wanted)]
        relative = any(field in RELATIVE for field in fields)
        return marked(self.bench.point(change, relative=relative, confirmed=confirmed), self.wanted)

    def played(self, changes: Iterable[Change], tell: told.Told) -> list[Tried]:
        """The points of `changes`; Refused where none has what is asked for."""
        points, asked = [], list(changes)
        for place, change in enumerate(asked, 1):
            points.append(self.tried(change))
            tell(place, len(asked))
        found = [one.point for one in points]
        checked(found, self.wanted)
        check_fields([self.objective], computed(found)[0], "--minimise")
        return points

    def missed(self, points: Sequence[Tried]) -> Missed:
        """Why none of `points` will do: what each constraint comes nearest to, and where all come
        nearest."""
        usable = [point for point in points if point.usable]
        if not usable:
            numbered = [one.point for one in points if isinstance(one.point, Point)]
            smallest = min(numbered, key=lambda point: point.memory.bytes)
            return replace(missed([Wanted("fits", True, 1.0)], smallest), binds="memory")
        alone = []
        for one in self.wanted:
            best = max(usable, key=one.margin)
            alone += [replace(miss, set=best.set) for miss in missed([one], best).misses]
        return replace(nearest(self.wanted, usable), alone=tuple(alone))


def error_notes(points: Sequence[Tried]) -> list[str]:
    """That some points have no number, and why the first of them has none."""
    errors = [one.point.error for one in points if isinstance(one.point, Failed)]
    return [f"no number at {len(errors)} of {len(points)} points: {errors[0]}"] if errors else []
