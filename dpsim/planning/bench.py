"""Points of a scenario under changes, each played once: what the questions of a plan are asked of.

The point that is asked about is the scenario's largest: the one of its sweep with the most ranks.
Efficiency and speed-up are relative to the first point of the sweep, as in `dpsim run`, or, in a
scenario without a sweep, to one replica of the model.  While it searches, a bench plays on the
vectorised engine where it applies; `confirmed` plays as `dpsim run` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from dpsim.cases.case import Case
from dpsim.core.errors import SimulationError
from dpsim.core.overrides import INSTEAD, value_of
from dpsim.core.record import Refused
from dpsim.describe.scenario import Loaded, Scenario
from dpsim.planning.unswept import Unswept, known_ranks
from dpsim.predict.level import level_of
from dpsim.predict.memory import memory_of
from dpsim.predict.point import UNFIT_WORDS, Change, Failed, Point
from dpsim.predict.relative import compared

#: keys that change nothing inside a node
_BETWEEN = tuple(
    f"cluster.{key}"
    for key in (
        "inter_node_bandwidth", "inter_node_kind", "inter_node_latency", "oversubscription",
        "routing",
    )
)  # fmt: skip
#: called with the number of points played so far
Counted = Callable[[int], None]


@dataclass(frozen=True)
class MemoryNeed:
    """Memory of the busiest rank [B], and by how much it is more than there is."""

    bytes: float
    capacity: float | None
    parts: dict[str, float]
    short_by: float

    @property
    def fits(self) -> bool:
        """Whether it is not known to be more than there is."""
        return self.short_by == 0


@dataclass
class Bench:
    """Plays changes of one scenario, and remembers what came out.

    unswept  the scenario that is changed
    at       what the point that is asked about sets
    base     what the point sets that relative fields compare with
    """

    unswept: Unswept
    at: dict[str, Any]
    base: dict[str, Any]
    tell: Counted = lambda played: None
    played: int = 0
    warnings: dict[str, None] = field(default_factory=dict)
    _points: dict[str, Point | Failed] = field(default_factory=dict)

    def point(
        self, change: Change, *, relative: bool = False, confirmed: bool = False
    ) -> Point | Failed:
        """The point that is asked about with `change`.

        relative   with speed-up and efficiency
        confirmed  as `dpsim run` plays it: on the engine that the scenario asks for
        """
        point = self._played({**self.at, **change}, confirmed)
        if relative and isinstance(point, Point):
            base = self._played(self._base(change), confirmed)
            if isinstance(base, Failed):
                error = f"what it is relative to: {base.error}"
                return Failed(
                    ranks=point.ranks,
                    nodes=point.nodes,
                    global_batch=point.global_batch,
                    error=error,
                    set=change,
                )
            held = base.memory.fits
            if held in UNFIT_WORDS and point.memory.holds:
                said = f"what efficiency and speed-up are relative to {UNFIT_WORDS[held]}"
                where = f"on {base.ranks:,} rank{'s' * (base.ranks > 1)}"
                self.warnings[f"{said} {where}; --relative-to takes another"] = None
            point = compared(point, base, base)
        return replace(point, set=change)

    def _base(self, change: Change) -> dict[str, Any]:
        """What the point sets that `change` is compared with: all of it but the cluster's size,
        and on a single node what is between nodes."""
        kept = {key: value for key, value in change.items() if key not in INSTEAD}
        inside = {key: value for key, value in kept.items() if key not in _BETWEEN}
        if inside != kept and self._single({**inside, **self.base}):
            kept = inside
        return {**kept, **self.base}

    def _single(self, change: Change) -> bool:
        """Whether a point is on one node."""
        try:
            return Case(self.loaded(change).points[0], self.unswept.base).nodes == 1
        except Refused:
            return False

    def _played(self, change: Change, confirmed: bool) -> Point | Failed:
        key = json.dumps([confirmed, list(change.items())], sort_keys=True)
        if key not in self._points:
            self.played += 1
            self._points[key] = self._play(change, confirmed)
            self.tell(self.played)
        return self._points[key]

    def _play(self, change: Change, confirmed: bool) -> Point | Failed:
        loaded = None
        try:
            loaded = self.loaded(change)
            if confirmed or loaded.scenario.engine != "auto" or loaded.scenario.detail == "rounds":
                return self._predicted(loaded)
            try:
                return self._predicted(_with_engine(loaded, "vectorised"))
            except (Refused, SimulationError) as error:
                if "does not apply" not in str(error):
                    raise
                return self._predicted(loaded)
        except (Refused, SimulationError, ValueError) as error:
            return self.unswept.failed(loaded, error, change)

    def _predicted(self, loaded: Loaded) -> Point | Failed:
        found = self.unswept.predicted(loaded)
        said = (t for t in found.warnings if not any(w in t for w in UNFIT_WORDS.values()))
        self.warnings |= dict.fromkeys(said)  # whether it fits is said point by point
        return found.points[0]

    def loaded(self, change: Change) -> Loaded:
        """The scenario with `change` alone, as `dpsim run` would read it."""
        return self.unswept.changed(change)

    def scenario(self, change: Change | None = None) -> Scenario:
        """The point that is asked about, with `change`."""
        return self.loaded({**self.at, **(change or {})}).points[0]

    def case(self, change: Change | None = None) -> Case:
        """The same, compiled; nothing is played."""
        return Case(self.scenario(change), self.unswept.base)

    def memory(self, change: Change) -> MemoryNeed:
        """Memory of the point with `change`, without playing it.  Refused where it is no point."""
        used = memory_of(self.case(change))
        return MemoryNeed(used.total, used.capacity, used.parts, used.shortfall)

    def beside(self, *keys: str) -> Change:
        """What the point that is asked about sets, apart from `keys`."""
        known = {*keys, *(INSTEAD[key] for key in keys if key in INSTEAD)}
        return {key: value for key, value in self.at.items() if key not in known}


def _with_engine(loaded: Loaded, engine: Any) -> Loaded:
    scenario = replace(loaded.scenario, engine=engine)
    points = tuple(replace(point, engine=engine) for point in loaded.points)
    return replace(loaded, scenario=scenario, points=points)


def bench_of(
    loaded: Loaded, relative_to: str | None = None, measured: Loaded | None = None
) -> Bench:
    """The bench of `loaded`; `relative_to` is a KEY=VALUE that says what efficiency compares with,
    `measured` the scenario that its calibration was made with, where that is another.

    Raises Refused where the scenario cannot be calibrated or compiled."""
    unswept = Unswept.of(loaded)
    sizes = [known_ranks(Case(point, unswept.base)) for point in loaded.points]
    largest = max(range(len(sizes)), key=lambda k: (sizes[k], k))
    at, base = dict(loaded.changes[largest]), dict(loaded.changes[0])
    first = Case(loaded.points[0], unswept.base)
    try:
        _ = first.machine, first.model
    except Refused as error:
        raise loaded.located(error) from None
    unswept = replace(unswept, found=level_of(measured or loaded))
    if relative_to is not None:
        base = {**at, **_change(relative_to)}
    elif loaded.scenario.sweep is None:
        base = {"cluster.ranks": first.mesh.least}
    bench = Bench(unswept, at, base)
    if relative_to is not None:
        _accept(bench, relative_to)
    return bench


def _accept(bench: Bench, text: str) -> None:
    try:
        bench.loaded(bench.base)
    except Refused as error:
        raise Refused(f"--relative-to {text}: {error}") from None


def _change(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise Refused(f"--relative-to {text}: write it as KEY=VALUE, as in cluster.ranks=1")
    return {key.strip(): value_of(key.strip(), value, f"--relative-to {text}")}
