"""Rows of tables with what dpsim predicts for them and what it knows of them: kept in a file.

Predicting takes minutes, fitting widths to what was predicted a moment; so a row is predicted once
and kept with everything that its interval may depend on.  `left_out.py` reads
the file.  Of the row's own measurement it holds `log`, which is fitted, `linear`, `charged` and
`step_time`, which figures are made of and no width depends on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import _collective_tables
import fit_nccl
import leave_out_collectives

from dpsim.accuracy import mixture
from dpsim.accuracy.collectives.model import Estimate, Question, estimates
from dpsim.accuracy.collectives.table import MOST_BYTES, MOST_ROWS, CollectiveTable
from dpsim.accuracy.mixture import MixturePart
from dpsim.accuracy.training.alike import like
from dpsim.accuracy.training.baselines import linear
from dpsim.accuracy.training.possible import require_possible
from dpsim.accuracy.training.scenarios import MeasuredCase, measured_case, platform_of
from dpsim.accuracy.training.series import Anchor, Anchors, anchors_of, calibration_row, fabric_of
from dpsim.accuracy.training.table import TrainingRow, read_table, series_of
from dpsim.accuracy.training.unscored import unscored
from dpsim.cases.case import Case
from dpsim.cases.plays import Stretch
from dpsim.core import csvfile
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.predict import shortened, widths
from dpsim.predict.player import Played

#: factors on the time of all collectives at which step times are kept; in between they are linear
NETWORK = (0.7, 1.6)
#: error that a refused row is charged at least
CHARGED = 0.5

#: the interval of a reading that is looked at without its own
_SURE = 0.999
Known = dict[str, Any]


def rows_of(tables: Sequence[Path], every: int = 1, jobs: int = 1) -> list[Known]:
    """All rows of `tables` that are scored, of every `every`-th series, as plain data."""
    found: list[Known] = []
    for path in tables:
        name = f"{path.resolve().parent.name}/{path.name}"
        if "collective" in csvfile.read(path, MOST_BYTES, MOST_ROWS).columns:
            found += [{**row, "table": name} for row in _collectives(path, jobs)]
            continue
        series = list(read_table(path).series.values())[::every]
        with ProcessPoolExecutor(jobs) as pool:
            for known in pool.map(_of_series, series, chunksize=2):
                found += [{**row, "table": name} for row in known]
    return found


def save(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def load(paths: Iterable[Path]) -> list[Known]:
    """The rows of files that `save` has written."""
    return [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]


def _collectives(path: Path, jobs: int) -> list[Known]:
    """The collectives of a table that show no fault, uncalibrated.

    NCCL's constants are those of a fit without the row's machine, where the table names machines.
    """
    table = _collective_tables.read(path)
    rows = [row for row in table.rows if row.scored]
    answers = estimates([Question.of(row) for row in rows], jobs)
    machines, moved = _without(table)
    found = []
    for row in rows:
        own: Known = {"kind": "collective", "series": row.series, "operation": row.operation}
        machine = machines.get(row.line) or row.machine or row.accelerator
        own |= {"machine": machine, "nodes": row.nodes, "size": row.size}
        answer = answers[Question.of(row)]
        if isinstance(answer, Estimate):
            log = math.log(row.measured / answer.seconds) - moved.get(row.line, 0.0)
            own |= {"log": log, "fabric": answer.kind}
            own |= {"latency": answer.latency / answer.seconds}
        else:
            own |= {"refused": answer}
        found.append(own)
    return found


def _without(table: CollectiveTable) -> tuple[dict[int, str], dict[int, float]]:
    """What each line was measured on, and by what logarithm its prediction moves when constants are
    fitted without that machine; nothing where no column says so."""
    if leave_out_collectives.COLUMNS["machine"] not in table.columns:
        return {}, {}
    machines = leave_out_collectives.machines_of(table, "machine")
    samples, _ = fit_nccl.samples_of(table.rows)
    scored = leave_out_collectives.left_out(samples, machines, lambda name: None)
    return machines, {s.sample.row.line: s.without - s.fitted for s in scored}


def _of_series(rows: Sequence[TrainingRow]) -> list[Known]:
    first = calibration_row(rows)
    measured, bare = anchors_of(first, rows), Anchors(None, rows)
    found = []
    for row, played in zip(rows, measured.rows, strict=True):
        if unscored(row, rows):
            continue
        own = {
            "row": row.text("row_id") or f"line {row.line}",
            "series": series_of(row),
            "source": row.text("source_id") or row.text("source_repo") or "-",
        }
        if first is not None and row is not first:
            found.append({**own, "kind": "calibrated", **_told(played, first, measured)})
        found.append({**own, "kind": "uncalibrated", **_told(like(row, rows), None, bare)})
    return found


def _told(row: TrainingRow, first: TrainingRow | None, anchors: Anchors) -> Known:
    """What is predicted and known of `row`, or why nothing is and what that is charged."""
    try:
        return _predicted(row, anchors)
    except (Refused, SimulationError, ValueError) as error:
        return {"refused": str(error), "charged": _charge(row, first)}


def _predicted(row: TrainingRow, anchors: Anchors) -> Known:
    """As `dpsim.accuracy.training.series` predicts it: the middle of all readings of its machine.
    What is known of it is that of the usual one that can be played."""
    usual, failure, parts = None, "", []
    for reading in platform_of(row).readings:
        try:
            anchor = anchors.like(reading)
            if anchor.failure:
                raise Refused(f"its calibration row: {anchor.failure}")
            here = measured_case(row, reading=reading)
            require_possible(here, anchor.measured)
            if anchor.level is None and here.stand_in:
                raise Refused("only the size of this model is known")
            case = anchor.level.of(here.case) if anchor.level else here.case
            played = shortened.play(case)
        except (Refused, SimulationError, ValueError) as error:
            failure = failure or str(error)
            continue
        usual = usual or (anchor, here, case, played)
        # a rate of another batch is another time
        time = played.step_time * usual[1].step_time / here.step_time
        weight = reading.weight * anchor.likely
        parts.append(MixturePart(weight, time, time * 0.9, time * 1.1))
    if usual is None:
        raise Refused(failure)
    return {**_known(*usual, mixture.point(parts)), "readings": _apart(parts)}


def _apart(parts: Sequence[MixturePart]) -> list[float]:
    """How far readings alone reach below and above their middle, as logarithms."""
    if len(parts) == 1:
        return [0.0, 0.0]
    bare = [replace(part, low=part.value * _SURE, high=part.value / _SURE) for part in parts]
    ends = mixture.bounds(bare)
    return [abs(math.log(end / mixture.point(parts))) for end in ends]


def _known(anchor: Anchor, here: MeasuredCase, case: Case, played: Played, time: float) -> Known:
    found = {"log": math.log(here.step_time / time), **_features(here), **_lanes(case, played)}
    found["overhead"], found["newer"] = widths.overhead(case, time), widths.newer(case)
    found["fed"] = widths.fed(case, time)
    base = anchor.measured
    if base is not None:
        found["at"] = base.case.ranks
        found["linear"] = math.log(here.step_time / linear(here, base))
        found["level"] = anchor.level.scale if anchor.level else None
        found["base_features"] = _features(base)
    return found


def _charge(row: TrainingRow, first: TrainingRow | None) -> float:
    """The error of linear scaling of the global rate, at least `CHARGED`."""
    if first is None:
        return CHARGED
    here, there = (one.get("throughput_global") for one in (row, first))
    if not here or not there:
        return CHARGED
    return max(abs(there / first.gpus * row.gpus / here - 1.0), CHARGED)


def _lanes(case: Case, played: Played) -> Known:
    """The step's response to factors on the time of all collectives."""
    if case.ranks == 1:
        return {"network": [1.0] * len(NETWORK)}
    asked = [Stretch(latency=f, transfer=f) for f in NETWORK]
    times = shortened.lane_times(case, asked, played)
    return {"network": [time / played.step_time for time in times]}


def _features(here: MeasuredCase) -> Known:
    case = here.case
    topology = case.topology
    return {
        "ranks": case.ranks,
        "per_node": topology.gpus if topology else case.ranks,
        "nodes": topology.nodes if topology else 1,
        "fabric": fabric_of(here),
        "strategy": here.strategy,
        "class": case.pace.device_class,
        "stand_in": widths.stands_in(case),
        "told": case.device is not None and case.device.compute_capability > 0,
        "sample": case.model.sample,
        "parameters": case.model.parameters,
        "experts": max((layer.experts for layer in case.model.layers), default=0),
        "shares": max(case.shares),
        "step_time": here.step_time,
    }


def of_kind(rows: Iterable[Known], kind: str) -> Iterator[Known]:
    """The rows of `kind` that were predicted."""
    return (row for row in rows if row["kind"] == kind and "log" in row)
