"""Points in relation to one another: speed-up, efficiency, how much sooner training ends.

Speed-up is over the first point that has a throughput, whatever differs.  Efficiency says how well
more ranks do the same: it is over the first point that differs in its ranks only, or else in ranks
and in how work is split among them.  Among points of one number of ranks there is no efficiency:
schedules or machines that are compared have a speed-up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dpsim.predict.point import Chosen, Failed, Point, computed
from dpsim.predict.uncertainty import efficiency_interval

_Any = TypeVar("_Any", bound=Point | Failed | Chosen)
#: keys of a sweep that set how many ranks there are, and those that set how work is split
_COUNTS = ("cluster.ranks", "cluster.nodes")
_SPLIT = (*_COUNTS, "cluster.gpus_per_node", "batch.", "parallel.")


def relate(points: Sequence[_Any]) -> tuple[_Any, ...]:
    """`points` in relation to the first of them that has what is compared."""
    good = [point for point in computed(points) if point.throughput_per_s]
    bases = _bases(good)
    trained = next((p.run.time_s for p in computed(points) if p.run and p.run.time_s), None)
    related: list[Any] = []
    for point in points:
        if isinstance(point, Point):
            sooner = trained / point.run.time_s if trained and point.run else None
            own = replace(point, training_speedup=sooner)
            first = good[0] if good else None
            related.append(compared(own, first, bases.get(id(point))))
        else:
            related.append(point)
    return tuple(related)


def compared(point: Point, first: Point | None, base: Point | None) -> Point:
    """`point` with its speed-up over `first` and its efficiency over `base`."""
    speedup = efficiency = low = high = None
    if point.throughput_per_s and first is not None and first.throughput_per_s:
        speedup = point.throughput_per_s / first.throughput_per_s
    if point.throughput_per_s and base is not None and base.throughput_per_s:
        efficiency = point.throughput_per_s / base.throughput_per_s * base.ranks / point.ranks
        itself = base.interval is point.interval
        ends = efficiency_interval(base.interval.causes, point.interval.causes)
        ends = (1.0, 1.0) if itself else ends
        low, high = efficiency * ends[0], efficiency * ends[1]
    return replace(
        point, speedup=speedup, efficiency=efficiency, efficiency_low=low, efficiency_high=high
    )


def _bases(good: Sequence[Point]) -> dict[int, Point]:
    """id of a point -> the first of `good` that it is a scaled version of, where there is one."""
    found: dict[int, Point] = {}
    for free in (_SPLIT, _COUNTS):  # the narrower kin counts
        kin: dict[str, list[Point]] = {}
        for point in good:
            kept = {key: value for key, value in point.set.items() if not key.startswith(free)}
            kin.setdefault(json.dumps(kept, sort_keys=True, default=repr), []).append(point)
        for group in kin.values():
            if len({point.ranks for point in group}) > 1 or len(good) == 1:
                scaled = [p for p in group[1:] if p.ranks != group[0].ranks]
                found = {k: v for k, v in found.items() if k not in map(id, group)}
                found |= {id(point): group[0] for point in (group[0], *scaled)}
    return found
