"""Measured points beside the predictions at the same count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsim.cases.case import Case
from dpsim.core.places import below
from dpsim.describe.measured import MeasuredPoint, read_measured
from dpsim.describe.scenario import Loaded
from dpsim.predict.answer import Measured
from dpsim.predict.level import Level
from dpsim.predict.outcome import Outcome
from dpsim.predict.point import Point


def measured(
    loaded: Loaded, outcomes: Sequence[Outcome], found: Level | None
) -> Iterator[Measured]:
    """The measured points for which there is a prediction; none where --set made it another
    experiment.  The calibrated one is marked."""
    if loaded.scenario.measured is None or loaded.altered:
        return
    file = below(loaded.base, loaded.scenario.measured, "measured")
    for seen in read_measured(file, "measured"):
        good = ((one.case, one.point) for one in outcomes if isinstance(one.point, Point))
        at = next(((c, p) for c, p in good if c.ranks == seen.ranks), None)
        if at is not None:
            calibrated = found is not None and seen.ranks in found.counts
            yield _beside(seen, *at, "calibrated" if calibrated else "predicted")


def _beside(seen: MeasuredPoint, case: Case, point: Point, role: str) -> Measured:
    """`seen` beside `point`, its prediction."""
    time = seen.step_time(case.global_batch, case.model.tokens, case.model.sample)
    assert point.throughput_per_s is not None
    return Measured(
        ranks=seen.ranks,
        step_time_s=time,
        throughput_per_s=point.throughput_per_s * point.step_time_s / time,
        error=point.step_time_s / time - 1.0,
        inside_interval=_inside(time, point),
        role=role,
        source=seen.source,
    )


def _inside(time: float, point: Point) -> bool:
    """Whether `time` lies in the point's interval, rounding apart."""
    return bool(point.interval.low * (1 - 1e-9) <= time <= point.interval.high * (1 + 1e-9))
