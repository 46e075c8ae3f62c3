"""`dpsim validate` for training runs: calibrate on the smallest count, predict the rest, score."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpsim._version import __version__
from dpsim.accuracy.baselines import baselines, linear
from dpsim.accuracy.scores import Scored, count_band, finite, grouped, skill, summary
from dpsim.accuracy.training_play import NOTE, lane_times, play, step_time
from dpsim.accuracy.training_scenarios import Point, point_of
from dpsim.accuracy.training_table import Row, Table, read_table
from dpsim.cases.variant import scaled
from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.describe.sections import Calibrate
from dpsim.predict.bottleneck import bottleneck
from dpsim.predict.level import level
from dpsim.predict.uncertainty import interval

SCHEMA_VERSION = 1
#: columns that predictions.csv adds, in their order
ADDED = ("measured", "predicted", "low", "high", "unit", "status", "reason", "bottleneck")
#: measurements more uncertain than this are reported, not scored [%]
MAX_UNCERTAINTY = 5.0


@dataclass(frozen=True)
class Outcome:
    """What became of one row: its `status`, why, and the numbers in the row's own unit."""

    number: int
    status: str
    reason: str = ""
    measured: float | None = None
    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    bottleneck: str = ""
    strategy: str = ""
    fabric: str = ""
    calibrated: bool = False
    scored: Scored | None = None


@dataclass(frozen=True)
class Validated:
    """A table, what came of its rows in their order, and the document about it."""

    table: Table
    outcomes: tuple[Outcome, ...]
    document: dict[str, Any]

    def predictions(self) -> list[dict[str, Any]]:
        """Rows of predictions.csv: all columns of the input, then `ADDED`; a column of the same
        name is written once."""
        return [_line(self.table, outcome) for outcome in self.outcomes]


def validated_training(path: Path, *, calibrate: str = "smallest", jobs: int = 1) -> Validated:
    """What dpsim says about the training runs in `path`.

    calibrate   smallest (the rows with role `calib`, or the first at the smallest count of each
                series) or none
    jobs        processes that share the series

    Raises Refused where the table or `calibrate` is not right.
    """
    if calibrate not in ("smallest", "none"):
        raise Refused(f"--calibrate: {calibrate!r} is not for training tables; smallest or none")
    table = read_table(path)
    outcomes = sorted(_play_all(table, calibrate, jobs), key=lambda outcome: outcome.number)
    return Validated(table, tuple(outcomes), _document(table, outcomes, calibrate))


def _line(table: Table, outcome: Outcome) -> dict[str, Any]:
    row = table.rows[outcome.number]
    numbers = (outcome.measured, outcome.predicted, outcome.low, outcome.high)
    shown = ["" if n is None else f"{n:.9g}" for n in numbers]
    unit = row.text("unit") or ("s" if outcome.measured is not None else "")
    added = [*shown, unit, outcome.status, outcome.reason, outcome.bottleneck]
    return {c: row.cells.get(c, "") for c in table.columns} | dict(zip(ADDED, added, strict=True))


def _play_all(table: Table, calibrate: str, jobs: int) -> list[Outcome]:
    series = list(table.series.values())
    if jobs == 1:
        return [o for rows in series for o in play_series(rows, calibrate)]
    with ProcessPoolExecutor(jobs) as pool:
        found = pool.map(play_series, series, [calibrate] * len(series), chunksize=4)
        return [outcome for outcomes in found for outcome in outcomes]


def calibration_row(rows: Sequence[Row]) -> Row | None:
    """The row that a series is calibrated on; None where its rows say that there is none."""
    if any(row.text("role") for row in rows):
        return next((row for row in rows if row.text("role") == "calib"), None)
    return min(rows, key=lambda row: row.gpus)


def play_series(rows: Sequence[Row], calibrate: str = "smallest") -> list[Outcome]:
    """The outcomes of one series."""
    first = calibration_row(rows) if calibrate == "smallest" else None
    base, scale, failure = (None, None, "")
    if first is not None:
        base, scale, failure = calibrated(first, rows)
    outcomes = []
    for row in rows:
        if row is first:
            outcomes.append(_calibrated(row, base, failure))
        elif failure:
            outcomes.append(Outcome(row.number, "refused", f"its calibration row: {failure}"))
        else:
            outcomes.append(_predicted(row, base, scale))
    return outcomes


def like(first: Row, rows: Sequence[Row]) -> Row:
    """`first`, played like the series: one GPU exchanges nothing, whatever that is called."""
    if first.gpus > 1:
        return first
    other = next((row for row in rows if row is not first and row.gpus > 1), first)
    own = {c: other.text(c) for c in ("strategy", "strategy_detail", "shard", "compression")}
    return replace(first, cells={**first.cells, **own})


def calibrated(
    first: Row, rows: Sequence[Row], compute: Mapping[str, Any] | None = None
) -> tuple[Point | None, float | None, str]:
    """The point of the calibration row `first` of `rows` and the level of compute that it sets, or
    why not; `compute` is the scenario's section of that name."""
    assumed = ""
    try:
        point = point_of(like(first, rows), compute)
        assumed = "; ".join(note for note in point.notes if note.endswith("assumed"))
        found = level(point.case, Calibrate(step_time=point.step_time), step_time)
    except (Refused, SimulationError, ValueError) as error:
        return None, None, f"{assumed}, but {error}" if assumed else str(error)
    return point, found.scale, ""


