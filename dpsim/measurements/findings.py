"""What a measurement file says: the one form that every reader gives and `dpsim calibrate` takes.

All times are in seconds, all sizes in bytes.  Nothing is fitted here.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dpsim.core.record import Refused

#: of all ranks at once, each to the next and the last to the first
SEND = "send"
#: operations whose curves are understood, and the bus bandwidth of each per algorithm bandwidth:
#: NVIDIA/nccl-tests doc/PERFORMANCE.md
OPERATIONS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", SEND,
)  # fmt: skip
#: one measured point of a collective: full size [B], time [s], spread (standard deviation) [s]
Point = tuple[float, float, float]


@dataclass(frozen=True)
class Curve:
    """Measured times of one collective over one group.

    operation    one of OPERATIONS; None where the file does not say
    ranks, nodes the group; None where the file does not say
    points       (full unsharded size [B], time [s], spread [s]); a size may occur several times;
                 a spread of 0 says that none is known
    doubt        why `ranks` is None, of a file that says what cannot be
    possible     the least and the most ranks that what is measured allows
    """

    operation: str | None
    ranks: int | None
    nodes: int | None
    points: tuple[Point, ...]
    doubt: str = ""
    possible: tuple[float, float] = (1, math.inf)

    def __post_init__(self) -> None:
        if self.operation is not None and self.operation not in OPERATIONS:
            raise Refused(f"{self.operation[:60]!r} is none of {', '.join(OPERATIONS)}")
        _check_counts(ranks=self.ranks, nodes=self.nodes)
        if self.ranks is not None and self.nodes is not None and self.nodes > self.ranks:
            raise Refused(f"{self.nodes} nodes for {self.ranks} ranks")
        for size, seconds, spread in self.points:
            _positive(f"size of {self.operation}", size)
            _positive(f"time of {self.operation} of {size:g} bytes", seconds)
            _finite(f"spread of {self.operation} of {size:g} bytes", spread)


@dataclass(frozen=True)
class StepTime:
    """Measured steps [s] of `ranks` ranks with `batch` samples per rank; None: not said."""

    ranks: int | None
    batch: int | None
    samples: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_counts(ranks=self.ranks, batch=self.batch)
        if not self.samples:
            raise Refused("step times without a step")
        for value in self.samples:
            _positive("step time", value)


@dataclass(frozen=True)
class LayerSeconds:
    """Measured duration of one layer, or of a whole model, in a step [s]."""

    name: str
    forward: float
    backward: float

    def __post_init__(self) -> None:
        _finite(f"forward of {self.name[:60]}", self.forward)
        _finite(f"backward of {self.name[:60]}", self.backward)


@dataclass(frozen=True)
class MeasuredBucket:
    """One collective of a training step: when its data was handed over and when it ran.

    index   its place in the step; `bytes` its payload [B]
    ready, start, end   issued by the host, begun and ended on the device [s], from the step's start
    step    which step, from 0
    """

    index: int
    bytes: float
    ready: float
    start: float
    end: float
    step: int = 0

    def __post_init__(self) -> None:
        what = f"bucket {self.index}"
        _finite(f"{what}: bytes", self.bytes)
        for value in (self.ready, self.start, self.end):
            if not math.isfinite(value):
                raise Refused(f"{what}: {value} s is not finite")
        if self.end < self.start:
            raise Refused(f"{what}: ends at {self.end:g} s, before it starts at {self.start:g} s")


@dataclass(frozen=True)
class Findings:
    """Everything that one file says.

    source    the file's name, without its folder
    curves, steps, layers, buckets   see their classes
    device    name of the accelerator, if the file says it
    warnings  what was left out or is doubtful, one sentence each
    notes     what was understood, one sentence each
    wrong     rows whose results were wrong, of tests that look
    overlap   share of communication during which kernels of compute ran, if the file shows it
    """

    source: str
    curves: tuple[Curve, ...] = ()
    steps: tuple[StepTime, ...] = ()
    layers: tuple[LayerSeconds, ...] = ()
    buckets: tuple[MeasuredBucket, ...] = ()
    device: str | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    overlap: float | None = None
    wrong: int = 0

    @property
    def empty(self) -> bool:
        return not (self.curves or self.steps or self.layers or self.buckets)

    def told(
        self, operation: str | None = None, ranks: int | None = None, nodes: int | None = None
    ) -> Findings:
        """With what the user says where the file says nothing; Refused where the two disagree."""
        curves = []
        for curve in self.curves:
            given = {"operation": operation, "ranks": ranks, "nodes": nodes}
            for key, value in given.items():
                own = getattr(curve, key)
                if value is not None and own is not None and own != value:
                    raise Refused(f"{self.source}: says {key} {own}, not {value}")
            _require_possible(self.source, curve, ranks)
            known = {k: v for k, v in given.items() if v is not None}
            curves.append(replace(curve, **known))  # type: ignore[arg-type]
        steps = [replace(s, ranks=s.ranks or ranks) for s in self.steps]
        return replace(self, curves=tuple(curves), steps=tuple(steps))


def _require_possible(source: str, curve: Curve, ranks: int | None) -> None:
    """Raise Refused where `ranks` are given that the bandwidths of `curve` do not allow."""
    least, most = curve.possible
    if ranks is not None and not least <= ranks <= most:
        shown = f"{least:.0f}" if least == most else f"{least:.0f} … {most:.0f}"
        raise Refused(f"{source}: its bus bandwidth is that of {shown} ranks, not {ranks}")


def _check_counts(**counts: int | None) -> None:
    for key, value in counts.items():
        if value is not None and not 1 <= value <= 10**7:
            raise Refused(f"{key} {value} is not in 1 … 10,000,000")


def _positive(what: str, value: float) -> None:
    if not math.isfinite(value) or value <= 0:
        raise Refused(f"{what}: {value:g} is not a positive number")


def _finite(what: str, value: float) -> None:
    if not math.isfinite(value) or value < 0:
        raise Refused(f"{what}: {value:g} is not a number from 0 up")


def merged(points: Iterable[Point]) -> tuple[Point, ...]:
    """One point per size: the median time; the spread is that between repetitions, or, if larger,
    the median of the points' own."""
    groups: dict[float, list[Point]] = defaultdict(list)
    for point in points:
        groups[point[0]].append(point)
    found = []
    for size, same in sorted(groups.items()):
        times = [seconds for _, seconds, _ in same]
        between = statistics.stdev(times) if len(times) > 1 else 0.0
        own = statistics.median(spread for _, _, spread in same)
        found.append((size, statistics.median(times), max(between, own)))
    return tuple(found)


def unique(sentences: Iterable[str]) -> tuple[str, ...]:
    """`sentences` without repetitions, in order."""
    return tuple(dict.fromkeys(sentences))
