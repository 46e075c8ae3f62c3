"""Predictions: the answer, its interval, its bounds and its reasons."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpsim._version import __version__
from dpsim.cases.case import Case
from dpsim.cases.chapters import Chapters
from dpsim.core import told
from dpsim.core.errors import SimulationError
from dpsim.core.lean import dataclass
from dpsim.core.presented import Presented
from dpsim.core.record import Refused
from dpsim.describe.scenario import Given, Loaded, Scenario, taken, to_data, with_model
from dpsim.describe.sections import Batch
from dpsim.predict import shown, training_run
from dpsim.predict.acted_numbers import numbers_of
from dpsim.predict.against import measured
from dpsim.predict.answer import SCHEMA_VERSION, Advice, Answer, Laws, Measured, NoLaws
from dpsim.predict.carried import made_without
from dpsim.predict.document import to_json
from dpsim.predict.level import Level, level
from dpsim.predict.numbers import failed
from dpsim.predict.outcome import Outcome
from dpsim.predict.peak import BeyondPeak
from dpsim.predict.player import EVENT_BUDGET, Played, cross_check, estimate, play, play_once
from dpsim.predict.point import Failed, Point, computed
from dpsim.predict.products_dtype import in_words
from dpsim.predict.relative import relate
from dpsim.predict.scaling import laws
from dpsim.predict.warned import warnings

if TYPE_CHECKING:
    from dpsim.predict.explanation import Explanation


@dataclass(frozen=True, repr=False, eq=False)
class Prediction(Presented):
    """An answer, and what is behind each of its points.  Predictions with equal answers are equal.

    Mappings and lists in it are the caller's own: what is changed in them shows in `document`.
    """

    loaded: Loaded
    outcomes: tuple[Outcome, ...]
    level: Level | None = None

    @property
    def points(self) -> tuple[Point | Failed, ...]:
        return tuple(one.point for one in self.outcomes)

    @property
    def computed(self) -> tuple[Point, ...]:
        """The points that have numbers."""
        return tuple(computed(self.points))

    @cached_property
    def answer(self) -> Answer:
        """What `dpsim run` says; its laws are played when it is first asked for."""
        loaded, outcomes, found = self.loaded, self.outcomes, self.level
        return Answer(
            schema_version=SCHEMA_VERSION,
            dpsim_version=__version__,
            name=loaded.called,
            scenario=to_data(loaded.scenario),
            scaling=self.scaling,
            held_constant=self.held_constant,
            points=self.points,
            laws=_laws(loaded, outcomes, found),
            measured=self._measured,
            calibration=found,
            warnings=self.warnings,
            machine=self.machine,
            products=self.products,
        )

    @property
    def machine(self) -> str:
        """The machine in words; "" where points are of several, or of none."""
        found = {
            one.case.site.in_words for one in self.outcomes if not isinstance(one.point, Failed)
        }
        return found.pop() if len(found) == 1 else ""

    @property
    def products(self) -> str:
        """The dtype of products in words; "" where points differ in it, or none is counted."""
        found = {in_words(one.case) for one in self.outcomes if not isinstance(one.point, Failed)}
        return found.pop() if len(found) == 1 else ""

    @property
    def scaling(self) -> str:
        """Weak or strong."""
        return "weak" if self.loaded.scenario.batch.weak else "strong"

    @property
    def held_constant(self) -> str:
        """What all points share."""
        return _held_constant(self.loaded)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What to know about the points."""
        return warnings(self.loaded, self.outcomes, self.level)

    @cached_property
    def _measured(self) -> tuple[Measured, ...]:
        return tuple(measured(self.loaded, self.outcomes, self.level))

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
        return shown.text(self.loaded.called, self.points)

    def _repr_html_(self) -> str:
        return shown.html(self.points)


def predict(
    given: Given,
    found: Level | None = None,
    tell: told.Told = told.nobody,
    shared: Chapters | None = None,
    *,
    model: Any = None,
) -> Prediction:
    """The prediction of a scenario: its name, path, plain data, record, or what `dpsim.read` gave.
    A refusal names the file and line at fault.

    found   the level of compute where it is known already: a sweep calibrates once
    tell    is told how many points are done
    shared  what other cases have worked out already
    model   another model than the scenario's: a section, or what `dpsim.from_torch` gives
    """
    loaded = taken(given) if model is None else with_model(taken(given), model)
    try:
        return _predict(loaded, found, tell, shared or Chapters())
    except Refused as error:
        raise loaded.located(error) from None


