"""What `check`, `check-nccl`, `stragglers`, `incidents` and `import` print, as types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dpsim.report.schemas import CollectiveLine


@dataclass(frozen=True)
class FaultShare:
    """A fault and its probability after the measurement."""

    name: str
    probability: float


@dataclass(frozen=True)
class MeasuredStep:
    """A measured step [s] beside a healthy one with its 90 % interval, and whether it is faster
    than the fast end of that, or slower than the slow one."""

    ranks: int
    global_batch: int
    measured_s: float
    expected_s: float
    expected_low_s: float
    expected_high_s: float
    faster_than_interval: bool
    slower_than_interval: bool


@dataclass(frozen=True)
class StepVerdictAnswer:
    """What `dpsim check --json` prints."""

    schema_version: int
    verdict: Literal["normal", "slow", "cannot_tell"]
    probability: float
    causes: tuple[FaultShare, ...]
    points: tuple[MeasuredStep, ...]
    faster_than_expected: bool
    repeats_differ: bool
    findings: tuple[str, ...]
    next: tuple[str, ...]


@dataclass(frozen=True)
class BandVerdict:
    """A range of sizes: the median of measured over expected, shares of rows outside, and from
    64 MiB up the sizes [B] that are low by themselves."""

    name: str
    rows: int
    ratio: float
    slower: float
    faster: float
    verdict: str
    low_sizes: tuple[float, ...]


@dataclass(frozen=True)
class WhatIsSeen:
    """Measured over expected time from which on sizes from 64 MiB up are doubtful, and low, and
    below which they are suspicious; how many machines of the kind were published."""

    doubtful: float
    low: float
    suspicious: float
    machines: int


@dataclass(frozen=True)
class SuspectFault:
    """A fault that the cluster may have, by how well the times of all sizes fit, and of those that
    are low."""

    name: str
    meaning: str
    misfit: float
    misfit_of_low: float
    likeliest: bool
    next: tuple[str, ...]


@dataclass(frozen=True)
class JudgedTable:
    """A table of nccl-tests, judged."""

    operation: str
    ranks: int
    nodes: int
    kind: str
    verdict: str
    bands: tuple[BandVerdict, ...]
    sensitivity: WhatIsSeen | None
    causes: tuple[SuspectFault, ...]
    lines: tuple[CollectiveLine, ...]


@dataclass(frozen=True)
class NcclVerdictAnswer:
    """What `dpsim check-nccl --json` prints."""

    schema_version: int
    dpsim_version: str
    file: str
    machine: str
    verdict: Literal["normal", "low", "suspicious", "cannot_tell"]
    wrong: int
    tables: tuple[JudgedTable, ...]
    next: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class SlowRank:
    """A rank that others wait for; `cost_s` is what all would save without."""

    rank: int
    pattern: str
    since_step: int | None
    share_of_steps: float
    factor: float
    cost_s: float


@dataclass(frozen=True)
class StragglersAnswer:
    """What `dpsim stragglers --json` prints."""

    kind: str
    ranks: int
    steps: int
    original_s: float
    ideal_s: float
    slowdown: float
    stragglers: tuple[SlowRank, ...]
    gain_s: Mapping[str, Any]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class IncidentRate:
    """Incidents of one cause over an exposure, and the mean time between them with its ends."""

    cause: str
    count: int
    of: str
    exposure_s: float
    mtbf_s: float | None
    mtbf_low_s: float | None
    mtbf_high_s: float | None
    thin: bool


@dataclass(frozen=True)
class IncidentsAnswer:
    """What `dpsim incidents --json` prints."""

    kind: str
    over_s: float
    rates: tuple[IncidentRate, ...]
    measured: Mapping[str, Any]
    sections: Mapping[str, Any]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ReadLine:
    """What became of one thing of a file."""

    text: str
    line: int | None = None


@dataclass(frozen=True)
class AccountAnswer:
    """What `dpsim import --json` prints of one file; `makes` says which section it has."""

    file: str
    kind: str
    makes: Literal["", "machine", "scenario", "model", "measurement", "trace"]
    taken: tuple[ReadLine, ...]
    assumed: tuple[ReadLine, ...]
    ignored: tuple[ReadLine, ...]
    findings: tuple[str, ...]
    advice: str
    complete: bool | None = None
    machine: Mapping[str, Any] | None = None
    scenario: Mapping[str, Any] | None = None
    model: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class FileOfNode:
    """A file that describes a node."""

    file: str
    format: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class FieldOfMachine:
    """Where a value of a machine comes from."""

    path: str
    value: str
    how: str
    source: str


@dataclass(frozen=True)
class MachineAnswer:
    """What `dpsim import --json` prints of files of one node, which together make a machine."""

    machine: Mapping[str, Any]
    read: tuple[FileOfNode, ...]
    told: tuple[FieldOfMachine, ...]
    findings: tuple[str, ...]
