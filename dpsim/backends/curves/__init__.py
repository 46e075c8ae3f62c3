"""Measured curves of collectives: time against size on one group of ranks.

Between two measured sizes the time is interpolated on logarithmic axes; real curves that are not
monotone stay as they are.  Below the first size the first time holds (latency has a floor).  Above
the last one the straight line through the last two points goes on (latency + size/bandwidth).
Both are said (`Reading.beyond`), and widen the error.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from dpsim.core import units
from dpsim.core.marks import Mark
from dpsim.core.record import Count, Refused, Text, record

#: (full unsharded size [B], time [s], spread (standard deviation) [s])
Timing = tuple[float, float, float]


class TimingText(Mark):
    """Marks a measured point: "1 MiB, 120 us, 2 us" in files, (1048576.0, 1.2e-4, 2e-6) inside."""

    def take(self, value: Any, file: bool) -> Timing:
        if isinstance(value, str):
            cells = [cell.strip() for cell in value[:200].split(",")]
            if len(cells) != 3:
                raise ValueError(f"{value[:60]!r} is no point; write size, time, spread")
            value = (
                units.parse(cells[0], "B"),
                units.parse(cells[1], "s"),
                units.parse(cells[2], "s"),
            )
        if not isinstance(value, (tuple, list)) or len(value) != 3:
            raise ValueError(f"{str(value)[:60]!r} is no point; write size, time, spread")
        size, seconds, spread = (float(x) for x in value)
        finite = all(map(math.isfinite, (size, seconds, spread)))
        if not finite or min(size, seconds) <= 0 or spread < 0:
            raise ValueError(f"{str(value)[:60]!r} has no positive size and time")
        return size, seconds, spread

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string"}


def timing_text(point: Timing) -> str:
    """`point` as a file holds it; `TimingText` reads it back to the same floats."""
    size, seconds, spread = point
    shown = f"{size:.0f} B" if size == int(size) else units.exact(size, "B")
    return f"{shown}, {units.exact(seconds, 's')}, {units.exact(spread, 's')}"


class Reading(NamedTuple):
    """What a curve says about one size.

    seconds  time [s]; `spread` its standard deviation, relative [1]
    beyond   how many times the size was doubled or halved from the nearest measured one; 0 inside
    """

    seconds: float
    spread: float
    beyond: float


@record
class MeasuredCurve:
    """Measured times of one collective on one group.

    points     distinct sizes in ascending order
    nodes      None: not known
    link_rate  rate of one NIC, one way, where the group has several nodes; None: not known
    latency, bandwidth   of the line latency + size/bandwidth, fitted to the relative error, where
               there are enough points; with standard errors
    """

    operation: Text
    ranks: Count
    nodes: Count | None = None
    link_rate: units.BytesPerSecond | None = None
    latency: units.Seconds | None = None
    latency_error: units.Seconds | None = None
    bandwidth: units.BytesPerSecond | None = None
    bandwidth_error: Annotated[float, units.Unit("B/s", high=1e18)] | None = None
    points: tuple[Annotated[Timing, TimingText()], ...]

    def __post_init__(self) -> None:
        if self.ranks < 2:
            raise Refused("one rank moves nothing; a curve needs at least 2", ("ranks",))
        if self.nodes is not None and self.nodes > self.ranks:
            raise Refused(f"{self.nodes} nodes for {self.ranks} ranks", ("nodes",))
        if not self.points:
            raise Refused("a curve needs at least one point", ("points",))
        for k, (low, high) in enumerate(zip(self._sizes, self._sizes[1:], strict=False), 1):
            if high <= low:
                raise Refused(f"{high:g} B does not come after {low:g} B", ("points", k))

    @cached_property
    def _sizes(self) -> tuple[float, ...]:
        return tuple(point[0] for point in self.points)

    @property
    def smallest(self) -> float:
        """The smallest measured size [B]."""
        return self._sizes[0]

    @property
    def largest(self) -> float:
        """The largest measured size [B]."""
        return self._sizes[-1]

    @property
    def fastest_bus(self) -> float:
        """The highest measured bus bandwidth [B/s]."""
        best = max(size / seconds for size, seconds, _ in self.points)
        return best * bus_factor(self.operation, self.ranks)

    def at(self, size: float) -> Reading:
        """What the curve says about `size` bytes."""
        first, last = self.points[0], self.points[-1]
        if size <= first[0]:
            beyond = math.log2(first[0] / size) if size > 0 else math.inf
            return Reading(first[1], first[2] / first[1], beyond)
        if size >= last[0]:
            return Reading(self._above(size), last[2] / last[1], math.log2(size / last[0]))
        k = bisect_right(self._sizes, size)
        (s0, t0, e0), (s1, t1, e1) = self.points[k - 1], self.points[k]
        share = math.log(size / s0) / math.log(s1 / s0)
        seconds = t0 if share == 0 else t0 * math.exp(share * math.log(t1 / t0))
        return Reading(seconds, max(e0 / t0, e1 / t1), 0.0)

    def _above(self, size: float) -> float:
        """The line through the last two points, or in proportion where that would not rise."""
        last, seconds, _ = self.points[-1]
        if size == last:
            return seconds
        slope = seconds / last
        if len(self.points) > 1:
            before, earlier, _ = self.points[-2]
            slope = (seconds - earlier) / (last - before)
            slope = slope if slope > 0 else seconds / last
        return seconds + slope * (size - last)


def bus_factor(operation: str, ranks: int) -> float:
    """Bus over algorithm bandwidth (NVIDIA/nccl-tests doc/PERFORMANCE.md)."""
    if operation in ("broadcast", "reduce", "send"):
        return 1.0
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks
