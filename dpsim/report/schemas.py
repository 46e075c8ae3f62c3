"""JSON Schemas of what commands print, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpsim.planning.choose import BestPoint, WhichBest
from dpsim.planning.finding import Missed, Tried
from dpsim.planning.largest import HowLarge, LargestValue, NothingFits
from dpsim.planning.require import NeededValue, WhichValue
from dpsim.planning.swept import GridAnswer
from dpsim.planning.tune import BestSetting, WhichSetting
from dpsim.predict.answer import Answer
from dpsim.predict.document import schema_of
from dpsim.predict.explanation import Explanation
from dpsim.report.compared_schema import ComparisonAnswer
from dpsim.serving.answer import ServingAnswer


@dataclass(frozen=True)
class LimitAsked:
    """What a field has to be at least, or at most."""

    field: str
    least: bool
    limit: float


@dataclass(frozen=True)
class PlanAnswer:
    """What `dpsim plan --json` prints: what was asked, the answer or why there is none, and all
    points that were tried."""

    schema_version: int
    dpsim_version: str
    name: str
    scenario: Mapping[str, Any]
    question: WhichValue | HowLarge | WhichBest | WhichSetting
    limits: tuple[LimitAsked, ...]
    found: bool
    answer: NeededValue | LargestValue | BestPoint | BestSetting | None
    infeasible: Missed | NothingFits | None
    points: tuple[Tried, ...]
    played: int
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class CollectiveLine:
    """A collective of one size [B]: its time with the 90 % interval [s], its bandwidths [B/s], what
    the library chooses and what bounds it; beside a measurement, or alone of several at once."""

    size_bytes: int
    time_s: float
    time_low_s: float
    time_high_s: float
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    algorithm: str
    protocol: str
    bound: str
    measured_s: float | None = None
    error: float | None = None
    alone_s: float | None = None


@dataclass(frozen=True)
class CollectiveGroup:
    """The lines of one number of nodes; `kind` is what joins its ranks."""

    nodes: int
    ranks: int
    kind: str
    lines: tuple[CollectiveLine, ...]
    groups_at_once: int | None = None


@dataclass(frozen=True)
class CollectiveDocument:
    """What `dpsim collective --json` prints."""

    schema_version: int
    dpsim_version: str
    operation: str
    machine: str
    calibrated: bool
    groups: tuple[CollectiveGroup, ...]


#: what there is a schema of
ANSWERS: dict[str, Any] = {
    "answer": Answer,
    "explanation": Explanation,
    "sweep": GridAnswer,
    "plan": PlanAnswer,
    "comparison": ComparisonAnswer,
    "collective": CollectiveDocument,
    "serve": ServingAnswer,
}


def schema_named(what: str) -> dict[str, Any]:
    """The schema of `what`, one of `ANSWERS` or of those of checks, files and measurements."""
    from dpsim.report import checks_schema as more
    from dpsim.report import measured_schema as measured

    if what == "show":
        return measured.shown()
    others: dict[str, Any] = {
        "calibrate": measured.CalibrationAnswer,
        "validate": measured.TrainingValidation | measured.CollectiveValidation,
        "measure": measured.StepsRecord | measured.LoaderTimes,
        "check": more.StepVerdictAnswer,
        "check-nccl": more.NcclVerdictAnswer,
        "stragglers": more.StragglersAnswer,
        "incidents": more.IncidentsAnswer,
        "import": more.AccountAnswer | more.MachineAnswer,
    }
    return schema_of({**ANSWERS, **others}[what])