def _calibrated(row: Row, base: Point | None, failure: str) -> Outcome:
    if base is None:
        return Outcome(row.number, "refused", failure)
    value = base.value(base.step_time)
    return Outcome(
        row.number, "calibrated", "; ".join(base.notes), value, value, value, value,
        strategy=base.strategy, fabric=fabric_of(base), calibrated=True,
    )  # fmt: skip


def _predicted(row: Row, base: Point | None, scale: float | None) -> Outcome:
    try:
        point = point_of(row)
        if scale is None and point.stand_in:
            raise Refused(
                "only the size of this model is known: its compute needs a calibrated row"
            )
        case = scaled(point.case, scale) if scale is not None else point.case
        played = play(case)
        first = base.case.ranks if base else None
        bounds = interval(case, played, first, lane_times, repeated=_repeated(point, base))
        limit = bottleneck(case, played)
    except (Refused, SimulationError, ValueError) as error:
        return Outcome(row.number, "refused", str(error))
    time = finite(played.step_time)
    ends = sorted((point.value(bounds.low or time * 1e-3), point.value(bounds.high)))
    unfit = unscored(row)
    notes = [f"not scored: {unfit}"] if unfit else []
    notes += [NOTE] if played.reason == NOTE else []
    scored = None if unfit else _scored(point, base, time, (ends[0], ends[1]))
    return Outcome(
        row.number, "predicted", "; ".join([*notes, *point.notes]),
        point.value(point.step_time), point.value(time), ends[0], ends[1], limit,
        point.strategy, fabric_of(point), base is not None, scored,
    )  # fmt: skip


def _repeated(point: Point, base: Point | None) -> bool:
    """Whether the calibrated run had the mesh and, on any but a plain one, the micro-batches of
    this one."""
    if base is None or (point.case.mesh.plain and base.case.mesh.plain):
        return True
    return (point.case.mesh, point.data["batch"]) == (base.case.mesh, base.data["batch"])


def unscored(row: Row) -> str:
    """Why the error of this row says nothing; empty where it does."""
    if row.text("quality") not in ("A", "B", ""):
        return f"quality {row.text('quality')}"
    if "superlinear" in row.text("notes").lower():
        return "flagged superlinear"
    if (row.get("rel_unc_pct") or 0.0) > MAX_UNCERTAINTY:
        return f"measured to {row.get('rel_unc_pct')} % only"
    return ""


def _scored(point: Point, base: Point | None, time: float, ends: tuple[float, float]) -> Scored:
    regime = regime_of(point)
    source = point.row.text("source_id") or point.row.text("source_repo") or "-"
    common = (source, regime, point.value(point.step_time), point.value(time), *ends)
    if base is None:
        return Scored(*common)
    others = {name: point.value(t) for name, t in baselines(point, base).items()}
    same = linear(point, base)
    return Scored(*common, 1.0 - same / point.step_time, 1.0 - same / time, others)


def fabric_of(point: Point) -> str:
    """The kind of link that a ring over all ranks is paced by: inside a node or between nodes."""
    topology = point.case.topology
    if topology is None or topology.ranks == 1:
        return "one GPU"
    last = topology.gpus if topology.ranks > topology.gpus else 1
    kinds = [topology.link(edge).kind for edge in topology.route(0, last)]
    order = (
        *("ethernet", "gvnic", "ipoib", "tcpx", "efa", "slingshot", "omni_path", "roce"),
        *("infiniband", "inter_socket", "pcie", "xgmi", "nvlink", "nvswitch"),
    )
    return min(kinds, key=lambda kind: order.index(kind) if kind in order else len(order))


def generation(point: Point) -> str:
    """GPU generation, as in "Volta"."""
    device = point.case.device
    name = device.generation if device else "other"
    return name if name == "other" else name.capitalize()


def regime_of(point: Point) -> str:
    parts = (generation(point), fabric_of(point), point.strategy, count_band(point.case.ranks))
    return " | ".join(parts)


def _document(table: Table, outcomes: Sequence[Outcome], calibrate: str) -> dict[str, Any]:
    scored = [o.scored for o in outcomes if o.scored is not None and o.calibrated]
    absolute = [o.scored for o in outcomes if o.scored is not None and not o.calibrated]
    by_source: dict[str, int] = collections.Counter(
        table.rows[o.number].text("source_id") or "-" for o in outcomes if o.status == "refused"
    )
    return {
        "schema_version": SCHEMA_VERSION,
        "dpsim_version": __version__,
        "table": table.name,
        "kind": "training",
        "calibrate": calibrate,
        "rows": len(outcomes),
        "status": dict(collections.Counter(outcome.status for outcome in outcomes)),
        "all": summary(scored),
        "uncalibrated": summary(absolute),
        "sources": grouped(scored, lambda row: row.source, dict(by_source)),
        "regimes": grouped(scored, lambda row: row.regime),
        "across_nodes": across_nodes(table, outcomes),
        "refusals": _refusals(outcomes),
        "warnings": list(table.warnings),
    }


def across_nodes(table: Table, outcomes: Sequence[Outcome]) -> dict[str, Any]:
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
        and o.calibrated
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


def _several_nodes(row: Row) -> bool:
    nodes, per_node = row.get("nodes"), row.get("gpus_per_node") or 8
    return nodes > 1 if nodes else row.gpus > per_node


def _refusals(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How often which reason was given, most frequent first."""
    reasons = collections.Counter(o.reason for o in outcomes if o.status == "refused")
    return dict(reasons.most_common())
