"""Judge predictions and intervals on sources and machines left out, and learn their widths.

    python validation/left_out.py predict TABLE [TABLE …] -o ROWS [--every K] [--jobs N]
    python validation/left_out.py judge ROWS [ROWS …]
    python validation/left_out.py learn ROWS [ROWS …]

predict  plays every row of tables of training runs or of collectives once, calibrated and not, and
         keeps what is predicted and known of it, one JSON document a line (minutes)
judge    prints errors beside linear scaling's, refused rows charged too, and the intervals' scores
         beside those of the best constant interval, each group of rows left out once (seconds)
learn    does so, and writes the widths to dpsim/core/fitted/training.yaml or collective_error.yaml,
         and the figures to left_out.json, which accuracy.md shows

Groups are sources of training runs and machines of collectives.  A shared cluster whose rates fall
without a reason (`SHARED`, by its name: its worst rows alone are marked in the table) tells of its
kind of device, and nothing of uncalibrated widths; A25 says what they would be with it.  Nor do
other makers' devices, too few of whose runs are known, and models with experts.  Rows that were not
measured on the link that their table names (`ELSEWHERE`) tell nothing, and figures with them stand
beside.
"""

from __future__ import annotations

import argparse
import json
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
#: series whose source lists the same rates, to 2 %, for a link of ten times the rate of another
#: one: between nodes they ran on the slower.  These four of all pairs of its table, some of which
#: a table of rows may lack (HKBU-HPML/ddl-benchmarks 30de09bc, results/2020-05-29/README.md: 10GbE
#: and 100GbE, samples/s on 16 GPUs: BERT-Large 59.2 and 59.2, 61.3 and 61.6; ResNet-50 2,361 and
#: 2,353, 3,812 and 3,811; beside ByteScheduler-PS, 61.2 and 151.5, 3,816 and 3,996)
ELSEWHERE = tuple(
    f"DDL|{model}|100GbE with TCP/IP|{method}"
    for model in ("BERT-Large", "ResNet-50")
    for method in ("BSP-PS", "WFBP-PS")
)
FIGURES = Path(__file__).resolve().parent / "left_out.json"
HEADS = {
    "training": _fit_intervals.HEAD,
    "collective_error": "How far single collectives lie from their predictions; written by\n"
    "python validation/left_out.py learn, never by hand.",
}
#: how near, as logarithms, two widths of runs in turn are alike, and how many turns that may take:
#: a row at the edge of its interval can move them to and fro by less
_SETTLED, _MOST_TIMES = 1e-3, 20
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
    rows, write = _left_out_rows.load(chosen.files), chosen.what == "learn"
    collective = [row for row in rows if row["kind"] == "collective"]
    training = [row for row in rows if row["kind"] != "collective"]
    known = json.loads(FIGURES.read_text("utf-8")) if FIGURES.is_file() else {}
    figures: dict[str, Any] = {}
    sound = [row for row in training if not _elsewhere(row)]
    for own, learn in ((collective, _collectives), (sound, _training)):
        if own:
            figures |= learn(own, ", ".join(sorted({row["table"] for row in own})), write)
    if len(sound) < len(training):
        figures["elsewhere"] = _with_elsewhere(training)
    _show(figures)
    if write:
        FIGURES.write_text(json.dumps(known | figures, indent=1) + "\n", encoding="utf-8")
    return 0


# -- training runs --------------------------------------------------------------------------------


