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
from dpsim.accuracy import collective_curves as curves
from dpsim.accuracy import collective_intervals as intervals
from dpsim.accuracy.collective_curves import Curve, Point, Through
from dpsim.accuracy.collective_figures import Outcome, by, figures, half, summary
from dpsim.accuracy.collective_model import Answer, Answers, Question, answers
from dpsim.accuracy.collective_table import CollectiveTable, Row, read_collectives
from dpsim.core.record import Refused

SCHEMA_VERSION = 1
#: columns that predictions.csv adds, in their order
ADDED = ("measured", "predicted", "low", "high", "unit", "status", "reason", "bottleneck")
#: significant digits of the times in predictions.csv
_DIGITS = 9


@dataclass(frozen=True)
class Validated:
    """A table, what came of its rows in their order, and the document about it."""

    table: CollectiveTable
    outcomes: tuple[Outcome, ...]
    document: dict[str, Any]

    def predictions(self) -> list[dict[str, Any]]:
        """Rows of predictions.csv: all columns of the input, and `ADDED` (times in us)."""
        return [_line(self.table.columns, outcome) for outcome in self.outcomes]


def validate_collectives(path: Path, *, calibrate: str = "none", jobs: int = 1) -> dict[str, Any]:
    """The document of `dpsim validate` about the table of collectives at `path`.

    calibrate  none, smallest, or every:K
    jobs       processes that share the machines of the table

    Raises Refused where the table or `calibrate` is not right.
    """
    return validated(path, calibrate=calibrate, jobs=jobs).document


def predictions(path: Path, *, calibrate: str = "none", jobs: int = 1) -> list[dict[str, Any]]:
    """Rows of predictions.csv about the table at `path`; see `validate_collectives`."""
    return validated(path, calibrate=calibrate, jobs=jobs).predictions()


def validated(path: Path, *, calibrate: str = "none", jobs: int = 1) -> Validated:
    """Both at once: the table is read and predicted only once."""
    if jobs < 1:
        raise Refused(f"--jobs: {jobs} is not at least 1")
    curves.spacing(calibrate)  # refuses a wrong mode before anything is read
    table = read_collectives(path)
    known = answers([Question.of(row) for row in table.rows], jobs)
    found = tuple(_outcomes(table.rows, known, calibrate))
    return Validated(table, found, _document(table, found, known, calibrate))


# -- row by row -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Own:
    """What the calibrated rows of one curve say about its others."""

    points: tuple[Point, ...]
    curve: Through


def _outcomes(rows: Sequence[Row], known: Answers, mode: str) -> list[Outcome]:
    chosen = curves.calibrated(rows, mode)
    own = _own(rows, known, chosen)
    widths = _widths(own, rows, mode)
    return [
        _outcome(row, known[Question.of(row)], own.get(_place(row)), widths, place in chosen)
        for place, row in enumerate(rows)
    ]


def _place(row: Row) -> tuple[Curve, bool]:
    """In place or not, a collective has a curve of its own."""
    return curves.curve_of(row), row.in_place


def _own(
    rows: Sequence[Row], known: Answers, chosen: frozenset[int]
) -> dict[tuple[Curve, bool], _Own]:
    points: dict[tuple[Curve, bool], list[Point]] = {}
    for place in sorted(chosen):
        row = rows[place]
        answer = known[Question.of(row)]
        if row.size > 0:
            point = Point(float(row.size), row.measured, _parts(answer))
            points.setdefault(_place(row), []).append(point)
    return {at: _Own(tuple(found), curves.through(found)) for at, found in points.items()}


def _parts(answer: Answer | str) -> tuple[float, float] | None:
    return (answer.latency, answer.transfer) if isinstance(answer, Answer) else None


