"""A scenario without its sweep: what sweeps and plans change, and predict point by point."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dpsim.cases.case import Case
from dpsim.cases.chapters import Chapters
from dpsim.cases.variant import scaled
from dpsim.core.overrides import changed_sections
from dpsim.core.record import Refused, altered
from dpsim.describe.scenario import Loaded, load
from dpsim.predict import training_run
from dpsim.predict.document import to_json
from dpsim.predict.level import Level
from dpsim.predict.numbers import WHOLE, Numbers, failed
from dpsim.predict.player import fastest
from dpsim.predict.point import Change, Chosen, Failed
from dpsim.predict.prediction import Prediction, predict

#: keys of a scenario that are no part of a point
NO_POINT = ("sweep", "measured")
#: sections that are more than themselves: files must be there, curves bring their jitter
NEW = {"calibrate", "calibration", "measured", "jobs"}
#: chapters of a kind that points have in common: the steps of an inner axis
MANY = 32


@dataclass(frozen=True)
class Unswept:
    """A scenario as plain data, for other processes too; `sets` are the --set texts in it.

    base   the folder of its files, absolute
    found  the level of compute, calibrated once on the scenario as it stands
    """

    name: str
    data: dict[str, Any]
    base: Path
    sets: dict[str, str]
    found: Level | None = None

    @classmethod
    def of(cls, loaded: Loaded) -> Unswept:
        data = {key: value for key, value in loaded.data.items() if key not in NO_POINT}
        return cls(loaded.name, data, loaded.base.resolve(), loaded.sets)

    def __getstate__(self) -> dict[str, Any]:
        """What it is made of, for other processes: the rest follows from that."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def shared(self) -> Chapters:
        """What the cases of its points work out and have in common."""
        return Chapters(MANY)

    @cached_property
    def _read(self) -> Loaded | None:
        """It without a change; None where it is no scenario yet, or where sections make others:
        curves bring their jitter with them."""
        try:
            found = load(self.data, self.base, self.name)
        except Refused:
            return None
        return None if found.scenario.calibration is not None else found

    def changed(self, change: Change) -> Loaded:
        """The scenario with `change`, as `dpsim run` would read it."""
        sections = changed_sections(self.data, change, ())
        data = {**self.data, **sections}
        if self._read is not None and not NEW & sections.keys():
            try:
                scenario = altered(self._read.scenario, sections, file=True)
            except (Refused, TypeError):  # reading it as a whole says what is wrong
                pass
            else:
                name = scenario.title or self.name
                return Loaded(scenario, data, self.base, name, (scenario,), ({},), sets=self.sets)
        return replace(load(data, self.base, self.name), sets=self.sets)

    def case(self, loaded: Loaded) -> Case:
        """The case of `loaded`, a single point, at the level that was found."""
        case = Case(loaded.points[0], self.base, shared=self.shared)
        return case if self.found is None else scaled(case, self.found.scale)

    def predicted(self, loaded: Loaded) -> Prediction:
        """What is predicted for `loaded`, a single point; ValueError for a number that is none."""
        found = predict(loaded, self.found, shared=self.shared)
        json.dumps(to_json(found.points[0]), allow_nan=False)
        return found

    def chosen(self, loaded: Loaded, columns: Sequence[str], change: Change) -> Chosen:
        """`columns` of the point of `loaded`, on the fastest engine that applies."""
        case = self.case(loaded)
        training_run.check(case)
        played = fastest(case, splits=not WHOLE.issuperset(columns))
        return Numbers(case, played, self.found, change).chosen(columns)

    def failed(self, loaded: Loaded | None, error: Exception | str, change: Change) -> Failed:
        """The point of `change` where there are no numbers; None where it could not be read."""
        return failed(Case(loaded.points[0], self.base) if loaded else None, str(error), change)


def known_ranks(case: Case) -> int:
    """Ranks of a case; 0 where it is refused, which whoever plays it says."""
    try:
        return case.ranks
    except ValueError:
        return 0
