"""A scenario without its sweep: what sweeps and plans change, and predict point by point."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpsim.cases.case import Case
from dpsim.core.overrides import with_change
from dpsim.describe.scenario import Loaded, load
from dpsim.predict.answer import Answer
from dpsim.predict.document import to_json
from dpsim.predict.level import Level
from dpsim.predict.numbers import failed
from dpsim.predict.point import Change, Failed
from dpsim.predict.prediction import predict

#: keys of a scenario that are no part of a point
NO_POINT = ("sweep", "measured")


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

    def changed(self, change: Change) -> Loaded:
        """The scenario with `change`, as `dpsim run` would read it."""
        data = with_change(self.data, change, ())
        return replace(load(data, self.base, self.name), sets=self.sets)

    def answer(self, loaded: Loaded) -> Answer:
        """What is predicted for `loaded`, a single point; ValueError for a number that is none."""
        answer = predict(loaded, self.found).answer
        json.dumps(to_json(answer.points[0]), allow_nan=False)
        return answer

    def failed(self, loaded: Loaded | None, error: Exception | str, change: Change) -> Failed:
        """The point of `change` where there are no numbers; None where it could not be read."""
        return failed(Case(loaded.points[0], self.base) if loaded else None, str(error), change)


def known_ranks(case: Case) -> int:
    """Ranks of a case; 0 where it is refused, which whoever plays it says."""
    try:
        return case.ranks
    except ValueError:
        return 0
