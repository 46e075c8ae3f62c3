"""Fit how much slower ranks compute beside collectives, and how much they differ.

Contention is `small` for models of few parameters, whose kernels are short, `large` for those of
many, and between them falls with the logarithm (`dpsim.cases.work.contended`).
Ranks differ by the less, the longer they compute (`spread_of` there).  Rows are played at all
values of a coarse grid of contention, of the spread in the calibrated run and of their own; between
these the logarithms of their steps are interpolated.  Rows with tensor or pipeline parallelism say
little about these numbers, and take long.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np

from dpsim.accuracy.training.scenarios import measured_case
from dpsim.accuracy.training.series import anchor_of, calibration_row
from dpsim.accuracy.training.table import TrainingRow
from dpsim.accuracy.training.unscored import unscored
from dpsim.cases.work import MOST_SPREAD, contended_between, spread_after
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.describe.sections import made_up
from dpsim.predict.level import Level
from dpsim.predict.shortened import step_time

#: values that are played
CONTENTION = (0.0, 0.4, 0.8, 1.2)
SPREAD = (0.0, MOST_SPREAD / 2, MOST_SPREAD)
#: values of the three numbers that are tried
TRIED = (
    tuple(np.linspace(0.0, 1.2, 13)),
    (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    tuple(np.linspace(0.0, 0.08, 33)),
)
#: name, unit and meaning of each
NUMBERS = (
    ("nccl.contention", "1",
     "how much longer kernels of small models take while NCCL's move bytes: 0.5 is half as long "
     "again"),
    ("nccl.contention.large", "1", "the same of large models"),
    ("gpu.spread", "s^0.5",
     "standard deviation between ranks of a second of compute, over it, that comes and goes: all "
     "wait for the slowest; it falls with the root of the time"),
)  # fmt: skip


class PlayedRow(NamedTuple):
    """A row at all values of the grid.

    logs     ln(predicted / measured) by contention, spread in the calibrated run, and own spread
    seconds  that a rank computes in a step of the calibrated run, and of its own
    large    how far its model is a large one, 0 to 1
    synthetic  whether its data are: then what is tried does not say how ranks differ
    """

    source: str
    series: str
    logs: np.ndarray
    seconds: tuple[float, float]
    large: float
    synthetic: bool = False


def played(series: Iterable[Sequence[TrainingRow]], jobs: int) -> list[PlayedRow]:
    """All rows that are scored."""
    with ProcessPoolExecutor(jobs) as pool:
        return [row for rows in pool.map(_of_series, list(series), chunksize=2) for row in rows]


def scored_of(rows: Sequence[TrainingRow]) -> tuple[TrainingRow | None, list[TrainingRow]]:
    """The row that a series is calibrated on, and those that are scored and share no model."""
    first = calibration_row(rows)
    scored = [row for row in rows if row is not first and not unscored(row)]
    return first, [row for row in scored if row.count("tp") * row.count("pp") == 1]


def log_of(row: TrainingRow, compute: Mapping[str, float], level: Level) -> float:
    """ln(predicted / measured) of `row`; not a number where it is refused."""
    try:
        point = measured_case(row, compute)
        return math.log(step_time(level.of(point.case)) / point.step_time)
    except (Refused, SimulationError, ValueError):
        return math.nan


def _of_series(rows: Sequence[TrainingRow]) -> list[PlayedRow]:
    first, scored = scored_of(rows)
    if first is None or not scored:
        return []
    anchors = {
        pair: anchor_of(first, rows, {"contention": pair[0], "spread": pair[1]})
        for pair in itertools.product(CONTENTION, SPREAD)
    }
    if any(anchor.level is None for anchor in anchors.values()):
        return []
    levels = {pair: anchor.level for pair, anchor in anchors.items() if anchor.level}
    middle = anchors[CONTENTION[1], SPREAD[1]]
    assert middle.measured is not None
    assert middle.level is not None
    before = middle.level.of(middle.measured.case).batches.step_seconds
    found = [_row(row, levels, middle.level, before) for row in scored]
    return [row for row in found if row is not None and np.isfinite(row.logs).all()]


def _row(
    row: TrainingRow, levels: dict[tuple[float, float], Level], middle: Level, before: float
) -> PlayedRow | None:
    made = [[{"contention": c, "spread": own} for own in SPREAD] for c in CONTENTION]
    logs = np.array([
        [[log_of(row, one, levels[c, base]) for one in own] for base in SPREAD]
        for c, own in zip(CONTENTION, made, strict=True)
    ])  # fmt: skip
    try:
        case = middle.of(measured_case(row).case)
        seconds = (before, case.batches.step_seconds)
        large, synthetic = case.pace.work.large, made_up(case.scenario.input)
    except (Refused, SimulationError, ValueError):
        return None
    return PlayedRow(row.text("source_id"), row.text("series_id"), logs, seconds, large, synthetic)


def candidates() -> np.ndarray:
    """All that is tried, of shape (candidates, 3)."""
    return np.array(list(itertools.product(*TRIED)))


def logs_of(rows: Sequence[PlayedRow], numbers: np.ndarray) -> np.ndarray:
    """ln(predicted / measured) of `rows` at `numbers` (candidates, 3), of shape (rows, candidates);
    linear between what was played."""
    from scipy.interpolate import RegularGridInterpolator

    small, large, spread = numbers.T
    found = []
    for row in rows:
        contention = _each(contended_between, small, large, row.large)
        known = partial(spread_after, synthetic=row.synthetic)
        spreads = [_each(known, spread, seconds) for seconds in row.seconds]
        between = RegularGridInterpolator((CONTENTION, SPREAD, SPREAD), row.logs)
        found.append(between(np.stack([contention, *spreads], axis=1)))
    return np.array(found)


def _each(formula: Callable[..., float], *numbers: np.ndarray | float) -> np.ndarray:
    """What is played, by its own formula, at every candidate."""
    found: np.ndarray = np.vectorize(formula, otypes=[float])(*numbers)
    return found


Learned = Callable[[np.ndarray, Sequence[PlayedRow]], tuple[int, list[int]]]


def learn(
    rows: Sequence[PlayedRow], best_and_error: Learned
) -> list[tuple[str, str, str, float, float]]:
    """(name, unit, meaning, value, error) of each of `NUMBERS` by `rows`; `best_and_error` chooses
    the best of the columns of logs, and those of samples of `rows` drawn anew.  The value is the
    median over these samples, for around the best one the loss is flat."""
    tried = candidates()
    _, drawn = best_and_error(logs_of(rows, tried), rows)
    values, errors = np.median(tried[drawn], axis=0), np.std(tried[drawn], axis=0)
    return [
        (*number, float(value), float(error))
        for number, value, error in zip(NUMBERS, values, errors, strict=True)
    ]
