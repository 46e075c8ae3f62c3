"""What `dpsim explain` says beside an answer: operations, critical path, what-ifs, blame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from dpsim.compile.timeline import Span
from dpsim.core.presented import Presented
from dpsim.core.refusals import brief
from dpsim.predict.answer import Answer
from dpsim.predict.blame import Blame
from dpsim.predict.compressed import CompressionGain
from dpsim.predict.document import Keyed, Spread, to_json
from dpsim.predict.point import Failed, Point
from dpsim.predict.symmetry import Symmetry


@dataclass(frozen=True)
class Operation:
    """An operation of a rank: when it was ready, started and ended, from the step's start [s]."""

    rank: int
    stream: str
    name: str
    op: str
    group: str
    bytes: float
    ready_s: float
    start_s: float
    end_s: float

    @classmethod
    def of(cls, span: Span) -> Operation:
        return cls(*span)

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Launched:
    """A bucket or parameter group, in launch order [B]."""

    name: str
    bytes: float
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class WhatIf:
    """What a single change would bring; the gain is None where a step takes no time."""

    change: str
    step_time_s: float
    throughput_gain: float | None


@dataclass(frozen=True)
class Explained:
    """A point, and the reasons of its last step.

    orders          rank -> its operations in issue order
    peak_in_flight  micro-batches whose activations every rank keeps at once
    blame           the loss by cause and by rank
    compression     what compressing gradients brings; None where they are not
    symmetry        kinds of nodes and links; None without one machine
    operations      of as many ranks as there is room for, the critical one first
    """

    point: Annotated[Point, Spread()]
    critical_rank: int
    orders: dict[str, str]
    peak_in_flight: tuple[int, ...]
    buckets: tuple[Launched, ...]
    critical_path: tuple[Operation, ...]
    what_if: tuple[WhatIf, ...]
    blame: Blame
    compression: CompressionGain | None = None
    symmetry: Symmetry | None = None
    operations: tuple[Operation, ...] = ()


@dataclass(frozen=True)
class Explanation(Keyed, Presented):
    """An answer whose points are explained, where they have numbers."""

    answer: Annotated[Answer, Spread()]
    points: tuple[Explained | Failed, ...]

    def __repr__(self) -> str:
        count = len(self.explained)
        points = f"{count:,} point{'s' * (count != 1)} of {len(self.points):,}"
        return f"Explanation({brief(self.answer.name)}: {points} explained)"

    @property
    def explained(self) -> tuple[Explained, ...]:
        """The points that have numbers."""
        return tuple(one for one in self.points if isinstance(one, Explained))

    @property
    def document(self) -> dict[str, Any]:
        """All of it as plain data."""
        made: dict[str, Any] = to_json(self)
        return made

    def brief(self) -> dict[str, Any]:
        """The same without the operations of each rank, which are most of it."""
        points = (
            replace(one, operations=()) if isinstance(one, Explained) else one
            for one in self.points
        )
        return replace(self, points=tuple(points)).document
