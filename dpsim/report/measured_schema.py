"""What `calibrate`, `validate`, `measure` and `show` print, as types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from dpsim.backends.curves.file import Calibration
from dpsim.machines.devices import Device
from dpsim.models.recording import Recording
from dpsim.models.timed_loader import LoaderRecord
from dpsim.predict.document import Spread

# -- calibrate ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileRead:
    """What was understood of a file, and what is doubtful."""

    file: str
    understood: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class BucketRead:
    """A collective of a measured step: its payload [B]; issued, begun and ended [s since the step's
    start]."""

    index: int
    bytes: float
    ready: float
    start: float
    end: float
    step: int


@dataclass(frozen=True)
class CalibrationAnswer:
    """What `dpsim calibrate --json` prints; quantities are in SI units."""

    schema_version: int
    dpsim_version: str
    files: tuple[FileRead, ...]
    buckets: tuple[BucketRead, ...]
    calibration: Calibration


# -- validate -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BaselineErrors:
    """Relative errors of a simpler method, beside the model's own on the same rows where told."""

    n: int
    median_error: float
    p90_error: float
    model_median_error: float | None = None


@dataclass(frozen=True)
class RunFigures:
    """Scores of `n` training runs; those of errors are missing where there is none."""

    n: int
    refused: int
    share_refused: float | None
    median_error: float | None = None
    p90_error: float | None = None
    mean_error: float | None = None
    signed_bias: float | None = None
    skill: float | None = None
    coverage: float | None = None
    interval_score: float | None = None
    median_half_width: float | None = None
    baselines: dict[str, BaselineErrors] | None = None


@dataclass(frozen=True)
class AcrossNodes:
    """Runs on several nodes, of series with three counts or more."""

    n: int
    mean_over_sources_of_median_error: float | None
    skill: float | None
    sources: dict[str, RunFigures]


@dataclass(frozen=True)
class TrainingValidation:
    """What `dpsim validate --json` prints of a table of training runs."""

    schema_version: int
    dpsim_version: str
    table: str
    kind: Literal["training"]
    calibrate: str
    rows: int
    status: dict[str, int]
    all: RunFigures
    uncalibrated: RunFigures
    sources: dict[str, RunFigures]
    regimes: dict[str, RunFigures]
    across_nodes: AcrossNodes
    refusals: dict[str, int]
    refused_lines: dict[str, tuple[int, ...]]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class CollectiveFigures:
    """Scores of `n` measured collectives; those of errors are missing where there is none."""

    n: int
    calibrated: int
    excluded: int
    refused: int
    share_refused: float | None
    refusals: dict[str, int]
    median_error: float | None = None
    p90_error: float | None = None
    signed_bias: float | None = None
    coverage: float | None = None
    median_half_width: float | None = None
    baselines: dict[str, BaselineErrors] | None = None


@dataclass(frozen=True)
class BandFigures:
    """The same of one kind of network and one band of sizes."""

    fabric: str
    band: str
    figures: Annotated[CollectiveFigures, Spread()]


@dataclass(frozen=True)
class ExcludedRows:
    """Rows that the table itself marks as doubtful."""

    predicted: int
    outside_interval: int


@dataclass(frozen=True)
class CollectiveValidation:
    """What `dpsim validate --json` prints of a table of collectives."""

    schema_version: int
    dpsim_version: str
    kind: Literal["collectives"]
    table: str
    calibrate: str
    rows: int
    series: int
    status: dict[str, int]
    coverage_wanted: float
    overall: CollectiveFigures
    figures: tuple[BandFigures, ...]
    by_operation: dict[str, CollectiveFigures]
    by_half: dict[str, CollectiveFigures]
    excluded: ExcludedRows
    assumed: dict[str, int]
    warnings: tuple[str, ...]


# -- measure --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepsRecord:
    """The record of a script's steps, which `dpsim measure --json` prints."""

    schema: Literal["dpsim-ddp-record"]
    schema_version: int
    recording: Annotated[Recording, Spread()]


@dataclass(frozen=True)
class LoaderTimes:
    """The record of a loader, which `dpsim measure --input --json` prints."""

    schema: Literal["dpsim-loader"]
    schema_version: int
    record: Annotated[LoaderRecord, Spread()]


# -- show -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MachineBrief:
    """A machine of the list of machines."""

    name: str
    device: str
    gpus_per_node: int
    description: str


@dataclass(frozen=True)
class PluginBrief:
    """A strategy, backend or compression of its list."""

    name: str
    about: str


@dataclass(frozen=True)
class PluginShown:
    """A strategy, backend or compression: how a scenario names it, and the defaults of its keys."""

    name: str
    about: str
    in_a_scenario: str
    keys: dict[str, str]


@dataclass(frozen=True)
class ScheduleShown:
    """What each rank of a pipeline does in a step, in order."""

    name: str
    ranks: int
    micro_batches: int
    orders: tuple[str, ...]


@dataclass(frozen=True)
class LayerShown:
    """A layer; FLOP and elements of activations are per sample."""

    name: str
    parameters: int
    forward_flop: float
    backward_flop: float
    activations: float


@dataclass(frozen=True)
class ModelShown:
    """A model and its layers."""

    name: str
    parameters: int
    sample: str
    tokens: int | None
    dtype: str
    layers: tuple[LayerShown, ...]


def shown() -> dict[str, Any]:
    """The schema of what `dpsim show --json` prints, which depends on what is shown: machines,
    devices and scenarios as their files have them, with units."""
    from dpsim.core.record import json_schema
    from dpsim.machines.machine import Machine
    from dpsim.predict.document import schema_of

    device = json_schema(Device)
    listed = [schema_of(MachineBrief), device, schema_of(PluginBrief), {"type": "string"}]
    said = "A scenario file, as `dpsim schema scenario` says."
    scenarios = [
        {"title": "Scenario", "description": said, "type": "object", "required": [key]}
        for key in ("cluster", "sites")
    ]
    one = (PluginShown, ScheduleShown, ModelShown, Mapping[str, str])
    return {
        "title": "Shown",
        "description": "What `dpsim show --json` prints of a thing, or of a list.",
        "anyOf": [
            json_schema(Machine), device, *(schema_of(kind) for kind in one),
            {"type": "array", "items": {"anyOf": listed}}, *scenarios,
        ],
    }  # fmt: skip