def _predict(loaded: Loaded, found: Level | None, tell: told.Told, shared: Chapters) -> Prediction:
    """Play every point of `loaded`.  Raises Refused where no point can be computed for a reason
    that lies in the input; a single point that cannot be computed carries its `error`."""
    cases = tuple(Case(point, loaded.base, shared=shared) for point in loaded.points)
    for case in cases[:1]:
        _ = case.model, case.machine  # what is wrong with these is wrong with all points
        training_run.check(case)
    if found is None and loaded.scenario.calibrate:
        found = _level(loaded, cases[0])
    if found is not None:
        cases = tuple(found.of(case) for case in cases)
    outcomes = tuple(_outcomes(loaded, cases, found, tell))
    prediction = Prediction(loaded, outcomes, found)
    _ = prediction._measured  # refuses a file that holds no measurements
    return prediction


def _level(loaded: Loaded, first: Case) -> Level:
    """The level of the `first` case that the scenario's measured step tells."""
    assert loaded.scenario.calibrate is not None
    try:
        return level(first, loaded.scenario.calibrate)
    except BeyondPeak as error:
        if not (elsewhere := made_without(loaded)):
            raise
        raise BeyondPeak(f"{error.message}; {elsewhere}", error.path) from None


def _outcomes(
    loaded: Loaded, cases: Sequence[Case], found: Level | None, tell: told.Told
) -> Iterator[Outcome]:
    """What came of every point, in relation to the others."""
    outcomes: list[Outcome] = []
    budget = EVENT_BUDGET
    pairs = list(zip(cases, loaded.changes, strict=True))
    for case, change in told.counted(pairs, tell):
        try:
            budget, played = _play(case, budget)
            numbers = numbers_of(case, played, found, change)
            used = numbers.used
            outcomes.append(Outcome(case, numbers.point, played, used))
        except (Refused, SimulationError, ValueError) as error:
            if len(cases) == 1:
                raise Refused(str(error)) if type(error) is ValueError else error from None
            outcomes.append(Outcome(case, failed(case, str(error), change)))
    made = [(one.case, one.played) for one in outcomes if one.played]
    if any(p.engine == "vectorised" and p.reason != "asked for" for _, p in made):
        cross_check(min((case for case, _ in made), key=lambda c: c.ranks))
    related = relate([one.point for one in outcomes])
    for one, point in zip(outcomes, related, strict=True):
        yield dataclasses.replace(one, point=point)


def _play(case: Case, budget: float) -> tuple[float, Played]:
    """Play `case`; `auto` uses the event engine as long as the run's budget lasts."""
    if case.scenario.engine != "auto":
        return budget, play_once(case)
    played = play(case, budget=budget)
    spent = estimate(case) if played.engine == "event" else 0.0
    return max(budget - spent, 0.0), played


def _laws(loaded: Loaded, outcomes: Sequence[Outcome], found: Level | None) -> Laws | NoLaws:
    """The laws, where only the number of ranks changes from point to point."""
    cases, points = [one.case for one in outcomes], tuple(one.point for one in outcomes)
    usable = all(point.efficiency is not None for point in computed(points))
    usable = usable and loaded.scenario.parallel.plain and len(cases[0].pace.kinds) == 1
    usable = usable and len(set(map(_apart_from_ranks, loaded.points))) == 1
    return laws(cases, points, found) if usable else NoLaws()


def _held_constant(loaded: Loaded) -> str:
    """What all points share: the batch of a rank, that of all, or, where the sweep sets the batch,
    the cluster (or nothing)."""
    batch = loaded.scenario.batch
    if not batch.weak and {point.batch.global_ for point in loaded.points} == {batch.global_}:
        alike = {point.batch.per_device for point in loaded.points} == {batch.per_device}
        return _of_all(batch) if alike else f"global batch of {batch.global_} samples"
    if any(point.batch != loaded.points[0].batch for point in loaded.points):
        same = all(point.cluster == loaded.points[0].cluster for point in loaded.points)
        return "the cluster" if same else "nothing"
    if batch.weak:
        whose = "rank" if loaded.scenario.parallel.plain else "replica"
        return f"{batch.per_device or 1} samples per {whose} and micro-batch"
    return _of_all(batch)


def _of_all(batch: Batch) -> str:
    size = f"global batch of {batch.global_} samples"
    return f"{size}, in micro-batches of {batch.per_device}" if batch.follows else size


def _apart_from_ranks(point: Scenario) -> str:
    """The scenario without its number of ranks: equal for all points of a scaling curve."""
    if point.sites is not None:
        return repr(point)
    cluster = dataclasses.replace(point.cluster, ranks=1, nodes=None)
    return repr(dataclasses.replace(point, cluster=cluster))