def _training(rows: Sequence[Row], names: str, write: bool) -> dict[str, Any]:
    calibrated = [row for row in rows if row["kind"] == "calibrated"]
    figures: dict[str, Any] = {"errors": _errors(calibrated), "tables": _of_tables(calibrated)}
    made = {}
    every = list(_left_out_rows.of_kind(rows, "uncalibrated"))
    levels = [r for r in every if _tells_of_levels(r)]
    runs, ends = list(_left_out_rows.of_kind(rows, "calibrated")), dict[str, float]()
    if levels:
        causes = _fit_intervals.uncalibrated(levels)
        found, figures["uncalibrated"] = _judged(levels, causes, "source")
        told = _constants(causes, found, levels, names)
        made |= {f"compute.{name}": constant for name, constant in told.items()}
        ends = _fast_ends(every, levels, found)
    if runs:
        causes = _fit_intervals.calibrated(runs)
        found, figures["calibrated"] = _settled(runs, causes, ends)
        made |= _constants(causes, found, runs, names)
    if write:
        kept = {k: c for k, c in shipped("training").items() if not k.startswith("interval.")}
        own = {f"interval.{name}": constant for name, constant in made.items()}
        save("training", HEADS["training"], kept | own)
    return figures


def _tells_of_levels(row: Row) -> bool:
    """Whether uncalibrated widths are learned from it; models with experts have causes of their
    own, which other steps tell (`experts.py`)."""
    return row["source"] not in SHARED and row["told"] and not row["experts"]


def _elsewhere(row: Row) -> bool:
    return row["series"] in ELSEWHERE and row.get("nodes", 2) > 1


def _with_elsewhere(rows: Sequence[Row]) -> dict[str, Any]:
    """What all figures would be with the rows of links other than their table says."""
    found, names = _training(rows, "", False), {row["row"] for row in rows if _elsewhere(row)}
    return {"rows": len(names), **found, "errors": found["errors"]["all"]}


def _errors(rows: Sequence[Row]) -> dict[str, Any]:
    """Errors of calibrated predictions by source, beside linear scaling's on the same rows."""
    sources = sorted({row["source"] for row in rows})
    found = {name: _missed([row for row in rows if row["source"] == name]) for name in sources}
    medians = [figures["median"] for figures in found.values() if figures["n"]]
    return {**found, "all": {**_missed(rows), "mean_over_sources": float(np.mean(medians))}}


def _of_tables(rows: Sequence[Row]) -> dict[str, Any]:
    """The same of all sources of each table; nothing where there is one table."""
    names = sorted({row["table"] for row in rows})
    own = {name: [row for row in rows if row["table"] == name] for name in names}
    return {name: _errors(own[name])["all"] for name in names if len(names) > 1}


def _missed(rows: Sequence[Row]) -> dict[str, Any]:
    """|predicted / measured - 1|: of rates, as tables mostly have them."""
    told = [row for row in rows if "log" in row]
    found: dict[str, Any] = {"n": len(told), "rows": len(rows)}
    if not told:
        return found
    own = np.array([abs(math.expm1(row["log"])) for row in told])
    linear = np.array([abs(math.expm1(row["linear"])) for row in told])
    every = [*own, *(row["charged"] for row in rows if "log" not in row)]
    return found | {
        "median": float(np.median(own)),
        "p90": float(np.quantile(own, 0.9)),
        "linear_median": float(np.median(linear)),
        "linear_p90": float(np.quantile(linear, 0.9)),
        "charged_median": float(np.median(every)),
        "charged_mean": float(np.mean(every)),
    }


# -- collectives ----------------------------------------------------------------------------------


def _collectives(rows: Sequence[Row], names: str, write: bool) -> dict[str, Any]:
    told = list(_left_out_rows.of_kind(rows, "collective"))
    causes = _fit_intervals.collectives(told)
    found, figures = _judged(told, causes, "machine")
    if write:
        made = _constants(causes, found, told, names)
        for kind, machines in sorted(_fit_intervals.machines_of(told).items()):
            n = sum(row["fabric"] == kind for row in told)
            meaning, where = f"machines measured over {kind}", f"{n} predictions of {names}"
            made[f"machines.{kind}"] = Constant(
                value=len(machines), error=0.0, unit="1", meaning=meaning, fitted_on=where, n=n
            )
        save("collective_error", HEADS["collective_error"], made)
    return {"collectives": figures}


# -- intervals ------------------------------------------------------------------------------------