def _widths(
    own: Mapping[tuple[Curve, bool], _Own], rows: Sequence[Row], mode: str
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
            band = intervals.band_of(size)
            left.append(intervals.Residual(at[0][0], fabrics[at], band, log / 2**0.5))
    return intervals.Widths.of(left)


def _outcome(
    row: Row,
    answer: Answer | str,
    own: _Own | None,
    widths: intervals.Widths,
    used: bool,
) -> Outcome:
    """What came of `row`; a row that shows a fault is predicted all the same, and not scored."""
    reason = "marked pathological in the table" if row.excluded else ""
    status = "excluded" if row.excluded else "calibrated" if used else "predicted"
    try:
        seconds, note = _predicted(row, answer, own)
    except Refused as refusal:
        why = f"{reason}; {refusal.message}" if reason else refusal.message
        return Outcome(row, status if row.excluded or used else "refused", why)
    kind = answer.kind if isinstance(answer, Answer) else intervals.ANY
    around = widths.around(row.fabric, row.size) if own else None
    low, high = around or intervals.interval(row.operation, kind, row.size)
    baselines = {}
    if isinstance(answer, Answer):
        baselines = {"alpha_beta": answer.alpha_beta}
        if answer.bare is not None:
            baselines["nccl_bare"] = answer.bare
    if own is not None and len({p.size for p in own.points}) > 1:
        baselines["log_log"] = curves.loglog(own.points, row.size)
    return Outcome(
        row=row,
        status=status,
        reason="; ".join(text for text in (reason, note) if text),
        predicted=seconds,
        low=seconds * low,
        high=seconds * high,
        bottleneck=answer.bottleneck if isinstance(answer, Answer) else "",
        baselines=baselines,
    )


def _predicted(row: Row, answer: Answer | str, own: _Own | None) -> tuple[float, str]:
    """Seconds, and what there is to say about them.  Refused where nobody models the row."""
    if row.size > 0 and own is not None:
        note = f"from its series' own sizes alone: {answer}" if isinstance(answer, str) else ""
        try:
            return own.curve.seconds(float(row.size), _parts(answer)), note
        except Refused:
            pass  # a single size and no model: the model's own reason says more
    if isinstance(answer, str):
        raise Refused(answer)
    return answer.seconds, ""


# -- the document ---------------------------------------------------------------------------------


def _document(
    table: CollectiveTable, outcomes: Sequence[Outcome], known: Answers, mode: str
) -> dict[str, Any]:
    excluded = [o for o in outcomes if o.status == "excluded" and o.predicted is not None]
    beyond = sum(not o.inside for o in excluded)
    return {
        "schema_version": SCHEMA_VERSION,
        "dpsim_version": __version__,
        "kind": "collectives",
        "table": table.name,
        "calibrate": mode,
        "rows": len(outcomes),
        "series": len({o.row.series for o in outcomes}),
        "status": dict(sorted(Counter(o.status for o in outcomes).items())),
        "coverage_wanted": intervals.COVERAGE,
        "overall": summary(outcomes),
        "figures": figures(outcomes),
        "by_operation": by(outcomes, lambda o: o.row.operation),
        "by_half": by(outcomes, half),
        "excluded": {"predicted": len(excluded), "outside_interval": beyond},
        "assumed": _assumed(outcomes, known),
        "warnings": list(table.warnings),
    }


def _assumed(outcomes: Sequence[Outcome], known: Answers) -> dict[str, int]:
    """What had to be assumed about machines, and for how many rows."""
    found: Counter[str] = Counter()
    for outcome in outcomes:
        answer = known[Question.of(outcome.row)]
        if isinstance(answer, Answer):
            found.update(answer.notes)
    return dict(found.most_common())


def _line(columns: Sequence[str], outcome: Outcome) -> dict[str, Any]:
    row = outcome.row
    return {
        **dict(zip(columns, row.cells, strict=True)),
        "measured": _us(row.measured),
        "predicted": _us(outcome.predicted),
        "low": _us(outcome.low),
        "high": _us(outcome.high),
        "unit": "us",
        "status": outcome.status,
        "reason": outcome.reason,
        "bottleneck": outcome.bottleneck,
    }


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{seconds * 1e6:.{_DIGITS}g}")
