"""`dpsim validate` for training runs: calibrate on the smallest count, predict the rest, score."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsim._version import __version__
from dpsim.accuracy.scores import ADDED, grouped, skill, summary
from dpsim.accuracy.training.lost import lost_rows, told_of_lost
from dpsim.accuracy.training.series import TrainingOutcome, calibration_row, play_series
from dpsim.accuracy.training.table import TrainingRow, TrainingTable, read_table
from dpsim.core import told
from dpsim.core.presented import Presented
from dpsim.core.processes import pool
from dpsim.core.record import Refused
from dpsim.predict.widths import DOUBTED

SCHEMA_VERSION = 1
#: times by which a row is far off, and how many such rows are named
_FAR, _NAMED = 3.0, 5
#: an interval says little whose ends are more than so many times apart, and that is for its
#: machine where one reading of this takes more than so many times as long as another
_SPAN, _READINGS = 5.0, 2.0


@dataclass(frozen=True)
class ValidatedTraining(Presented):
    """A table, what came of its rows in their order, and the document about it."""

    table: TrainingTable
    outcomes: tuple[TrainingOutcome, ...]
    document: dict[str, Any]

    def __repr__(self) -> str:
        return f"ValidatedTraining({len(self.outcomes):,} rows)"

    def predictions(self) -> list[dict[str, Any]]:
        """Rows of predictions.csv: all columns of the input, then `ADDED`; a column of the same
        name is written once."""
        return [_line(self.table, outcome) for outcome in self.outcomes]


def validated_training(
    path: Path, *, calibrate: str = "smallest", jobs: int = 1, tell: told.Told = told.nobody
) -> ValidatedTraining:
    """What dpsim says about the training runs in `path`.

    calibrate   smallest (the rows with role `calib`, or the first at the smallest count of each
                series) or none
    jobs        processes that share the series

    Raises Refused where the table or `calibrate` is not right.
    """
    if calibrate not in ("smallest", "none"):
        raise Refused(f"--calibrate: {calibrate!r} is not for training tables; smallest or none")
    table = read_table(path)
    faulty = [TrainingOutcome(r.number, "refused", r.fault) for r in table.rows if r.fault]
    played = _play_all(table, calibrate, jobs, tell)
    lost = lost_rows(table) if calibrate == "smallest" else {}
    outcomes = [*faulty, *(told_of_lost(table, played, lost) if lost else played)]
    outcomes.sort(key=lambda outcome: outcome.number)
    document = _document(table, outcomes, calibrate, lost)
    return ValidatedTraining(table, tuple(outcomes), document)


def _line(table: TrainingTable, outcome: TrainingOutcome) -> dict[str, Any]:
    row = table.rows[outcome.number]
    numbers = (outcome.measured, outcome.predicted, outcome.low, outcome.high)
    shown = ["" if n is None else f"{n:.9g}" for n in numbers]
    unit = row.text("unit") or ("s" if outcome.measured is not None else "")
    added = [*shown, unit, outcome.status, outcome.reason, outcome.bottleneck, outcome.machine]
    return {c: row.cells.get(c, "") for c in table.columns} | dict(zip(ADDED, added, strict=True))


def _play_all(
    table: TrainingTable, calibrate: str, jobs: int, tell: told.Told
) -> list[TrainingOutcome]:
    series = list(table.series.values())
    if jobs == 1:
        return [o for rows in told.counted(series, tell) for o in play_series(rows, calibrate)]
    with pool(min(jobs, len(series))) as processes:
        found = processes.map(play_series, series, [calibrate] * len(series), chunksize=4)
        return [o for some in told.counted_of(len(series), found, tell) for o in some]


def _document(
    table: TrainingTable, outcomes: Sequence[TrainingOutcome], calibrate: str, lost: dict[str, str]
) -> dict[str, Any]:
    scored = [o.scored for o in outcomes if o.scored is not None and o.anchored]
    absolute = [o.scored for o in outcomes if o.scored is not None and not o.anchored]
    by_source: dict[str, int] = collections.Counter(
        table.rows[o.number].text("source_id") or "-" for o in outcomes if o.status == "refused"
    )
    refused, refused_lines = sum(by_source.values()), dict(_refused(table, outcomes))
    return {
        "schema_version": SCHEMA_VERSION,
        "dpsim_version": __version__,
        "table": table.name,
        "kind": "training",
        "calibrate": calibrate,
        "rows": len(outcomes),
        "status": dict(collections.Counter(outcome.status for outcome in outcomes)),
        "all": summary(scored, refused),
        # without calibration there is nothing else that they could have been
        "uncalibrated": summary(absolute, refused if calibrate == "none" else 0),
        "sources": grouped(scored, lambda row: row.source, dict(by_source)),
        "regimes": grouped(scored, lambda row: row.regime),
        "across_nodes": across_nodes(table, outcomes),
        "refusals": {reason: len(lines) for reason, lines in refused_lines.items()},
        "refused_lines": refused_lines,
        "warnings": [
            *table.warnings,
            *_alone(table, calibrate),
            *(_uncalibrated(table, lost) if calibrate == "smallest" else ()),
            *_doubted(table, outcomes),
            *_far_off(table, outcomes),
            *_wide(table, outcomes),
        ],
    }


def _alone(table: TrainingTable, calibrate: str) -> Iterable[str]:
    """A warning where calibration leaves nothing to predict of some series."""
    alone = [rows[0] for rows in table.series.values() if len(rows) == 1]
    if calibrate == "smallest" and alone:
        lines = ", ".join(f"line {row.line}" for row in alone[:_NAMED])
        yield (
            f"{len(alone)} series of one row ({lines}{', …' * (len(alone) > _NAMED)}): nothing to "
            "predict there; rows of one series share a series_id (without the column: source, "
            "model, task, framework, strategy, precision, unit and machine), or take --calibrate "
            "none"
        )


def _uncalibrated(table: TrainingTable, lost: dict[str, str]) -> Iterable[str]:
    """A warning for each series that has `lost` its calibration row, and one that names those whose
    roles say that there is none, though they are to be predicted."""
    yield from (f"series {name[:60]}: {said}" for name, said in lost.items())
    found = [
        rows[0]
        for name, rows in table.series.items()
        if name not in lost and calibration_row(rows) is None
        if any(row.text("role").lower() not in ("", "absolute") for row in rows)
    ]
    if found:
        lines = ", ".join(f"line {row.line}" for row in found[:_NAMED])
        yield (
            f"{len(found)} series whose rows have roles, none of them calib "
            f"({lines}{', …' * (len(found) > _NAMED)}): nothing is calibrated there; without roles "
            "the smallest count is"
        )


def _doubted(table: TrainingTable, outcomes: Sequence[TrainingOutcome]) -> Iterable[str]:
    """A warning for each series that is calibrated on a step whose compute would be far longer than
    predicted."""
    for outcome in outcomes:
        if outcome.level is not None and outcome.level > DOUBTED[0]:
            row = table.rows[outcome.number]
            yield (
                f"line {row.line} ({row.gpus} GPUs): its compute would be {outcome.level:.3g} "
                "times as long as predicted, and its series is calibrated on that: was the run "
                "slow of itself, or is its network another?"
            )


def _far_off(table: TrainingTable, outcomes: Sequence[TrainingOutcome]) -> Iterable[str]:
    """A warning that names the rows that are farthest off and outside of their intervals."""
    found = []
    for outcome in outcomes:
        ends = outcome.measured, outcome.predicted, outcome.low, outcome.high
        if outcome.status != "predicted" or outcome.scored is None or None in ends:
            continue
        measured, predicted, low, high = (float(end or 0.0) for end in ends)
        apart = max(measured / predicted, predicted / measured)
        if apart > _FAR and not low <= measured <= high:
            found.append((apart, table.rows[outcome.number].line))
    if found:
        yield (
            f"{len(found)} measured more than {_FAR:g} times off, outside of the interval: "
            f"{_times(found)}; is something wrong with such a run, or with how its row is read?"
        )


def _wide(table: TrainingTable, outcomes: Sequence[TrainingOutcome]) -> Iterable[str]:
    """A warning that names the rows whose intervals say little for what is open of a machine."""
    found = []
    for outcome in outcomes:
        low, high = outcome.low or 0.0, outcome.high or 0.0
        if outcome.status == "predicted" and outcome.apart > _READINGS and high > _SPAN * low > 0.0:
            found.append((high / low, table.rows[outcome.number].line))
    if found:
        yield (
            f"{len(found)} with ends of the interval more than {_SPAN:g} times apart: "
            f"{_times(found)}; column machine of predictions.csv has what is open about such a "
            "machine, and how much longer that makes the step"
        )


def _times(found: Sequence[tuple[float, int]]) -> str:
    """Lines and by how many times they are off, the farthest first, as far as a few go."""
    worst = sorted(found, key=lambda pair: (-pair[0], pair[1]))[:_NAMED]
    named = ", ".join(f"line {line} ({times:.3g} times)" for times, line in worst)
    return named + ", …" * (len(found) > _NAMED)


def across_nodes(table: TrainingTable, outcomes: Sequence[TrainingOutcome]) -> dict[str, Any]:
    """The headline: rows across nodes of series with at least three counts, per source, and the
    mean over sources."""
    counts: dict[str, set[int]] = collections.defaultdict(set)
    name_of = {row.number: name for name, rows in table.series.items() for row in rows}
    for outcome in outcomes:
        if outcome.status in ("predicted", "calibrated"):
            counts[name_of[outcome.number]].add(table.rows[outcome.number].gpus)
    chosen = [
        o.scored
        for o in outcomes
        if o.scored is not None
        and o.anchored
        and len(counts[name_of[o.number]]) >= 3
        and _several_nodes(table.rows[o.number])
    ]
    sources = grouped(chosen, lambda row: row.source)
    medians = [figures["median_error"] for figures in sources.values()]
    return {
        "n": len(chosen),
        "mean_over_sources_of_median_error": sum(medians) / len(medians) if medians else None,
        "skill": skill(chosen),
        "sources": sources,
    }


def _several_nodes(row: TrainingRow) -> bool:
    nodes, per_node = row.get("nodes"), row.get("gpus_per_node") or 8
    return nodes > 1 if nodes else row.gpus > per_node


def _refused(
    table: TrainingTable, outcomes: Iterable[TrainingOutcome]
) -> list[tuple[str, list[int]]]:
    """Reasons, and the lines of the rows that are refused for them, most rows first."""
    found: dict[str, list[int]] = collections.defaultdict(list)
    for outcome in outcomes:
        if outcome.status == "refused":
            found[outcome.reason].append(table.rows[outcome.number].line)
    return sorted(found.items(), key=lambda pair: -len(pair[1]))
