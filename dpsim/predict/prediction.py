"""Predictions: the answer, its interval, its bounds and its reasons."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpsim._version import __version__
from dpsim.cases.case import Case
from dpsim.cases.variant import scaled
from dpsim.core import told
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.describe.scenario import Given, Loaded, taken, to_data
from dpsim.predict import shown, training_run
from dpsim.predict.against import measured
from dpsim.predict.answer import SCHEMA_VERSION, Advice, Answer, NoLaws
from dpsim.predict.document import to_json
from dpsim.predict.level import Level, level
from dpsim.predict.memory import memory_of
from dpsim.predict.numbers import failed, point_of
from dpsim.predict.outcome import Outcome
from dpsim.predict.player import EVENT_BUDGET, Played, cross_check, estimate, play
from dpsim.predict.point import Failed, Point, computed
from dpsim.predict.relative import relate
from dpsim.predict.scaling import laws
from dpsim.predict.warned import warnings

if TYPE_CHECKING:
    from dpsim.predict.explanation import Explanation


@dataclass(frozen=True, repr=False, eq=False)
class Prediction:
    """An answer, and what is behind each of its points.  Predictions with equal answers are equal.

    Mappings and lists in it are the caller's own: what is changed in them shows in `document`.
    """

    loaded: Loaded
    answer: Answer
    outcomes: tuple[Outcome, ...]
    level: Level | None = None

    @property
    def points(self) -> tuple[Point | Failed, ...]:
        return self.answer.points

    @property
    def document(self) -> dict[str, Any]:
        """The answer as ``--json`` prints it."""
        made: dict[str, Any] = to_json(self.answer)
        return made

    @property
    def step_time_s(self) -> float:
        """Step time of the first point [s]; its error if it has none."""
        point = self.points[0]
        if isinstance(point, Failed):
            raise SimulationError(point.error)
        return point.step_time_s

    @cached_property
    def advice(self) -> tuple[Advice, ...]:
        """What would make the smallest point fit that does not."""
        from dpsim.predict.advice import advice, unfit

        found = unfit(self)
        return advice(*found) if found else ()

    def explain(self, tell: told.Told = told.nobody) -> Explanation:
        """Where the step goes and what would help (see `dpsim explain --json`)."""
        from dpsim.predict.explain import explain

        return explain(self, tell)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prediction) and self.answer == other.answer

    def __hash__(self) -> int:
        return hash(self.answer.name)

    def __repr__(self) -> str:
        return shown.text(self.answer)

    def _repr_html_(self) -> str:
        return shown.html(self.answer)


def predict(given: Given, found: Level | None = None, tell: told.Told = told.nobody) -> Prediction:
    """The prediction of a scenario: its name, path, plain data, record, or what `dpsim.read` gave.
    A refusal names the file and line at fault.

    `found` is the level of compute where it is known already: a sweep calibrates once.  `tell` is
    told how many points are done."""
    loaded = taken(given)
    try:
        return _predict(loaded, found, tell)
    except Refused as error:
        raise loaded.located(error) from None


def _predict(loaded: Loaded, found: Level | None, tell: told.Told) -> Prediction:
    """Play every point of `loaded`.  Raises Refused where no point can be computed for a reason
    that lies in the input; a single point that cannot be computed carries its `error`."""
    cases = tuple(Case(point, loaded.base) for point in loaded.points)
    for case in cases[:1]:
        _ = case.model, case.machine  # what is wrong with these is wrong with all points
        training_run.check(case)
    if found is None and loaded.scenario.calibrate:
        found = level(cases[0], loaded.scenario.calibrate)
    if found is not None:
        cases = tuple(scaled(case, found.scale) for case in cases)
    outcomes: list[Outcome] = []
    budget = EVENT_BUDGET
    pairs = list(zip(cases, loaded.changes, strict=True))
    for case, change in told.counted(pairs, tell):
        try:
            budget, played = _play(case, budget)
            used = memory_of(case)
            point = point_of(case, played, used, found, change)
            outcomes.append(Outcome(case, point, played, used))
        except (Refused, SimulationError, ValueError) as error:
            if len(cases) == 1:
                raise Refused(str(error)) if type(error) is ValueError else error from None
            outcomes.append(Outcome(case, failed(case, str(error), change)))
    made = [(one.case, one.played) for one in outcomes if one.played]
    if any(p.engine == "vectorised" and p.reason != "asked for" for _, p in made):
        cross_check(min((case for case, _ in made), key=lambda c: c.ranks))
    related = relate([one.point for one in outcomes])
    outcomes = [
        dataclasses.replace(one, point=point) for one, point in zip(outcomes, related, strict=True)
    ]
    return Prediction(loaded, _answer(loaded, outcomes, found), tuple(outcomes), found)


def _play(case: Case, budget: float) -> tuple[float, Played]:
    """Play `case`; `auto` uses the event engine as long as the run's budget lasts."""
    played = play(case, budget=budget)
    spent = estimate(case) if played.engine == "event" else 0.0
    return max(budget - spent, 0.0), played


def _answer(loaded: Loaded, outcomes: Sequence[Outcome], found: Level | None) -> Answer:
    cases, points = [one.case for one in outcomes], tuple(one.point for one in outcomes)
    usable = all(point.efficiency is not None for point in computed(points))
    usable = usable and len({_apart_from_ranks(case) for case in cases}) == 1
    usable = usable and loaded.scenario.parallel.plain and len(cases[0].pace.kinds) == 1
    return Answer(
        schema_version=SCHEMA_VERSION,
        dpsim_version=__version__,
        name=loaded.name,
        scenario=to_data(loaded.scenario),
        scaling="weak" if loaded.scenario.batch.weak else "strong",
        held_constant=_held_constant(loaded),
        points=points,
        laws=laws(cases, points, found is not None) if usable else NoLaws(),
        measured=tuple(measured(loaded, outcomes, found)),
        calibration=found,
        warnings=warnings(loaded, outcomes, found),
    )


def _held_constant(loaded: Loaded) -> str:
    """What all points share: the batch of a rank, that of all, or, where the sweep sets the batch,
    the cluster (or nothing)."""
    batch = loaded.scenario.batch
    if not batch.weak and {point.batch.global_ for point in loaded.points} == {batch.global_}:
        return f"global batch of {batch.global_} samples"
    if any(point.batch != loaded.points[0].batch for point in loaded.points):
        same = all(point.cluster == loaded.points[0].cluster for point in loaded.points)
        return "the cluster" if same else "nothing"
    if batch.weak:
        return f"{batch.per_device or 1} samples per rank and micro-batch"
    return f"global batch of {batch.global_} samples"


def _apart_from_ranks(case: Case) -> str:
    """The scenario without its number of ranks: equal for all points of a scaling curve."""
    cluster = dataclasses.replace(case.scenario.cluster, ranks=1, nodes=None)
    return repr(dataclasses.replace(case.scenario, cluster=cluster))
