"""Fit what measured training runs alone can tell, and write it into the package.

    python validation/fit_training.py TABLE … [--jobs 2] [--parts sockets,compute,…]

reads tables as `dpsim validate` does, and renews dpsim/core/fitted/training.yaml.  The parts are
fitted one after the other, each with the constants of the parts before it:

sockets     the share of plain Ethernet that NCCL's connections reach, and what one carries over
            InfiniBand used as IP, of which no collective is known
compute     contention and spread
efficiency  the share of peak by GPU generation and dtype, from uncalibrated runs

Series are calibrated on their smallest count (not for `efficiency`), and the other rows are to be
predicted best: the mean of |ln(predicted / measured)| of each source, sources weighted by the root
of their number of rows.  Series whose name has an odd CRC-32 are held out: only their error is
printed.  Standard errors are a bootstrap's over series; `left_out.py` learns widths of intervals.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import _fit_compute
import _fit_peak
import numpy as np
from _fit_intervals import HEAD

from dpsim.accuracy.scores import fitted_on
from dpsim.accuracy.training.scenarios import forget_clusters, measured_case
from dpsim.accuracy.training.series import anchor_of, fabric_of
from dpsim.accuracy.training.table import TrainingRow, read_table
from dpsim.backends import _nccl_time, nccl
from dpsim.core.constants import Constant, save, shipped
from dpsim.core.record import Refused

#: values that are tried; between them the logarithms of step times are interpolated
EFFICIENCY = (0.6, 0.7, 0.8, 0.9, 1.0)
FLOW = (1.4e9, 1.8e9, 2.2e9, 2.6e9, 3.0e9, 3.4e9)
#: where the other two stand while the share that TCP reaches is fitted
MIDDLE = (0.8, 0.03)
DRAWS = 200


Series = Iterable[Sequence[TrainingRow]]
Known = dict[str, Constant]


class SocketRate(NamedTuple):
    """A constant of `kind` of network that is fitted alone, at the values `tried`.

    served  whether rows of parameter servers count, whose connections are not NCCL's
    """

    kind: str
    what: str
    tried: tuple[float, ...]
    unit: str
    meaning: str
    where: str
    served: bool

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.what}"


SHARE = SocketRate(
    "ethernet", "efficiency", EFFICIENCY, "1",
    "share of the links' nominal bandwidth that NCCL's sockets reach with Simple",
    "with plain Ethernet between nodes", served=True,
)  # fmt: skip
CONNECTION = SocketRate(
    "ipoib", "flow", FLOW, "B/s", "most that one TCP connection carries",
    "with InfiniBand used as IP between nodes, without parameter servers", served=False,
)  # fmt: skip


class Residual(NamedTuple):
    """ln(predicted / measured) of one row at every value tried, in the order tried."""

    source: str
    series: str
    logs: tuple[float, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--parts", default=",".join(PARTS))
    options = parser.parse_args(arguments)
    series = [rows for table in options.tables for rows in read_table(table).series.values()]
    for name in options.parts.split(","):
        known = dict(shipped("training"))
        save("training", HEAD, known | PARTS[name](series, known, options.jobs))
        _nccl_time.shipped.cache_clear()  # the next part is fitted with these constants
        forget_clusters()
    return 0


def fit_sockets(series: Series, known: Known, jobs: int) -> Known:
    found = dict(known)
    for one in (SHARE, CONNECTION):
        tried = [(*MIDDLE, value) for value in one.tried]
        own = [rows for rows in series if _counts(one, rows)]
        found |= fit_rate(one, residuals(own, tried, jobs, one.name))
    return found


def fit_contention_and_spread(series: Series, known: Known, jobs: int) -> Known:
    return fit_compute(_fit_compute.played(series, jobs))


def fit_peak_share(series: Series, known: Known, jobs: int) -> Known:
    with ProcessPoolExecutor(jobs) as pool:
        found = [level for level in pool.map(_fit_peak.level_of, series, chunksize=4) if level]
    return _fit_peak.learn(found)


# -- predictions ----------------------------------------------------------------------------------


def residuals(
    series: Iterable[Sequence[TrainingRow]],
    tried: Sequence[tuple[float, float, float]],
    jobs: int,
    name: str = SHARE.name,
) -> list[Residual]:
    """The residuals of all rows that are scored, at each (contention, spread, constant `name`).

    Rows with tensor or pipeline parallelism say little about the three, and take long."""
    series = list(series)
    with ProcessPoolExecutor(jobs) as pool:
        of_each = functools.partial(_of_series, tried=tried, name=name)
        found = pool.map(of_each, series, chunksize=2)
        return [residual for rows in found for residual in rows]


def _of_series(
    rows: Sequence[TrainingRow], tried: Sequence[tuple[float, float, float]], name: str
) -> list[Residual]:
    first, scored = _fit_compute.scored_of(rows)
    if first is None or not scored:
        return []
    logs: dict[int, list[float]] = {row.number: [] for row in scored}
    for contention, spread, value in tried:
        _set(name, value)
        compute = {"contention": contention, "spread": spread}
        level = anchor_of(first, rows, compute).level
        if level is None:
            return []
        for row in scored:
            logs[row.number].append(_fit_compute.log_of(row, compute, level))
    return [
        Residual(row.text("source_id"), row.text("series_id"), tuple(logs[row.number]))
        for row in scored
        if all(map(math.isfinite, logs[row.number]))
    ]


def _set(name: str, value: float) -> None:
    """Let every prediction of this process take `value` for the constant `name`."""
    known = _SHIPPED()
    changed = replace(known, values={**known.values, name: value})
    if getattr(nccl.shipped, "set", None) != (name, value):
        nccl.shipped = lambda: changed
        nccl.shipped.set = (name, value)
        forget_clusters()


_SHIPPED = _nccl_time.shipped


def _counts(one: SocketRate, rows: Sequence[TrainingRow]) -> bool:
    """Whether any of the rows crosses networks of that kind."""
    for row in rows:
        try:
            point = measured_case(row)
        except (Refused, ValueError):
            continue
        served = point.data["collective"]["backend"] == "parameter_server"
        if fabric_of(point) == one.kind and (one.served or not served):
            return True
    return False


# -- fits -----------------------------------------------------------------------------------------


def loss(logs: np.ndarray, sources: np.ndarray) -> np.ndarray:
    """What is minimised, for `logs` of shape (rows, candidates)."""
    total, weights = np.zeros(logs.shape[1]), 0.0
    for source in np.unique(sources):
        own = np.abs(logs[sources == source])
        weight = math.sqrt(len(own))
        total, weights = total + weight * own.mean(axis=0), weights + weight
    return total / weights


def fit_rate(one: SocketRate, found: Sequence[Residual]) -> dict[str, Constant]:
    fine = np.linspace(one.tried[0], one.tried[-1], 4 * (len(one.tried) - 1) + 1)
    fitting = [f for f in found if fitted_on(f.series)]
    logs = np.array([np.interp(fine, one.tried, f.logs) for f in fitting])
    best, error = _best_and_error(logs, fitting)
    _tell(one.name, fine[best], found, [np.interp(fine[best], one.tried, f.logs) for f in found])
    return {
        one.name: Constant(
            value=float(f"{fine[best]:.4g}"),
            error=float(f"{np.std(fine[error]):.2g}"),
            unit=one.unit,
            meaning=one.meaning,
            fitted_on=_told(fitting, one.where),
            n=len(fitting),
        )
    }


def fit_compute(found: Sequence[_fit_compute.PlayedRow]) -> dict[str, Constant]:
    fitting = [row for row in found if fitted_on(row.series)]
    learned = _fit_compute.learn(fitting, _best_and_error)
    best = np.array([[value for *_, value, _ in learned]])
    _tell(
        str([name for name, *_ in learned]), best[0], found, _fit_compute.logs_of(found, best)[:, 0]
    )
    told = _told(fitting, "on GPUs", "the value is the median of a bootstrap, ")
    return {
        name: Constant(
            value=float(f"{value:.4g}"),
            error=float(f"{error:.2g}"),
            unit=unit,
            meaning=meaning,
            fitted_on=told,
            n=len(fitting),
        )
        for name, unit, meaning, value, error in learned
    }


def _best_and_error(
    logs: np.ndarray, fitting: Sequence[Residual | _fit_compute.PlayedRow]
) -> tuple[int, list[int]]:
    """The best column of `logs`, and the best ones when series are drawn anew."""
    sources = np.array([f.source for f in fitting])
    names = np.array([f.series for f in fitting])
    every = [np.flatnonzero(names == name) for name in np.unique(names)]
    rng, drawn = np.random.default_rng(0), []
    for _ in range(DRAWS):
        rows = np.concatenate([every[k] for k in rng.integers(0, len(every), len(every))])
        drawn.append(int(np.argmin(loss(logs[rows], sources[rows]))))
    return int(np.argmin(loss(logs, sources))), drawn


def _told(fitting: Sequence[Residual | _fit_compute.PlayedRow], where: str, value: str = "") -> str:
    series, sources = {f.series for f in fitting}, {f.source for f in fitting}
    return (
        f"{len(fitting)} published runs {where}, of {len(series)} series of {len(sources)} "
        f"sources, whose names have an even CRC-32; {value}the error is a bootstrap's over series"
    )


def _tell(
    name: str, value: object, found: Sequence[Residual | _fit_compute.PlayedRow],
    logs: Iterable[float],
) -> None:  # fmt: skip
    logs = np.array(list(logs))
    for part, wanted in (("fitted on", True), ("held out", False)):
        chosen = np.array([fitted_on(f.series) == wanted for f in found])
        own = logs[chosen]
        if len(own):
            print(
                f"{name} = {value}: {part}: n = {len(own)}, "
                f"median |error| {np.median(np.abs(np.expm1(own))):.1%}, "
                f"median error {np.median(np.expm1(own)):+.1%}"
            )


PARTS = {"sockets": fit_sockets, "compute": fit_contention_and_spread, "efficiency": fit_peak_share}


if __name__ == "__main__":
    sys.exit(main())
