"""Rows of tables with what dpsim predicts for them and what it knows of them: kept in a file.

Predicting takes minutes, fitting widths to what was predicted a moment; so a row is predicted once
and kept with everything that its interval may depend on.  `left_out.py` reads
the file.  Nothing in it is derived from the measured value but `log`, which is fitted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from dpsim.accuracy.collectives.model import Estimate, Question, estimates
from dpsim.accuracy.collectives.table import MOST_BYTES, MOST_ROWS, read_collectives
from dpsim.accuracy.training.baselines import linear
from dpsim.accuracy.training.scenarios import MeasuredCase, measured_case
from dpsim.accuracy.training.series import (
    Anchor,
    anchor_of,
    calibration_row,
    fabric_of,
    like,
    unscored,
)
from dpsim.accuracy.training.table import TrainingRow, read_table, series_of
from dpsim.cases.case import Case
from dpsim.cases.plays import Stretch
from dpsim.cases.variant import scaled
from dpsim.core import csvfile
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.predict import shortened

#: factors on the time of all collectives at which step times are kept; in between they are linear
NETWORK = (0.7, 1.6)
#: error that a refused row is charged at least
CHARGED = 0.5

Known = dict[str, Any]


def rows_of(tables: Sequence[Path], every: int = 1, jobs: int = 1) -> list[Known]:
    """All rows of `tables` that are scored, of every `every`-th series, as plain data."""
    found: list[Known] = []
    for path in tables:
        if "collective" in csvfile.read(path, MOST_BYTES, MOST_ROWS).columns:
            found += [{**row, "table": path.name} for row in _collectives(path, jobs)]
            continue
        series = list(read_table(path).series.values())[::every]
        with ProcessPoolExecutor(jobs) as pool:
            for known in pool.map(_of_series, series, chunksize=2):
                found += [{**row, "table": path.name} for row in known]
    return found


def save(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def load(paths: Iterable[Path]) -> list[Known]:
    """The rows of files that `save` has written."""
    return [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]


def _collectives(path: Path, jobs: int) -> list[Known]:
    """The collectives of a table that show no fault, uncalibrated."""
    rows = [row for row in read_collectives(path).rows if not row.excluded]
    answers = estimates([Question.of(row) for row in rows], jobs)
    found = []
    for row in rows:
        own: Known = {"kind": "collective", "series": row.series, "operation": row.operation}
        own |= {"machine": row.machine or row.accelerator, "nodes": row.nodes, "size": row.size}
        answer = answers[Question.of(row)]
        if isinstance(answer, Estimate):
            own |= {"log": math.log(row.measured / answer.seconds), "fabric": answer.kind}
            own |= {"latency": answer.latency / answer.seconds}
        else:
            own |= {"refused": answer}
        found.append(own)
    return found


def _of_series(rows: Sequence[TrainingRow]) -> list[Known]:
    first = calibration_row(rows)
    anchor = anchor_of(first, rows) if first is not None else Anchor(failure="no calibration row")
    base = _response(anchor) if anchor.measured is not None else {}
    found = []
    for row in rows:
        if unscored(row):
            continue
        own = {**_named(row), "base": base}
        if row is not first:
            found.append({**own, "kind": "calibrated", **_calibrated(row, first, anchor)})
        found.append({**own, "kind": "uncalibrated", **_bare(row, rows)})
    return found


def _named(row: TrainingRow) -> Known:
    return {
        "row": row.text("row_id") or f"line {row.line}",
        "series": series_of(row),
        "source": row.text("source_id") or row.text("source_repo") or "-",
        "machine": row.text("accelerator"),
        "framework": row.text("framework"),
        "date": row.text("data_date") or row.text("source_commit_date"),
        "row_strategy": row.text("strategy"),
        "detail": row.text("strategy_detail"),
        "fabric_status": row.text("fabric_status"),
        "inter_node": row.text("inter_node"),
    }


def _calibrated(row: TrainingRow, first: TrainingRow | None, anchor: Anchor) -> Known:
    try:
        if anchor.measured is None or anchor.scale is None:
            raise Refused(f"its calibration row: {anchor.failure}")
        here = measured_case(row)
        case = scaled(here.case, anchor.scale)
        found = _predicted(here, case, anchor.measured.case.ranks)
        found["linear"] = math.log(here.step_time / linear(here, anchor.measured))
        found["level"] = anchor.scale
        found["base_features"] = _features(anchor.measured)
        return found
    except (Refused, SimulationError, ValueError) as error:
        charge = _charge(row, first)
        return {"refused": str(error), "charged": charge}


def _bare(row: TrainingRow, rows: Sequence[TrainingRow]) -> Known:
    try:
        here = measured_case(like(row, rows))
        if here.stand_in:
            raise Refused("only the size of this model is known")
        return _predicted(here, here.case, None)
    except (Refused, SimulationError, ValueError) as error:
        return {"refused": str(error), "charged": CHARGED}


def _charge(row: TrainingRow, first: TrainingRow | None) -> float:
    """The error of linear scaling of the global rate, at least `CHARGED`."""
    rates = [one.get("throughput_global") for one in (row, first) if one is not None]
    if first is None or len(rates) < 2 or not all(rates):
        return CHARGED
    per_gpu = float(rates[1] or 0) / first.gpus
    return max(abs(per_gpu * row.gpus / float(rates[0] or 1) - 1.0), CHARGED)


def _predicted(here: MeasuredCase, case: Case, calibrated_at: int | None) -> Known:
    played = shortened.play(case)
    time = played.step_time
    parts = played.timeline.mean_split()
    return {
        "log": math.log(here.step_time / time),
        "parts": [part / time for part in parts],
        "at": calibrated_at,
        **_features(here),
        **_lanes(case, played),
    }


def _lanes(case: Case, played: Any) -> Known:
    if case.ranks == 1:
        return {"network": [1.0] * len(NETWORK)}
    asked = [Stretch(latency=f, transfer=f) for f in NETWORK]
    times = shortened.lane_times(case, asked, played)
    return {"network": [time / played.step_time for time in times]}


def _response(anchor: Anchor) -> Known:
    assert anchor.measured is not None
    if anchor.scale is None:
        return {}
    case = scaled(anchor.measured.case, anchor.scale)
    try:
        return _lanes(case, shortened.play(case))
    except (Refused, SimulationError, ValueError):
        return {}


def _features(here: MeasuredCase) -> Known:
    case = here.case
    topology, device = case.topology, case.device
    layered = all(layer.forward is None for layer in case.model.layers)
    return {
        "ranks": case.ranks,
        "per_node": topology.gpus if topology else case.ranks,
        "nodes": topology.nodes if topology else 1,
        "fabric": fabric_of(here),
        "strategy": here.strategy,
        "section": dict(here.data["strategy"]),
        "mesh": [
            case.mesh.tensor,
            case.mesh.pipeline,
            case.ranks // (case.mesh.tensor * case.mesh.pipeline),
        ],
        "generation": device.generation if device else "",
        "device": device.name if device else "",
        "dtype": case.precision.compute,
        "class": case.pace.device_class,
        "sample": case.model.sample,
        "model": str(here.data["model"].get("name") or here.data["model"].get("huggingface")),
        "parameters": case.model.parameters,
        "stand_in": here.stand_in,
        "layered": layered,
        "micro": case.scenario.batch.accumulation,
        "shares": max(case.shares),
        "tokens": case.model.tokens,
        "flop": case.model.flop_per_sample(),
        "global": case.global_batch,
        "step_time": here.step_time,
        "notes": list(here.notes),
        "backend": here.data["collective"],
        "recompute": str(here.data.get("memory", here.data.get("recompute", ""))),
    }


def of_kind(rows: Iterable[Known], kind: str) -> Iterator[Known]:
    """The rows of `kind` that were predicted."""
    return (row for row in rows if row["kind"] == kind and "log" in row)
