"""Figures of the published tables: what `validation/accuracy.py` writes down and compares.

All errors are |predicted / measured - 1|.  A series belongs to the fit half if the CRC-32 of its
name is even, else to the held-out half.  Constants are fitted on the fit half, but those of RoCE
and EFA, and the widths of intervals, on all series; collectives over RoCE and EFA count as fitted.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from _accuracy_gate import KINDS, Now

from dpsim.accuracy import validated
from dpsim.accuracy.collectives.figures import CollectiveOutcome
from dpsim.accuracy.collectives.figures import summary as collective_summary
from dpsim.accuracy.collectives.validate import ValidatedCollectives
from dpsim.accuracy.scores import Scored, fitted_on
from dpsim.accuracy.scores import summary as training_summary
from dpsim.accuracy.training.table import series_of
from dpsim.accuracy.training.validate import ValidatedTraining
from dpsim.predict.collective_error import band_of

TABLES = Path(__file__).resolve().parent / "published"
#: the half of a series by whether constants may be fitted on it
HALVES = {True: "fit", False: "held_out"}
_KEPT = (
    "n", "median_error", "p90_error", "signed_bias", "skill", "coverage", "median_half_width",
    "baselines",
)  # fmt: skip

Figures = dict[str, Any]
Row = TypeVar("Row")


def fresh(jobs: int) -> Now:
    """Both tables predicted and scored, by `jobs` processes."""
    import numpy

    import dpsim

    figures: dict[str, Figures] = {}
    predicted = {}
    for kind in KINDS:
        found = validated(TABLES / f"{kind}.csv", jobs=jobs)
        if isinstance(found, ValidatedTraining):
            figures[kind], predicted[kind] = _training(found), _training_rows(found)
        else:
            figures[kind], predicted[kind] = _collectives(found), _collective_rows(found)
    return Now(
        figures,
        predicted,
        {kind: digest(TABLES / f"{kind}.csv") for kind in KINDS},
        {"dpsim": dpsim.__version__, "numpy": numpy.__version__},
    )


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# -- training runs --------------------------------------------------------------------------------


def _training(found: ValidatedTraining) -> Figures:
    rows = found.table.rows
    scored = [
        (series_of(rows[o.number]), o.scored)
        for o in found.outcomes
        if o.scored is not None and o.anchored
    ]
    across = found.document["across_nodes"]
    return {
        "rows": len(rows),
        "status": _counted(o.status for o in found.outcomes),
        "all": _halves(scored, _training_figures),
        "sources": _groups(scored, lambda row: row.source, _training_figures),
        "regimes": _groups(scored, lambda row: row.regime, _training_figures),
        "across_nodes": {
            "n": across["n"],
            "sources": len(across["sources"]),
            "mean_over_sources_of_median_error": across["mean_over_sources_of_median_error"],
            "skill": across["skill"],
        },
        "refusals": _counted(plain(o.reason) for o in found.outcomes if o.status == "refused"),
    }


def _training_figures(rows: Sequence[Scored]) -> Figures:
    return _kept(training_summary(rows))


def _training_rows(found: ValidatedTraining) -> list[str]:
    rows = found.table.rows
    return names(
        rows[o.number].text("row_id") or series_of(rows[o.number])
        for o in found.outcomes
        if o.status == "predicted"
    )


# -- collectives ----------------------------------------------------------------------------------


def _collectives(found: ValidatedCollectives) -> Figures:
    lines = found.predictions()
    scored = [(o.row.series, o) for o in found.outcomes if o.scored]
    place = found.table.columns.index("source_repo")
    excluded = found.document["excluded"]
    return {
        "rows": len(lines),
        "status": _counted(line["status"] for line in lines),
        "all": _halves(scored, _collective_figures),
        "sources": _groups(scored, lambda o: o.row.cells[place], _collective_figures),
        "regimes": _groups(scored, _collective_regime, _collective_figures),
        "faulty": {"predicted": excluded["predicted"], "outside": excluded["outside_interval"]},
        "refusals": _counted(
            plain(line["reason"]) for line in lines if line["status"] == "refused"
        ),
    }


def _collective_regime(outcome: CollectiveOutcome) -> str:
    return f"{outcome.row.fabric} | {band_of(outcome.row.size)}"


def _collective_figures(outcomes: Sequence[CollectiveOutcome]) -> Figures:
    found = _kept(collective_summary(outcomes))
    if "signed_bias" in found:  # a logarithm there; here a share, as of training runs
        found["signed_bias"] = math.expm1(found["signed_bias"])
    return found


def _collective_rows(found: ValidatedCollectives) -> list[str]:
    return names(
        f"{o.row.series} {o.row.size}{' in place' if o.row.in_place else ''}"
        for o in found.outcomes
        if o.status == "predicted"
    )


# -- both -----------------------------------------------------------------------------------------


def names(found: Iterable[str]) -> list[str]:
    """`found` made unique: the second of a name is called "name (2)"."""
    seen: Counter[str] = Counter()
    unique = []
    for name in found:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return unique


def plain(reason: str) -> str:
    """A refusal without what is particular to one row, so that equal ones can be counted."""
    text = reason.removeprefix("its calibration row: ")
    text = re.sub(r"need \d+% of .*", "need more than the device's peak", text)
    return re.sub(r" \(.*\)$", "", text)


def _kept(figures: Figures) -> Figures:
    return {name: figures[name] for name in _KEPT if figures.get(name) is not None}


def _counted(found: Iterable[str]) -> dict[str, int]:
    """How often each, the most frequent first; equally frequent ones by name."""
    return dict(sorted(Counter(found).items(), key=lambda item: (-item[1], item[0])))


def _halves(
    rows: Sequence[tuple[str, Row]], summary: Callable[[Sequence[Row]], Figures]
) -> Figures:
    """The figures of all rows, and of both halves."""
    halves = {
        name: summary([row for series, row in rows if fitted_on(series) is fit])
        for fit, name in HALVES.items()
    }
    return {"all": summary([row for _, row in rows]), **halves}


def _groups(
    rows: Sequence[tuple[str, Row]],
    key: Callable[[Row], str],
    summary: Callable[[Sequence[Row]], Figures],
) -> dict[str, Figures]:
    groups: dict[str, list[tuple[str, Row]]] = {}
    for series, row in rows:
        groups.setdefault(key(row), []).append((series, row))
    return {name: _halves(groups[name], summary) for name in sorted(groups)}