def _fast_ends(rows: Sequence[Row], levels: Sequence[Row], found: Learned) -> dict[str, float]:
    """ln(fast end / measured) of uncalibrated predictions by row: of `levels` as learned without
    their sources, of others, which were never learned from, by the widths of all."""
    ends = dict(zip((r["row"] for r in levels), found.below, strict=True))
    others = [r for r in rows if r["row"] not in ends]
    if others:
        causes = _fit_intervals.uncalibrated(others)
        below = _fit_intervals.half_widths(causes, found.widths)[0] * found.factor
        ends |= dict(zip((r["row"] for r in others), below, strict=True))
    return {r["row"]: -r["log"] - float(ends[r["row"]]) for r in rows}


def _settled(
    rows: Sequence[Row], causes: Causes, ends: Mapping[str, float]
) -> tuple[Learned, dict[str, Any]]:
    """What is learned of calibrated predictions, drawn in at the fast end: `least` is the width
    there that is learned with it."""
    least, place = 0.0, list(causes).index("run")
    for _ in range(_MOST_TIMES):
        found, figures = _judged(rows, causes, "source", _no_faster(rows, ends, least))
        told = float(found.widths[0][place]) * found.factor
        if not ends or abs(told - least) < _SETTLED:
            return found, figures
        least = (least + told) / 2 if least else told  # an end of an interval may swing
    raise ValueError(f"the width of runs has not settled; it was {least:.6g} last")


def _no_faster(rows: Sequence[Row], ends: Mapping[str, float], least: float) -> Array | None:
    """How far calibrated intervals reach below at the most, as logarithms: to the fast `ends` of
    uncalibrated ones or as far as runs differ (`least`), as `dpsim.predict.uncertainty` draws them
    in; None: there are no such ends."""
    if not ends:
        return None
    found = np.array([-(ends.get(row["row"], -math.inf) + row["log"]) for row in rows])
    free = np.array([row.get("stand_in", False) for row in rows])
    return np.where(free, math.inf, np.maximum(found, least))


def _judged(
    rows: Sequence[Row], causes: Causes, group: str, most: Array | None = None
) -> tuple[Learned, dict[str, Any]]:
    """What is learned, and its figures on groups left out, table by table; `most`: how far
    intervals reach below."""
    logs = np.array([row["log"] for row in rows])
    groups = np.array([row[group] for row in rows])
    found = _fit_intervals.learned(causes, logs, groups, most)
    plain = _fit_intervals.constant(logs, groups)
    tables = np.array([row["table"] for row in rows])
    figures = {}
    for table in np.unique(tables):
        own = tables == table
        parts = (found.below, found.above), plain
        figures[str(table)] = {
            name: _figures(logs[own], ends[0][own], ends[1][own], groups[own])
            for name, ends in zip(("own", "constant"), parts, strict=True)
        }
    return found, figures


def _figures(logs: Array, below: Array, above: Array, groups: Array) -> dict[str, Any]:
    """Rows count alike, but in what is called a mean over groups."""
    inside = (-logs <= below) & (logs <= above)
    score = _fit_intervals.scores(logs, below, above)
    names = np.unique(groups)
    return {
        "n": len(logs),
        "groups": len(names),
        "score": float(score.mean()),
        "score_over_groups": float(np.mean([score[groups == name].mean() for name in names])),
        "coverage": float(inside.mean()),
        "coverage_over_groups": float(np.mean([inside[groups == name].mean() for name in names])),
        "half_width": float(np.median((np.exp(above) - np.exp(-below)) / 2)),
    }


def _show(figures: Mapping[str, Any]) -> None:
    for what, found in figures.items():
        if what == "elsewhere":
            continue
        for name, own in found.items():
            lines = [_numbers(own)] if what in ("errors", "tables") else _lines(own)
            print(what, name, *lines, sep="\n    ")


def _lines(own: Mapping[str, Any]) -> list[str]:
    return [f"{name}: {_numbers(figures)}" for name, figures in own.items()]


def _numbers(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in figures.items())


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
