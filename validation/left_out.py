"""Judge predictions and intervals on sources and machines left out, and learn their widths.

    python validation/left_out.py predict TABLE [TABLE …] -o ROWS [--every K] [--jobs N]
    python validation/left_out.py judge ROWS [ROWS …]
    python validation/left_out.py learn ROWS [ROWS …]

predict  plays every row of tables of training runs or of collectives once, calibrated and not, and
         keeps what is predicted and known of it, one JSON document a line (minutes)
judge    prints errors beside linear scaling's, refused rows charged too, and the intervals' scores
         beside those of the best constant interval, each group of rows left out once (seconds)
learn    does so, and writes the widths to dpsim/core/fitted/training.yaml or collective_error.yaml

Groups are sources of training runs and machines of collectives.  A shared cluster whose rates fall
without a reason (`SHARED`) says nothing of uncalibrated widths.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import _fit_intervals
import _left_out_rows
import numpy as np
from _fit_intervals import Causes, Learned

from dpsim.core.arrays import Array
from dpsim.core.constants import Constant, save, shipped

SHARED = ("PLAYBOOK",)
HEADS = {
    "training": "What measured training runs alone can tell; written by validation/fit_training.py "
    "and\nvalidation/left_out.py, never by hand.",
    "collective_error": "How far single collectives lie from their predictions; written by\n"
    "python validation/left_out.py learn, never by hand.",
}
Row = Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("predict", "judge", "learn"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--every", type=int, default=1, metavar="K", help="every K-th series")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    chosen = parser.parse_args(arguments)
    if chosen.what == "predict":
        if chosen.out is None:
            parser.error("predict needs -o, where the rows go")
        _left_out_rows.save(
            chosen.out, _left_out_rows.rows_of(chosen.files, chosen.every, chosen.jobs)
        )
        return 0
    rows = _left_out_rows.load(chosen.files)
    names = ", ".join(sorted({row["table"] for row in rows}))
    if any(row["kind"] == "collective" for row in rows):
        _collectives(rows, names, chosen.what == "learn")
    if any(row["kind"] != "collective" for row in rows):
        _training(rows, names, chosen.what == "learn")
    return 0


# -- training runs --------------------------------------------------------------------------------


def _training(rows: Sequence[Row], names: str, write: bool) -> None:
    _errors([row for row in rows if row["kind"] == "calibrated"])
    made = {}
    levels = list(_left_out_rows.of_kind(rows, "uncalibrated"))
    levels = [row for row in levels if row["source"] not in SHARED]
    runs = list(_left_out_rows.of_kind(rows, "calibrated"))
    if runs:
        causes = _fit_intervals.calibrated(runs)
        found = _judged("calibrated", runs, causes, "source")
        made |= _constants(causes, found, runs, names)
    if levels:
        sources = _fit_intervals.sources_of(levels)
        causes = _fit_intervals.uncalibrated(levels, sources)
        found = _judged("uncalibrated", levels, causes, "source")
        made |= _by_kind(_constants(causes, found, levels, names), sources)
    if write:
        kept = {k: c for k, c in shipped("training").items() if not k.startswith("interval.")}
        own = {f"interval.{name}": constant for name, constant in made.items()}
        save("training", HEADS["training"], kept | own)


def _by_kind(made: Mapping[str, Constant], sources: Mapping[str, set[str]]) -> dict[str, Constant]:
    """The uncalibrated widths under the names of all kinds that enough sources tell of."""
    found = {}
    for end in ("fast", "slow"):
        found[f"compute.{end}"] = made[f"few.{end}"]
        for kind in sorted(sources):
            if len(sources[kind]) >= _fit_intervals.KNOWN:
                found[f"compute.{kind}.{end}"] = made[f"known.{end}"]
    return found


def _errors(rows: Sequence[Row]) -> None:
    """Errors of calibrated predictions, beside linear scaling's on the same rows."""
    for source in [*sorted({row["source"] for row in rows}), "all"]:
        own = [row for row in rows if source in (row["source"], "all")]
        told = [row for row in own if "log" in row]
        if not told:
            print(f"{source:10s} none of {len(own)} predicted")
            continue
        missed = np.array([abs(math.expm1(-row["log"])) for row in told])
        linear = np.array([abs(math.expm1(-row["linear"])) for row in told])
        every = [*missed, *(row["charged"] for row in own if "log" not in row)]
        print(
            f"{source:10s} n {len(told):4d} of {len(own):4d}: median {np.median(missed):6.1%}, "
            f"90th {np.quantile(missed, 0.9):6.1%}; linear {np.median(linear):6.1%}, "
            f"{np.quantile(linear, 0.9):6.1%}; refused charged {np.median(every):6.1%}"
        )
    told = [row for row in rows if "log" in row]
    medians = [
        np.median([abs(math.expm1(-row["log"])) for row in told if row["source"] == source])
        for source in sorted({row["source"] for row in told})
    ]
    print(f"mean over {len(medians)} sources of their medians: {np.mean(medians):.1%}")


# -- collectives ----------------------------------------------------------------------------------


def _collectives(rows: Sequence[Row], names: str, write: bool) -> None:
    told = list(_left_out_rows.of_kind(rows, "collective"))
    causes = _fit_intervals.collectives(told)
    found = _judged("collectives", told, causes, "machine")
    if write:
        save("collective_error", HEADS["collective_error"], _constants(causes, found, told, names))


# -- intervals ------------------------------------------------------------------------------------


def _judged(what: str, rows: Sequence[Row], causes: Causes, group: str) -> Learned:
    """What is learned, and its figures on groups left out, table by table."""
    logs = np.array([row["log"] for row in rows])
    groups = np.array([row[group] for row in rows])
    found = _fit_intervals.learned(causes, logs, groups)
    plain = _fit_intervals.constant(logs, groups)
    tables = np.array([row["table"] for row in rows])
    for table in [*np.unique(tables), "all"]:
        own = np.full(len(rows), True) if table == "all" else tables == table
        for name, ends in ((table, (found.below, found.above)), ("best constant", plain)):
            print(f"{what}, {name}: {_figures(logs[own], ends[0][own], ends[1][own], groups[own])}")
    print(f"{what}: widened by {found.factor:.3f} to hold groups left out")
    return found


def _figures(logs: Array, below: Array, above: Array, groups: Array) -> str:
    """Rows count alike; in brackets the mean over groups."""
    inside = (-logs <= below) & (logs <= above)
    score = _fit_intervals.scores(logs, below, above)
    half = np.median((np.exp(above) - np.exp(-below)) / 2)
    each = np.mean([score[groups == group].mean() for group in np.unique(groups)])
    held = np.mean([inside[groups == group].mean() for group in np.unique(groups)])
    return (
        f"n {len(logs):,}, score {score.mean():.3f} ({each:.3f}), {inside.mean():.1%} "
        f"({held:.1%}) inside, +- {half:.0%}"
    )


def _constants(
    causes: Causes, found: Learned, rows: Sequence[Row], names: str
) -> dict[str, Constant]:
    group = "machine" if rows[0]["kind"] == "collective" else "source"
    count = len({row[group] for row in rows})
    told = (
        f"{len(rows)} predictions of {names}, of {count} {group}s, with the least interval score; "
        f"widened by {found.factor:.3f} to hold 90 % of {group}s left out; the error is the "
        f"jackknife's over {group}s"
    )
    return _fit_intervals.constants(causes, found, told, len(rows))


if __name__ == "__main__":
    sys.exit(main())
