"""The whole answer of a prediction: its points, the laws fitted to them, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from dpsim.core.lean import dataclass
from dpsim.models.memory import Fits
from dpsim.predict.document import Spread
from dpsim.predict.level import Level
from dpsim.predict.point import Failed, Point

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Gap:
    """What a step takes beyond a law [s], by cause; the causes sum to it.  `unexplained_s` is what
    it is longer than fitted, as measured steps near it were, beside what the first point is."""

    communication_s: float
    jitter_s: float
    bubble_s: float
    input_s: float
    load_s: float
    unexplained_s: float = 0.0


@dataclass(frozen=True)
class Beyond:
    """The step time that the law gives on so many ranks [s], and how far the step is beyond it."""

    ranks: int
    law_s: float
    gap: Annotated[Gap, Spread()]


@dataclass(frozen=True)
class Amdahl:
    """Amdahl's law, or Gustafson's where work grows with the ranks: the serial fraction with the
    ends of its interval, and the gap, at the last point and at all of them."""

    serial_fraction: float
    low: float
    high: float
    gap: Gap
    points: tuple[Beyond, ...]


@dataclass(frozen=True)
class Gustafson:
    """Gustafson's law."""

    serial_fraction: float


@dataclass(frozen=True)
class Usl:
    """The universal scalability law; it has no peak without a kappa."""

    sigma: float
    kappa: float
    peak_ranks: float | None


@dataclass(frozen=True)
class KarpFlatt:
    """The serial fraction that would explain the point on so many ranks alone."""

    ranks: int
    serial_fraction: float


@dataclass(frozen=True)
class Bend:
    """Where efficiency first falls below 90 %, and which part of the gap is the largest there."""

    ranks: int
    part: str


@dataclass(frozen=True)
class Laws:
    """Laws fitted to the points; usl is None for too few counts, bend where nothing bends."""

    amdahl: Amdahl
    gustafson: Gustafson
    usl: Usl | None
    karp_flatt: tuple[KarpFlatt, ...]
    bend: Bend | None


@dataclass(frozen=True)
class NoLaws:
    """Where more than the number of ranks changes from point to point, no law applies."""


@dataclass(frozen=True)
class Measured:
    """A measured point beside the prediction; `role` is predicted, or calibrated where it set the
    level of compute."""

    ranks: int
    step_time_s: float
    throughput_per_s: float
    error: float
    inside_interval: bool
    role: str
    source: str


@dataclass(frozen=True)
class Advice:
    """With `changes` of the scenario, what does not fit on `ranks` ranks does.

    fits              whether it then fits, as of a point
    throughput_ratio  throughput with them over that without; None where playing would take long
    cost              what else they cost, in words
    """

    ranks: int
    changes: tuple[str, ...]
    memory_bytes: float
    capacity_bytes: float
    fits: Fits | None
    throughput_ratio: float | None
    cost: str


@dataclass(frozen=True)
class Answer:
    """What `dpsim run` says of a scenario.

    scenario       as plain data that reads back to an equal one
    scaling        weak or strong
    held_constant  what all points share
    machine        devices of a node and its network, in words; "" without one, and where points
                   differ in it
    products       the dtype that products run in, and whether it is the model's by default; ""
                   where none are counted, and where points differ in it
    advice         where a point does not fit in memory: what would, the mildest first
    """

    schema_version: int
    dpsim_version: str
    name: str
    scenario: Mapping[str, Any]
    scaling: str
    held_constant: str
    points: tuple[Point | Failed, ...]
    laws: Laws | NoLaws
    measured: tuple[Measured, ...]
    calibration: Level | None
    warnings: tuple[str, ...]
    machine: str = ""
    products: str = ""
    advice: tuple[Advice, ...] | None = None
