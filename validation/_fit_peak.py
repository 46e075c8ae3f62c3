"""Fit the share of peak that kernels reach, by GPU generation and dtype, from uncalibrated runs.

A series tells the share with which its smallest count is predicted exactly; a constant is the
median over series.  Models that only stand in for others tell nothing, and image networks neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpsim.accuracy.scores import fitted_on
from dpsim.accuracy.training.alike import like
from dpsim.accuracy.training.scenarios import measured_case
from dpsim.accuracy.training.series import calibration_row
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.training.unscored import unscored
from dpsim.core.constants import Constant
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.models import convolutions
from dpsim.predict import widths
from dpsim.predict.shortened import step_time

#: shares that are tried; in between ln(predicted / measured) is linear in the share's logarithm
SHARES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.95)
#: series below which a generation and dtype have no constant of their own
ENOUGH = 5
DRAWS = 200


class Level(NamedTuple):
    """ln(predicted / measured) of one series' smallest count at every share tried.

    kind   GPU generation and dtype; `size` also says whether the model is a large one
    """

    series: str
    source: str
    kind: str
    size: str
    logs: tuple[float, ...]

    def share(self) -> float:
        """The share that predicts it; at most 0.95 and at least 0.05."""
        return float(np.exp(np.interp(0.0, [-x for x in self.logs], np.log(SHARES))))

    def miss(self, share: float) -> float:
        """ln(measured / predicted) at `share`."""
        return -float(np.interp(math.log(share), np.log(SHARES), self.logs))


def level_of(rows: Sequence[TrainingRow]) -> Level | None:
    """What the smallest count of a series tells; None where that is nothing."""
    first = calibration_row(rows)
    if first is None or unscored(first):
        return None
    logs = []
    try:
        for share in SHARES:
            point = measured_case(like(first, rows), {"efficiency": share})
            listed = convolutions.is_network(point.case.model)  # at shares of its own
            if point.stand_in or point.case.device is None or listed:
                return None
            logs.append(math.log(step_time(point.case) / point.step_time))
    except (Refused, SimulationError, ValueError):
        return None
    series, source = first.text("series_id"), first.text("source_id")
    kind, size = point.case.pace.device_class, widths.size_of(point.case)
    return Level(series, source, kind, size, tuple(logs))


def learn(found: Sequence[Level]) -> dict[str, Constant]:
    """The shares of all kinds with enough series."""
    fitting = [level for level in found if fitted_on(level.series)]
    constants = {}
    for kind in sorted({level.kind for level in fitting}):
        own = [level for level in fitting if level.kind == kind]
        if len(own) >= ENOUGH:
            constants[f"{kind}.efficiency"] = _median(own)
    values = {name.removesuffix(".efficiency"): c.value for name, c in constants.items()}
    for part, wanted in (("fitted on", True), ("held out", False)):
        missed = [
            level.miss(values.get(level.kind, 0.5))
            for level in found
            if fitted_on(level.series) == wanted
        ]
        if not missed:
            continue
        low, high = np.exp(np.quantile(missed, [0.05, 0.95]))
        print(
            f"efficiency: {part}: n = {len(missed)}, median |error| "
            f"{np.median(np.abs(np.expm1(missed))):.1%}, 5 % and 95 % points {low:.2f}, {high:.2f}"
        )
    return constants


def _median(levels: Sequence[Level]) -> Constant:
    shares = np.array([level.share() for level in levels])
    rng = np.random.default_rng(0)
    drawn = [np.median(rng.choice(shares, len(shares))) for _ in range(DRAWS)]
    return Constant(
        value=float(f"{np.median(shares):.3g}"),
        error=float(f"{np.std(drawn):.2g}"),
        unit="1",
        meaning="share of the device's peak that large kernels reach",
        fitted_on=_told(levels),
        n=len(levels),
    )


def _told(levels: Sequence[Level]) -> str:
    sources = {level.source for level in levels}
    return (
        f"the smallest counts of {len(levels)} published series of {len(sources)} sources, whose "
        "names have an even CRC-32, of models known layer by layer; the error is a bootstrap's"
    )
