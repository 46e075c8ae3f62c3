"""Validation on measured collectives: every row predicted, every group's error told.

Error is |predicted / measured - 1|.  Nothing is calibrated on the table unless asked for: with
``smallest`` one row of each series is, with ``every:K`` sizes number 1, K+1, 2K+1 … of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsim._version import __version__
from dpsim.accuracy.collectives import curves, intervals
from dpsim.accuracy.collectives.curves import Curve, Knot, Through
from dpsim.accuracy.collectives.figures import CollectiveOutcome, by, figures, half, summary
from dpsim.accuracy.collectives.model import Estimate, Estimates, Question, estimates
from dpsim.accuracy.collectives.table import (
    CollectiveRow,
    CollectiveTable,
    FaultyRow,
    read_collectives,
)
from dpsim.accuracy.scores import ADDED, COVERAGE
from dpsim.core import told
from dpsim.core.presented import Presented
from dpsim.core.record import Refused
from dpsim.predict import collective_error

SCHEMA_VERSION = 1
#: significant digits of the times in predictions.csv
_DIGITS = 9


@dataclass(frozen=True)
class ValidatedCollectives(Presented):
    """A table, what came of its rows in their order, and the document about it."""

    table: CollectiveTable
    outcomes: tuple[CollectiveOutcome, ...]
    document: dict[str, Any]

    def __repr__(self) -> str:
        return f"ValidatedCollectives({len(self.outcomes):,} rows)"

    def predictions(self) -> list[dict[str, Any]]:
        """Rows of predictions.csv: all columns of the input, and `ADDED` (times in us)."""
        found = {o.row.line: _line(self.table.columns, o) for o in self.outcomes}
        found |= {one.line: _refused(self.table.columns, one) for one in self.table.faulty}
        return [found[line] for line in sorted(found)]


def validated_collectives(
    path: Path, *, calibrate: str = "none", jobs: int = 1, tell: told.Told = told.nobody
) -> ValidatedCollectives:
    """What dpsim says about the collectives in `path`.

    calibrate  none, smallest, or every:K
    jobs       processes that share the machines of the table

    Raises Refused where the table or `calibrate` is not right.
    """
    if jobs < 1:
        raise Refused(f"--jobs: {jobs} is not at least 1")
    curves.spacing(calibrate)  # refuses a wrong mode before anything is read
    table = read_collectives(path)
    known = estimates([Question.of(row) for row in table.rows], jobs, tell)
    found = tuple(_outcomes(table.rows, known, calibrate))
    return ValidatedCollectives(table, found, _document(table, found, known, calibrate))


# -- row by row -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Own:
    """What the calibrated rows of one curve say about its others."""

    points: tuple[Knot, ...]
    curve: Through


def _outcomes(
    rows: Sequence[CollectiveRow], known: Estimates, mode: str
) -> list[CollectiveOutcome]:
    chosen = curves.calibrating(rows, mode)
    own = _own(rows, known, chosen)
    widths = _widths(own, rows, mode)
    return [
        _outcome(row, known[Question.of(row)], own.get(_place(row)), widths, place in chosen)
        for place, row in enumerate(rows)
    ]


def _place(row: CollectiveRow) -> tuple[Curve, bool]:
    """In place or not, a collective has a curve of its own."""
    return curves.curve_of(row), row.in_place


def _own(
    rows: Sequence[CollectiveRow], known: Estimates, chosen: frozenset[int]
) -> dict[tuple[Curve, bool], _Own]:
    points: dict[tuple[Curve, bool], list[Knot]] = {}
    for place in sorted(chosen):
        row = rows[place]
        estimate = known[Question.of(row)]
        if row.size > 0:
            point = Knot(float(row.size), row.measured, _parts(estimate))
            points.setdefault(_place(row), []).append(point)
    return {at: _Own(tuple(found), curves.through(found)) for at, found in points.items()}


def _parts(estimate: Estimate | str) -> tuple[float, float] | None:
    return (estimate.latency, estimate.transfer) if isinstance(estimate, Estimate) else None


def _widths(
    own: Mapping[tuple[Curve, bool], _Own], rows: Sequence[CollectiveRow], mode: str
) -> intervals.Widths:
    """The intervals of calibrated curves, by fabric and band of sizes.

    Each inner point of each curve is predicted from the others, which lie twice as far apart as
    those of the real prediction.  Errors grow with that distance, noise does not; the factor
    between, 2**-0.5, is taken.
    """
    if curves.spacing(mode) is None:
        return intervals.Widths({})
    fabrics = {_place(row): row.fabric for row in rows}
    left: list[intervals.Residual] = []
    for at, each in own.items():
        for size, log in curves.left_out(each.points):
            band = collective_error.band_of(size)
            left.append(intervals.Residual(at[0][0], fabrics[at], band, log / 2**0.5))
    return intervals.Widths.of(left)


def _why_not_scored(row: CollectiveRow) -> str:
    if row.faulty:
        return "marked pathological in the table"
    return f"takes as long as one thread takes to launch on its {row.gpus_per_thread} GPUs"


def _outcome(
    row: CollectiveRow,
    estimate: Estimate | str,
    own: _Own | None,
    widths: intervals.Widths,
    used: bool,
) -> CollectiveOutcome:
    """What came of `row`; a row that shows a fault, or how fast a thread launches, is predicted all
    the same, and not scored."""
    reason = "" if row.scored else _why_not_scored(row)
    status = "excluded" if reason else "calibrated" if used else "predicted"
    try:
        seconds, note = _predicted(row, estimate, own)
    except Refused as refusal:
        why = f"{reason}; {refusal.message}" if reason else refusal.message
        return CollectiveOutcome(row, status if reason or used else "refused", why)
    around = widths.around(row.fabric, row.size) if own else None
    if around is None and isinstance(estimate, Estimate):
        around = estimate.ends(row.nodes > 1)
    low, high = around or collective_error.interval(collective_error.ANY, 1.0, row.nodes > 1)
    baselines = {}
    if isinstance(estimate, Estimate):
        baselines = {"alpha_beta": estimate.alpha_beta}
        if estimate.bare is not None:
            baselines["nccl_bare"] = estimate.bare
    if own is not None and len({p.size for p in own.points}) > 1:
        baselines["log_log"] = curves.loglog(own.points, row.size)
    return CollectiveOutcome(
        row=row,
        status=status,
        reason="; ".join(text for text in (reason, note) if text),
        predicted=seconds,
        low=seconds * low,
        high=seconds * high,
        bottleneck=estimate.bottleneck if isinstance(estimate, Estimate) else "",
        machine=estimate.machine if isinstance(estimate, Estimate) else "",
        baselines=baselines,
    )


def _predicted(row: CollectiveRow, estimate: Estimate | str, own: _Own | None) -> tuple[float, str]:
    """Seconds, and what there is to say about them.  Refused where nobody models the row."""
    if row.size > 0 and own is not None:
        note = f"from its series' own sizes alone: {estimate}" if isinstance(estimate, str) else ""
        try:
            return own.curve.seconds(float(row.size), _parts(estimate)), note
        except Refused:
            pass  # a single size and no model: the model's own reason says more
    if isinstance(estimate, str):
        raise Refused(estimate)
    return estimate.seconds, ""


# -- the document ---------------------------------------------------------------------------------


def _document(
    table: CollectiveTable, outcomes: Sequence[CollectiveOutcome], known: Estimates, mode: str
) -> dict[str, Any]:
    excluded = [o.compared for o in outcomes if o.row.faulty and o.compared]
    beyond = sum(not found.inside for found in excluded)
    faulty = [row.reason for row in table.faulty]
    statuses = Counter([*(o.status for o in outcomes), *("refused" for _ in faulty)])
    return {
        "schema_version": SCHEMA_VERSION,
        "dpsim_version": __version__,
        "kind": "collectives",
        "table": table.name,
        "calibrate": mode,
        "rows": len(outcomes) + len(faulty),
        "series": len({o.row.series for o in outcomes}),
        "status": dict(sorted(statuses.items())),
        "coverage_wanted": COVERAGE,
        "overall": summary(outcomes, faulty),
        "figures": figures(outcomes, faulty),
        "by_operation": by(outcomes, lambda o: o.row.operation),
        "by_half": by(outcomes, half),
        "excluded": {"predicted": len(excluded), "outside_interval": beyond},
        "assumed": _assumed(outcomes, known),
        "warnings": list(table.warnings),
    }


def _assumed(outcomes: Sequence[CollectiveOutcome], known: Estimates) -> dict[str, int]:
    """What had to be assumed about machines, and for how many rows."""
    found: Counter[str] = Counter()
    for outcome in outcomes:
        estimate = known[Question.of(outcome.row)]
        if isinstance(estimate, Estimate):
            found.update(estimate.notes)
    return dict(found.most_common())


def _line(columns: Sequence[str], outcome: CollectiveOutcome) -> dict[str, Any]:
    row = outcome.row
    times = (row.measured, outcome.predicted, outcome.low, outcome.high)
    shown = [None if time is None else float(f"{time * 1e6:.{_DIGITS}g}") for time in times]
    added = (*shown, "us", outcome.status, outcome.reason, outcome.bottleneck, outcome.machine)
    return dict(zip((*columns, *ADDED), (*row.cells, *added), strict=True))


def _refused(columns: Sequence[str], row: FaultyRow) -> dict[str, Any]:
    added = dict.fromkeys(ADDED, "") | {"status": "refused", "reason": row.reason}
    return dict(zip((*columns, *ADDED), (*row.cells, *added.values()), strict=True))
