"""Points of a scenario under changes, each played once: what the questions of a plan are asked of.

The point that is asked about is the scenario's largest: the one of its sweep with the most ranks.
Efficiency and speed-up are relative to the first point of the sweep, as in `dpsim run`, or, in a
scenario without a sweep, to one replica of the model.  While it searches, a bench plays on the
vectorised engine where it applies; `confirmed` plays as `dpsim run` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dpsim.cases.case import Case
from dpsim.core.errors import SimulationError
from dpsim.core.overrides import INSTEAD, value_of, with_change
from dpsim.core.record import Refused
from dpsim.describe.scenario import Loaded, Scenario, load
from dpsim.models.memory import MemoryUse
from dpsim.predict.document import to_json
from dpsim.predict.level import Level, level
from dpsim.predict.memory import memory_of
from dpsim.predict.numbers import failed
from dpsim.predict.point import Change, Failed, Point
from dpsim.predict.prediction import predict, relate

#: keys that are no part of a point
_NO_POINT = ("sweep", "measured")
#: keys that change nothing inside a node
_BETWEEN = tuple(
    f"cluster.{key}"
    for key in ("inter_node_bandwidth", "inter_node_kind", "oversubscription", "routing")
)
#: called with the number of points played so far
Told = Callable[[int], None]


@dataclass
class Bench:
    """Plays changes of one scenario, and remembers what came out.

    data      the scenario as plain data, without its sweep
    at        what the point that is asked about sets
    base      what the point sets that relative fields compare with
    found     the level of compute, calibrated once on the scenario as it stands
    """

    data: dict[str, Any]
    folder: Path
    name: str
    sets: dict[str, str]
    at: dict[str, Any]
    base: dict[str, Any]
    found: Level | None
    tell: Told = lambda played: None
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
            _, point = relate([base, point])
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
            return Case(self.loaded(change).points[0], self.folder).nodes == 1
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
            except SimulationError as error:
                if "does not apply" not in str(error):
                    raise
                return self._predicted(loaded)
        except (Refused, SimulationError, ValueError) as error:
            case = Case(loaded.points[0], self.folder) if loaded else None
            return failed(case, str(error), change)

    def _predicted(self, loaded: Loaded) -> Point | Failed:
        answer = predict(loaded, self.found).answer
        point = answer.points[0]
        json.dumps(to_json(point), allow_nan=False)  # a number that is none is an error, not a word
        said = (text for text in answer.warnings if "does not fit" not in text)
        self.warnings |= dict.fromkeys(said)  # whether it fits is said point by point
        return point

    def loaded(self, change: Change) -> Loaded:
        """The scenario with `change` alone, as `dpsim run` would read it."""
        data = with_change(self.data, change, ())
        return replace(load(data, self.folder, self.name), sets=self.sets)

    def scenario(self, change: Change | None = None) -> Scenario:
        """The point that is asked about, with `change`."""
        return self.loaded({**self.at, **(change or {})}).points[0]

    def case(self, change: Change | None = None) -> Case:
        """The same, compiled; nothing is played."""
        return Case(self.scenario(change), self.folder)

    def memory(self, change: Change) -> MemoryUse:
        """Memory of the point with `change`, without playing it.  Refused where it is no point."""
        return memory_of(self.case(change))


def _with_engine(loaded: Loaded, engine: Any) -> Loaded:
    scenario = replace(loaded.scenario, engine=engine)
    points = tuple(replace(point, engine=engine) for point in loaded.points)
    return replace(loaded, scenario=scenario, points=points)


def bench_of(loaded: Loaded, relative_to: str | None = None) -> Bench:
    """The bench of `loaded`; `relative_to` is a KEY=VALUE that says what efficiency compares with.

    Raises Refused where the scenario cannot be calibrated or compiled."""
    data = {key: value for key, value in loaded.data.items() if key not in _NO_POINT}
    folder = loaded.base.resolve()
    sizes = [_ranks(Case(point, folder)) for point in loaded.points]
    largest = max(range(len(sizes)), key=lambda k: (sizes[k], k))
    at = dict(loaded.changes[largest])
    try:
        first = Case(loaded.points[0], folder)
        _ = first.machine, first.model
        calibrate = loaded.scenario.calibrate
        found = level(first, calibrate) if calibrate else None
    except Refused as error:
        raise loaded.located(error) from None
    base = dict(loaded.changes[0])
    if relative_to is not None:
        base = {**at, **_change(relative_to)}
    elif loaded.scenario.sweep is None:
        base = {"cluster.ranks": first.mesh.replica}
    bench = Bench(data, folder, loaded.name, loaded.sets, at, base, found)
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


def _ranks(case: Case) -> int:
    """Ranks of a case; 0 where it is refused, which whoever plays it says."""
    try:
        return case.ranks
    except Refused:
        return 0


def any_relative(fields: Sequence[str]) -> bool:
    """Whether one of these fields of points compares it with another point."""
    from dpsim.planning.wanted import RELATIVE

    return any(name in RELATIVE for name in fields)
